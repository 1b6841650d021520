/* Policy proportional: slots in proportion to load, as SYMI gives them; on
 * expected loads it is EfficientMoE's rule.
 *
 * Of S slots an expert with n of N pairs gets S n / N, one at least.  They lie
 * side by side in the order of experts, over the slots of the ranks from the
 * first to the last, and share the pairs evenly.
 *
 * Departures: SYMI leaves open how the rounded numbers come to add up to S.
 * Here each gets the floor; slots that are missing then are taken back from
 * those with the smallest remainders, and those that are left go to the
 * largest.  Slots of one expert on one rank are one instance, and the other
 * slots of it stay empty.  SYMI acts on the loads of the last step; here
 * that is the caller's choice.  Homes move. */
#include "planner/rivals/rivals.h"
#include "planner/scale.h"

/* counts: floors, one at least; values: remainders of those that got their
 * floor, -1 of the others.  Returns how many slots are left, maybe < 0. */
static int32_t floors(struct lrmoeLayout *layout, int64_t total) {
  int32_t left = layout->numSlots;
  for (int32_t e = 0; e < layout->numExperts; e++) {
    int64_t rest = 0;
    int64_t count =
        lrmoeScale(layout->input->loads[e], layout->numSlots, total, &rest);
    layout->values[e] = count ? rest : -1;
    layout->counts[e] = count ? (int32_t)count : 1;
    left -= layout->counts[e];
  }
  return left;
}

/* Rounds; each takes one slot at most from every expert. */
static void takeBack(struct lrmoeLayout *layout, int32_t missing) {
  while (missing > 0)
    for (int32_t k = layout->numExperts - 1; k >= 0 && missing > 0; k--) {
      int32_t e = layout->order[k];
      if (layout->counts[e] == 1) continue;
      layout->counts[e]--;
      missing--;
    }
}

static void fillCounts(struct lrmoeLayout *layout) {
  int64_t total = 0;
  for (int32_t e = 0; e < layout->numExperts; e++)
    total += layout->input->loads[e];
  int32_t left = floors(layout, total > 0 ? total : 1);
  lrmoeSortDescending(layout->order, layout->values, layout->numExperts);
  takeBack(layout, -left);
  for (int32_t k = 0; k < layout->numExperts && left > 0; k++) {
    int32_t e = layout->order[k];
    if (layout->values[e] < 0) break; /* there is no load at all */
    layout->counts[e]++;
    left--;
  }
}

void lrmoeRivalProportional(struct lrmoeLayout *layout) {
  fillCounts(layout);
  lrmoeLayoutClear(layout);
  int32_t g = 0;
  for (int32_t e = 0; e < layout->numExperts; e++)
    for (int32_t k = 0; k < layout->counts[e]; k++) {
      while (!lrmoeLayoutRoom(layout, g))
        g++;
      lrmoeLayoutAdd(layout, g, e, 0);
    }
  lrmoeLayoutSplitEven(layout);
}
