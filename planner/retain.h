/* How much backward keeps where a limit binds: see retain.c. */
#ifndef LRMOE_PLANNER_RETAIN_H
#define LRMOE_PLANNER_RETAIN_H

#include "planner/moving.h"
#include "planner/planner.h"

/* Working memory, allocated with the planner. */
struct lrmoeRetainRoom {
  int64_t *caps;      /* [G] most kept pairs of a rank */
  int64_t *base;      /* [G] minus the cap */
  int64_t *levels;    /* [E] retention in millionths */
  int32_t *isOpen;    /* [E] 1: no cut holds the expert yet */
  int64_t *oldShares; /* [instances] to go back to */
  int64_t *oldLoads;  /* [G] */
  struct lrmoeMoving moving;
};

lrmoeResult_t lrmoeRetainRoomCreate(const struct lrmoePlanner *planner,
                                    struct lrmoeRetainRoom **room);
void lrmoeRetainRoomDestroy(struct lrmoeRetainRoom *room);

/* Changes quotas and keptPairs of a plan that is measured and breaks a limit,
 * so that backward fits, by the config's `retain` and `quota`; instances and
 * forwardPairs stay.  Where nothing fits, the plan keeps the least that the
 * config allows, as near to the limits as a split can be. */
lrmoeResult_t lrmoeRetainFit(const struct lrmoePlanner *planner,
                             struct lrmoePlan *plan);

/* Experts at the levels of `room` that fit its caps, raised until each is held
 * by a full cut or at `ceiling`: see water.c. */
struct lrmoeRetainSearch {
  struct lrmoeWork *work;
  struct lrmoeInstances *instances;
  struct lrmoeRetainRoom *room;
  int64_t *quotas; /* [E] */
  int64_t limit;   /* of base and kept pairs: 0 */
  int64_t least;   /* minRetainPpm */
  int64_t ceiling;
  struct lrmoeMoving *moving; /* where moves cost memory, else NULL */
  int isQuick;   /* where moves cost memory: what is found first will do */
  int64_t *most; /* proven: within memory and `ceiling` no more is kept */
};

/* Splits the quotas within the caps; 0 if they do not fit. */
int lrmoeRetainSplit(const struct lrmoeRetainSearch *search);

/* The max-min fair quotas; 0 if not even `least` fits. */
int lrmoeRetainWater(const struct lrmoeRetainSearch *search);

/* The same where moves cost memory: the most pairs, see trade.c. */
int lrmoeRetainTrade(const struct lrmoeRetainSearch *search);

#endif
