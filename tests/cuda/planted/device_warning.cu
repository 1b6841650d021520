// expected: never referenced
#include "lrmoe_device.h"

__global__ void plantedKernel(float *out) {
  int unused;
  out[threadIdx.x] = 1;
}
