// expected: [Dd]ouble
#include "lrmoe_device.h"

__global__ void plantedKernel(float *out) {
  out[threadIdx.x] = static_cast<float>(out[threadIdx.x] * 1.1);
}
