/* How many slots an expert gets, and which: see pack.c. */
#ifndef LRMOE_PLANNER_RIVALS_PACK_H
#define LRMOE_PLANNER_RIVALS_PACK_H

#include "planner/rivals/layout.h"

/* Fills layout->counts: one slot for every expert, then one at a time for the
 * expert with most load per slot, up to `most` each, until none is left. */
void lrmoeCountsByHeat(struct lrmoeLayout *layout, const int64_t *loads,
                       int32_t most);

/* Fills layout->counts with as many slots for each expert, up to `most`; those
 * that remain go one each to the hottest. */
void lrmoeCountsEven(struct lrmoeLayout *layout, const int64_t *loads,
                     int32_t most);

/* Fills the slots with layout->counts of each expert, the largest share first,
 * each on the rank with the least load that has room; `room` [G] is how many
 * slots of a rank may be used.  layout->loads are the loads then. */
void lrmoePackLargestFirst(struct lrmoeLayout *layout, const int64_t *loads,
                           const int32_t *room);

/* The same where copies are kept apart: on the host with fewest copies of the
 * expert, on a rank without it, and of these with the least load.  A copy for
 * which no rank is left is given up. */
void lrmoePackSpread(struct lrmoeLayout *layout, const int64_t *loads);

/* The highest of layout->loads. */
int64_t lrmoePackPeak(const struct lrmoeLayout *layout);

#endif
