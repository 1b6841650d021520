/* What a plan needs in memory and on the wire: see lrmoeRankMemory_t in
 * lrmoe.h, and model.c. */
#ifndef LRMOE_PLANNER_MODEL_H
#define LRMOE_PLANNER_MODEL_H

#include "planner/planner.h"

/* Bytes that one pair, or one replica, takes. */
struct lrmoeUnitBytes {
  int64_t row;      /* H */
  int64_t forward;  /* output row and FC2's input */
  int64_t saved;    /* input row and FC1's output */
  int64_t backward; /* of a kept pair */
  int64_t move;     /* of a kept pair that moves; 0 of savedState none */
  int64_t dropped;  /* of a dropped pair in backward: routerGrad executor */
  int64_t replica;
  int64_t relay; /* of a pair that may pass a relay: its row, in and out */
};

struct lrmoeUnitBytes lrmoeUnitBytesOf(const lrmoePlannerConfig_t *config);

static inline int64_t lrmoeAddBytes(int64_t a, int64_t b) {
  return b > INT64_MAX - a ? INT64_MAX : a + b;
}

static inline int64_t lrmoeTimesBytes(int64_t count, int64_t unit) {
  return unit && count > INT64_MAX / unit ? INT64_MAX : count * unit;
}

/* From plan->rankForward, rankKept and rankMovesIn to what the model says of a
 * plan: memory, commNs, crossNodeBytes (with a model), and the constraint with
 * least to spare.  Needs lrmoePlanSum before. */
lrmoeResult_t lrmoePlanMeasure(const struct lrmoePlanner *planner,
                               struct lrmoePlan *plan);

/* lrmoeInfeasible, naming the constraint that is broken most. */
lrmoeResult_t lrmoePlanCheckLimits(const struct lrmoePlanner *planner,
                                   const struct lrmoePlan *plan);

/* Whether a measured plan's backward is within memoryBytes on every rank, and
 * within windowNs too. */
int lrmoePlanMemoryFits(const struct lrmoePlanner *planner,
                        const struct lrmoePlan *plan);
int lrmoePlanBackwardFits(const struct lrmoePlanner *planner,
                          const struct lrmoePlan *plan);

int64_t lrmoePlanCrossNodeBytes(const struct lrmoePlanner *planner,
                                const struct lrmoePlan *plan);

/* T_comm alone, for the search of a retention; planner->traffic is left with
 * the bytes out, then home. */
lrmoeResult_t lrmoePlanCommNs(const struct lrmoePlanner *planner,
                              const struct lrmoePlan *plan, int64_t *commNs);

/* Rows of backward between a source and an instance: gradient rows of kept
 * pairs, which also come home; input rows besides; gradient rows of dropped
 * pairs. */
struct lrmoeRows {
  int32_t source;
  int32_t instance;
  int64_t kept;
  int64_t moved;
  int64_t dropped;
};
typedef void lrmoeRowsVisit(void *context, const struct lrmoeRows *rows);

/* All of an expert that lrmoePlanCommNs counts. */
void lrmoePlanRows(const struct lrmoePlanner *planner,
                   const struct lrmoePlan *plan, int32_t expert,
                   lrmoeRowsVisit *visit, void *context);

#endif
