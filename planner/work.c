/* Working memory: see work.h. */
#include "planner/work.h"

#include "base/alloc.h"
#include "planner/carve.h"

#include <string.h>

/* Lengths that arrays have. */
struct sizes {
  size_t ranks;
  size_t experts;
  size_t spare;
  size_t instances;
  size_t cursors;
};

static struct sizes sizesOf(const struct lrmoeWork *work) {
  struct sizes sizes = {(size_t)work->numRanks, (size_t)work->numExperts};
  sizes.spare = sizes.ranks * (size_t)work->slots;
  sizes.instances = sizes.experts + sizes.spare;
  sizes.cursors = sizes.ranks > sizes.experts ? sizes.ranks : sizes.experts;
  return sizes;
}

static void carveWide(struct lrmoeWork *work, struct sizes n, char **next) {
  work->pairs = lrmoeCarve64(next, n.experts);
  work->quotas = lrmoeCarve64(next, n.experts);
  work->atHome = lrmoeCarve64(next, n.experts);
  work->loads = lrmoeCarve64(next, n.ranks);
  work->deficits = lrmoeCarve64(next, n.ranks);
  work->homeLoads = lrmoeCarve64(next, n.ranks);
  work->base = lrmoeCarve64(next, n.ranks);
  work->trial.pairs = lrmoeCarve64(next, n.spare);
  work->best.pairs = lrmoeCarve64(next, n.spare);
  for (int i = 0; i < 2; i++) {
    work->instances[i].forward = lrmoeCarve64(next, n.instances);
    work->instances[i].kept = lrmoeCarve64(next, n.instances);
  }
}

static void carveNarrow(struct lrmoeWork *work, struct sizes n, char **next) {
  work->homeOffsets = lrmoeCarve32(next, n.ranks + 1);
  work->homeExperts = lrmoeCarve32(next, n.experts);
  work->donors.ids = lrmoeCarve32(next, n.ranks);
  work->sinks.ids = lrmoeCarve32(next, n.ranks);
  work->rankStamps = lrmoeCarve32(next, n.ranks);
  work->expertStamps = lrmoeCarve32(next, n.experts);
  work->queue = lrmoeCarve32(next, n.ranks);
  work->from = lrmoeCarve32(next, n.ranks);
  work->to = lrmoeCarve32(next, n.ranks);
  work->inCut = lrmoeCarve32(next, n.ranks);
  work->restUntil = lrmoeCarve32(next, n.spare);
  work->instanceOf = lrmoeCarve32(next, n.spare);
  work->placeOf = lrmoeCarve32(next, n.experts);
  work->placed = lrmoeCarve32(next, n.spare);
  work->cursors = lrmoeCarve32(next, n.cursors);
  work->sorted = lrmoeCarve32(next, n.experts);
  work->trial.used = lrmoeCarve32(next, n.ranks);
  work->trial.experts = lrmoeCarve32(next, n.spare);
  work->best.used = lrmoeCarve32(next, n.ranks);
  work->best.experts = lrmoeCarve32(next, n.spare);
  for (int i = 0; i < 2; i++) {
    struct lrmoeInstances *instances = &work->instances[i];
    instances->offsets = lrmoeCarve32(next, n.experts + 1);
    instances->ranks = lrmoeCarve32(next, n.instances);
    instances->experts = lrmoeCarve32(next, n.instances);
    instances->rankOffsets = lrmoeCarve32(next, n.ranks + 1);
    instances->ofRank = lrmoeCarve32(next, n.instances);
  }
}

/* Of the struct and of all that the two functions above carve. */
static size_t workBytes(struct sizes n) {
  size_t wide = 3 * n.experts + 4 * n.ranks + 2 * n.spare + 4 * n.instances;
  size_t narrow = 4 * n.experts + 10 * n.ranks + 1 + n.cursors + 5 * n.spare +
                  2 * (n.experts + 1 + 3 * n.instances + n.ranks + 1);
  return sizeof(struct lrmoeWork) + wide * sizeof(int64_t) +
         narrow * sizeof(int32_t);
}

static void sortByHome(struct lrmoeWork *work) {
  for (int32_t e = 0; e < work->numExperts; e++)
    work->homeOffsets[work->homes[e] + 1]++;
  for (int32_t g = 0; g < work->numRanks; g++)
    work->homeOffsets[g + 1] += work->homeOffsets[g];
  memcpy(work->cursors, work->homeOffsets,
         (size_t)work->numRanks * sizeof *work->cursors);
  for (int32_t e = 0; e < work->numExperts; e++)
    work->homeExperts[work->cursors[work->homes[e]]++] = e;
}

