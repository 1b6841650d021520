/* Errors of the CUDA module: see error.h. */
#include "kernels/cuda/error.h"

#include <cstdarg>
#include <cstdio>

static thread_local char lastText[512];

lrmoeResult_t lrmoeCudaFail(lrmoeResult_t result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(lastText, sizeof lastText, format, arguments);
  va_end(arguments);
  return result;
}

static lrmoeResult_t resultOf(cudaError_t error) {
  switch (error) {
  case cudaErrorMemoryAllocation:
    return lrmoeOutOfMemory;
  case cudaErrorInsufficientDriver:
  case cudaErrorNoDevice:
  case cudaErrorStubLibrary:
  case cudaErrorNoKernelImageForDevice:
    return lrmoeNotInstalled;
  default:
    return lrmoeUnhandledCudaError;
  }
}

/* A call as it is written, without its arguments. */
static int nameLength(const char *call) {
  int length = 0;
  while (call[length] && call[length] != '(')
    length++;
  return length;
}

lrmoeResult_t lrmoeCudaFailCall(const char *call, cudaError_t error) {
  (void)cudaGetLastError();
  return lrmoeCudaFail(resultOf(error), "%.*s: %s (%s)", nameLength(call), call,
                       cudaGetErrorString(error), cudaGetErrorName(error));
}

lrmoeResult_t lrmoeCudaFailCublas(const char *call, cublasStatus_t status) {
  lrmoeResult_t result = status == CUBLAS_STATUS_ALLOC_FAILED
                             ? lrmoeOutOfMemory
                             : lrmoeUnhandledCudaError;
  return lrmoeCudaFail(result, "%.*s: %s", nameLength(call), call,
                       cublasGetStatusString(status));
}

const char *lrmoeCudaLastError(void) {
  return lastText;
}

lrmoeResult_t lrmoeCudaCheckAligned(const void *rows) {
  if (reinterpret_cast<uintptr_t>(rows) % 16 == 0) return lrmoeSuccess;
  return lrmoeCudaFail(lrmoeInvalidArgument,
                       "rows at %p: the CUDA backend takes rows at 16-byte "
                       "boundaries",
                       rows);
}
