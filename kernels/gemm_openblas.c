/* GEMM module "openblas": fp32 operands, cblas_sgemm.
 *
 * OpenBLAS is opened by its soname and called through dlsym, not linked: that
 * tells whether the host process has loaded it already.  If so, its thread
 * pool and setting are the host's and stay as they are; if not, it is ours and
 * gets LRMOE_GEMM_THREADS.  It also keeps a BLAS with the same names that the
 * host links from being called instead. */
#include "kernels/gemm.h"

#include <cblas.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define OPENBLAS_SONAME "libopenblas.so.0"

/* Typed by the header, so that a change of prototype does not compile. */
static struct {
  __typeof__(&cblas_sgemm) sgemm;
  __typeof__(&openblas_set_num_threads) setNumThreads;
  __typeof__(&openblas_get_num_threads) getNumThreads;
  __typeof__(&openblas_get_config) getConfig;
} blas;

static char description[256];

static lrmoeDataType_t operandType(lrmoeDataType_t rows) {
  (void)rows;
  return lrmoeFloat32;
}

static const char *describe(void) {
  return description;
}

static int fits(int64_t value) {
  return value >= 0 && value <= INT_MAX;
}

/* An empty product is none of BLAS's business. */
static void clear(const struct lrmoeGemm *gemm) {
  if (gemm->accumulate || gemm->n == 0) return;
  for (int64_t i = 0; i < gemm->m; i++)
    memset(gemm->c + i * gemm->ldc, 0, (size_t)gemm->n * sizeof *gemm->c);
}

static lrmoeResult_t multiply(const struct lrmoeGemm *gemm) {
  if (gemm->operand != lrmoeFloat32) return lrmoeInvalidArgument;
  if (gemm->m == 0 || gemm->n == 0 || gemm->k == 0) {
    clear(gemm);
    return lrmoeSuccess;
  }
  if (!fits(gemm->m) || !fits(gemm->n) || !fits(gemm->k) || !fits(gemm->lda) ||
      !fits(gemm->ldb) || !fits(gemm->ldc))
    return lrmoeUnsupported;
  blas.sgemm(CblasRowMajor, gemm->transA ? CblasTrans : CblasNoTrans,
             gemm->transB ? CblasTrans : CblasNoTrans, (int)gemm->m,
             (int)gemm->n, (int)gemm->k, 1.0f, gemm->a, (int)gemm->lda, gemm->b,
             (int)gemm->ldb, gemm->accumulate ? 1.0f : 0.0f, gemm->c,
             (int)gemm->ldc);
  return lrmoeSuccess;
}

static const struct lrmoeGemmModule openblasModule = {
    .abi = LRMOE_GEMM_ABI,
    .name = "openblas",
    .operandType = operandType,
    .multiply = multiply,
    .describe = describe,
};

/* ISO C has no cast from a data pointer to a function; POSIX defines it. */
#define FIND(handle, name, function) \
  (*(void **)&(function) = dlsym(handle, name))

lrmoeResult_t lrmoeGemmModuleGet(int numThreads,
                                 const struct lrmoeGemmModule **module);

/* Called once, under the loader's lock. */
__attribute__((visibility("default"))) lrmoeResult_t
lrmoeGemmModuleGet(int numThreads, const struct lrmoeGemmModule **module) {
  void *handle = dlopen(OPENBLAS_SONAME, RTLD_NOW | RTLD_NOLOAD);
  int isOurs = !handle;
  if (isOurs) handle = dlopen(OPENBLAS_SONAME, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return lrmoeNotInstalled;
  if (!FIND(handle, "cblas_sgemm", blas.sgemm) ||
      !FIND(handle, "openblas_set_num_threads", blas.setNumThreads) ||
      !FIND(handle, "openblas_get_num_threads", blas.getNumThreads) ||
      !FIND(handle, "openblas_get_config", blas.getConfig)) {
    dlclose(handle);
    return lrmoeNotInstalled;
  }
  if (isOurs) blas.setNumThreads(numThreads);
  snprintf(description, sizeof description, "%s, %d threads%s",
           blas.getConfig(), blas.getNumThreads(),
           isOurs ? "" : " (the host's setting)");
  *module = &openblasModule;
  return lrmoeSuccess;
}
