/* Step modes that change the demand: see modes.c. */
#ifndef LRMOE_PLANNER_RIVALS_MODES_H
#define LRMOE_PLANNER_RIVALS_MODES_H

#include <stdint.h>

struct lrmoeModeShape {
  const int32_t *homes; /* [E] */
  int32_t numRanks;
  int32_t numExperts;
};

/* Fill changed [G, E] from demand [G, E]. */
void lrmoeModeBalanced(const struct lrmoeModeShape *shape,
                       const int64_t *demand, int64_t *changed);
void lrmoeModeLocal(const struct lrmoeModeShape *shape, const int64_t *demand,
                    int64_t *changed);

#endif
