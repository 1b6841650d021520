/* Must not compile: static shared memory, which has no exact bounds. */
#include "lrmoe_device.h"

__global__ void staticSharedKernel(float *out) {
  __shared__ float words[32];
  words[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = words[31 - threadIdx.x];
}
