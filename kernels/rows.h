/* Row kernels of the CPU backend: the contract.
 *
 * Rows are [H] elements of bf16, fp16 or fp32, row-major and contiguous;
 * arithmetic is fp32.  rows_cpu.h is compiled once per x86-64 level and
 * lrmoeRowKernelsGet chooses at run time; all levels give the same bits
 * (of a NaN: that it is one), because nothing is contracted or reassociated.
 *
 * Reproducible sums (design invariant 4): element j of a row is added by lane
 * (j / 8) mod 32 in ascending order, multiply then add; then the 32 lanes are
 * folded by a tree: lane i += lane i + 16, then 8, 4, 2, 1. */
#ifndef LRMOE_KERNELS_ROWS_H
#define LRMOE_KERNELS_ROWS_H

#include "base/result.h"

/* Rows to be read through an index: row i is data[index[i]], or data[i] when
 * index is NULL; an index of -1 is a row of zeros. */
struct lrmoeRows {
  const void *data;
  const int64_t *index;
  lrmoeDataType_t type;
  int64_t width; /* elements of a row */
};

struct lrmoeActivationForward {
  lrmoeActivation_t activation;
  lrmoeDataType_t
      type; /* of the layer: what is saved, and how phi is rounded */
  lrmoeDataType_t operand; /* of the GEMM */
  int64_t ffn;
  int64_t numRows;
  const float *fc1; /* [numRows, 2F or F] */
  void *saved;      /* [numRows, 2F or F] in type: fc1 rounded */
  void *phi; /* [numRows, F] in operand: FC2's input, act(saved) or alpha times
                it, rounded to type */
  float *phiNorm; /* [numRows] L2 norm of phi, reproducible */
  /* [numRows] alpha, where it multiplies FC2's input (`pre`); NULL: `post` */
  const float *weights;
};

struct lrmoeActivationBackward {
  lrmoeActivation_t activation;
  lrmoeDataType_t type;
  lrmoeDataType_t operand;
  int64_t ffn;
  int64_t numRows;
  struct lrmoeRows saved; /* fc1 rounded, through the forward row */
  const float *weights;   /* [numRows] alpha */
  const float *gPhi;      /* [numRows, F] g W2, not yet times alpha */
  void *phi;  /* [numRows, F] in operand: alpha * phi; `pre`: FC2's input */
  void *dFc1; /* [numRows, 2F or F] in operand */
  float *dWeights; /* [numRows] <gPhi, phi>, reproducible; `pre`: phi without
                      alpha, not rounded */
  int isPre;       /* alpha multiplied FC2's input before rounding */
};

struct lrmoeRowKernels {
  const char *isa; /* "v1", "v3", "v4" */

  /* out[i] = sum of squares, or of absolute values, of row i. */
  void (*sumSquares)(const struct lrmoeRows *rows, int64_t numRows, float *out);
  void (*sumAbs)(const struct lrmoeRows *rows, int64_t numRows, float *out);

  /* out row i = row i, converted to outType (round to nearest even). */
  void (*gather)(const struct lrmoeRows *rows, int64_t numRows,
                 lrmoeDataType_t outType, void *out);

  /* out row i = scale[i] * rows[i], rounded to outType; scale NULL: 1. */
  void (*scaleRows)(int64_t width, int64_t numRows, const float *rows,
                    const float *scale, lrmoeDataType_t outType, void *out);

  /* out row t = sum, in list order, of weights[j] * row j, j in
   * list[offsets[t] .. offsets[t + 1]), in fp32, rounded once to rows' type;
   * weights NULL: 1.  A row without entries is zero, one unweighted entry
   * alone keeps its bits.  `rows.index` is not used. */
  void (*gatherSum)(const struct lrmoeRows *rows, int64_t numOut,
                    const int64_t *offsets, const int64_t *list,
                    const float *weights, void *out);

  /* out[i] = <row i of a, row i of b>, reproducible. */
  void (*sumProducts)(const struct lrmoeRows *a, const struct lrmoeRows *b,
                      int64_t numRows, float *out);

  void (*activationForward)(const struct lrmoeActivationForward *args);
  void (*activationBackward)(const struct lrmoeActivationBackward *args);
};

/* The kernels of the best level that the CPU has, or of LRMOE_ISA. */
lrmoeResult_t lrmoeRowKernelsGet(const struct lrmoeRowKernels **kernels);

/* The kernels of a level by name, NULL if unknown or not runnable here. */
const struct lrmoeRowKernels *lrmoeRowKernelsFind(const char *isa);

/* Width of the saved FC1 row: 2F for SwiGLU, F for GELU. */
int64_t lrmoeFc1Width(lrmoeActivation_t activation, int64_t ffn);

#endif
