/* One expert instance on many rows, forward and backward: the contract.
 *
 * Outputs, y and dx, are a row per pair in the layer's type: what is added up
 * per token is rounded before, as frameworks do it.  With `post` weights the
 * row of g is not multiplied by alpha on the wire; alpha enters at width F
 * (paper Eq. 1: the weight gradient of a pair is (alpha g) phi^T =
 * g (alpha phi)^T). */
#ifndef LRMOE_KERNELS_EXPERT_H
#define LRMOE_KERNELS_EXPERT_H

#include "kernels/rows.h"

struct lrmoeExpertShape {
  int64_t hidden;
  int64_t ffn;
  lrmoeDataType_t type;
  lrmoeActivation_t activation;
  lrmoeWeightConvention_t convention;
};

struct lrmoeExpertContext;

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
  void *y;            /* [numRows, H] out: alpha[i] * expert(x[i]) */
  int isUnscaled;     /* y is expert(x[i]); with `pre` alpha is in it anyway */
};

struct lrmoeExpertBackward {
  struct lrmoeExpertWeights weights;
  int64_t numRows;
  struct lrmoeRows g;
  struct lrmoeRows x;
  struct lrmoeRows saved; /* data NULL: FC1 is computed again from x */
  const float *alpha;
  void *dx;      /* [numRows, H] out */
  float *dAlpha; /* [numRows] out */
};

/* d(alpha) alone: <g W2, phi> of rows that backward does not run on. */
struct lrmoeExpertAlpha {
  const void *w2;
  int64_t numRows;
  struct lrmoeRows g;
  struct lrmoeRows saved;
  float *dAlpha; /* [numRows] out */
};

#endif
