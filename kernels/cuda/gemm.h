/* Matrix multiplication on the device, behind one table.
 *
 * "cublas" is a cublasGemmEx per expert on several streams, which is best for
 * many rows an expert; "grouped" takes the experts of one stream together,
 * where a few rows each would leave most of the device idle.  Another kernel,
 * with sizes on the device for instance, is one more table. */
#ifndef LRMOE_KERNELS_CUDA_GEMM_H
#define LRMOE_KERNELS_CUDA_GEMM_H

#include "base/result.h"

/* Most of one multiply call, and tiles of one batch (plan.h). */
#define LRMOE_MAX_GEMMS 32

/* Row-major and dense: C [m, n] = op(A) [m, k] op(B) [k, n].  None of the
 * three is 0.  Pointers are on the device, 16-byte aligned. */
struct lrmoeCudaGemm {
  int64_t m;
  int64_t n;
  int64_t k;
  const void *a; /* [m, k], or [k, m] when transA */
  const void *b; /* [k, n], or [n, k] when transB */
  void *c;
  int transA;
  int transB;
  int isMainGrad; /* C is fp32 and added to; else it has the operands' type
                     and is overwritten */
};

struct lrmoeCudaGemmTable {
  const char *name;
  int maxStreams;   /* side by side */
  int mixesWeights; /* a call may have more than one expert */
  /* A handle multiplies on one stream. */
  lrmoeResult_t (*open)(lrmoeStream_t stream, void **handle);
  void (*close)(void *handle); /* NULL is legal */
  /* Enqueues; those with one main-grad add to it in their order. */
  lrmoeResult_t (*multiply)(void *handle, lrmoeDataType_t operand, int numGemms,
                            const struct lrmoeCudaGemm *gemms);
};

/* NULL is the usual one. */
lrmoeResult_t lrmoeCudaGemmFind(const char *name,
                                const struct lrmoeCudaGemmTable **table);

#endif
