/* Must not compile: a sum of floats in any order. */
#include "lrmoe_device.h"

__global__ void floatAtomicKernel(float *sum) {
  atomicAdd(sum, 1.0f);
}

cudaError_t floatAtomic(float *sum) {
  return LRMOE_LAUNCH(floatAtomicKernel, dim3(1), dim3(32), 0, 0, sum);
}
