/* A warp for a row: who has which row, what a warp loads once, and the
 * reproducible sum of a row.
 *
 * Lane i takes chunks i, i + 32, ...: element j goes to lane (j / 8) mod 32 in
 * ascending order, which is the order of kernels/rows.h, and all loads of a
 * warp are next to each other. */
#ifndef LRMOE_KERNELS_CUDA_WARPS_CUH
#define LRMOE_KERNELS_CUDA_WARPS_CUH

#include "kernels/cuda/elements.cuh"

namespace lrmoeCuda {

constexpr int warpLanes = 32;
constexpr int blockThreads = 256;
constexpr int blockWarps = blockThreads / warpLanes;
constexpr unsigned allLanes = 0xffffffffu;

__device__ __forceinline__ int laneOf() {
  return static_cast<int>(threadIdx.x) % warpLanes;
}

/* Rows are given to warps in order; the same in all lanes. */
__device__ __forceinline__ int64_t rowOfWarp() {
  return static_cast<int64_t>(blockIdx.x) * blockWarps +
         static_cast<int>(threadIdx.x) / warpLanes;
}

__device__ __forceinline__ int64_t indexOfThread() {
  return static_cast<int64_t>(blockIdx.x) * blockThreads + threadIdx.x;
}

/* One load for the whole warp. */
template <class T>
__device__ __forceinline__ T loadForWarp(const T *pointer) {
  T value = T();
  if (laneOf() == 0) value = lrmoeLoad(pointer);
  return __shfl_sync(allLanes, value, 0);
}

/* struct lrmoeRows in a kernel. */
struct RowsView {
  const char *data;
  const int64_t *index;
  int64_t rowBytes;
};

inline RowsView viewOf(const struct lrmoeRows &rows) {
  return {static_cast<const char *>(rows.data), rows.index,
          rows.width * elementBytes(rows.type)};
}

/* Row i, NULL if it is a row of zeros; for all lanes of a warp. */
__device__ __forceinline__ const char *rowForWarp(const RowsView &rows,
                                                  int64_t i) {
  int64_t row = rows.index ? loadForWarp(rows.index + i) : i;
  return row < 0 ? nullptr : rows.data + row * rows.rowBytes;
}

/* The reproducible sum: each lane's sum, multiplied and added without
 * contraction, then the tree.  The result is in lane 0. */
__device__ __forceinline__ float addProducts(float sum, const Chunk &a,
                                             const Chunk &b) {
#pragma unroll
  for (int k = 0; k < chunkElements; k++)
    sum = __fadd_rn(sum, __fmul_rn(a.at[k], b.at[k]));
  return sum;
}

__device__ __forceinline__ float foldLanes(float sum) {
#pragma unroll
  for (int half = warpLanes / 2; half > 0; half /= 2)
    sum = __fadd_rn(sum, __shfl_down_sync(allLanes, sum, half));
  return sum;
}

/* Blocks of `perBlock` items each; a grid has at most 2^31 - 1. */
inline lrmoeResult_t gridFor(int64_t numItems, int perBlock, dim3 *grid) {
  int64_t numBlocks = (numItems + perBlock - 1) / perBlock;
  LRMOE_CUDA_REQUIRE(numItems >= 0 && numBlocks <= INT32_MAX,
                     "%lld rows or words in one call",
                     static_cast<long long>(numItems));
  *grid = dim3(static_cast<unsigned>(numBlocks));
  return lrmoeSuccess;
}

/* Rows of whole chunks, each at a 16-byte boundary. */
inline lrmoeResult_t requireRows(const struct lrmoeRows &rows) {
  LRMOE_CUDA_REQUIRE(rows.width >= 0 && rows.width % chunkElements == 0 &&
                         rows.width <= INT32_MAX,
                     "rows of %lld elements: the CUDA backend takes multiples "
                     "of %d",
                     static_cast<long long>(rows.width), chunkElements);
  return lrmoeCudaCheckAligned(rows.data);
}

inline int chunksOf(int64_t width) {
  return static_cast<int>(width / chunkElements);
}

/* Launches `kernel` on numItems items; returns from the caller if it fails. */
#define LRMOE_RUN_KERNEL(kernel, numItems, perBlock, stream, ...)             \
  do {                                                                        \
    dim3 grid_;                                                               \
    LRMOE_CHECK(::lrmoeCuda::gridFor((numItems), (perBlock), &grid_));        \
    LRMOE_CUDA_CHECK(LRMOE_LAUNCH(kernel, grid_,                              \
                                  dim3(::lrmoeCuda::blockThreads), 0, stream, \
                                  __VA_ARGS__));                              \
  } while (0)

} // namespace lrmoeCuda

#endif
