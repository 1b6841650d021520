/* Which rows of which entry are worked on where, and together with what.
 *
 * An entry is one args struct of an expert call.  Its rows are cut into tiles
 * that a slot's scratch can hold.  Entries with one expert's weights add to
 * the same gradients and stay on one slot, in order; experts go to the slot
 * with the fewest rows so far.  A batch is what goes through the stages
 * (gather, GEMM, activation, ...) together: tiles of one expert, or of
 * several where the GEMM mixes weights.  Batches are listed so that the slots
 * take turns and all begin early. */
#ifndef LRMOE_KERNELS_CUDA_PLAN_H
#define LRMOE_KERNELS_CUDA_PLAN_H

#include "kernels/cuda/engine.h"

struct lrmoeEntry {
  int64_t numRows;
  const void *weights; /* whose expert it is */
};

struct lrmoeCudaTile {
  int32_t entry;
  int64_t first; /* row of the entry */
  int64_t numRows;
  int64_t row; /* of the batch */
};

struct lrmoeBatch {
  int slot;
  int numTiles;
  int64_t firstTile;
  int64_t numRows;
  int64_t firstRow; /* of the slot's, which lie aligned */
};

struct lrmoePlanLimits {
  int numSlots;
  int mixesWeights;
  int64_t tileRows; /* of a batch, too */
};

/* Arrays only grow. */
struct lrmoeExpertPlan {
  struct lrmoeEntry *entries; /* filled by the caller */
  int32_t *leaders; /* [numEntries] first entry of the same expert, or -1 */
  int *slots;       /* [numEntries] of a leader */
  int64_t maxEntries;
  struct lrmoeCudaTile *tiles;
  int64_t numTiles;
  int64_t maxTiles;
  struct lrmoeBatch *batches; /* in the order of issue */
  struct lrmoeBatch *unordered;
  int64_t numBatches;
  int numSlots;                      /* used */
  int64_t slotRows[LRMOE_MAX_SLOTS]; /* most rows of a batch */
  int64_t allRows[LRMOE_MAX_SLOTS];  /* of all batches */
};

/* Room for that many entries. */
lrmoeResult_t lrmoeExpertPlanReserve(struct lrmoeExpertPlan *plan,
                                     int64_t numEntries);
lrmoeResult_t lrmoeExpertPlanMake(struct lrmoeExpertPlan *plan,
                                  int32_t numEntries,
                                  const struct lrmoePlanLimits *limits);
void lrmoeExpertPlanFree(struct lrmoeExpertPlan *plan);

#endif
