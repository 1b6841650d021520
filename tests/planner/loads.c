/* See loads.h. */
#include "planner/loads.h"

#include "support/suite.h"

#include <math.h>
#include <stdlib.h>

static double uniform(struct testRandom *random) {
  return (double)(randomNext(random) >> 11) * 0x1p-53;
}

static double gauss(struct testRandom *random) {
  double radius = sqrt(-2 * log(uniform(random) + 0x1p-60));
  return radius * cos(6.283185307179586 * uniform(random));
}

static double weight(struct testRandom *random, struct loadSpec spec, int e) {
  switch (spec.shape) {
  case loadZipf:
    return pow(e + 1, -spec.skew);
  case loadLognormal:
    return exp(spec.skew * gauss(random));
  case loadHot:
    return e ? 0.01 : 100;
  case loadSparse:
    return randomBelow(random, 2) ? uniform(random) : 0;
  default:
    return 0;
  }
}

static void shuffle(struct testRandom *random, double *values, int count) {
  for (int i = count - 1; i > 0; i--) {
    int j = (int)randomBelow(random, i + 1);
    double value = values[i];
    values[i] = values[j];
    values[j] = value;
  }
}

int64_t *makeLoad(struct testRandom *random, struct loadSpec spec, int numRanks,
                  int numExperts) {
  size_t experts = (size_t)numExperts;
  int64_t *demand = calloc((size_t)numRanks * experts, sizeof *demand);
  double *weights = calloc(experts, sizeof *weights), sum = 0;
  ck_assert(demand && weights);
  for (int e = 0; e < numExperts; e++)
    sum += weights[e] = weight(random, spec, e);
  shuffle(random, weights, numExperts);
  for (int e = 0; e < numExperts && sum > 0; e++) {
    double all = (double)spec.pairsPerRank * numRanks;
    int64_t pairs = (int64_t)(weights[e] / sum * all + 0.5);
    for (int s = 0; s < numRanks; s++)
      demand[(size_t)s * experts + (size_t)e] =
          pairs / numRanks + (s < pairs % numRanks);
  }
  free(weights);
  return demand;
}
