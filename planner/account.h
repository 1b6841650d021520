/* What kept pairs of a rank, and those of them that move, take of its budget,
 * for moving.c: the inline functions read the accounts, account.c fills
 * them. */
#ifndef LRMOE_PLANNER_ACCOUNT_H
#define LRMOE_PLANNER_ACCOUNT_H

#include "planner/moving.h"

static inline int64_t lrmoeLesser(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t lrmoeGreater(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Of so many kept pairs of rank g; with routerGrad executor a kept pair is one
 * less that is dropped. */
static inline int64_t lrmoeMovingKept(const struct lrmoeMoving *m, int32_t g,
                                      int64_t pairs) {
  int64_t beyond = lrmoeGreater(0, pairs - m->rankForward[g]);
  return pairs * (m->unit.backward - m->unit.dropped) +
         beyond * m->unit.dropped;
}

static inline int64_t lrmoeMovingMoves(const struct lrmoeMoving *m, int32_t i,
                                       int64_t pairs) {
  return lrmoeGreater(0, pairs - m->sure[i]);
}

/* Negative: over.  A pair above maxPairs counts as the most that one takes. */
static inline int64_t lrmoeMovingRoom(const struct lrmoeMoving *m, int32_t g) {
  int64_t room = m->budgets[g] - m->bytes[g];
  if (m->maxPairs == INT64_MAX) return room;
  return lrmoeLesser(room, (m->maxPairs - m->pairs[g]) *
                               (m->unit.backward + m->unit.move));
}

#endif
