/* What no placement can beat: see bound.c. */
#ifndef LRMOE_PLANNER_BOUND_H
#define LRMOE_PLANNER_BOUND_H

#include "planner/work.h"

/* The mean load of a rank, rounded up. */
int64_t lrmoeMeanBound(const struct lrmoeWork *work, const int64_t *weights);

/* A proven lower bound of the highest load, at least the mean: see bound.c.
 * Overwrites loads, deficits, cursors and sorted of work. */
int64_t lrmoeSlotBound(struct lrmoeWork *work, const int64_t *weights);

#endif
