/* Must not compile: the builtin indices cannot be written. */
#include "lrmoe_device.h"

__global__ void writtenIndexKernel(unsigned *out) {
  threadIdx.x = 3;
  out[0] = threadIdx.x;
}
