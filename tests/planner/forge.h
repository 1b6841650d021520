/* Saved plans with another content and a check sum that is right: what an
 * attacker, or a fuzzer, has to get past the check sum. */
#ifndef LRMOE_TESTS_PLANNER_FORGE_H
#define LRMOE_TESTS_PLANNER_FORGE_H

#include "base/hash.h"

#include <string.h>

/* As planner/save.c lays the header out. */
enum {
  forgeSumOffset = 8,
  forgeSummedOffset = 16,
  forgeBoundForwardOffset = 32,
  forgeBoundKeptOffset = 40,
  forgeHeaderBytes = 120
};

static inline void forgeSum(char *saved, size_t bytes) {
  if (bytes < forgeHeaderBytes) return;
  uint64_t magic, sum;
  memcpy(&magic, saved, sizeof magic);
  sum = lrmoeHash(magic, saved + forgeSummedOffset,
                  forgeHeaderBytes - forgeSummedOffset);
  sum = lrmoeHash(sum, saved + forgeHeaderBytes, bytes - forgeHeaderBytes);
  memcpy(saved + forgeSumOffset, &sum, sizeof sum);
}

#endif
