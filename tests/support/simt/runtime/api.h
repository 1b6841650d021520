/* What every runtime call starts and ends with. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_API_H
#define LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_API_H

#include "queue.h"

#include <cuda_runtime_api.h>

namespace simt {

/* The device of this operating-system thread. */
int currentDevice();

/* Keeps a failure for cudaGetLastError. */
cudaError_t note(cudaError_t result);

/* The error of a call that was to fail (simtFailCall), or cudaSuccess. */
cudaError_t plannedFailure();

/* A call that touches the device: the queue, locked, and why the call cannot
 * go on: the device is broken, the stream unknown, the failure planned. */
struct Call {
  Queue &queue;
  Queue::Lock lock;
  Device &device;
  Stream *stream = nullptr;
  cudaError_t refusal;

  Call();
  explicit Call(cudaStream_t handle);
  bool isRefused() const {
    return refusal != cudaSuccess;
  }
  /* Runs what the stream has; the device's state after. */
  cudaError_t synchronize(Stream &what);
  cudaError_t synchronizeDevice();
};

} // namespace simt

#endif
