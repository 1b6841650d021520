/* Tiles, batches and slots of an expert call: see plan.h.
 *
 * Entries are compared with each other, which is cheap for the few hundred
 * instances that a rank can have. */
#include "kernels/cuda/error.h"
#include "kernels/cuda/plan.h"

#include <cstdlib>

/* Room for `count` items; what was there is kept. */
template <class T>
static lrmoeResult_t grow(int64_t count, T **items) {
  T *grown =
      static_cast<T *>(realloc(*items, static_cast<size_t>(count) * sizeof(T)));
  if (!grown)
    return lrmoeCudaFail(lrmoeOutOfMemory, "no memory for %lld tiles",
                         static_cast<long long>(count));
  *items = grown;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertPlanReserve(struct lrmoeExpertPlan *plan,
                                     int64_t numEntries) {
  if (numEntries <= plan->maxEntries) return lrmoeSuccess;
  LRMOE_CHECK(grow(numEntries, &plan->entries));
  LRMOE_CHECK(grow(numEntries, &plan->leaders));
  LRMOE_CHECK(grow(numEntries, &plan->slots));
  plan->maxEntries = numEntries;
  return lrmoeSuccess;
}

void lrmoeExpertPlanFree(struct lrmoeExpertPlan *plan) {
  free(plan->entries);
  free(plan->leaders);
  free(plan->slots);
  free(plan->tiles);
  free(plan->batches);
  free(plan->unordered);
}

static int32_t leaderOf(const struct lrmoeExpertPlan *plan, int32_t entry) {
  if (plan->entries[entry].numRows == 0) return -1;
  for (int32_t i = 0; i < entry; i++)
    if (plan->leaders[i] == i &&
        plan->entries[i].weights == plan->entries[entry].weights)
      return i;
  return entry;
}

static int64_t rowsOfExpert(const struct lrmoeExpertPlan *plan,
                            int32_t numEntries, int32_t leader) {
  int64_t rows = 0;
  for (int32_t i = leader; i < numEntries; i++)
    if (plan->leaders[i] == leader) rows += plan->entries[i].numRows;
  return rows;
}

static void chooseSlots(struct lrmoeExpertPlan *plan, int32_t numEntries,
                        int numSlots) {
  int64_t load[LRMOE_MAX_SLOTS] = {0};
  plan->numSlots = 0;
  for (int32_t i = 0; i < numEntries; i++)
    plan->leaders[i] = leaderOf(plan, i);
  for (int32_t i = 0; i < numEntries; i++) {
    if (plan->leaders[i] != i) continue;
    int least = 0;
    for (int slot = 1; slot < numSlots; slot++)
      if (load[slot] < load[least]) least = slot;
    load[least] += rowsOfExpert(plan, numEntries, i);
    plan->slots[i] = least;
    if (least >= plan->numSlots) plan->numSlots = least + 1;
  }
}

static int mayJoin(const struct lrmoeExpertPlan *plan,
                   const struct lrmoePlanLimits *limits,
                   const struct lrmoeBatch *batch,
                   const struct lrmoeCudaTile *tile) {
  int32_t entry = plan->tiles[batch->firstTile].entry;
  return batch->numTiles < LRMOE_MAX_GEMMS &&
         batch->numRows + tile->numRows <= limits->tileRows &&
         (limits->mixesWeights ||
          plan->leaders[entry] == plan->leaders[tile->entry]);
}

/* Rows of 16 bytes at least then begin at 256-byte boundaries. */
static int64_t alignRow(int64_t row) {
  const int64_t alignment = 16;
  return (row + alignment - 1) / alignment * alignment;
}

/* `open` is the slot's last batch, or NULL. */
static struct lrmoeBatch *addTile(struct lrmoeExpertPlan *plan,
                                  const struct lrmoePlanLimits *limits,
                                  struct lrmoeCudaTile tile, int slot,
                                  struct lrmoeBatch *open) {
  if (!open || !mayJoin(plan, limits, open, &tile)) {
    int64_t firstRow = alignRow(plan->allRows[slot]);
    open = &plan->unordered[plan->numBatches++];
    *open = {slot, 0, plan->numTiles, 0, firstRow};
  }
  tile.row = open->numRows;
  plan->tiles[plan->numTiles++] = tile;
  open->numTiles++;
  open->numRows += tile.numRows;
  plan->allRows[slot] = open->firstRow + open->numRows;
  if (open->numRows > plan->slotRows[slot])
    plan->slotRows[slot] = open->numRows;
  return open;
}

static void cutSlot(struct lrmoeExpertPlan *plan, int32_t numEntries,
                    const struct lrmoePlanLimits *limits, int slot) {
  struct lrmoeBatch *open = NULL;
  plan->slotRows[slot] = 0;
  plan->allRows[slot] = 0;
  for (int32_t leader = 0; leader < numEntries; leader++) {
    if (plan->leaders[leader] != leader || plan->slots[leader] != slot)
      continue;
    for (int32_t i = leader; i < numEntries; i++) {
      int64_t left = plan->leaders[i] == leader ? plan->entries[i].numRows : 0;
      while (left > 0) {
        int64_t rows = left < limits->tileRows ? left : limits->tileRows;
        struct lrmoeCudaTile tile = {i, plan->entries[i].numRows - left, rows,
                                     0};
        open = addTile(plan, limits, tile, slot, open);
        left -= rows;
      }
    }
  }
}

/* Batch 0 of every slot, then batch 1, ... */
static void takeTurns(struct lrmoeExpertPlan *plan,
                      const int64_t first[LRMOE_MAX_SLOTS + 1]) {
  int64_t numOrdered = 0;
  for (int64_t turn = 0; numOrdered < plan->numBatches; turn++)
    for (int slot = 0; slot < plan->numSlots; slot++)
      if (first[slot] + turn < first[slot + 1])
        plan->batches[numOrdered++] = plan->unordered[first[slot] + turn];
}

static lrmoeResult_t reserveTiles(struct lrmoeExpertPlan *plan,
                                  int32_t numEntries, int64_t tileRows) {
  int64_t count = 0;
  for (int32_t i = 0; i < numEntries; i++)
    count += (plan->entries[i].numRows + tileRows - 1) / tileRows;
  if (count <= plan->maxTiles) return lrmoeSuccess;
  LRMOE_CHECK(grow(count, &plan->tiles));
  LRMOE_CHECK(grow(count, &plan->batches));
  LRMOE_CHECK(grow(count, &plan->unordered));
  plan->maxTiles = count;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertPlanMake(struct lrmoeExpertPlan *plan,
                                  int32_t numEntries,
                                  const struct lrmoePlanLimits *limits) {
  LRMOE_CHECK(reserveTiles(plan, numEntries, limits->tileRows));
  chooseSlots(plan, numEntries, limits->numSlots);
  int64_t first[LRMOE_MAX_SLOTS + 1] = {0};
  plan->numTiles = 0;
  plan->numBatches = 0;
  for (int slot = 0; slot < plan->numSlots; slot++) {
    cutSlot(plan, numEntries, limits, slot);
    first[slot + 1] = plan->numBatches;
  }
  takeTurns(plan, first);
  return lrmoeSuccess;
}
