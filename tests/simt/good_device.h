/* Device functions that the good kernels share. */
#ifndef LRMOE_TESTS_SIMT_GOOD_DEVICE_H
#define LRMOE_TESTS_SIMT_GOOD_DEVICE_H

#include "lrmoe_device.h"

constexpr unsigned fullMask = 0xffffffffu;

template <class T>
__device__ inline T warpSum(T value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(fullMask, value, distance);
  return value;
}

template <int numThreads>
struct ScanShared {
  unsigned warpTotals[numThreads / 32];
  unsigned total;
};

__device__ inline unsigned warpInclusiveScan(unsigned value) {
  unsigned lane = threadIdx.x % 32;
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    unsigned before = __shfl_up_sync(fullMask, value, distance);
    if (lane >= distance) value += before;
  }
  return value;
}

/* The sum of the values of the threads before this one; total is of all. */
template <int numThreads>
__device__ inline unsigned
blockScan(unsigned value, ScanShared<numThreads> &shared, unsigned *total) {
  constexpr unsigned numWarps = numThreads / 32;
  unsigned lane = threadIdx.x % 32;
  unsigned warp = threadIdx.x / 32;
  unsigned inclusive = warpInclusiveScan(value);
  if (lane == 31) shared.warpTotals[warp] = inclusive;
  __syncthreads();
  if (warp == 0) {
    unsigned own = lane < numWarps ? shared.warpTotals[lane] : 0;
    unsigned sum = warpInclusiveScan(own);
    if (lane < numWarps) shared.warpTotals[lane] = sum - own;
    if (lane == 31) shared.total = sum;
  }
  __syncthreads();
  unsigned exclusive = shared.warpTotals[warp] + inclusive - value;
  *total = shared.total;
  __syncthreads();
  return exclusive;
}

#endif
