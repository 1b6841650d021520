/* Kernels that touch what is not theirs. */
#include "broken_table.h"

__global__ void loadPastEndKernel(unsigned *data) {
  data[threadIdx.x] = data[BROKEN_WORDS + threadIdx.x];
}

__global__ void storePastEndKernel(unsigned *data) {
  data[BROKEN_WORDS + threadIdx.x] = 1;
}

__global__ void storeBeforeStartKernel(unsigned *data) {
  data[-1000 + static_cast<int>(threadIdx.x)] = 1;
}

/* Right, where the data has 64 words. */
__global__ void storeKernel(unsigned *data) {
  data[threadIdx.x] = 1;
}

struct WordShared {
  unsigned words[64];
};

__global__ void sharedPastEndKernel(unsigned *data) {
  LRMOE_SHARED(WordShared, shared);
  unsigned *words = shared.words;
  words[threadIdx.x + 1] = data[threadIdx.x];
}

/* The volatile pointers keep compilers from seeing what this comes to. */
__device__ unsigned deepSum(unsigned depth, volatile unsigned *above) {
  volatile unsigned frame[256];
  frame[depth % 256] = *above;
  if (depth == 0) return frame[0];
  return deepSum(depth - 1, frame) + frame[depth % 256];
}

__global__ void deepStackKernel(unsigned *data) {
  data[threadIdx.x] = deepSum(1u << 20, data);
}

static const BrokenCase cases[] = {
    BROKEN_CASE(loadPastEndKernel, 1, 32, 0),
    BROKEN_CASE(storePastEndKernel, 1, 32, 0),
    BROKEN_CASE(storeBeforeStartKernel, 1, 32, 0),
    BROKEN_CASE(storeKernel, 1, 64, 0),
    BROKEN_CASE(sharedPastEndKernel, 1, 64, sizeof(WordShared)),
    BROKEN_CASE(deepStackKernel, 1, 32, 0),
};

const BrokenCase *brokenMemory(const char *name) {
  return findCase(cases, name);
}

cudaError_t brokenLaunch(const char *name, unsigned *data,
                         cudaStream_t stream) {
  const BrokenCase *found = brokenReport(name);
  if (!found) found = brokenOrder(name);
  if (!found) found = brokenMemory(name);
  return found ? found->launch(data, stream) : cudaErrorInvalidDeviceFunction;
}
