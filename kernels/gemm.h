/* Matrix multiplication behind one table.
 *
 * liblrmoe.so links no BLAS.  A module liblrmoe_gemm_NAME.so is loaded when a
 * layer asks for it; "reference" is plain C, slow and always there. */
#ifndef LRMOE_KERNELS_GEMM_H
#define LRMOE_KERNELS_GEMM_H

#include "base/result.h"

/* C [m, n] (+)= op(A) [m, k] * op(B) [k, n]; row-major; C is fp32.
 * m, n or k may be 0: then C is zero, or unchanged when accumulating. */
struct lrmoeGemm {
  int64_t m;
  int64_t n;
  int64_t k;
  const void *a; /* [m, k], or [k, m] when transA */
  const void *b; /* [k, n], or [n, k] when transB */
  float *c;
  int64_t lda; /* elements from row to row */
  int64_t ldb;
  int64_t ldc;
  lrmoeDataType_t operand; /* of A and B */
  int transA;
  int transB;
  int accumulate;
};

#define LRMOE_GEMM_ABI 1

struct lrmoeGemmModule {
  int abi;
  const char *name;
  /* The type that A and B must have for rows of the given type. */
  lrmoeDataType_t (*operandType)(lrmoeDataType_t rows);
  /* Thread-safe. */
  lrmoeResult_t (*multiply)(const struct lrmoeGemm *gemm);
  /* For logs: library, version, kernel. */
  const char *(*describe)(void);
  /* NULL, or what the user should know; logged once, as a warning. */
  const char *warning;
};

/* Every module exports this function. */
#define LRMOE_GEMM_ENTRY "lrmoeGemmModuleGet"
typedef lrmoeResult_t (*lrmoeGemmEntry)(int numThreads,
                                        const struct lrmoeGemmModule **module);

/* Loads a module by name, once per process; it is never unloaded.
 * lrmoeNotInstalled says what to install. */
lrmoeResult_t lrmoeGemmLoad(const char *name,
                            const struct lrmoeGemmModule **module);

extern const struct lrmoeGemmModule lrmoeGemmReference;

#endif
