/* Products of row-major fp32 matrices.
 *
 * They are cblas_sgemm of the OpenBLAS that the library's GEMM module has
 * loaded, with its kernels and number of threads.  Where there is none, or the
 * GEMM "reference" was asked for, plain loops do it. */
#ifndef LRMOE_PERF_TRAIN_MATRIX_H
#define LRMOE_PERF_TRAIN_MATRIX_H

#include <stdint.h>

/* A matrix, or a part of one: row i begins at data + i * stride. */
struct trainMatrix {
  float *data;
  int64_t rows;
  int64_t columns;
  int64_t stride;
  int isTransposed; /* stands for the transpose of what it points to */
};

struct trainMatrix trainMatrixMake(float *data, int64_t rows, int64_t columns);
struct trainMatrix trainMatrixTurn(struct trainMatrix matrix);

/* Finds OpenBLAS, after the first layer was made; gemm as in
 * lrmoeLayerConfig_t. */
void trainMatrixOpen(const char *gemm);

/* c = alpha a b + beta c; c is not transposed. */
void trainMultiply(float alpha, struct trainMatrix a, struct trainMatrix b,
                   float beta, struct trainMatrix c);

/* Linear layer: y = x w^T with w [out, in]. */
void trainLinear(struct trainMatrix x, struct trainMatrix w,
                 struct trainMatrix y);

/* dw += dy^T x, and dx = dy w, or dx += dy w where addsToDx. */
void trainLinearBackward(struct trainMatrix dy, struct trainMatrix x,
                         struct trainMatrix w, struct trainMatrix dw,
                         struct trainMatrix dx, int addsToDx);

#endif
