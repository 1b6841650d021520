/* What the planner's tests share: random demand, and a check of plans that
 * shares no code with the planner. */
#ifndef LRMOE_TESTS_PLANNER_CHECKS_H
#define LRMOE_TESTS_PLANNER_CHECKS_H

#include "lrmoe.h"

/* Deterministic numbers for the random tests (a Weyl sequence, mixed). */
struct testRandom {
  uint64_t state;
};
uint64_t randomNext(struct testRandom *random);
int64_t randomBelow(struct testRandom *random, int64_t bound);

/* Policy lrmoe, all else by default. */
lrmoePlannerConfig_t replicated(int32_t numExperts, int32_t slots);

/* With a model: H 8, F 8, GELU, b 2.  A pair takes 32 bytes in forward, 32 are
 * saved, 80 in backward and 32 more of savedState none. */
lrmoePlannerConfig_t smallModel(int32_t numExperts);

/* A planner of numRanks ranks. */
lrmoePlanner_t makePlanner(int numRanks, const lrmoePlannerConfig_t *config);

/* A plan that must be made, and what it shows. */
lrmoePlan_t makePlan(lrmoePlanner_t planner, const int64_t *demand);
lrmoePlanView_t viewOf(lrmoePlan_t plan);

/* demand [G, E] with cold experts and hot ones; free() it. */
int64_t *makeDemand(struct testRandom *random, int numRanks, int numExperts);

/* Asserts every invariant of design 3 and that sums, peaks and quotas are
 * what demand and config say; gives the view. */
lrmoePlanView_t checkPlan(lrmoePlan_t plan, const int64_t *demand, int numRanks,
                          const lrmoePlannerConfig_t *config);

/* Asserts that two plans agree in everything that a view shows. */
void checkSamePlan(lrmoePlan_t left, lrmoePlan_t right);

#endif
