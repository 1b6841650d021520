// expected: an atomic on floats: .*red\.global\.add\.f32|an atomic on floats: .*atom\.global\.add\.f32
#include "lrmoe_device.h"

__global__ void plantedKernel(float *out) {
  atomicAdd(out, static_cast<float>(threadIdx.x));
}
