/* Counts of slots, and largest-first packing (Graham's LPT rule).
 *
 * All of an expert's slots count as loaded evenly: n / c pairs, of which the
 * first n mod c slots have one more.  So "most load per slot" compares
 * n / c rounded up; of equals the lower expert goes first, and of equally
 * loaded ranks the lower rank. */
#include "planner/rivals/pack.h"

#include <string.h>

static int64_t ceiling(int64_t value, int64_t divisor) {
  return value / divisor + (value % divisor != 0);
}

void lrmoeCountsByHeat(struct lrmoeLayout *layout, const int64_t *loads,
                       int32_t most) {
  int32_t numExperts = layout->numExperts;
  struct lrmoeHeap heap = {layout->order, layout->keys, numExperts};
  for (int32_t e = 0; e < numExperts; e++) {
    layout->counts[e] = 1;
    layout->keys[e] = loads[e];
    heap.ids[e] = e;
  }
  lrmoeHeapOrder(&heap);
  for (int32_t left = layout->numSlots - numExperts;
       left > 0 && heap.count > 0;) {
    int32_t e = heap.ids[0];
    if (layout->counts[e] >= most) {
      lrmoeHeapPop(&heap);
      continue;
    }
    left--;
    layout->counts[e]++;
    layout->keys[e] = ceiling(loads[e], layout->counts[e]);
    lrmoeHeapFixFirst(&heap);
  }
}

void lrmoeCountsEven(struct lrmoeLayout *layout, const int64_t *loads,
                     int32_t most) {
  int32_t each = layout->numSlots / layout->numExperts;
  int32_t rest = layout->numSlots % layout->numExperts;
  lrmoeSortDescending(layout->order, loads, layout->numExperts);
  for (int32_t k = 0; k < layout->numExperts; k++) {
    int32_t count = each + (k < rest);
    layout->counts[layout->order[k]] = count < most ? count : most;
  }
}

/* Experts by the load of their largest slot. */
static void sortByShare(struct lrmoeLayout *layout, const int64_t *loads) {
  for (int32_t e = 0; e < layout->numExperts; e++)
    layout->values[e] = ceiling(loads[e], layout->counts[e]);
  lrmoeSortDescending(layout->order, layout->values, layout->numExperts);
}

/* What the k-th slot of an expert is loaded with. */
static int64_t shareOf(const struct lrmoeLayout *layout, const int64_t *loads,
                       int32_t e, int32_t k) {
  return loads[e] / layout->counts[e] + (k < loads[e] % layout->counts[e]);
}

void lrmoePackLargestFirst(struct lrmoeLayout *layout, const int64_t *loads,
                           const int32_t *room) {
  struct lrmoeHeap ranks = {layout->rankOrder, layout->rankValues, 0};
  lrmoeLayoutClear(layout);
  sortByShare(layout, loads);
  for (int32_t g = 0; g < layout->numRanks; g++) {
    layout->rankValues[g] = 0; /* minus its load */
    if (room[g] > 0) ranks.ids[ranks.count++] = g;
  }
  for (int32_t n = 0; n < layout->numExperts; n++) {
    int32_t e = layout->order[n];
    for (int32_t k = 0; k < layout->counts[e]; k++) {
      int32_t g = ranks.ids[0];
      int64_t share = shareOf(layout, loads, e, k);
      lrmoeLayoutAdd(layout, g, e, share);
      layout->loads[g] += share;
      layout->rankValues[g] = -layout->loads[g];
      if (layout->used[g] == room[g])
        lrmoeHeapPop(&ranks);
      else
        lrmoeHeapFixFirst(&ranks);
    }
  }
}

/* Where the next copy of e goes; -1 where no rank can take it.  keys counts its
 * copies by host. */
static int32_t chooseSpread(const struct lrmoeLayout *layout, int32_t e) {
  const int32_t *hosts = layout->input->hosts;
  int32_t chosen = -1;
  for (int32_t g = 0; g < layout->numRanks; g++) {
    if (!lrmoeLayoutRoom(layout, g)) continue;
    if (chosen >= 0) {
      int64_t more = layout->keys[hosts[g]] - layout->keys[hosts[chosen]];
      if (more > 0 || (!more && layout->loads[g] >= layout->loads[chosen]))
        continue;
    }
    if (!lrmoeLayoutHasExpert(layout, g, e)) chosen = g;
  }
  return chosen;
}

void lrmoePackSpread(struct lrmoeLayout *layout, const int64_t *loads) {
  lrmoeLayoutClear(layout);
  sortByShare(layout, loads);
  for (int32_t n = 0; n < layout->numExperts; n++) {
    int32_t e = layout->order[n];
    memset(layout->keys, 0, (size_t)layout->numRanks * sizeof *layout->keys);
    for (int32_t k = 0; k < layout->counts[e]; k++) {
      int32_t g = chooseSpread(layout, e);
      if (g < 0) break;
      int64_t share = shareOf(layout, loads, e, k);
      lrmoeLayoutAdd(layout, g, e, share);
      layout->loads[g] += share;
      layout->keys[layout->input->hosts[g]]++;
    }
  }
}

int64_t lrmoePackPeak(const struct lrmoeLayout *layout) {
  int64_t most = 0;
  for (int32_t g = 0; g < layout->numRanks; g++)
    if (layout->loads[g] > most) most = layout->loads[g];
  return most;
}
