/* GEMM module "onednn" (oneDNN 2.x): bf16 operands where the CPU multiplies
 * bf16, else fp32; C is always fp32.
 *
 * A oneDNN primitive is built for one shape, which costs 0.3 to 4 ms, and the
 * number of rows of an expert differs in every step.  bf16 shapes whose rows
 * are a multiple of 32 get a primitive of their own (there are few, and the
 * library's cache keeps them); all others use one whose rows are a run-time
 * value.  That is as fast for fp32, and 0.6 to 1.0 times as fast for bf16.
 *
 * Threads: oneDNN takes the OpenMP setting of the calling thread, so this is
 * set around each call and put back.  With one thread no OpenMP team is
 * started; a team would make a child of fork() hang in its first call. */
#include "kernels/gemm.h"

#include <dnnl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Of the OpenMP runtime that oneDNN brings; NULL if it was built without. */
extern void omp_set_num_threads(int numThreads) __attribute__((weak));
extern int omp_get_max_threads(void) __attribute__((weak));

enum {
  ownPrimitiveRows = 32
};

static struct {
  dnnl_engine_t engine;
  int numThreads;
  int hasBf16;
  char description[128];
} state;

static lrmoeDataType_t operandType(lrmoeDataType_t rows) {
  return rows == lrmoeBfloat16 && state.hasBf16 ? lrmoeBfloat16 : lrmoeFloat32;
}

static const char *describe(void) {
  return state.description;
}

static lrmoeResult_t resultOf(dnnl_status_t status) {
  if (status == dnnl_success) return lrmoeSuccess;
  return status == dnnl_out_of_memory ? lrmoeOutOfMemory : lrmoeInternalError;
}

enum {
  matrixA,
  matrixB,
  matrixC,
  numMatrices
};

/* Descriptions of op(A), op(B) and C. */
struct shapes {
  dnnl_memory_desc_t matrix[numMatrices];
};

static dnnl_status_t describeMatrix(const dnnl_dim_t size[2], int64_t leading,
                                    int isTransposed, dnnl_data_type_t type,
                                    dnnl_memory_desc_t *matrix) {
  const dnnl_dims_t dims = {size[0], size[1]};
  const dnnl_dims_t strides = {isTransposed ? 1 : leading,
                               isTransposed ? leading : 1};
  return dnnl_memory_desc_init_by_strides(matrix, 2, dims, type, strides);
}

/* size: m, n, k, where one may be DNNL_RUNTIME_DIM_VAL. */
static dnnl_status_t describeAll(const struct lrmoeGemm *gemm,
                                 const dnnl_dim_t size[3],
                                 struct shapes *shapes) {
  const dnnl_dim_t a[2] = {size[0], size[2]};
  const dnnl_dim_t b[2] = {size[2], size[1]};
  const dnnl_dim_t c[2] = {size[0], size[1]};
  dnnl_data_type_t type = gemm->operand == lrmoeBfloat16 ? dnnl_bf16 : dnnl_f32;
  dnnl_status_t status = describeMatrix(a, gemm->lda, gemm->transA, type,
                                        &shapes->matrix[matrixA]);
  if (status == dnnl_success)
    status = describeMatrix(b, gemm->ldb, gemm->transB, type,
                            &shapes->matrix[matrixB]);
  if (status == dnnl_success)
    status =
        describeMatrix(c, gemm->ldc, 0, dnnl_f32, &shapes->matrix[matrixC]);
  return status;
}

/* Attributes that add the product to C. */
static dnnl_status_t addToC(dnnl_primitive_attr_t attributes) {
  dnnl_post_ops_t operations = NULL;
  dnnl_status_t status = dnnl_post_ops_create(&operations);
  if (status != dnnl_success) return status;
  status = dnnl_post_ops_append_sum(operations, 1);
  if (status == dnnl_success)
    status = dnnl_primitive_attr_set_post_ops(attributes, operations);
  dnnl_post_ops_destroy(operations);
  return status;
}

static dnnl_status_t makePrimitive(const struct shapes *shapes, int accumulate,
                                   dnnl_primitive_t *primitive) {
  dnnl_matmul_desc_t operation;
  dnnl_primitive_attr_t attributes = NULL;
  dnnl_primitive_desc_t chosen = NULL;
  dnnl_status_t status = dnnl_matmul_desc_init(
      &operation, &shapes->matrix[matrixA], &shapes->matrix[matrixB], NULL,
      &shapes->matrix[matrixC]);
  if (status == dnnl_success) status = dnnl_primitive_attr_create(&attributes);
  if (status == dnnl_success && accumulate) status = addToC(attributes);
  if (status == dnnl_success)
    status = dnnl_primitive_desc_create(&chosen, &operation, attributes,
                                        state.engine, NULL);
  if (status == dnnl_success) status = dnnl_primitive_create(primitive, chosen);
  dnnl_primitive_desc_destroy(chosen);
  dnnl_primitive_attr_destroy(attributes);
  return status;
}

