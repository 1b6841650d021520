/* Splits of quotas where pairs that move cost memory: see moving.c. */
#ifndef LRMOE_PLANNER_MOVING_H
#define LRMOE_PLANNER_MOVING_H

#include "planner/model.h"
#include "planner/work.h"

struct lrmoeMoving {
  struct lrmoeWork *work;
  struct lrmoeInstances *instances; /* forward is given, kept is found */
  const int64_t *quotas;            /* [E] */
  const int64_t *rankForward;       /* [G] */
  struct lrmoeUnitBytes unit;
  int64_t maxPairs; /* of a rank */

  /* [G] What kept pairs of a rank and their moves may take; negative: not even
   * forward leaves so much. */
  int64_t *budgets;
  int64_t *bytes;     /* [G] what they take */
  int64_t *pairs;     /* [G] kept */
  int64_t *arriving;  /* [G] of a search for a path: bytes */
  int64_t *counts;    /* [G] and pairs */
  int64_t *prices;    /* [G] of a byte (price.c) */
  int64_t *sure;      /* [instances] kept pairs that cannot have moved */
  int32_t *path;      /* [G] ranks, from the one that is over */
  int32_t *isChanged; /* [G] */
};

/* Fills instances->kept with a split of the quotas; 0 if ranks are over their
 * budgets by more than it can take off them. */
int lrmoeMovingSplit(struct lrmoeMoving *moving);

/* Begins as that does, and goes on from shares that stand. */
void lrmoeMovingBegin(struct lrmoeMoving *moving);
int lrmoeMovingRelieve(struct lrmoeMoving *moving);

/* Fills arriving: what a rank has to take so that `bytes` leave one of those
 * in isChanged; INT64_MAX: no path leads there. */
void lrmoeMovingLabel(struct lrmoeMoving *moving, int64_t bytes);

/* More (fewer) kept pairs of an instance, accounted for. */
void lrmoeMovingChange(struct lrmoeMoving *moving, int32_t instance,
                       int64_t pairs);

/* Fewer pairs of an instance that is its expert's only one. */
void lrmoeMovingDrop(struct lrmoeMoving *moving, int32_t instance,
                     int64_t pairs);

/* The fewest pairs, none of which has moved, that rank g has to drop. */
int64_t lrmoeMovingOver(const struct lrmoeMoving *moving, int32_t g);

#endif
