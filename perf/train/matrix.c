/* Products of matrices: see matrix.h. */
#include "perf/train/matrix.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* CBLAS's values. */
enum {
  cblasRowMajor = 101,
  cblasNoTrans = 111,
  cblasTrans = 112
};

typedef void sgemmFunction(int order, int transA, int transB, int m, int n,
                           int k, float alpha, const float *a, int lda,
                           const float *b, int ldb, float beta, float *c,
                           int ldc);

static sgemmFunction *sgemm;

struct trainMatrix trainMatrixMake(float *data, int64_t rows, int64_t columns) {
  return (struct trainMatrix){data, rows, columns, columns, 0};
}

struct trainMatrix trainMatrixTurn(struct trainMatrix matrix) {
  matrix.isTransposed = !matrix.isTransposed;
  return matrix;
}

/* The handle is never closed: the library has the module open as long. */
void trainMatrixOpen(const char *gemm) {
  const char *name = gemm ? gemm : getenv("LRMOE_GEMM");
  sgemm = NULL;
  if (name && strcmp(name, "reference") == 0) return;
  void *handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD);
  /* ISO C has no cast from a data pointer to a function; POSIX defines it. */
  if (handle) *(void **)&sgemm = dlsym(handle, "cblas_sgemm");
}

static float at(struct trainMatrix m, int64_t i, int64_t j) {
  return m.data[m.isTransposed ? j * m.stride + i : i * m.stride + j];
}

/* Rows of c one after the other, so that the inner loop runs along b's rows
 * where b is not transposed. */
static void multiplyPlain(float alpha, struct trainMatrix a,
                          struct trainMatrix b, struct trainMatrix c) {
  int64_t inner = a.isTransposed ? a.rows : a.columns;
  for (int64_t i = 0; i < c.rows; i++) {
    float *row = c.data + i * c.stride;
    for (int64_t l = 0; l < inner; l++) {
      float factor = alpha * at(a, i, l);
      for (int64_t j = 0; j < c.columns; j++)
        row[j] += factor * at(b, l, j);
    }
  }
}

static void scale(float beta, struct trainMatrix c) {
  for (int64_t i = 0; i < c.rows; i++)
    for (int64_t j = 0; j < c.columns; j++)
      c.data[i * c.stride + j] =
          beta == 0 ? 0 : beta * c.data[i * c.stride + j];
}

void trainMultiply(float alpha, struct trainMatrix a, struct trainMatrix b,
                   float beta, struct trainMatrix c) {
  int64_t inner = a.isTransposed ? a.rows : a.columns;
  if (c.rows == 0 || c.columns == 0) return;
  if (inner == 0 || !sgemm) {
    scale(beta, c);
    multiplyPlain(alpha, a, b, c);
    return;
  }
  sgemm(cblasRowMajor, a.isTransposed ? cblasTrans : cblasNoTrans,
        b.isTransposed ? cblasTrans : cblasNoTrans, (int)c.rows, (int)c.columns,
        (int)inner, alpha, a.data, (int)a.stride, b.data, (int)b.stride, beta,
        c.data, (int)c.stride);
}

void trainLinear(struct trainMatrix x, struct trainMatrix w,
                 struct trainMatrix y) {
  trainMultiply(1, x, trainMatrixTurn(w), 0, y);
}

void trainLinearBackward(struct trainMatrix dy, struct trainMatrix x,
                         struct trainMatrix w, struct trainMatrix dw,
                         struct trainMatrix dx, int addsToDx) {
  trainMultiply(1, trainMatrixTurn(dy), x, 1, dw);
  trainMultiply(1, dy, w, addsToDx ? 1 : 0, dx);
}
