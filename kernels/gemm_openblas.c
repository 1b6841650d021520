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
#include <stdlib.h>
#include <string.h>

#define OPENBLAS_SONAME "libopenblas.so.0"

static const char coreVariable[] = "OPENBLAS_CORETYPE";

/* Typed by the header, so that a change of prototype does not compile. */
static struct {
  __typeof__(&cblas_sgemm) sgemm;
  __typeof__(&openblas_set_num_threads) setNumThreads;
  __typeof__(&openblas_get_num_threads) getNumThreads;
  __typeof__(&openblas_get_config) getConfig;
  __typeof__(&openblas_get_corename) getCoreName;
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

/* The kernels that OpenBLAS is to use, where it would have to know the model of
 * an Intel CPU: by what the CPU can do.  NULL: let it choose. */
static const char *coreByFeatures(void) {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (!__builtin_cpu_is("intel")) return NULL;
  if (__builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return "Haswell";
#endif
  return NULL;
}

/* Opens OpenBLAS for this process.  It reads OPENBLAS_CORETYPE while it is
 * loaded, and only then; the user's own setting stands. */
static void *openOurs(void) {
  const char *core = getenv(coreVariable) ? NULL : coreByFeatures();
  if (core) setenv(coreVariable, core, 1);
  void *handle = dlopen(OPENBLAS_SONAME, RTLD_NOW | RTLD_LOCAL);
  if (core) unsetenv(coreVariable);
  return handle;
}

/* OpenBLAS before 0.3.25 runs the kernels of the Pentium 4 on an Intel CPU
 * that it does not know (OpenBLAS issue 4267). */
static int coreIsUnknown(void) {
#ifdef __x86_64__
  return !strcmp(blas.getCoreName(), "Prescott") &&
         __builtin_cpu_supports("avx2");
#else
  return 0;
#endif
}

static const char unknownCore[] =
    "OpenBLAS does not know this CPU and uses kernels without AVX, several "
    "times too slow: set OPENBLAS_CORETYPE=Haswell (or SkylakeX, with "
    "AVX-512), or choose the GEMM onednn";

static struct lrmoeGemmModule openblasModule = {
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
  if (isOurs) handle = openOurs();
  if (!handle) return lrmoeNotInstalled;
  if (!FIND(handle, "cblas_sgemm", blas.sgemm) ||
      !FIND(handle, "openblas_set_num_threads", blas.setNumThreads) ||
      !FIND(handle, "openblas_get_num_threads", blas.getNumThreads) ||
      !FIND(handle, "openblas_get_config", blas.getConfig) ||
      !FIND(handle, "openblas_get_corename", blas.getCoreName)) {
    dlclose(handle);
    return lrmoeNotInstalled;
  }
  if (isOurs) blas.setNumThreads(numThreads);
  snprintf(description, sizeof description, "%s, %d threads%s",
           blas.getConfig(), blas.getNumThreads(),
           isOurs ? "" : " (the host's setting)");
  if (coreIsUnknown()) openblasModule.warning = unknownCore;
  *module = &openblasModule;
  return lrmoeSuccess;
}
