/* Rows of which every bit is zero: the only ones that may stay behind, since
 * -0.0 is another value than what the receiver would make up. */
#ifndef LRMOE_PLUGIN_PRELOAD_ZERO_H
#define LRMOE_PLUGIN_PRELOAD_ZERO_H

#include <stdint.h>
#include <string.h>

static inline int lrmoePreloadIsZero(const char *row, int64_t bytes) {
  static const int64_t block = 64;
  int64_t at = 0;
  for (; at + block <= bytes; at += block) {
    uint64_t words[8];
    memcpy(words, row + at, sizeof words);
    if (words[0] | words[1] | words[2] | words[3] | words[4] | words[5] |
        words[6] | words[7])
      return 0;
  }
  for (; at < bytes; at++)
    if (row[at]) return 0;
  return 1;
}

#endif
