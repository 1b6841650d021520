/* A stand-in for the part of cuBLAS that the product uses, with its argument
 * rules: host scalars and shapes, device matrices, and for grouped calls
 * device arrays of device pointers, 16-byte alignment, one type for A, B and
 * C, and no empty group. */
#include "../config.h"
#include "api.h"
#include "gemm.h"
#include "memory.h"

#include <cublas_v2.h>

#include <algorithm>

/* What a cublasHandle_t points to. */
struct cublasContext {
  cudaStream_t stream;
  cublasMath_t mathMode;
};

namespace simt {

static bool isDeviceMemory(const void *address) {
  int device;
  return memoryOwner(address, &device) && device != pinnedHost;
}

static bool isOperand(cudaDataType_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

static bool isCompute32(cublasComputeType_t type) {
  return type == CUBLAS_COMPUTE_32F || type == CUBLAS_COMPUTE_32F_PEDANTIC;
}

static bool isTranspose(cublasOperation_t operation) {
  return operation != CUBLAS_OP_N;
}

static cublasStatus_t refuse(cublasStatus_t status, const std::string &why) {
  report("cuBLAS: " + why);
  return status;
}

/* Sizes and strides: what cuBLAS calls invalid. */
static bool isValidShape(const Gemm &gemm) {
  auto height = [](const Matrix &matrix, int64_t rows, int64_t columns) {
    return std::max<int64_t>(1, matrix.isTransposed ? columns : rows);
  };
  return gemm.m >= 0 && gemm.n >= 0 && gemm.k >= 0 &&
         gemm.a.stride >= height(gemm.a, gemm.m, gemm.k) &&
         gemm.b.stride >= height(gemm.b, gemm.k, gemm.n) &&
         gemm.c.stride >= height(gemm.c, gemm.m, gemm.n);
}

static std::string checkMatrix(const char *name, const Matrix &matrix,
                               int64_t rows, int64_t columns,
                               size_t alignment) {
  size_t bytes = matrixBytes(matrix, rows, columns);
  std::string what = std::string("matrix ") + name;
  if (bytes == 0) return "";
  if (reinterpret_cast<uintptr_t>(matrix.data) % alignment)
    return what + " is misaligned: " + std::to_string(alignment) +
           " bytes are needed";
  size_t strideBytes =
      static_cast<size_t>(matrix.stride) * elementBytes(matrix.type);
  if (strideBytes % alignment) return what + " has a misaligned stride";
  std::string error = memoryCheck(matrix.data, bytes);
  return error.empty() ? "" : what + ": " + error;
}

static std::string checkMatrices(const Gemm &gemm, size_t alignment) {
  auto unit = [alignment](const Matrix &matrix) {
    return alignment ? alignment : elementBytes(matrix.type);
  };
  std::string error = checkMatrix("A", gemm.a, gemm.m, gemm.k, unit(gemm.a));
  if (error.empty())
    error = checkMatrix("B", gemm.b, gemm.k, gemm.n, unit(gemm.b));
  if (error.empty())
    error = checkMatrix("C", gemm.c, gemm.m, gemm.n, unit(gemm.c));
  return error;
}

static void touchMatrix(const Matrix &matrix, int64_t rows, int64_t columns,
                        bool isWrite) {
  int64_t height = matrix.isTransposed ? columns : rows;
  int64_t width = matrix.isTransposed ? rows : columns;
  size_t element = elementBytes(matrix.type);
  const char *column = static_cast<const char *>(matrix.data);
  for (int64_t i = 0; i < width; i++) {
    orderTouch(column, static_cast<size_t>(height) * element, isWrite);
    column += static_cast<size_t>(matrix.stride) * element;
  }
}

static void runGemm(const Gemm &gemm) {
  touchMatrix(gemm.a, gemm.m, gemm.k, false);
  touchMatrix(gemm.b, gemm.k, gemm.n, false);
  touchMatrix(gemm.c, gemm.m, gemm.n, true);
  gemmRun(gemm);
}

static cublasStatus_t enqueueGemm(cublasHandle_t handle, const char *what,
                                  std::function<std::string()> run) {
  Call call(handle->stream);
  if (call.isRefused()) return CUBLAS_STATUS_EXECUTION_FAILED;
  Operation operation;
  operation.what = what;
  operation.run = std::move(run);
  call.queue.enqueue(*call.stream, std::move(operation));
  return CUBLAS_STATUS_SUCCESS;
}

/* One group of a grouped call; its matrices' addresses lie on the device. */
struct Group {
  Gemm shape;
  int first; /* in the arrays of pointers */
  int count;
};

struct PointerArrays {
  const void *const *a;
  const void *const *b;
  void *const *c;
};

constexpr size_t groupedAlignment = 16;

static std::string runGroups(const std::vector<Group> &groups,
                             const PointerArrays &arrays) {
  for (const Group &group : groups) {
    size_t bytes = static_cast<size_t>(group.count) * sizeof(void *);
    orderTouch(arrays.a + group.first, bytes, false);
    orderTouch(arrays.b + group.first, bytes, false);
    orderTouch(arrays.c + group.first, bytes, false);
    for (int i = group.first; i < group.first + group.count; i++) {
      Gemm gemm = group.shape;
      gemm.a.data = const_cast<void *>(arrays.a[i]);
      gemm.b.data = const_cast<void *>(arrays.b[i]);
      gemm.c.data = arrays.c[i];
      std::string error = checkMatrices(gemm, groupedAlignment);
      if (!error.empty())
        return "cublasGemmGroupedBatchedEx, matrix " + std::to_string(i) +
               ": " + error;
      runGemm(gemm);
    }
  }
  return "";
}

static cublasStatus_t checkGroup(const Group &group, int index) {
  std::string name = "group " + std::to_string(index);
  if (group.count <= 0 || !isValidShape(group.shape))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, name + " has a bad shape");
  if (group.shape.m == 0 || group.shape.n == 0 || group.shape.k == 0)
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  name + " is empty: some releases then write garbage");
  return CUBLAS_STATUS_SUCCESS;
}

} // namespace simt

