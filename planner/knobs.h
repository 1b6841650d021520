/* Knobs of policy lrmoe: see knobs.c and previous.c. */
#ifndef LRMOE_PLANNER_KNOBS_H
#define LRMOE_PLANNER_KNOBS_H

#include "planner/outcome.h"

/* Takes replicas out of `instances`, an evaluated placement, that the config
 * does not allow or that are not worth their cost; they keep their place in
 * work, others may be overwritten. */
void lrmoeReplicasPrune(const struct lrmoePlanner *planner,
                        const struct lrmoeBounds *bounds,
                        struct lrmoeInstances *instances);

/* The previous plan, if any, is of the same homes and fits the slots. */
lrmoeResult_t lrmoePreviousCheck(const struct lrmoePlanner *planner,
                                 const struct lrmoePlan *previous);

/* balancedPpm: the previous plan's instances (none: pinned ones), evaluated,
 * and bounds, if their peaks are near enough to the mean; else NULL. */
const struct lrmoeInstances *
lrmoePreviousIsBalanced(const struct lrmoePlanner *planner,
                        const struct lrmoePlan *previous,
                        struct lrmoeBounds *bounds);

/* hysteresisPpm: the previous plan's instances, evaluated, if `found` is not
 * better by more; else `found`. */
const struct lrmoeInstances *lrmoePreviousIsClose(
    const struct lrmoePlanner *planner, const struct lrmoePlan *previous,
    const struct lrmoeBounds *bounds, struct lrmoeInstances *found);

#endif
