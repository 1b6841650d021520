/* Errors of the CUDA module: a text per thread.
 *
 * The module calls nothing of liblrmoe.so, so that it has its own record; the
 * loader copies the text (lrmoeBackendSettle). */
#ifndef LRMOE_KERNELS_CUDA_ERROR_H
#define LRMOE_KERNELS_CUDA_ERROR_H

#include "base/result.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

/* Records the text and returns `result`. */
lrmoeResult_t lrmoeCudaFail(lrmoeResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Records a failed call of the runtime or of cuBLAS, and takes the runtime's
 * own last error away, for the caller's program would find it at its next
 * check and blame itself. */
lrmoeResult_t lrmoeCudaFailCall(const char *call, cudaError_t error);
lrmoeResult_t lrmoeCudaFailCublas(const char *call, cublasStatus_t status);

const char *lrmoeCudaLastError(void);

/* Rows are read and written 16 bytes at a time: fails if they do not start at
 * such a boundary, which the device would only say later and of everything. */
lrmoeResult_t lrmoeCudaCheckAligned(const void *rows);

/* Return from the caller when the call does not succeed. */
#define LRMOE_CUDA_CHECK(call)                                              \
  do {                                                                      \
    cudaError_t checked_ = (call);                                          \
    if (checked_ != cudaSuccess) return lrmoeCudaFailCall(#call, checked_); \
  } while (0)

#define LRMOE_CUBLAS_CHECK(call)                   \
  do {                                             \
    cublasStatus_t checked_ = (call);              \
    if (checked_ != CUBLAS_STATUS_SUCCESS)         \
      return lrmoeCudaFailCublas(#call, checked_); \
  } while (0)

#define LRMOE_CUDA_REQUIRE(condition, ...)                                     \
  do {                                                                         \
    if (!(condition)) return lrmoeCudaFail(lrmoeInvalidArgument, __VA_ARGS__); \
  } while (0)

#endif
