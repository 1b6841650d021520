/* One pass of exports to a target: see export.c. */
#ifndef LRMOE_PLANNER_EXPORT_H
#define LRMOE_PLANNER_EXPORT_H

#include "planner/work.h"

/* Fills work->trial with replicas that take load `weights` [E] off the ranks
 * above `target`; work->loads are the loads then.  Returns the highest of
 * them: at most target if the pass got there.  The target is at least the
 * mean, rounded up.  Seed 0 takes the best choice at each step, another seed
 * often one at random. */
int64_t lrmoeExport(struct lrmoeWork *work, const int64_t *weights,
                    int64_t target, uint64_t seed);

#endif
