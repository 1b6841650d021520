/* What the rivals share: slots of ranks with experts and pairs in them, and
 * the plan that they make.
 *
 * Rank g has room for as many experts as have their home there, and for the
 * spare slots.  Policies that keep homes begin with lrmoeLayoutHomes; the
 * others fill the slots anew.  Two slots of a rank may hold one expert: in the
 * plan they are one instance. */
#ifndef LRMOE_PLANNER_RIVALS_LAYOUT_H
#define LRMOE_PLANNER_RIVALS_LAYOUT_H

#include "planner/heap.h"
#include "planner/plan.h"

/* What a policy acts on. */
struct lrmoeRivalInput {
  const int64_t *demand; /* [G, E] */
  enum lrmoeDemandUse use;
  const int64_t *pairs;             /* [E] n */
  const int64_t *quotas;            /* [E] K */
  const int64_t *loads;             /* [E] of the past, or n */
  const int32_t *hosts;             /* [G] number of each rank's host */
  const struct lrmoePlan *previous; /* or NULL */
  int64_t minReplicaPairs;          /* at least 1 */
  int64_t pairNs;                   /* a pair costs, at least 1 */
  int64_t replicaNs;                /* a replica costs */
};

struct lrmoeLayout {
  const struct lrmoeRivalInput *input; /* of the plan being made */
  const int32_t *homes;                /* [E] the planner's */
  int32_t numRanks;
  int32_t numExperts;
  int32_t numSlots;     /* of all ranks */
  int32_t *slotOffsets; /* [G + 1] slots of each rank */
  int32_t *used;        /* [G] the first so many of them are taken */
  int32_t *experts;     /* [numSlots] */
  int64_t *shares;      /* [numSlots] forward pairs */
  int64_t *loads;       /* [G] */

  /* Room for the policies. */
  int64_t *keys;         /* [max(E, G)] */
  int64_t *values;       /* [E] */
  int64_t *rankValues;   /* [G] */
  int32_t *counts;       /* [E] slots of each expert */
  int32_t *order;        /* [max(E, G)] */
  int32_t *rankOrder;    /* [G] */
  int32_t *offsets;      /* [max(E, G) + 1] into instances */
  int32_t *instances;    /* [numSlots] slots by expert, then rank */
  int32_t *savedExperts; /* [numSlots] */
  int32_t *savedUsed;    /* [G] */
};

/* homes [E] must outlive it. */
lrmoeResult_t lrmoeLayoutCreate(int32_t numRanks, int32_t numExperts,
                                int32_t slots, const int32_t *homes,
                                struct lrmoeLayout **layout);
void lrmoeLayoutDestroy(struct lrmoeLayout *layout);

/* Nothing anywhere. */
void lrmoeLayoutClear(struct lrmoeLayout *layout);

/* Every expert at home with all of its pairs, and nothing else; loads are
 * those of the ranks. */
void lrmoeLayoutHomes(struct lrmoeLayout *layout);

static inline int32_t lrmoeLayoutRoom(const struct lrmoeLayout *layout,
                                      int32_t rank) {
  return layout->slotOffsets[rank + 1] - layout->slotOffsets[rank] -
         layout->used[rank];
}

/* Takes the next slot of a rank with room; gives its number. */
static inline int32_t lrmoeLayoutAdd(struct lrmoeLayout *layout, int32_t rank,
                                     int32_t expert, int64_t pairs) {
  int32_t slot = layout->slotOffsets[rank] + layout->used[rank]++;
  layout->experts[slot] = expert;
  layout->shares[slot] = pairs;
  return slot;
}

int32_t lrmoeLayoutRankOf(const struct lrmoeLayout *layout, int32_t slot);

int lrmoeLayoutHasExpert(const struct lrmoeLayout *layout, int32_t rank,
                         int32_t expert);

/* Lists the slots of each expert in instances. */
void lrmoeLayoutList(struct lrmoeLayout *layout);

/* Divides the pairs of each expert evenly over its slots, what remains one
 * each to the first of them.  Lists. */
void lrmoeLayoutSplitEven(struct lrmoeLayout *layout);

/* Fills order [count] with 0 .. count - 1 in descending order of their keys;
 * of equals the lower one first. */
void lrmoeSortDescending(int32_t *order, const int64_t *keys, int32_t count);

/* A new plan of this layout: an instance where a slot has pairs, and one at
 * least of every expert; X shared as F is.  A home from which the expert has
 * gone is moved to the lowest rank that has it. */
lrmoeResult_t lrmoeLayoutPlan(struct lrmoeLayout *layout,
                              struct lrmoePlan **plan);

#endif
