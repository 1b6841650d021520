// expected: [Ll]ocal memory
#include "lrmoe_device.h"

__global__ void plantedKernel(const int *in, float *out) {
  float values[32];
  for (int i = 0; i < 32; i++)
    values[in[i] & 31] = static_cast<float>(in[i + 32]);
  out[threadIdx.x] = values[in[threadIdx.x] & 31];
}
