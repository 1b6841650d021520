// expected: [Ss]pill|spilled
#include "lrmoe_device.h"

constexpr int numValues = 64;

__global__ void __launch_bounds__(1024, 2)
    plantedKernel(const float *__restrict__ in, float *__restrict__ out) {
  float values[numValues];
#pragma unroll
  for (int i = 0; i < numValues; i++)
    values[i] = in[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < numValues; i++)
#pragma unroll
    for (int j = 0; j < 3; j++)
      values[i] = values[i] * values[(i * 7 + j * 13 + 5) % numValues] + 1.0f;
#pragma unroll
  for (int i = 0; i < numValues; i++)
    out[i * 1024 + threadIdx.x] = values[i];
}
