/* Device memory for the emulator's tests: see device.h. */
#include "device.h"

#include "support/simt/simt.h"

void *deviceCopyOf(const void *from, size_t bytes) {
  void *device = NULL;
  ASSERT_CUDA(cudaMalloc(&device, bytes));
  if (from)
    ASSERT_CUDA(cudaMemcpy(device, from, bytes, cudaMemcpyHostToDevice));
  else
    ASSERT_CUDA(cudaMemset(device, 0, bytes));
  return device;
}

void deviceTake(void *device, void *to, size_t bytes) {
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaMemcpy(to, device, bytes, cudaMemcpyDeviceToHost));
  ASSERT_CUDA(cudaFree(device));
}

uint32_t nextNumber(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

void chooseOrder(int order) {
  if (order == 0)
    simtSetOrder(simtOrderFifo, 0);
  else if (order == 1)
    simtSetOrder(simtOrderLifo, 0);
  else
    simtSetOrder(simtOrderRandom, (uint64_t)order);
}
