/* The best split of pairs over given instances: see split.c. */
#ifndef LRMOE_PLANNER_SPLIT_H
#define LRMOE_PLANNER_SPLIT_H

#include "planner/work.h"

/* Changes `shares` [instances->count], whose sums per expert stay as they
 * are, until the highest load of a rank is the least that these instances
 * allow, and returns it; work->loads are the loads.  `bound` is a proven lower
 * bound of it. */
int64_t lrmoeSplit(struct lrmoeWork *work,
                   const struct lrmoeInstances *instances, int64_t *shares,
                   int64_t bound);

/* Scales shares of totals `from` [E] to totals `to` [E], rounding towards the
 * homes: where a split of `to` begins. */
void lrmoeSharesScale(const struct lrmoeWork *work,
                      const struct lrmoeInstances *instances,
                      const int64_t *from, const int64_t *to,
                      const int64_t *fromShares, int64_t *toShares);

#endif
