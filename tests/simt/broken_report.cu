/* Kernels whose fault ends the launch with a report. */
#include "broken_table.h"

constexpr unsigned fullMask = 0xffffffffu;

/* Both halves wait, each at a barrier of its own. */
__global__ void divergentBarrierKernel(unsigned *data) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  data[threadIdx.x] = 1;
}

/* The second warp is no full one when it shuffles. */
__global__ void deadlockKernel(unsigned *data) {
  if (threadIdx.x < 40) data[threadIdx.x] = __shfl_sync(fullMask, 1u, 0);
  __syncthreads();
}

__global__ void shuffleFromOutsideKernel(unsigned *data) {
  if (threadIdx.x < 16)
    data[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 20);
}

__global__ void maskMismatchKernel(unsigned *data) {
  unsigned mask = threadIdx.x < 16 ? fullMask : 0xffff8000u;
  data[threadIdx.x] = __shfl_xor_sync(mask, threadIdx.x, 1);
}

__global__ void maskWithoutSelfKernel(unsigned *data) {
  data[threadIdx.x] = __ballot_sync(0x0000ffffu, 1);
}

__global__ void differentOperationsKernel(unsigned *data) {
  if (threadIdx.x < 16)
    data[threadIdx.x] = __ballot_sync(fullMask, 1);
  else
    data[threadIdx.x] = static_cast<unsigned>(__any_sync(fullMask, 1));
}

__global__ void misalignedLoadKernel(unsigned *data) {
  const uint4 *vectors = reinterpret_cast<const uint4 *>(data + 1);
  data[threadIdx.x] = lrmoeLoad(vectors + threadIdx.x).x;
}

__global__ void misalignedStoreKernel(unsigned *data) {
  uint2 *vectors = reinterpret_cast<uint2 *>(data + 1);
  __stcs(vectors + threadIdx.x, make_uint2(1, 2));
}

struct SmallShared {
  unsigned words[64];
};

__global__ void littleSharedKernel(unsigned *data) {
  LRMOE_SHARED(SmallShared, shared);
  shared.words[threadIdx.x] = data[threadIdx.x];
}

/* One thread leaves; the others wait for it (an error when strict). */
__global__ void earlyExitKernel(unsigned *data) {
  if (threadIdx.x == 5) return;
  __syncthreads();
  data[threadIdx.x] = 1;
}

/* Nobody ever stores what is waited for. */
__global__ void endlessSpinKernel(unsigned *data) {
  while (atomicAdd(&data[0], 0u) == 0) {
  }
}

__global__ void endlessLoadKernel(unsigned *data) {
  while (__ldcg(&data[0]) == 0) {
  }
}

/* Block 1 waits for block 0; hardware may run them one after the other too. */
__global__ void blocksWaitKernel(unsigned *data) {
  if (blockIdx.x == 0) {
    while (atomicAdd(&data[0], 0u) < 1) {
    }
    atomicAdd(&data[0], 1u);
  } else {
    atomicAdd(&data[0], 1u);
    while (atomicAdd(&data[0], 0u) < 2) {
    }
  }
}

__global__ void trapKernel(unsigned *data) {
  if (data[threadIdx.x] == 7) __trap();
}

static const BrokenCase cases[] = {
    BROKEN_CASE(divergentBarrierKernel, 1, 64, 0),
    BROKEN_CASE(deadlockKernel, 1, 64, 0),
    BROKEN_CASE(shuffleFromOutsideKernel, 1, 32, 0),
    BROKEN_CASE(maskMismatchKernel, 1, 32, 0),
    BROKEN_CASE(maskWithoutSelfKernel, 1, 32, 0),
    BROKEN_CASE(differentOperationsKernel, 1, 32, 0),
    BROKEN_CASE(misalignedLoadKernel, 1, 32, 0),
    BROKEN_CASE(misalignedStoreKernel, 1, 32, 0),
    BROKEN_CASE(littleSharedKernel, 1, 64, sizeof(SmallShared) - 4),
    BROKEN_CASE(earlyExitKernel, 1, 64, 0),
    BROKEN_CASE(endlessSpinKernel, 1, 32, 0),
    BROKEN_CASE(endlessLoadKernel, 1, 32, 0),
    BROKEN_CASE(blocksWaitKernel, 2, 1, 0),
    BROKEN_CASE(trapKernel, 1, 32, 0),
    {"manyThreads",
     [](unsigned *data, cudaStream_t stream) {
       return LRMOE_LAUNCH(trapKernel, dim3(1), dim3(1025), 0, stream, data);
     }},
    {"noThreads",
     [](unsigned *data, cudaStream_t stream) {
       return LRMOE_LAUNCH(trapKernel, dim3(1), dim3(0), 0, stream, data);
     }},
    {"muchShared",
     [](unsigned *data, cudaStream_t stream) {
       return LRMOE_LAUNCH(trapKernel, dim3(1), dim3(32), 232449, stream, data);
     }},
};

const BrokenCase *brokenReport(const char *name) {
  return findCase(cases, name);
}
