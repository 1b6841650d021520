/* Sums within a block that has a warp's part of something in each warp. */
#ifndef LRMOE_KERNELS_CUDA_BLOCKS_CUH
#define LRMOE_KERNELS_CUDA_BLOCKS_CUH

#include "kernels/cuda/warps.cuh"

namespace lrmoeCuda {

__device__ __forceinline__ int warpOf() {
  return static_cast<int>(threadIdx.x) / warpLanes;
}

/* Sum of the lanes' values, in lane 0. */
__device__ __forceinline__ int64_t sumOfLanes(int64_t value) {
#pragma unroll
  for (int half = warpLanes / 2; half > 0; half /= 2)
    value += __shfl_down_sync(allLanes, value, half);
  return value;
}

/* Sum of the values of this lane and those before it. */
__device__ __forceinline__ int64_t sumUpToLane(int64_t value) {
#pragma unroll
  for (int step = 1; step < warpLanes; step *= 2) {
    int64_t before = __shfl_up_sync(allLanes, value, step);
    if (laneOf() >= step) value += before;
  }
  return value;
}

struct WarpSums {
  int64_t at[warpLanes];
};

__device__ __forceinline__ int64_t sumOfShared(int numWarps,
                                               const WarpSums &shared) {
  int64_t sum = 0;
  for (int warp = 0; warp < numWarps; warp++)
    sum += shared.at[warp];
  return sum;
}

/* What the first numWarps warps have in their lanes 0, added up.  The block
 * meets here, and must meet before it calls again with the same `shared`. */
__device__ __forceinline__ int64_t sumOfWarps(int64_t sum, int numWarps,
                                              WarpSums &shared) {
  if (laneOf() == 0) shared.at[warpOf()] = sum;
  __syncthreads();
  return sumOfShared(numWarps, shared);
}

__device__ __forceinline__ int64_t sumOfWarpsBefore(int64_t sum,
                                                    WarpSums &shared) {
  return sumOfWarps(sum, warpOf(), shared);
}

/* A warp's part of what a block works on. */
struct Part {
  int64_t begin;
  int64_t end;
};

template <int threads>
__device__ __forceinline__ Part partOfWarp(int64_t length) {
  constexpr int64_t numWarps = threads / warpLanes;
  int64_t size = (length + numWarps - 1) / numWarps;
  size = (size + warpLanes - 1) / warpLanes * warpLanes;
  Part part = {warpOf() * size, (warpOf() + 1) * size};
  if (part.begin > length) part.begin = length;
  if (part.end > length) part.end = length;
  return part;
}

} // namespace lrmoeCuda

#endif
