// expected: plantedKernel: not in the budget: plantedKernel [0-9]+ 0 0
#include "lrmoe_device.h"

__global__ void plantedKernel(float *out) {
  out[threadIdx.x] = 1;
}
