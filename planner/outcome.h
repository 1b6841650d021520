/* Placements compared: see outcome.c. */
#ifndef LRMOE_PLANNER_OUTCOME_H
#define LRMOE_PLANNER_OUTCOME_H

#include "planner/planner.h"

/* What two placements are compared by, in this order. */
struct lrmoeOutcome {
  int64_t over; /* forward pairs that do not fit the fullest rank */
  int64_t peakKept;
  int64_t peakForward;
  int64_t moves;
  int64_t instances;
};

/* Proven lower bounds of the peaks. */
struct lrmoeBounds {
  int64_t kept;
  int64_t forward;
};

int lrmoeOutcomeIsBetter(const struct lrmoeOutcome *a,
                         const struct lrmoeOutcome *b);

/* The highest load of a rank. */
int64_t lrmoePeakOf(struct lrmoeWork *work,
                    const struct lrmoeInstances *instances,
                    const int64_t *shares);

/* K = n throughout. */
int lrmoeKeepsAll(const struct lrmoeWork *work);

/* Both splits on work->best, which holds a split of `weights`: in instances. */
struct lrmoeOutcome lrmoePlacementEvaluate(const struct lrmoePlanner *planner,
                                           const int64_t *weights,
                                           const struct lrmoeBounds *bounds,
                                           struct lrmoeInstances *instances);

#endif
