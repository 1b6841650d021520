/* Memory, copies, streams and events: the runtime's, with its errors in
 * words.  See backend.h for the contract.
 *
 * Capture into a graph: copy (of page-locked or device memory), clear,
 * eventRecord and streamWait may be captured; allocation, synchronize and
 * eventWait may not. */
#include "kernels/cuda/calls.h"
#include "kernels/cuda/error.h"

lrmoeResult_t lrmoeCudaMemAlloc(size_t bytes, void **pointer) {
  LRMOE_CUDA_CHECK(cudaMalloc(pointer, bytes ? bytes : 1));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaMemFree(void *pointer) {
  LRMOE_CUDA_CHECK(cudaFree(pointer));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaHostAlloc(size_t bytes, void **pointer) {
  LRMOE_CUDA_CHECK(cudaMallocHost(pointer, bytes ? bytes : 1));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaHostFree(void *pointer) {
  if (pointer) LRMOE_CUDA_CHECK(cudaFreeHost(pointer));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaCopy(void *to, const void *from, size_t bytes,
                            enum lrmoeCopyKind kind, lrmoeStream_t stream) {
  if (bytes == 0) return lrmoeSuccess;
  cudaMemcpyKind direction = cudaMemcpyDeviceToDevice;
  if (kind == lrmoeCopyToDevice) direction = cudaMemcpyHostToDevice;
  if (kind == lrmoeCopyToHost) direction = cudaMemcpyDeviceToHost;
  LRMOE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, direction, stream));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaClear(void *to, size_t bytes, lrmoeStream_t stream) {
  if (bytes == 0) return lrmoeSuccess;
  LRMOE_CUDA_CHECK(cudaMemsetAsync(to, 0, bytes, stream));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaSynchronize(lrmoeStream_t stream) {
  LRMOE_CUDA_CHECK(cudaStreamSynchronize(stream));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaEventCreate(void **event) {
  cudaEvent_t made = NULL;
  LRMOE_CUDA_CHECK(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
  *event = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaTimerCreate(void **event) {
  cudaEvent_t made = NULL;
  LRMOE_CUDA_CHECK(cudaEventCreate(&made));
  *event = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaTimerRead(void *from, void *to, int64_t *ns) {
  float ms = 0;
  LRMOE_CUDA_CHECK(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(from),
                                        static_cast<cudaEvent_t>(to)));
  *ns = static_cast<int64_t>(static_cast<double>(ms) * 1e6);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaEventRecord(void *event, lrmoeStream_t stream) {
  LRMOE_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(event), stream));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaEventWait(void *event) {
  LRMOE_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaStreamWait(lrmoeStream_t stream, void *event) {
  LRMOE_CUDA_CHECK(
      cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(event), 0));
  return lrmoeSuccess;
}

/* An answer that the runtime keeps like an error is not left to others. */
lrmoeResult_t lrmoeCudaEventQuery(void *event, int *isDone) {
  cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (state == cudaErrorNotReady)
    (void)cudaGetLastError();
  else
    LRMOE_CUDA_CHECK(state);
  *isDone = state == cudaSuccess;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaEventDestroy(void *event) {
  if (event)
    LRMOE_CUDA_CHECK(cudaEventDestroy(static_cast<cudaEvent_t>(event)));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaBusAddress(char *text) {
  const int room = 20;
  int device = 0;
  LRMOE_CUDA_CHECK(cudaGetDevice(&device));
  LRMOE_CUDA_CHECK(cudaDeviceGetPCIBusId(text, room, device));
  return lrmoeSuccess;
}
