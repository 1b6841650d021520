/* The stand-in for cuBLAS: against sums by hand, and what it refuses. */
#include "device.h"
#include "support/simt/simt.h"

#include <cublas_v2.h>

#include <string.h>

enum {
  M = 7,
  N = 70,
  K = 16,
  stride = 80
};

/* Small integers: exact in every type. */
static float valueAt(int row, int column, int seed) {
  return (float)((row * 5 + column * 3 + seed) % 7 - 3);
}

static uint16_t toBf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16); /* exact for small integers */
}

static float fromBf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* op(X) has value (row, column) there; column-major with the stride above. */
static void *newMatrix(int numRows, int numColumns, int isTransposed,
                       int isWide, int seed) {
  static float wide[stride * stride];
  static uint16_t narrow[stride * stride];
  for (int r = 0; r < numRows; r++)
    for (int c = 0; c < numColumns; c++) {
      int at = isTransposed ? r * stride + c : c * stride + r;
      wide[at] = valueAt(r, c, seed);
      narrow[at] = toBf16(wide[at]);
    }
  if (isWide) return deviceCopyOf(wide, sizeof wide);
  return deviceCopyOf(narrow, sizeof narrow);
}

static float expectedAt(int row, int column, float beta) {
  float sum = 0;
  for (int l = 0; l < K; l++)
    sum += valueAt(row, l, 1) * valueAt(l, column, 2);
  return 2 * sum + beta * valueAt(row, column, 3);
}

static void checkResult(void *c, int isWide, float beta) {
  static float wide[stride * stride];
  static uint16_t narrow[stride * stride];
  if (isWide)
    deviceTake(c, wide, sizeof wide);
  else
    deviceTake(c, narrow, sizeof narrow);
  for (int r = 0; r < M; r++)
    for (int j = 0; j < N; j++) {
      int at = j * stride + r;
      float got = isWide ? wide[at] : fromBf16(narrow[at]);
      float expected = expectedAt(r, j, beta);
      /* bf16 has 8 bits: half a unit in the last place. */
      float tolerance =
          isWide ? 0 : (expected < 0 ? -expected : expected) / 256;
      ck_assert_msg(got >= expected - tolerance && got <= expected + tolerance,
                    "C[%d, %d] is %g, not %g", r, j, (double)got,
                    (double)expected);
    }
}

static const float alpha = 2;

