// expected: comparison of integer expressions of different signedness
#include "lrmoe_device.h"

__global__ void plantedKernel(float *out) {
  out[threadIdx.x] = 1;
}

cudaError_t planted(float *out, int count, size_t most) {
  if (count > most) return cudaErrorInvalidValue;
  return LRMOE_LAUNCH(plantedKernel, dim3(1), dim3(32), 0, 0, out);
}
