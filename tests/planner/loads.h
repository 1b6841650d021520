/* Expert loads as routers make them, for tests of placement.  Floating point is
 * fine here: the planner sees the counts only. */
#ifndef LRMOE_TESTS_PLANNER_LOADS_H
#define LRMOE_TESTS_PLANNER_LOADS_H

#include "planner/checks.h"

enum loadShape {
  loadZipf,      /* 1 / i^skew, in random order */
  loadLognormal, /* exp(skew * gauss) */
  loadHot,       /* one expert has nearly all */
  loadSparse,    /* half of the experts have none */
  loadNone,
  numLoadShapes
};

struct loadSpec {
  enum loadShape shape;
  double skew;
  int64_t pairsPerRank;
};

/* demand [G, E], about pairsPerRank * numRanks pairs; free() it. */
int64_t *makeLoad(struct testRandom *random, struct loadSpec spec, int numRanks,
                  int numExperts);

#endif
