/* What a hard capacity per expert does to a load, and what a layer then takes:
 * the arithmetic of expert parallelism.
 *
 * With T tokens, k slots a token, E experts and mu = T * k / E, a capacity
 * factor CF gives
 *   C           = CF * mu, rounded up: pairs that an expert takes
 *   drops       = sum of max(0, n[e] - C); drop rate = drops / (T * k)
 *   utilisation = pairs carried / (E * C): buffers are padded to C
 *   aux loss    = E * sum of f[e] * P[e], f = n / (T * k), P the shares of gate
 *                 mass; 1 when even.  Where P is not known, P = f
 *   T_comm      = 2 * (D - 1) / D * rows * H * bytes / W: dispatch and combine,
 *                 padded, of a device whose experts have `rows` = C each
 *   T_compute   = n * flops / P: the busiest device's n pairs that were kept
 *   T_layer     = T_comm + T_compute: nothing overlaps
 * The source text has one expert a device; with more of them a device's rows
 * and pairs are sums over its experts, which is the same where there is one. */
#ifndef LRMOE_TOOLS_PLAN_CAPACITY_H
#define LRMOE_TOOLS_PLAN_CAPACITY_H

#include <stdint.h>

struct planCapacityInput {
  const int64_t *counts;    /* [E] n */
  const double *importance; /* [E] P, or NULL */
  int32_t numExperts;
  int32_t numRanks;
  double factor; /* CF */
  double rowBytes;
  double pairFlops;      /* forward */
  double bytesPerSecond; /* of a device, W */
  double flopsPerSecond; /* realised, of a device */
};

struct planCapacity {
  int64_t capacity; /* C */
  int64_t drops;
  double dropRate;
  double utilisation;
  double auxLoss;
  double commUs;
  double computeUs;
};

void planCapacityMake(const struct planCapacityInput *input,
                      struct planCapacity *capacity);

#endif