using namespace simt;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  Call call;
  if (call.isRefused()) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext{nullptr, CUBLAS_DEFAULT_MATH};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int *version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
  const int parts[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};
  if (type < MAJOR_VERSION || type > PATCH_LEVEL)
    return CUBLAS_STATUS_INVALID_VALUE;
  *value = parts[type];
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

/* It is not used, but must be what cuBLAS needs. */
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace,
                                     size_t bytes) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (bytes && (reinterpret_cast<uintptr_t>(workspace) % 256 ||
                !memoryIsLive(workspace, bytes)))
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  "the workspace is not aligned device memory");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->mathMode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  *mode = handle->mathMode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle,
                                       cublasPointerMode_t mode) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS
                                          : CUBLAS_STATUS_NOT_SUPPORTED;
}

const char *cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  default:
    return "<unknown>";
  }
}

const char *cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "success";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "the library was not initialized";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "the resource allocation failed";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "an unsupported value or parameter was passed to the function";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "the function failed to launch on the GPU";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "the functionality requested is not supported";
  default:
    return "<unknown>";
  }
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k,
                            const void *alpha, const void *A,
                            cudaDataType Atype, int lda, const void *B,
                            cudaDataType Btype, int ldb, const void *beta,
                            void *C, cudaDataType Ctype, int ldc,
                            cublasComputeType_t computeType, cublasGemmAlgo_t) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!alpha || !beta || isDeviceMemory(alpha) || isDeviceMemory(beta))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "alpha and beta are host's");
  if (!isCompute32(computeType) || !isOperand(Atype) || Atype != Btype ||
      (Ctype != Atype && Ctype != CUDA_R_32F))
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no such types of matrices");
  Gemm gemm = {m,
               n,
               k,
               *static_cast<const float *>(alpha),
               *static_cast<const float *>(beta),
               {const_cast<void *>(A), Atype, lda, isTranspose(transa)},
               {const_cast<void *>(B), Btype, ldb, isTranspose(transb)},
               {C, Ctype, ldc, false}};
  if (!isValidShape(gemm))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a bad shape");
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  return enqueueGemm(handle, "cublasGemmEx", [gemm] {
    std::string error = checkMatrices(gemm, 0);
    if (!error.empty()) return "cublasGemmEx: " + error;
    runGemm(gemm);
    return error;
  });
}

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t transa[],
    const cublasOperation_t transb[], const int m[], const int n[],
    const int k[], const void *alpha, const void *const A[],
    cudaDataType_t Atype, const int lda[], const void *const B[],
    cudaDataType_t Btype, const int ldb[], const void *beta, void *const C[],
    cudaDataType_t Ctype, const int ldc[], int group_count,
    const int group_size[], cublasComputeType_t computeType) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!isCompute32(computeType) || !isOperand(Atype) || Atype != Btype ||
      Atype != Ctype)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                  "a grouped call has one type for A, B and C");
  if (!isDeviceMemory(A) || !isDeviceMemory(B) || !isDeviceMemory(C))
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  "arrays of pointers are the device's");
  if (isDeviceMemory(m) || isDeviceMemory(alpha) || isDeviceMemory(group_size))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "shapes and scalars are host's");
  const float *alphas = static_cast<const float *>(alpha);
  const float *betas = static_cast<const float *>(beta);
  std::vector<Group> groups;
  int first = 0;
  for (int g = 0; g < group_count; g++) {
    Gemm shape = {m[g],
                  n[g],
                  k[g],
                  alphas[g],
                  betas[g],
                  {nullptr, Atype, lda[g], isTranspose(transa[g])},
                  {nullptr, Btype, ldb[g], isTranspose(transb[g])},
                  {nullptr, Ctype, ldc[g], false}};
    groups.push_back({shape, first, group_size[g]});
    cublasStatus_t status = checkGroup(groups.back(), g);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    first += group_size[g];
  }
  PointerArrays arrays = {A, B, C};
  return enqueueGemm(handle, "cublasGemmGroupedBatchedEx",
                     [groups, arrays] { return runGroups(groups, arrays); });
}

} /* extern "C" */
