/* Slots with experts, and the plan that they make: see layout.h.
 *
 * X follows F: an instance that runs the part F of n pairs in forward runs the
 * same part of the K kept ones in backward, rounded down, and what remains
 * goes one each to the first instances that have pairs.  The rivals have no
 * quotas of their own, so this is how their placement meets ours. */
#include "planner/rivals/layout.h"

#include "base/alloc.h"
#include "planner/carve.h"
#include "planner/scale.h"

#include <string.h>

static size_t largest(size_t a, size_t b) {
  return a > b ? a : b;
}

/* Carves the arrays; with a NULL base it only counts. */
static size_t carve(struct lrmoeLayout *layout, char *base) {
  size_t ranks = (size_t)layout->numRanks;
  size_t experts = (size_t)layout->numExperts;
  size_t slots = (size_t)layout->numSlots, most = largest(ranks, experts);
  size_t wide = slots + 2 * ranks + most + experts;
  size_t narrow = ranks + 1 + 3 * ranks + 3 * slots + experts + 2 * most + 1;
  size_t bytes =
      sizeof *layout + wide * sizeof(int64_t) + narrow * sizeof(int32_t);
  if (!base) return bytes;
  char *next = base + sizeof *layout;
  layout->shares = lrmoeCarve64(&next, slots);
  layout->loads = lrmoeCarve64(&next, ranks);
  layout->rankValues = lrmoeCarve64(&next, ranks);
  layout->keys = lrmoeCarve64(&next, most);
  layout->values = lrmoeCarve64(&next, experts);
  layout->slotOffsets = lrmoeCarve32(&next, ranks + 1);
  layout->used = lrmoeCarve32(&next, ranks);
  layout->rankOrder = lrmoeCarve32(&next, ranks);
  layout->savedUsed = lrmoeCarve32(&next, ranks);
  layout->experts = lrmoeCarve32(&next, slots);
  layout->instances = lrmoeCarve32(&next, slots);
  layout->savedExperts = lrmoeCarve32(&next, slots);
  layout->counts = lrmoeCarve32(&next, experts);
  layout->order = lrmoeCarve32(&next, most);
  layout->offsets = lrmoeCarve32(&next, most + 1);
  return bytes;
}

lrmoeResult_t lrmoeLayoutCreate(int32_t numRanks, int32_t numExperts,
                                int32_t slots, const int32_t *homes,
                                struct lrmoeLayout **layout) {
  int32_t spare = slots < numExperts ? slots : numExperts;
  struct lrmoeLayout known = {.homes = homes,
                              .numRanks = numRanks,
                              .numExperts = numExperts,
                              .numSlots = numExperts + numRanks * spare};
  char *block = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(carve(&known, NULL), &block));
  struct lrmoeLayout *made = (struct lrmoeLayout *)(void *)block;
  *made = known;
  carve(made, block);
  for (int32_t e = 0; e < numExperts; e++)
    made->slotOffsets[homes[e] + 1]++;
  for (int32_t g = 0; g < numRanks; g++)
    made->slotOffsets[g + 1] += made->slotOffsets[g] + spare;
  *layout = made;
  return lrmoeSuccess;
}

void lrmoeLayoutDestroy(struct lrmoeLayout *layout) {
  lrmoeFree(layout);
}

void lrmoeLayoutClear(struct lrmoeLayout *layout) {
  memset(layout->used, 0, (size_t)layout->numRanks * sizeof *layout->used);
  memset(layout->loads, 0, (size_t)layout->numRanks * sizeof *layout->loads);
}

void lrmoeLayoutHomes(struct lrmoeLayout *layout) {
  lrmoeLayoutClear(layout);
  for (int32_t e = 0; e < layout->numExperts; e++) {
    lrmoeLayoutAdd(layout, layout->homes[e], e, layout->input->pairs[e]);
    layout->loads[layout->homes[e]] += layout->input->pairs[e];
  }
}

int lrmoeLayoutHasExpert(const struct lrmoeLayout *layout, int32_t rank,
                         int32_t expert) {
  const int32_t *experts = layout->experts + layout->slotOffsets[rank];
  for (int32_t i = 0; i < layout->used[rank]; i++)
    if (experts[i] == expert) return 1;
  return 0;
}

void lrmoeLayoutList(struct lrmoeLayout *layout) {
  int32_t numExperts = layout->numExperts, *offsets = layout->offsets;
  memset(offsets, 0, ((size_t)numExperts + 1) * sizeof *offsets);
  for (int32_t g = 0; g < layout->numRanks; g++)
    for (int32_t i = 0; i < layout->used[g]; i++)
      offsets[layout->experts[layout->slotOffsets[g] + i] + 1]++;
  for (int32_t e = 0; e < numExperts; e++) {
    offsets[e + 1] += offsets[e];
    layout->counts[e] = offsets[e];
  }
  for (int32_t g = 0; g < layout->numRanks; g++)
    for (int32_t i = 0; i < layout->used[g]; i++) {
      int32_t slot = layout->slotOffsets[g] + i;
      layout->instances[layout->counts[layout->experts[slot]]++] = slot;
    }
  for (int32_t e = 0; e < numExperts; e++)
    layout->counts[e] = offsets[e + 1] - offsets[e];
}

