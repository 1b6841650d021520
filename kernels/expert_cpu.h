/* Experts on the CPU: the context, and what the passes share.
 *
 * Rows are processed in tiles, so that the workspace is bounded and the
 * intermediates stay in the caches. */
#ifndef LRMOE_KERNELS_EXPERT_CPU_H
#define LRMOE_KERNELS_EXPERT_CPU_H

#include "base/alloc.h"
#include "kernels/expert.h"
#include "kernels/gemm.h"

/* Per layer; the scratch grows to one tile. */
struct lrmoeExpertContext {
  struct lrmoeExpertShape shape;
  const struct lrmoeRowKernels *kernels;
  const struct lrmoeGemmModule *gemm;
  lrmoeDataType_t operand;
  int64_t tileRows;
  struct lrmoeBuffer scratch;
};

/* The CPU backend's experts (backend.h); gemm NULL: LRMOE_GEMM. */
lrmoeResult_t lrmoeExpertCpuOpen(const struct lrmoeExpertShape *shape,
                                 const char *gemm,
                                 struct lrmoeExpertContext **context);
void lrmoeExpertCpuClose(struct lrmoeExpertContext *context);
int64_t lrmoeExpertCpuScratchBytes(const struct lrmoeExpertContext *context);
lrmoeResult_t lrmoeExpertCpuForward(struct lrmoeExpertContext *context,
                                    int32_t numInstances,
                                    const struct lrmoeExpertForward *args,
                                    lrmoeStream_t stream);
lrmoeResult_t lrmoeExpertCpuBackward(struct lrmoeExpertContext *context,
                                     int32_t numInstances,
                                     const struct lrmoeExpertBackward *args,
                                     lrmoeStream_t stream);
lrmoeResult_t lrmoeExpertCpuAlpha(struct lrmoeExpertContext *context,
                                  int32_t numInstances,
                                  const struct lrmoeExpertAlpha *args,
                                  lrmoeStream_t stream);

/* ---- Between expert_cpu.c and expert_tile.c ---- */

/* The scratch of a tile.  g and x, fc1 and dFc1, y and dx are never needed at
 * the same time and share their places. */
struct lrmoeTileSpace {
  void *w1; /* weights in the operand type, if it is not the layer's */
  void *w2;
  void *rows;     /* [tile, H] x or g, operand */
  void *fc1;      /* [tile, 2F or F] fc1 in fp32, or dFc1 in operand */
  void *saved;    /* [tile, 2F or F] fc1 in the layer type, if recomputed */
  void *phi;      /* [tile, F] operand */
  float *gPhi;    /* [tile, F] */
  float *out;     /* [tile, H] the expert's output, or dx */
  float *weights; /* [tile] */
};

/* An instance's matrices in the operand type. */
struct lrmoeOperands {
  const void *w1;
  const void *w2;
};

/* Rows [first, first + rows) of a pass. */
struct lrmoeTile {
  const struct lrmoeTileSpace *space;
  const struct lrmoeOperands *operands;
  int64_t first;
  int64_t rows;
};

lrmoeResult_t lrmoeTileForward(const struct lrmoeExpertContext *context,
                               const struct lrmoeExpertForward *args,
                               const struct lrmoeTile *tile);
lrmoeResult_t lrmoeTileBackward(const struct lrmoeExpertContext *context,
                                const struct lrmoeExpertBackward *args,
                                const struct lrmoeTile *tile);
lrmoeResult_t lrmoeTileAlpha(const struct lrmoeExpertContext *context,
                             const struct lrmoeExpertAlpha *args,
                             const struct lrmoeTile *tile);

#endif
