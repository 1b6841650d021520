/* Plans as no planner would make them: random replicas, random shares. */
#ifndef LRMOE_TESTS_RANDOM_PLAN_H
#define LRMOE_TESTS_RANDOM_PLAN_H

#include "planner/planner.h"

/* A valid plan of demand for the planner's homes, slots and quotas, from the
 * seed: the same on every rank. */
lrmoeResult_t randomPlan(const struct lrmoePlanner *planner,
                         const int64_t *demand, int32_t numSlots, uint64_t seed,
                         struct lrmoePlan **plan);

#endif
