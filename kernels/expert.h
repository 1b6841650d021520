/* One expert instance on many rows, forward and backward: the contract.
 *
 * Rows are processed in tiles, so that the workspace is bounded and no buffer
 * of all pairs times H exists.  With `post` weights the row of g is not
 * multiplied by alpha on the wire; alpha enters at width F (paper Eq. 1: the
 * weight gradient of a pair is (alpha g) phi^T = g (alpha phi)^T). */
#ifndef LRMOE_KERNELS_EXPERT_H
#define LRMOE_KERNELS_EXPERT_H

#include "base/alloc.h"
#include "kernels/gemm.h"
#include "kernels/rows.h"

struct lrmoeExpertShape {
  int64_t hidden;
  int64_t ffn;
  lrmoeDataType_t type;
  lrmoeActivation_t activation;
  lrmoeWeightConvention_t convention;
};

/* Per layer; the scratch grows to one tile. */
struct lrmoeExpertContext {
  struct lrmoeExpertShape shape;
  const struct lrmoeRowKernels *kernels;
  const struct lrmoeGemmModule *gemm;
  lrmoeDataType_t operand;
  int64_t tileRows;
  struct lrmoeBuffer scratch;
};

lrmoeResult_t lrmoeExpertContextInit(const struct lrmoeExpertShape *shape,
                                     const char *gemm,
                                     struct lrmoeExpertContext *context);
void lrmoeExpertContextFree(struct lrmoeExpertContext *context);

/* Bytes of the scratch that a run uses (reserved by the first run). */
int64_t lrmoeExpertScratchBytes(const struct lrmoeExpertContext *context);

struct lrmoeExpertWeights {
  const void *w1; /* [2F or F, H] */
  const void *w2; /* [H, F] */
  float *dw1;     /* NULL: no weight gradients */
  float *dw2;
};

struct lrmoeExpertForward {
  struct lrmoeExpertWeights weights;
  int64_t numRows;
  struct lrmoeRows x;
  const float *alpha; /* [numRows] */
  void *saved;        /* [numRows, 2F or F] out, layer type; NULL: not kept */
  float *phiNorm;     /* [numRows] out */
  float *y;           /* [*, H]: y[yIndex[i]] += alpha[i] * expert(x[i]) */
  const int64_t *yIndex;
  int isUnscaled; /* y gets the experts' outputs, not times alpha */
};

/* Takes dx [rows, H] fp32 and d(alpha) of rows [first, first + rows). */
typedef lrmoeResult_t (*lrmoeExpertSink)(void *user, int64_t first,
                                         int64_t rows, const float *dx,
                                         const float *dAlpha);

struct lrmoeExpertBackward {
  struct lrmoeExpertWeights weights;
  int64_t numRows;
  struct lrmoeRows g;
  struct lrmoeRows x;
  struct lrmoeRows saved; /* data NULL: FC1 is computed again from x */
  const float *alpha;
  lrmoeExpertSink sink;
  void *user;
};

/* d(alpha) alone: <g W2, phi> of rows that backward does not run on. */
struct lrmoeExpertAlpha {
  const void *w2;
  int64_t numRows;
  struct lrmoeRows g;
  struct lrmoeRows saved;
  float *dAlpha; /* [numRows] out */
};

lrmoeResult_t lrmoeExpertRunAlpha(struct lrmoeExpertContext *context,
                                  const struct lrmoeExpertAlpha *args);
lrmoeResult_t lrmoeExpertRunForward(struct lrmoeExpertContext *context,
                                    const struct lrmoeExpertForward *args);
lrmoeResult_t lrmoeExpertRunBackward(struct lrmoeExpertContext *context,
                                     const struct lrmoeExpertBackward *args);

#endif
