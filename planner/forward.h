/* Forward pairs on the instances of a kept split: see forward.c. */
#ifndef LRMOE_PLANNER_FORWARD_H
#define LRMOE_PLANNER_FORWARD_H

#include "planner/work.h"

/* Fills instances->forward with the least peak that they allow, which it
 * returns, and few worst-case moves.  instances->kept is filled; `bound` as
 * for lrmoeSplit. */
int64_t lrmoeForwardFill(struct lrmoeWork *work,
                         struct lrmoeInstances *instances, int64_t bound);

/* The most kept pairs that may have to move into an instance: all that backward
 * gives it, less what forward left there even if every dropped pair of the
 * expert, `dropped` = n - K, was among its own. */
static inline int64_t lrmoeMovesIn(int64_t forward, int64_t kept,
                                   int64_t dropped) {
  int64_t sure = forward > dropped ? forward - dropped : 0;
  return kept > sure ? kept - sure : 0;
}

#endif