void lrmoeLayoutSplitEven(struct lrmoeLayout *layout) {
  lrmoeLayoutList(layout);
  for (int32_t e = 0; e < layout->numExperts; e++) {
    const int32_t *slots = layout->instances + layout->offsets[e];
    int64_t each = layout->input->pairs[e] / layout->counts[e];
    int64_t rest = layout->input->pairs[e] % layout->counts[e];
    for (int32_t i = 0; i < layout->counts[e]; i++)
      layout->shares[slots[i]] = each + (i < rest);
  }
}

void lrmoeSortDescending(int32_t *order, const int64_t *keys, int32_t count) {
  struct lrmoeHeap heap = {order, keys, count};
  for (int32_t i = 0; i < count; i++)
    order[i] = i;
  lrmoeHeapOrder(&heap);
  while (heap.count > 0) { /* popped ones gather behind the heap, last first */
    int32_t id = lrmoeHeapPop(&heap);
    order[heap.count] = id;
  }
  for (int32_t low = 0, high = count - 1; low < high; low++, high--) {
    int32_t id = order[low];
    order[low] = order[high];
    order[high] = id;
  }
}

int32_t lrmoeLayoutRankOf(const struct lrmoeLayout *layout, int32_t slot) {
  int32_t low = 0, high = layout->numRanks - 1;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (layout->slotOffsets[middle + 1] > slot)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Instances of one expert: its slots that have pairs, merged by rank, and its
 * home's; the home alone where none has.  With plan NULL it only counts. */
static int32_t placeExpert(const struct lrmoeLayout *layout, int32_t e,
                           int32_t home, int32_t first,
                           struct lrmoePlan *plan) {
  int32_t count = 0, last = -1;
  for (int32_t i = layout->offsets[e]; i < layout->offsets[e + 1]; i++) {
    int32_t slot = layout->instances[i], rank = lrmoeLayoutRankOf(layout, slot);
    if (layout->shares[slot] == 0 && rank != home) continue;
    if (rank != last) count++;
    last = rank;
    if (!plan) continue;
    plan->instanceRanks[first + count - 1] = rank;
    plan->forwardPairs[first + count - 1] += layout->shares[slot];
  }
  return count;
}

/* The planner's home if the expert stands there, else the lowest rank with
 * pairs of it, or with the expert. */
static int32_t homeOf(const struct lrmoeLayout *layout, int32_t e) {
  int32_t lowest = -1;
  for (int32_t i = layout->offsets[e]; i < layout->offsets[e + 1]; i++) {
    int32_t slot = layout->instances[i], rank = lrmoeLayoutRankOf(layout, slot);
    if (rank == layout->homes[e]) return rank;
    if (lowest < 0 && layout->shares[slot] > 0) lowest = rank;
  }
  return lowest >= 0
             ? lowest
             : lrmoeLayoutRankOf(layout, layout->instances[layout->offsets[e]]);
}

static void shareKept(const struct lrmoeRivalInput *input, int32_t e,
                      struct lrmoePlan *plan) {
  int32_t first = plan->instanceOffsets[e], last = plan->instanceOffsets[e + 1];
  int64_t left = input->quotas[e], rest;
  if (!input->pairs[e]) return;
  for (int32_t i = first; i < last; i++) {
    plan->keptPairs[i] = lrmoeScale(plan->forwardPairs[i], input->quotas[e],
                                    input->pairs[e], &rest);
    left -= plan->keptPairs[i];
  }
  for (int32_t i = first; i < last && left > 0; i++)
    if (plan->forwardPairs[i] > 0) {
      plan->keptPairs[i]++;
      left--;
    }
}

lrmoeResult_t lrmoeLayoutPlan(struct lrmoeLayout *layout,
                              struct lrmoePlan **plan) {
  const struct lrmoeRivalInput *input = layout->input;
  int32_t numExperts = layout->numExperts, count = 0;
  size_t experts = (size_t)numExperts;
  struct lrmoePlan *made = NULL;
  lrmoeLayoutList(layout);
  for (int32_t e = 0; e < numExperts; e++)
    count += placeExpert(layout, e, homeOf(layout, e), 0, NULL);
  const struct lrmoePlanShape shape = {layout->numRanks, numExperts, count,
                                       input->demand, input->use};
  LRMOE_CHECK(lrmoePlanAllocate(&shape, &made));
  memcpy(made->quotas, input->quotas, experts * sizeof(int64_t));
  for (int32_t e = 0; e < numExperts; e++) {
    made->homes[e] = homeOf(layout, e);
    int32_t first = made->instanceOffsets[e];
    made->instanceOffsets[e + 1] =
        first + placeExpert(layout, e, made->homes[e], first, made);
    shareKept(input, e, made);
  }
  *plan = made;
  return lrmoeSuccess;
}
