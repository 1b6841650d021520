/* Kernels whose result depends on an order that nothing fixes. */
#include "broken_table.h"

struct WordShared {
  unsigned words[64];
};

/* Nothing orders the store before the other thread's load. */
__global__ void missingBarrierKernel(unsigned *data) {
  LRMOE_SHARED(WordShared, shared);
  shared.words[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = shared.words[63 - threadIdx.x];
}

__global__ void missingBroadcastKernel(unsigned *data) {
  LRMOE_SHARED(WordShared, shared);
  if (threadIdx.x == 17) shared.words[0] = data[17];
  data[threadIdx.x] = shared.words[0];
}

/* A shuffle makes lanes meet and orders no memory. */
__global__ void lockstepKernel(unsigned *data) {
  LRMOE_SHARED(WordShared, shared);
  shared.words[threadIdx.x] = data[threadIdx.x];
  unsigned other = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
  data[threadIdx.x] = shared.words[other];
}

/* The same with what it lacked. */
__global__ void syncwarpKernel(unsigned *data) {
  LRMOE_SHARED(WordShared, shared);
  shared.words[threadIdx.x] = data[threadIdx.x];
  __syncwarp();
  data[threadIdx.x] = shared.words[threadIdx.x ^ 1];
}

/* Every block stores; the last one wins. */
__global__ void blockRaceKernel(unsigned *data) {
  if (threadIdx.x == 0) data[0] = blockIdx.x + 1000;
}

/* Races with the next block's barrier in between, which orders nothing. */
__global__ void blockRaceWithBarrierKernel(unsigned *data) {
  __syncthreads();
  if (threadIdx.x == 0) data[0] = blockIdx.x + 1000;
  __syncthreads();
}

/* Places are taken in the order of arrival. */
__global__ void arrivalOrderKernel(unsigned *data) {
  unsigned place = atomicAdd(&data[128], 1u) - 128;
  data[place] = blockIdx.x * blockDim.x + threadIdx.x;
}

/* Half of the shared memory is never written. */
__global__ void uninitialisedKernel(unsigned *data) {
  LRMOE_SHARED(WordShared, shared);
  if (threadIdx.x % 2) shared.words[threadIdx.x] = 0;
  __syncthreads();
  data[threadIdx.x] = shared.words[threadIdx.x];
}

static const BrokenCase cases[] = {
    BROKEN_CASE(missingBarrierKernel, 1, 64, sizeof(WordShared)),
    BROKEN_CASE(missingBroadcastKernel, 1, 64, sizeof(WordShared)),
    BROKEN_CASE(lockstepKernel, 1, 64, sizeof(WordShared)),
    BROKEN_CASE(syncwarpKernel, 1, 64, sizeof(WordShared)),
    BROKEN_CASE(blockRaceKernel, 4, 32, 0),
    BROKEN_CASE(blockRaceWithBarrierKernel, 4, 32, 0),
    BROKEN_CASE(arrivalOrderKernel, 2, 64, 0),
    BROKEN_CASE(uninitialisedKernel, 1, 64, sizeof(WordShared)),
};

const BrokenCase *brokenOrder(const char *name) {
  return findCase(cases, name);
}