static dnnl_status_t execute(const struct lrmoeGemm *gemm,
                             const struct shapes *shapes,
                             dnnl_primitive_t primitive) {
  static const int roles[numMatrices] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS,
                                         DNNL_ARG_DST};
  /* oneDNN takes all three by one kind of pointer and writes only C. */
  void *data[numMatrices] = {(void *)gemm->a, (void *)gemm->b, gemm->c};
  dnnl_exec_arg_t arguments[numMatrices] = {{0}};
  dnnl_stream_t stream = NULL;
  dnnl_status_t status =
      dnnl_stream_create(&stream, state.engine, dnnl_stream_default_flags);
  for (int i = 0; i < numMatrices && status == dnnl_success; i++) {
    arguments[i].arg = roles[i];
    status = dnnl_memory_create(&arguments[i].memory, &shapes->matrix[i],
                                state.engine, data[i]);
  }
  if (status == dnnl_success)
    status = dnnl_primitive_execute(primitive, stream, numMatrices, arguments);
  if (status == dnnl_success) status = dnnl_stream_wait(stream);
  for (int i = 0; i < numMatrices; i++)
    dnnl_memory_destroy(arguments[i].memory);
  dnnl_stream_destroy(stream);
  return status;
}

static dnnl_status_t run(const struct lrmoeGemm *gemm) {
  /* The rows of the expert: m, or k of a weight gradient. */
  int rowsAt = gemm->transA ? 2 : 0;
  dnnl_dim_t size[3] = {gemm->m, gemm->n, gemm->k};
  struct shapes actual;
  dnnl_status_t status = describeAll(gemm, size, &actual);
  if (status != dnnl_success) return status;
  struct shapes general = actual;
  if (gemm->operand == lrmoeFloat32 || size[rowsAt] % ownPrimitiveRows != 0) {
    size[rowsAt] = DNNL_RUNTIME_DIM_VAL;
    status = describeAll(gemm, size, &general);
    if (status != dnnl_success) return status;
  }
  dnnl_primitive_t primitive = NULL;
  status = makePrimitive(&general, gemm->accumulate, &primitive);
  if (status == dnnl_success) status = execute(gemm, &actual, primitive);
  dnnl_primitive_destroy(primitive);
  return status;
}

/* An empty product. */
static void clear(const struct lrmoeGemm *gemm) {
  if (gemm->accumulate || gemm->n == 0) return;
  for (int64_t i = 0; i < gemm->m; i++)
    memset(gemm->c + i * gemm->ldc, 0, (size_t)gemm->n * sizeof *gemm->c);
}

static lrmoeResult_t multiply(const struct lrmoeGemm *gemm) {
  if (gemm->operand != lrmoeFloat32 && gemm->operand != lrmoeBfloat16)
    return lrmoeInvalidArgument;
  if (gemm->m == 0 || gemm->n == 0 || gemm->k == 0) {
    clear(gemm);
    return lrmoeSuccess;
  }
  int hasOpenMp = omp_set_num_threads && omp_get_max_threads;
  int numHostThreads = hasOpenMp ? omp_get_max_threads() : 0;
  if (hasOpenMp) omp_set_num_threads(state.numThreads);
  dnnl_status_t status = run(gemm);
  if (hasOpenMp) omp_set_num_threads(numHostThreads);
  return resultOf(status);
}

static const struct lrmoeGemmModule onednnModule = {
    .abi = LRMOE_GEMM_ABI,
    .name = "onednn",
    .operandType = operandType,
    .multiply = multiply,
    .describe = describe,
};

/* A first product, so that oneDNN sets itself up here (some 10 ms) and not in
 * a step, nor in two threads at once. */
static lrmoeResult_t warmUp(void) {
  const float two = 2;
  float product = 0;
  const struct lrmoeGemm gemm = {
      1, 1, 1, &two, &two, &product, 1, 1, 1, lrmoeFloat32, 0, 0, 0};
  lrmoeResult_t result = multiply(&gemm);
  if (result != lrmoeSuccess) return result;
  return product == two * two ? lrmoeSuccess : lrmoeInternalError;
}

lrmoeResult_t lrmoeGemmModuleGet(int numThreads,
                                 const struct lrmoeGemmModule **module);

/* Called once, under the loader's lock. */
__attribute__((visibility("default"))) lrmoeResult_t
lrmoeGemmModuleGet(int numThreads, const struct lrmoeGemmModule **module) {
  const dnnl_version_t *version = dnnl_version();
  if (version->major != DNNL_VERSION_MAJOR) return lrmoeNotInstalled;
  dnnl_status_t status = dnnl_engine_create(&state.engine, dnnl_cpu, 0);
  if (status != dnnl_success) return resultOf(status);
  state.numThreads = numThreads;
  /* Without bf16 instructions oneDNN's bf16 is slower than its fp32.  Each
   * level of the enumeration has the bits of those below it. */
  unsigned level = (unsigned)dnnl_get_effective_cpu_isa();
  unsigned bf16 = (unsigned)dnnl_cpu_isa_avx512_core_bf16;
  state.hasBf16 = (level & bf16) == bf16;
  snprintf(state.description, sizeof state.description,
           "oneDNN %d.%d.%d, bf16 rows as %s, %d threads", version->major,
           version->minor, version->patch, state.hasBf16 ? "bf16" : "fp32",
           numThreads);
  lrmoeResult_t result = warmUp();
  if (result != lrmoeSuccess) return result;
  *module = &onednnModule;
  return lrmoeSuccess;
}