lrmoeResult_t lrmoeWorkCreate(int32_t numRanks, int32_t numExperts,
                              int32_t slots, const int32_t *homes,
                              struct lrmoeWork **work) {
  struct lrmoeWork known = {.numRanks = numRanks,
                            .numExperts = numExperts,
                            .slots = slots < numExperts ? slots : numExperts,
                            .homes = homes};
  struct sizes sizes = sizesOf(&known);
  char *block = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(workBytes(sizes), &block));
  struct lrmoeWork *made = (struct lrmoeWork *)(void *)block;
  *made = known;
  char *next = block + sizeof *made;
  carveWide(made, sizes, &next);
  carveNarrow(made, sizes, &next);
  made->donors.keys = made->loads;
  made->sinks.keys = made->deficits;
  sortByHome(made);
  *work = made;
  return lrmoeSuccess;
}

void lrmoeWorkDestroy(struct lrmoeWork *work) {
  lrmoeFree(work);
}

int lrmoeIsPinned(const struct lrmoeWork *work, int32_t expert, int32_t rank) {
  for (int64_t i = 0; i < work->numPinned; i++)
    if (work->pinned[2 * i] == expert && work->pinned[2 * i + 1] == rank)
      return 1;
  return 0;
}

void lrmoePlacementClear(const struct lrmoeWork *work,
                         struct lrmoePlacement *placement) {
  memset(placement->used, 0, (size_t)work->numRanks * sizeof(int32_t));
  for (int64_t i = 0; i < work->numPinned; i++) {
    int32_t rank = work->pinned[2 * i + 1];
    int64_t slot = (int64_t)rank * work->slots + placement->used[rank]++;
    placement->experts[slot] = work->pinned[2 * i];
    placement->pairs[slot] = 0;
  }
}

void lrmoePlacementCopy(const struct lrmoeWork *work,
                        const struct lrmoePlacement *from,
                        struct lrmoePlacement *to) {
  size_t ranks = (size_t)work->numRanks;
  size_t spare = ranks * (size_t)work->slots;
  memcpy(to->used, from->used, ranks * sizeof *to->used);
  memcpy(to->experts, from->experts, spare * sizeof *to->experts);
  memcpy(to->pairs, from->pairs, spare * sizeof *to->pairs);
}

/* Instances of each expert, counted and summed up. */
static void countInstances(const struct lrmoeWork *work,
                           const struct lrmoePlacement *placement,
                           struct lrmoeInstances *instances) {
  int32_t *offsets = instances->offsets;
  offsets[0] = 0;
  for (int32_t e = 0; e < work->numExperts; e++)
    offsets[e + 1] = 1;
  for (int32_t g = 0; g < work->numRanks; g++)
    for (int32_t i = 0; i < placement->used[g]; i++)
      offsets[placement->experts[g * work->slots + i] + 1]++;
  for (int32_t e = 0; e < work->numExperts; e++)
    offsets[e + 1] += offsets[e];
  instances->count = offsets[work->numExperts];
}

/* The next instance of the expert, on `rank`: ranks come in ascending order. */
static int32_t addInstance(struct lrmoeWork *work,
                           struct lrmoeInstances *instances, int32_t expert,
                           int32_t rank) {
  int32_t i = work->cursors[expert]++;
  instances->ranks[i] = rank;
  instances->experts[i] = expert;
  if (instances->offsets[expert + 1] - instances->offsets[expert] > 1)
    instances->ofRank[instances->rankOffsets[rank + 1]++] = i;
  return i;
}

void lrmoeInstancesBuild(struct lrmoeWork *work,
                         const struct lrmoePlacement *placement,
                         const int64_t *totals,
                         struct lrmoeInstances *instances, int64_t *shares) {
  size_t experts = (size_t)work->numExperts;
  countInstances(work, placement, instances);
  memcpy(work->cursors, instances->offsets, experts * sizeof(int32_t));
  memcpy(work->atHome, totals, experts * sizeof(int64_t));
  instances->rankOffsets[0] = 0;
  for (int32_t g = 0; g < work->numRanks; g++) {
    instances->rankOffsets[g + 1] = instances->rankOffsets[g];
    for (int32_t h = work->homeOffsets[g]; h < work->homeOffsets[g + 1]; h++)
      addInstance(work, instances, work->homeExperts[h], g);
    for (int32_t i = 0; i < placement->used[g]; i++) {
      int32_t slot = g * work->slots + i;
      int32_t expert = placement->experts[slot];
      shares[addInstance(work, instances, expert, g)] = placement->pairs[slot];
      work->atHome[expert] -= placement->pairs[slot];
    }
  }
  for (int32_t e = 0; e < work->numExperts; e++)
    for (int32_t i = instances->offsets[e]; i < instances->offsets[e + 1]; i++)
      if (instances->ranks[i] == work->homes[e]) shares[i] = work->atHome[e];
}
