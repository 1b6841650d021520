/* Working memory of policy lrmoe: allocated with the planner and used again
 * by every plan, so that planning allocates nothing but the plan.
 *
 * A placement says what stands in the spare slots; instances are the same,
 * homes included, by expert and by rank, with pairs on each. */
#ifndef LRMOE_PLANNER_WORK_H
#define LRMOE_PLANNER_WORK_H

#include "base/result.h"
#include "planner/heap.h"

/* Slots [g * slots, g * slots + used[g]) of rank g are taken. */
struct lrmoePlacement {
  int32_t *used;    /* [G] */
  int32_t *experts; /* [G * slots] none twice on a rank, none at its home */
  int64_t *pairs;   /* [G * slots] the rest of an expert's pairs are at home */
};

/* Listed by expert, then rank. */
struct lrmoeInstances {
  int32_t count;
  int32_t *offsets;     /* [E + 1] of an expert's instances */
  int32_t *ranks;       /* [count] */
  int32_t *experts;     /* [count] */
  int32_t *rankOffsets; /* [G + 1] into ofRank */
  int32_t *ofRank;      /* instances, by rank, of experts that have several */
  int64_t *forward;     /* [count] F */
  int64_t *kept;        /* [count] X */
};

struct lrmoeWork {
  int32_t numRanks;
  int32_t numExperts;
  int32_t slots;
  const int32_t *homes;  /* the planner's */
  const int32_t *pinned; /* [numPinned, 2] the planner's */
  const int32_t *hosts;  /* [G] the planner's; NULL where all are one */
  int32_t numPinned;
  int32_t *homeOffsets; /* [G + 1] into homeExperts */
  int32_t *homeExperts; /* [E] by home, ascending */
  int64_t *pairs;       /* [E] n */
  int64_t *quotas;      /* [E] K */

  /* Of one export pass (export.h) or one split (split.h). */
  int64_t *loads;    /* [G] pairs on a rank */
  int64_t *deficits; /* [G] what is missing to the target */
  int64_t *atHome;   /* [E] pairs still at home */
  struct lrmoeHeap donors;
  struct lrmoeHeap sinks;
  uint64_t random;
  int nearFirst; /* exports look on the donor's host first */

  /* Of one search for a path (split.c). */
  int32_t stamp;
  int32_t *rankStamps;   /* [G] */
  int32_t *expertStamps; /* [E] */
  int32_t *queue;        /* [G] */
  int32_t *from;         /* [G] instance that the path leaves */
  int32_t *to;           /* [G] instance by which it gets to the rank */

  /* Of improvements (improve.c). */
  int64_t *homeLoads;  /* [G] all pairs of the experts at home */
  int64_t *base;       /* [G] of them those of experts without replicas */
  int32_t *inCut;      /* [G] 1: a rank of the cut */
  int32_t *restUntil;  /* [G * slots] step from which a slot may change again */
  int32_t *instanceOf; /* [G * slots] */
  int32_t *placeOf;    /* [E] of an expert with replicas, among them */
  int32_t *placed;     /* [G * slots] experts with replicas */

  int32_t *cursors; /* [max(G, E)] */
  int32_t *sorted;  /* [E] (bound.c) */

  struct lrmoePlacement trial;
  struct lrmoePlacement best;
  struct lrmoeInstances instances[2];
};

/* homes [E] must outlive it. */
lrmoeResult_t lrmoeWorkCreate(int32_t numRanks, int32_t numExperts,
                              int32_t slots, const int32_t *homes,
                              struct lrmoeWork **work);
void lrmoeWorkDestroy(struct lrmoeWork *work);

/* Whether a replica was asked for by the config. */
int lrmoeIsPinned(const struct lrmoeWork *work, int32_t expert, int32_t rank);

/* Nothing in the spare slots but the pinned replicas, without pairs. */
void lrmoePlacementClear(const struct lrmoeWork *work,
                         struct lrmoePlacement *placement);

void lrmoePlacementCopy(const struct lrmoeWork *work,
                        const struct lrmoePlacement *from,
                        struct lrmoePlacement *to);

/* Fills instances with what stands where, and shares (one of its two arrays)
 * with the placement's pairs of `totals` [E]. */
void lrmoeInstancesBuild(struct lrmoeWork *work,
                         const struct lrmoePlacement *placement,
                         const int64_t *totals,
                         struct lrmoeInstances *instances, int64_t *shares);

#endif
