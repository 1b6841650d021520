/* A file with the backward of a layer, as its framework sees it: between
 * calibrate_test.c, which lets the library run it, and user_hint.c.
 *
 *   head | demand [G, E] | quotas [E] | for each rank: phi [N] | kept [N] |
 *   rows [N], by expert
 *
 * N is the sum of the rank's demand. */
#ifndef LRMOE_TESTS_PLUGIN_HINT_DATA_H
#define LRMOE_TESTS_PLUGIN_HINT_DATA_H

#include <stdint.h>

struct hintDataHead {
  int64_t numRanks;
  int64_t numExperts;
  int64_t rowBytes;
  int64_t type; /* NCCL's */
};

#endif
