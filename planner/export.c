/* Exports: replicas that bring every rank down to a target.
 *
 * The alias method (Walker; Vose) seen as a placement: each rank is a bin that
 * is filled up from donors above the target.  The highest donor exports part
 * of one of its own experts to a sink below the target until none is above.
 * What makes one slot a rank suffice is the rule for a sink's last slot:
 * slack behind it could never be used, so the sink is filled completely even
 * if the donor falls below the target, and the donor becomes a sink, to be
 * filled through its own slot.
 *
 * Sinks are tried deepest first, but one that a single expert of the donor can
 * fill goes before; of the experts that suffice the smallest is taken, so
 * that large ones remain for deep sinks.  Near first, a sink on the donor's
 * host goes before deeper ones elsewhere.  Not in the paper, which does not say
 * how it places replicas. */
#include "planner/export.h"

#include "base/hash.h"

#include <string.h>

enum {
  maxLooks = 16 /* sinks that are looked at for one export */
};

/* Below `bound`, 0 on passes without a seed; the same numbers everywhere. */
static int32_t randomBelow(struct lrmoeWork *work, int32_t bound) {
  if (!work->random) return 0;
  work->random = lrmoeMix(work->random + 0x9e3779b97f4a7c15u) | 1;
  return (int32_t)((work->random >> 32) % (uint32_t)bound);
}

static int32_t slotsLeft(const struct lrmoeWork *work, int32_t rank) {
  return work->slots - work->trial.used[rank];
}

static void addSink(struct lrmoeWork *work, int32_t rank, int64_t target) {
  work->deficits[rank] = target - work->loads[rank];
  if (work->deficits[rank] > 0 && slotsLeft(work, rank) > 0)
    lrmoeHeapPush(&work->sinks, rank);
}

static void begin(struct lrmoeWork *work, const int64_t *weights,
                  int64_t target) {
  memcpy(work->atHome, weights,
         (size_t)work->numExperts * sizeof *work->atHome);
  work->donors.count = 0;
  work->sinks.count = 0;
  lrmoePlacementClear(work, &work->trial);
  for (int32_t g = 0; g < work->numRanks; g++) {
    work->loads[g] = 0;
    for (int32_t h = work->homeOffsets[g]; h < work->homeOffsets[g + 1]; h++)
      work->loads[g] += weights[work->homeExperts[h]];
    if (work->loads[g] > target)
      work->donors.ids[work->donors.count++] = g;
    else
      addSink(work, g, target);
  }
  lrmoeHeapOrder(&work->donors);
}

static int64_t largestAtHome(const struct lrmoeWork *work, int32_t rank) {
  int64_t largest = 0;
  for (int32_t h = work->homeOffsets[rank]; h < work->homeOffsets[rank + 1];
       h++)
    if (work->atHome[work->homeExperts[h]] > largest)
      largest = work->atHome[work->homeExperts[h]];
  return largest;
}

static int isNear(const struct lrmoeWork *work, int32_t a, int32_t b) {
  return !work->nearFirst || work->hosts[a] == work->hosts[b];
}

/* Takes a sink out of the heap; there is one.  Of those that one expert can
 * fill the first, or, near first, the first on the donor's host. */
static int32_t takeSink(struct lrmoeWork *work, int32_t donor,
                        int64_t largest) {
  int32_t looked[maxLooks];
  int32_t numLooked = 0, found = -1;
  while (work->sinks.count > 0 && numLooked < maxLooks) {
    int32_t sink = lrmoeHeapPop(&work->sinks);
    looked[numLooked++] = sink;
    if (work->deficits[sink] > largest || randomBelow(work, 4) == 3) continue;
    if (found < 0 || isNear(work, donor, sink)) found = numLooked - 1;
    if (isNear(work, donor, sink)) break;
  }
  if (found < 0) found = randomBelow(work, numLooked);
  for (int32_t i = 0; i < numLooked; i++)
    if (i != found) lrmoeHeapPush(&work->sinks, looked[i]);
  return looked[found];
}

static int standsOn(const struct lrmoeWork *work, int32_t expert,
                    int32_t rank) {
  const int32_t *experts = work->trial.experts + (int64_t)rank * work->slots;
  for (int32_t i = 0; i < work->trial.used[rank]; i++)
    if (experts[i] == expert) return 1;
  return 0;
}

/* The smallest expert of the donor that has `wanted` pairs left at home, else
 * the one that has most; -1 if none can go to the sink. */
static int32_t chooseExpert(struct lrmoeWork *work, int32_t donor, int32_t sink,
                            int64_t wanted) {
  int32_t smallest = -1, largest = -1;
  for (int32_t h = work->homeOffsets[donor]; h < work->homeOffsets[donor + 1];
       h++) {
    int32_t e = work->homeExperts[h];
    int64_t left = work->atHome[e];
    if (left <= 0 || standsOn(work, e, sink)) continue;
    if (largest < 0 || left > work->atHome[largest]) largest = e;
    if (left < wanted) continue;
    if (smallest < 0 ||
        (left < work->atHome[smallest]) != (randomBelow(work, 4) == 3))
      smallest = e;
  }
  return smallest >= 0 ? smallest : largest;
}

static void moveLoad(struct lrmoeWork *work, int32_t expert, int32_t sink,
                     int64_t pairs) {
  int64_t slot = (int64_t)sink * work->slots + work->trial.used[sink]++;
  work->trial.experts[slot] = expert;
  work->trial.pairs[slot] = pairs;
  work->atHome[expert] -= pairs;
  work->loads[work->homes[expert]] -= pairs;
  work->loads[sink] += pairs;
}

/* One export from the highest donor; 0 if nothing of it can go. */
static int exportOnce(struct lrmoeWork *work, int64_t target) {
  int32_t donor = work->donors.ids[0];
  int32_t sink = takeSink(work, donor, largestAtHome(work, donor));
  int64_t excess = work->loads[donor] - target;
  int64_t wanted = work->deficits[sink];
  int isLast = slotsLeft(work, sink) == 1;
  if (wanted > excess && !(isLast && slotsLeft(work, donor) > 0))
    wanted = excess;
  int32_t expert = chooseExpert(work, donor, sink, wanted);
  if (expert >= 0) {
    int64_t left = work->atHome[expert];
    moveLoad(work, expert, sink, wanted < left ? wanted : left);
  }
  addSink(work, sink, target);
  return expert >= 0;
}

int64_t lrmoeExport(struct lrmoeWork *work, const int64_t *weights,
                    int64_t target, uint64_t seed) {
  work->random = seed;
  begin(work, weights, target);
  int64_t peak = target;
  while (work->donors.count > 0) {
    int32_t donor = work->donors.ids[0];
    int moved = work->sinks.count > 0 && exportOnce(work, target);
    if (moved && work->loads[donor] > target) {
      lrmoeHeapFixFirst(&work->donors);
      continue;
    }
    if (work->loads[donor] > peak) peak = work->loads[donor]; /* stuck */
    lrmoeHeapPop(&work->donors);
    addSink(work, donor, target);
  }
  return peak;
}
