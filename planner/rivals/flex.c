/* Policy flex: a few replicas change from step to step, as FlexMoE's dynamic
 * expert management does.
 *
 * It begins with the replicas of the previous plan.  In each round the expert
 * with most load per instance expands to the rank with the least load; where
 * no slot is free for it, the replica of the expert with least load per
 * instance shrinks first.  If that does not lower the peak it is undone, and
 * the next hottest is tried.  A round in which none of them helps ends the
 * search, as does a fixed number of rounds.  Instances of an expert share its
 * load evenly.
 *
 * Departures: FlexMoE weighs a change by a cost model of compute, rows and
 * synchronisation, and tries the hottest expert only; here a lower peak is
 * what counts, and as a rank may be the fullest without the hottest expert,
 * others are tried too, to FlexMoE's advantage.  Homes stay (there the last
 * instance may be anywhere), and its migrations, which bring copies of one
 * expert closer together, are left out. */
#include "planner/rivals/pack.h"
#include "planner/rivals/rivals.h"

#include <string.h>

enum {
  maxRounds = 10,
  maxTries = 16 /* experts in one round */
};

/* loads of ranks where instances share evenly; keys: load per instance. */
static void weigh(struct lrmoeLayout *layout) {
  const int64_t *loads = layout->input->loads;
  lrmoeLayoutList(layout);
  memset(layout->loads, 0, (size_t)layout->numRanks * sizeof *layout->loads);
  for (int32_t e = 0; e < layout->numExperts; e++) {
    int64_t each = loads[e] / layout->counts[e];
    int64_t rest = loads[e] % layout->counts[e];
    layout->keys[e] = each + (rest > 0);
    for (int32_t i = 0; i < layout->counts[e]; i++) {
      int32_t slot = layout->instances[layout->offsets[e] + i];
      layout->loads[lrmoeLayoutRankOf(layout, slot)] += each + (i < rest);
    }
  }
}

/* The replicas of the previous plan that have room; each expert has its
 * instances by rank, so they come in a fixed order. */
static void takePrevious(struct lrmoeLayout *layout) {
  const struct lrmoePlan *previous = layout->input->previous;
  lrmoeLayoutHomes(layout);
  if (!previous) return;
  for (int32_t e = 0; e < layout->numExperts; e++)
    for (int32_t i = previous->instanceOffsets[e];
         i < previous->instanceOffsets[e + 1]; i++) {
      int32_t rank = previous->instanceRanks[i];
      if (rank != layout->homes[e] && lrmoeLayoutRoom(layout, rank))
        lrmoeLayoutAdd(layout, rank, e, 0);
    }
}

/* The rank with the least load that has a free slot and no instance of e; -1 if
 * there is none. */
static int32_t lightest(const struct lrmoeLayout *layout, int32_t e) {
  int32_t chosen = -1;
  for (int32_t g = 0; g < layout->numRanks; g++)
    if (lrmoeLayoutRoom(layout, g) &&
        (chosen < 0 || layout->loads[g] < layout->loads[chosen]) &&
        !lrmoeLayoutHasExpert(layout, g, e))
      chosen = g;
  return chosen;
}

/* Takes the replica of the least loaded expert from a rank without e; gives
 * the rank, or -1 if nothing can shrink. */
static int32_t shrink(struct lrmoeLayout *layout, int32_t e) {
  int32_t coldest = -1, rank = -1;
  for (int32_t g = 0; g < layout->numRanks; g++) {
    if (lrmoeLayoutHasExpert(layout, g, e)) continue;
    for (int32_t i = 0; i < layout->used[g]; i++) {
      int32_t slot = layout->slotOffsets[g] + i, other = layout->experts[slot];
      if (layout->homes[other] == g) continue;
      if (coldest >= 0 &&
          layout->keys[other] >= layout->keys[layout->experts[coldest]])
        continue;
      coldest = slot;
      rank = g;
    }
  }
  if (rank < 0) return -1;
  int32_t last = layout->slotOffsets[rank] + --layout->used[rank];
  layout->experts[coldest] = layout->experts[last];
  return rank;
}

/* Whether expert e can have one more instance, which it then has. */
static int expand(struct lrmoeLayout *layout, int32_t e) {
  if (layout->counts[e] == layout->numRanks) return 0;
  int32_t rank = lightest(layout, e);
  if (rank < 0) rank = shrink(layout, e);
  if (rank < 0) return 0;
  lrmoeLayoutAdd(layout, rank, e, 0);
  return 1;
}

static void save(const struct lrmoeLayout *layout) {
  memcpy(layout->savedExperts, layout->experts,
         (size_t)layout->numSlots * sizeof *layout->experts);
  memcpy(layout->savedUsed, layout->used,
         (size_t)layout->numRanks * sizeof *layout->used);
}

static void restore(const struct lrmoeLayout *layout) {
  memcpy(layout->experts, layout->savedExperts,
         (size_t)layout->numSlots * sizeof *layout->experts);
  memcpy(layout->used, layout->savedUsed,
         (size_t)layout->numRanks * sizeof *layout->used);
}

/* One round: the first change that lowers the peak; else none, and 0. */
static int improve(struct lrmoeLayout *layout) {
  int64_t peak = lrmoePackPeak(layout);
  lrmoeSortDescending(layout->order, layout->keys, layout->numExperts);
  save(layout);
  for (int32_t k = 0; k < layout->numExperts && k < maxTries; k++) {
    if (!expand(layout, layout->order[k])) continue;
    weigh(layout);
    if (lrmoePackPeak(layout) < peak) return 1;
    restore(layout);
    weigh(layout);
  }
  return 0;
}

void lrmoeRivalFlex(struct lrmoeLayout *layout) {
  int round = 0;
  takePrevious(layout);
  weigh(layout);
  while (round < maxRounds && improve(layout))
    round++;
  lrmoeLayoutSplitEven(layout);
}