START_TEST(productsAreThoseByHand) {
  int transA = _i & 1;
  int transB = _i >> 1 & 1;
  int isWideInput = _i >> 2 & 1;
  int isWide = isWideInput || (_i >> 3 & 1);
  float beta = _i >> 4 & 1 ? 1.0f : 0.0f;
  cudaDataType input = isWideInput ? CUDA_R_32F : CUDA_R_16BF;
  cudaDataType output = isWide ? CUDA_R_32F : CUDA_R_16BF;
  cublasHandle_t handle;
  ck_assert_int_eq(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  void *a = newMatrix(M, K, transA, isWideInput, 1);
  void *b = newMatrix(K, N, transB, isWideInput, 2);
  void *c = newMatrix(M, N, 0, isWide, 3);
  cublasStatus_t status =
      cublasGemmEx(handle, transA ? CUBLAS_OP_T : CUBLAS_OP_N,
                   transB ? CUBLAS_OP_T : CUBLAS_OP_N, M, N, K, &alpha, a,
                   input, stride, b, input, stride, &beta, c, output, stride,
                   CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  ck_assert_int_eq(status, CUBLAS_STATUS_SUCCESS);
  checkResult(c, isWide, beta);
  ASSERT_CUDA(cudaFree(a));
  ASSERT_CUDA(cudaFree(b));
  ck_assert_int_eq(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}
END_TEST

static void beQuiet(void) {
  struct simtConfig config;
  simtGetConfig(&config);
  config.quiet = 1;
  simtSetConfig(&config);
}

struct grouped {
  cublasOperation_t none[2];
  int m[2], n[2], k[2], strides[2], sizes[2];
  float alphas[2], betas[2];
  void *a[2], *b[2], *c[2];
};

static struct grouped newGroups(void) {
  struct grouped groups = {{CUBLAS_OP_N, CUBLAS_OP_N},
                           {M, M},
                           {N, N},
                           {K, K},
                           {stride, stride},
                           {1, 1},
                           {alpha, alpha},
                           {0, 0},
                           {NULL, NULL},
                           {NULL, NULL},
                           {NULL, NULL}};
  for (int g = 0; g < 2; g++) {
    groups.a[g] = newMatrix(M, K, 0, 0, 1);
    groups.b[g] = newMatrix(K, N, 0, 0, 2);
    groups.c[g] = newMatrix(M, N, 0, 0, 3);
  }
  return groups;
}

static cublasStatus_t runGroups(cublasHandle_t handle, struct grouped *groups,
                                cudaDataType output) {
  void *a = deviceCopyOf(groups->a, sizeof groups->a);
  void *b = deviceCopyOf(groups->b, sizeof groups->b);
  void *c = deviceCopyOf(groups->c, sizeof groups->c);
  return cublasGemmGroupedBatchedEx(
      handle, groups->none, groups->none, groups->m, groups->n, groups->k,
      groups->alphas, a, CUDA_R_16BF, groups->strides, b, CUDA_R_16BF,
      groups->strides, groups->betas, c, output, groups->strides, 2,
      groups->sizes, CUBLAS_COMPUTE_32F);
}

START_TEST(groupedCallsKnowTheirLimits) {
  beQuiet();
  cublasHandle_t handle;
  ck_assert_int_eq(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  struct grouped groups = newGroups();
  ck_assert_int_eq(runGroups(handle, &groups, CUDA_R_32F),
                   CUBLAS_STATUS_NOT_SUPPORTED);
  groups.k[1] = 0;
  ck_assert_int_eq(runGroups(handle, &groups, CUDA_R_16BF),
                   CUBLAS_STATUS_INVALID_VALUE);
  ck_assert_ptr_nonnull(strstr(simtLastReport(), "group 1 is empty"));
  groups.k[1] = K;
  ck_assert_int_eq(runGroups(handle, &groups, CUDA_R_16BF),
                   CUBLAS_STATUS_SUCCESS);
  checkResult(groups.c[0], 0, 0);
  groups.c[0] = newMatrix(M, N, 0, 0, 3);
  groups.b[1] = (char *)groups.b[1] + 2;
  ck_assert_int_eq(runGroups(handle, &groups, CUDA_R_16BF),
                   CUBLAS_STATUS_SUCCESS);
  ck_assert_int_eq(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  ck_assert_ptr_nonnull(strstr(simtLastReport(), "matrix B is misaligned"));
  ck_assert_int_eq(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}
END_TEST

START_TEST(badProductsAreRefused) {
  beQuiet();
  cublasHandle_t handle;
  cudaStream_t stream;
  float beta = 0;
  ck_assert_int_eq(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  ASSERT_CUDA(cudaStreamCreate(&stream));
  ck_assert_int_eq(cublasSetStream(handle, stream), CUBLAS_STATUS_SUCCESS);
  void *a = newMatrix(M, K, 0, 0, 1);
  void *b = newMatrix(K, N, 0, 0, 2);
  void *c = newMatrix(M, N, 0, 0, 3);
  ck_assert_int_eq(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K,
                                &alpha, a, CUDA_R_16BF, stride, b, CUDA_R_32F,
                                stride, &beta, c, CUDA_R_32F, stride,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                   CUBLAS_STATUS_NOT_SUPPORTED);
  ck_assert_int_eq(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K,
                                &alpha, a, CUDA_R_16BF, M - 1, b, CUDA_R_16BF,
                                stride, &beta, c, CUDA_R_32F, stride,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                   CUBLAS_STATUS_INVALID_VALUE);
  /* C has 2-byte elements: as fp32 it is too short. */
  ck_assert_int_eq(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K,
                                &alpha, a, CUDA_R_16BF, stride, b, CUDA_R_16BF,
                                stride, &beta, c, CUDA_R_32F, stride,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                   CUBLAS_STATUS_SUCCESS);
  ck_assert_int_eq(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  ck_assert_ptr_nonnull(strstr(simtLastReport(), "matrix C: out of bounds"));
  ck_assert_int_eq(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("simt_cublas");
  TCase *group = tcase_create("cublas");
  tcase_set_timeout(group, 60);
  tcase_add_loop_test(group, productsAreThoseByHand, 0, 32);
  tcase_add_test(group, groupedCallsKnowTheirLimits);
  tcase_add_test(group, badProductsAreRefused);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
