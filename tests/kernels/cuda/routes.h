/* What one rank's route costs on the device, from flags to the handoff, the
 * lists of rows and of d(alpha) (collectives/device_route.c). */
#ifndef LRMOE_TESTS_KERNELS_CUDA_ROUTES_H
#define LRMOE_TESTS_KERNELS_CUDA_ROUTES_H

#include "mirror.h"

struct routeShape {
  int64_t numLists; /* ranges of pairs, of the source and of the executor */
  int64_t numRanks;
  int64_t topk;
  int64_t keptOfTen;
  int64_t numTokens;
};

/* Runs the kernels, whose bytes are counted from here on. */
void routeRun(struct naiveRandom *random, const struct routeShape *shape);

#endif
