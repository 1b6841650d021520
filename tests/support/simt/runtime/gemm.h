/* C = alpha op(A) op(B) + beta C with column-major matrices, fp32 sums in
 * ascending order of k, and one rounding to C's type. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_GEMM_H
#define LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_GEMM_H

#include <cstddef>
#include <cstdint>
#include <library_types.h>

namespace simt {

struct Matrix {
  void *data;
  cudaDataType_t type; /* fp32, fp16 or bf16 */
  int64_t stride;      /* elements from column to column */
  bool isTransposed;
};

struct Gemm {
  int64_t m;
  int64_t n;
  int64_t k;
  float alpha;
  float beta; /* 0: C is not read */
  Matrix a;
  Matrix b;
  Matrix c;
};

size_t elementBytes(cudaDataType_t type);

/* The bytes from the first to the last element of a [rows, columns] matrix as
 * it lies in memory. */
size_t matrixBytes(const Matrix &matrix, int64_t rows, int64_t columns);

void gemmRun(const Gemm &gemm);

} // namespace simt

#endif
