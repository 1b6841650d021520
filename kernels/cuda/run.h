/* How an expert call is run: planned, forked to the slots, batch by batch,
 * joined.  The passes (forward, backward, alpha) say what a batch does.
 *
 * A pass may have a second phase, which the caller's stream does not wait for:
 * it is over all batches once more, on the same slots and so after the first,
 * and what the first leaves in phi and fc1 is still there. */
#ifndef LRMOE_KERNELS_CUDA_RUN_H
#define LRMOE_KERNELS_CUDA_RUN_H

#include "kernels/backend.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/plan.h"

struct lrmoeExpertContext {
  struct lrmoeExpertShape shape;
  const struct lrmoeCudaGemmTable *gemm;
  struct lrmoeEngine *engine;
  int64_t fc1Width;
  int64_t elementBytes;
  int64_t tileRows;
  struct lrmoeExpertPlan plan;
};

/* A slot's scratch, row by row of a batch: [rows, H], [rows, F], ...  Batches
 * of a pass with two phases have phi and fc1 each for itself. */
struct lrmoeSpace {
  char *rows; /* [H] gathered operands */
  char *kept; /* [H] x, where it is needed before and after g; or NULL */
  char *phi;  /* [F] */
  char *fc1;  /* [2F or F] */
};

struct lrmoeRun {
  const struct lrmoeExpertContext *context;
  const void *args; /* of the pass */
  const struct lrmoeBatch *batch;
  const struct lrmoeCudaTile *tiles;
  struct lrmoeSlot *slot;
  struct lrmoeSpace space;
};

struct lrmoePass {
  const void *args;
  int needsKept;
  lrmoeResult_t (*run)(const struct lrmoeRun *run);
  /* The second phase, and what is recorded after it; or NULL. */
  lrmoeResult_t (*runLater)(const struct lrmoeRun *run);
  cudaEvent_t event;
};

/* Runs a pass over plan->entries, which the caller has filled. */
lrmoeResult_t lrmoeExpertRun(struct lrmoeExpertContext *context,
                             int32_t numEntries, const struct lrmoePass *pass,
                             lrmoeStream_t stream);

/* GEMMs of a stage, collected: tiles that lie one after the other in memory
 * and share their weights become one. */
struct lrmoeGemmList {
  const struct lrmoeRun *run;
  int numGemms;
  struct lrmoeCudaGemm gemms[LRMOE_MAX_GEMMS];
};

/* c [rows, out] = a [rows, in] w, where w is [in, out], or [out, in] if it is
 * transposed. */
struct lrmoeLinear {
  int64_t in;
  int64_t out;
  int isTransposed;
};

/* The args struct that a tile is of. */
template <class Args>
inline const Args *lrmoeArgsOf(const struct lrmoeRun *run,
                               const struct lrmoeCudaTile *tile) {
  return static_cast<const Args *>(run->args) + tile->entry;
}

void lrmoeGemmListAddRows(struct lrmoeGemmList *list,
                          const struct lrmoeLinear *linear, int64_t numRows,
                          const void *a, const void *w, void *c);
/* dw [left, right] += a [rows, left]^T b [rows, right] */
void lrmoeGemmListAddGradient(struct lrmoeGemmList *list, int64_t left,
                              int64_t right, int64_t numRows, const void *a,
                              const void *b, float *dw);
lrmoeResult_t lrmoeGemmListRun(struct lrmoeGemmList *list);

/* The tile's rows as an operand: where they lie, if that is row by row, or
 * gathered to `to` (of the batch's row 0) by lrmoeCudaGatherTiles, to which
 * the tile is added. */
const char *lrmoeOperandRows(const struct lrmoeRun *run,
                             const struct lrmoeCudaTile *tile,
                             const struct lrmoeRows *rows, char *to,
                             struct lrmoeGatherTiles *gather);

/* Rows of the layer's type and hidden width, or what is wrong. */
lrmoeResult_t lrmoeCheckRows(const struct lrmoeExpertContext *context,
                             const struct lrmoeRows *rows, int64_t width);

#endif
