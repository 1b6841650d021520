/* Lower bounds of the highest load over all placements and splits.
 *
 * With peak T, rank g holds at most min(T, L_g + what its slots take), where
 * L_g is the load of its own experts; over all ranks that must be all the load.
 * What S slots take is bounded in two ways, and the higher T counts:
 *   - the S largest other experts;
 *   - for any c: S * c on each rank, and what single slots take above c.  Slots
 *     share the pairs of an expert, so above c an expert of load w gives all
 *     its slots together w - c at most.
 * The second tells the hot expert that could fill each slot, but not all of
 * them. */
#include "planner/bound.h"

enum {
  maxLevels = 256 /* values of c that are tried: the largest experts */
};

static int64_t ceiling(int64_t value, int64_t divisor) {
  return value / divisor + (value % divisor != 0);
}

int64_t lrmoeMeanBound(const struct lrmoeWork *work, const int64_t *weights) {
  int64_t sum = 0;
  for (int32_t e = 0; e < work->numExperts; e++)
    sum += weights[e];
  return ceiling(sum, work->numRanks);
}

/* Experts in descending order, sorted as far as anyone has asked. */
struct ranking {
  struct lrmoeHeap heap; /* the others */
  int32_t *sorted;
  int32_t numSorted;
};

static int32_t nthLargest(struct ranking *ranking, int32_t n) {
  while (ranking->numSorted <= n)
    ranking->sorted[ranking->numSorted++] = lrmoeHeapPop(&ranking->heap);
  return ranking->sorted[n];
}

/* work->loads: L.  Returns their sum. */
static int64_t fillLoads(struct lrmoeWork *work, const int64_t *weights) {
  int64_t sum = 0;
  for (int32_t g = 0; g < work->numRanks; g++)
    work->loads[g] = 0;
  for (int32_t e = 0; e < work->numExperts; e++) {
    work->loads[work->homes[e]] += weights[e];
    sum += weights[e];
  }
  return sum;
}

/* work->deficits[g]: what the slots of rank g could take, each for itself. */
static void fillRooms(struct lrmoeWork *work, const int64_t *weights,
                      struct ranking *ranking) {
  for (int32_t g = 0; g < work->numRanks; g++) {
    int64_t room = 0;
    int32_t taken = 0;
    for (int32_t n = 0; n < work->numExperts && taken < work->slots; n++) {
      int32_t e = nthLargest(ranking, n);
      if (work->homes[e] == g) continue;
      room += weights[e];
      taken++;
    }
    work->deficits[g] = room;
  }
}

/* `load` fits ranks that hold at most `peak` each and take what deficits say,
 * and at most `level` in one slot; level -1: no such limit. */
static int fits(const struct lrmoeWork *work, int64_t load, int64_t peak,
                int64_t level) {
  for (int32_t g = 0; g < work->numRanks && load > 0; g++) {
    int64_t room = peak - work->loads[g];
    if (room > work->deficits[g]) room = work->deficits[g];
    if (level >= 0 && room > 0 && level < ceiling(room, work->slots))
      room = level * work->slots;
    load -= room > 0 ? work->loads[g] + room : peak;
  }
  return load <= 0;
}

/* The least peak from `low` on with which `load` fits. */
static int64_t leastPeak(const struct lrmoeWork *work, int64_t load,
                         int64_t low, int64_t level) {
  int64_t high = load > low ? load : low;
  if (fits(work, load, low, level)) return low;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (fits(work, load, middle, level))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

int64_t lrmoeSlotBound(struct lrmoeWork *work, const int64_t *weights) {
  struct ranking ranking = {
      .heap = {work->cursors, weights, work->numExperts},
      .sorted = work->sorted,
  };
  for (int32_t e = 0; e < work->numExperts; e++)
    ranking.heap.ids[e] = e;
  lrmoeHeapOrder(&ranking.heap);
  int64_t load = fillLoads(work, weights);
  fillRooms(work, weights, &ranking);
  int64_t bound = leastPeak(work, load, lrmoeMeanBound(work, weights), -1);
  if (!work->slots) return bound;
  int64_t above = 0; /* sum of w - c over the experts larger than c */
  for (int32_t n = 0; n < work->numExperts && n < maxLevels; n++) {
    int64_t level = weights[nthLargest(&ranking, n)];
    if (n) above += n * (weights[ranking.sorted[n - 1]] - level);
    if (above >= load) break;
    bound = leastPeak(work, load - above, bound, level);
  }
  return bound;
}
