/* GEMM by cuBLAS: see gemm.h.
 *
 * cuBLAS is column-major, so that C^T = op(B)^T op(A)^T is what it is asked
 * for.  Each handle belongs to one stream: only then does cuBLAS promise the
 * same bits from run to run.  Sums are fp32 throughout.
 *
 * cublasGemmGroupedBatchedEx reads its pointers on the device.  They get there
 * as a kernel's argument, in stream order: no host buffer has to outlive the
 * call.  It has no fp32 output for 16-bit operands, so that main-grads are
 * multiplied one by one. */
#include "kernels/cuda/error.h"
#include "kernels/cuda/gemm.h"
#include "lrmoe_device.h"

#include <cstdlib>
#include <cstring>

/* Up to here the rows of an expert are few (cuBLAS has one grouped kernel, of
 * the previous generation, which large GEMMs do without). */
static const int64_t fewRows = 256;

struct GemmPointers {
  const void *at[3 * LRMOE_MAX_GEMMS];
};

struct cublasUnit {
  cublasHandle_t cublas;
  lrmoeStream_t stream;
  const void **pointers; /* on the device, for grouped calls */
};

static cudaDataType_t typeOf(lrmoeDataType_t type) {
  if (type == lrmoeFloat32) return CUDA_R_32F;
  return type == lrmoeBfloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

static void closeUnit(void *handle) {
  struct cublasUnit *unit = static_cast<struct cublasUnit *>(handle);
  if (!unit) return;
  if (unit->cublas) (void)cublasDestroy(unit->cublas);
  (void)cudaFree(unit->pointers);
  free(unit);
}

static lrmoeResult_t startUnit(struct cublasUnit *unit, int isGrouped) {
  LRMOE_CUBLAS_CHECK(cublasCreate(&unit->cublas));
  LRMOE_CUBLAS_CHECK(cublasSetStream(unit->cublas, unit->stream));
  LRMOE_CUBLAS_CHECK(cublasSetMathMode(
      unit->cublas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
  if (!isGrouped) return lrmoeSuccess;
  void *pointers = NULL;
  LRMOE_CUDA_CHECK(cudaMalloc(&pointers, sizeof(struct GemmPointers)));
  unit->pointers = static_cast<const void **>(pointers);
  return lrmoeSuccess;
}

static lrmoeResult_t openUnit(lrmoeStream_t stream, int isGrouped,
                              void **handle) {
  struct cublasUnit *unit =
      static_cast<struct cublasUnit *>(calloc(1, sizeof *unit));
  if (!unit) return lrmoeCudaFail(lrmoeOutOfMemory, "no memory for a GEMM");
  unit->stream = stream;
  lrmoeResult_t result = startUnit(unit, isGrouped);
  if (result != lrmoeSuccess) {
    closeUnit(unit);
    return result;
  }
  *handle = unit;
  return lrmoeSuccess;
}

static lrmoeResult_t openCublas(lrmoeStream_t stream, void **handle) {
  return openUnit(stream, 0, handle);
}

static lrmoeResult_t openGrouped(lrmoeStream_t stream, void **handle) {
  return openUnit(stream, 1, handle);
}

static cublasOperation_t operationOf(int isTransposed) {
  return isTransposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/* Elements from row to row. */
static int lda(const struct lrmoeCudaGemm *gemm) {
  return static_cast<int>(gemm->transA ? gemm->m : gemm->k);
}

static int ldb(const struct lrmoeCudaGemm *gemm) {
  return static_cast<int>(gemm->transB ? gemm->k : gemm->n);
}

static lrmoeResult_t multiplyOne(const struct cublasUnit *unit,
                                 lrmoeDataType_t operand,
                                 const struct lrmoeCudaGemm *gemm) {
  const float one = 1;
  const float beta = gemm->isMainGrad ? 1 : 0;
  cudaDataType_t type = typeOf(operand);
  cudaDataType_t outType = gemm->isMainGrad ? CUDA_R_32F : type;
  LRMOE_CUBLAS_CHECK(cublasGemmEx(
      unit->cublas, operationOf(gemm->transB), operationOf(gemm->transA),
      static_cast<int>(gemm->n), static_cast<int>(gemm->m),
      static_cast<int>(gemm->k), &one, gemm->b, type, ldb(gemm), gemm->a, type,
      lda(gemm), &beta, gemm->c, outType, static_cast<int>(gemm->n),
      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  return lrmoeSuccess;
}

static lrmoeResult_t multiplyEach(void *handle, lrmoeDataType_t operand,
                                  int numGemms,
                                  const struct lrmoeCudaGemm *gemms) {
  struct cublasUnit *unit = static_cast<struct cublasUnit *>(handle);
  for (int i = 0; i < numGemms; i++)
    LRMOE_CHECK(multiplyOne(unit, operand, &gemms[i]));
  return lrmoeSuccess;
}

__global__ void storePointersKernel(struct GemmPointers pointers, int count,
                                    const void **to) {
  int i = static_cast<int>(threadIdx.x);
  if (i < count) lrmoeStore(to + i, pointers.at[i]);
}

/* One group per GEMM, as cuBLAS wants them. */
struct groups {
  cublasOperation_t transA[LRMOE_MAX_GEMMS];
  cublasOperation_t transB[LRMOE_MAX_GEMMS];
  int m[LRMOE_MAX_GEMMS];
  int n[LRMOE_MAX_GEMMS];
  int k[LRMOE_MAX_GEMMS];
  int lda[LRMOE_MAX_GEMMS];
  int ldb[LRMOE_MAX_GEMMS];
  int ldc[LRMOE_MAX_GEMMS];
  int sizes[LRMOE_MAX_GEMMS];
  float alpha[LRMOE_MAX_GEMMS];
  float beta[LRMOE_MAX_GEMMS];
};

/* A and B change places: see the top of the file. */
static void fillGroups(int numGemms, const struct lrmoeCudaGemm *gemms,
                       struct groups *groups, struct GemmPointers *pointers) {
  for (int i = 0; i < numGemms; i++) {
    const struct lrmoeCudaGemm *gemm = &gemms[i];
    groups->transA[i] = operationOf(gemm->transB);
    groups->transB[i] = operationOf(gemm->transA);
    groups->m[i] = static_cast<int>(gemm->n);
    groups->n[i] = static_cast<int>(gemm->m);
    groups->k[i] = static_cast<int>(gemm->k);
    groups->lda[i] = ldb(gemm);
    groups->ldb[i] = lda(gemm);
    groups->ldc[i] = static_cast<int>(gemm->n);
    groups->sizes[i] = 1;
    groups->alpha[i] = 1;
    groups->beta[i] = 0;
    pointers->at[i] = gemm->b;
    pointers->at[LRMOE_MAX_GEMMS + i] = gemm->a;
    pointers->at[2 * LRMOE_MAX_GEMMS + i] = gemm->c;
  }
}

static lrmoeResult_t multiplyTogether(struct cublasUnit *unit,
                                      lrmoeDataType_t operand, int numGemms,
                                      const struct lrmoeCudaGemm *gemms) {
  const int numPointers = 3 * LRMOE_MAX_GEMMS;
  struct groups groups;
  struct GemmPointers pointers = {};
  fillGroups(numGemms, gemms, &groups, &pointers);
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(storePointersKernel, dim3(1), dim3(numPointers),
                                0, unit->stream, pointers, numPointers,
                                unit->pointers));
  cudaDataType_t type = typeOf(operand);
  const void *const *a = unit->pointers;
  const void *const *b = a + LRMOE_MAX_GEMMS;
  void *const *c = const_cast<void *const *>(b + LRMOE_MAX_GEMMS);
  cublasStatus_t status = cublasGemmGroupedBatchedEx(
      unit->cublas, groups.transA, groups.transB, groups.m, groups.n, groups.k,
      groups.alpha, a, type, groups.lda, b, type, groups.ldb, groups.beta, c,
      type, groups.ldc, numGemms, groups.sizes, CUBLAS_COMPUTE_32F);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED)
    return multiplyEach(unit, operand, numGemms, gemms);
  if (status != CUBLAS_STATUS_SUCCESS)
    return lrmoeCudaFailCublas("cublasGemmGroupedBatchedEx", status);
  return lrmoeSuccess;
}

static int areFewRows(int numGemms, const struct lrmoeCudaGemm *gemms) {
  for (int i = 0; i < numGemms; i++)
    if (gemms[i].isMainGrad || gemms[i].m > fewRows) return 0;
  return numGemms > 1;
}

static lrmoeResult_t multiplyGrouped(void *handle, lrmoeDataType_t operand,
                                     int numGemms,
                                     const struct lrmoeCudaGemm *gemms) {
  if (!areFewRows(numGemms, gemms))
    return multiplyEach(handle, operand, numGemms, gemms);
  return multiplyTogether(static_cast<struct cublasUnit *>(handle), operand,
                          numGemms, gemms);
}

static const struct lrmoeCudaGemmTable tables[] = {
    {"cublas", 4, 0, openCublas, closeUnit, multiplyEach},
    {"grouped", 1, 1, openGrouped, closeUnit, multiplyGrouped},
};

lrmoeResult_t lrmoeCudaGemmFind(const char *name,
                                const struct lrmoeCudaGemmTable **table) {
  if (!name || !*name) name = tables[0].name;
  for (const struct lrmoeCudaGemmTable &each : tables)
    if (!strcmp(each.name, name)) {
      *table = &each;
      return lrmoeSuccess;
    }
  return lrmoeCudaFail(lrmoeNotInstalled,
                       "no GEMM \"%s\": the CUDA backend has cublas and "
                       "grouped",
                       name);
}
