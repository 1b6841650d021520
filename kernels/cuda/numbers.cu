/* Numbering and inversion: kernels/lists.h.
 *
 * Sums of what comes before are taken in three steps: a block adds a tile up
 * and leaves the sum where the tile's numbers will begin; one block turns these
 * sums into those of the tiles before; then each block numbers its tile.  Where
 * there is one tile, the last step does.
 *
 * An inversion counts by atomics, numbers the counts, drops the items into
 * their lists in any order and sorts each list.  Integers only, so that the
 * order of threads does not show.
 *
 * All calls may be captured into a graph. */
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/numbers.h"

using namespace lrmoeCuda;

constexpr int laneItems = 16; /* of a tile */
constexpr int warpItems = laneItems * warpLanes;
constexpr int tileItems = warpItems * blockWarps;
constexpr int maxScanThreads = 1024;

/* A warp's items of a tile, 32 neighbours at a time. */
__device__ __forceinline__ int64_t firstOfLane() {
  return static_cast<int64_t>(blockIdx.x) * tileItems +
         static_cast<int64_t>(warpOf()) * warpItems + laneOf();
}

template <class T>
__global__ void __launch_bounds__(blockThreads)
    sumTilesKernel(int64_t count, const T *values, int64_t *numbers) {
  LRMOE_SHARED(WarpSums, shared);
  int64_t first = firstOfLane();
  int64_t sum = 0;
#pragma unroll
  for (int k = 0; k < laneItems; k++)
    if (first + k * warpLanes < count)
      sum += __ldg(values + first + k * warpLanes);
  sum = sumOfWarps(sumOfLanes(sum), blockWarps, shared);
  if (threadIdx.x == 0)
    lrmoeStore(numbers + static_cast<int64_t>(blockIdx.x) * tileItems, sum);
}

/* values[i * stride] for i < count becomes the sum of those before, total[0]
 * that of all; one block. */
__global__ void __launch_bounds__(maxScanThreads)
    scanKernel(int64_t count, int64_t stride, int64_t *values, int64_t *total) {
  LRMOE_SHARED(WarpSums, shared);
  int64_t before = 0;
  int numWarps = static_cast<int>(blockDim.x) / warpLanes;
  for (int64_t first = 0; first < count; first += blockDim.x) {
    int64_t i = first + threadIdx.x;
    int64_t value = i < count ? lrmoeLoad(values + i * stride) : 0;
    int64_t sum = sumUpToLane(value);
    int64_t warpSum = __shfl_sync(allLanes, sum, warpLanes - 1);
    int64_t warps = sumOfWarpsBefore(warpSum, shared);
    if (i < count)
      lrmoeStore(values + i * stride, before + warps + sum - value);
    before += sumOfShared(numWarps, shared);
    __syncthreads();
  }
  if (threadIdx.x == 0) lrmoeStore(total, before);
}

template <class T>
__global__ void __launch_bounds__(blockThreads)
    numberTilesKernel(int64_t count, const T *values, int64_t *numbers) {
  LRMOE_SHARED(WarpSums, shared);
  int64_t first = firstOfLane();
  T mine[laneItems];
  int64_t sum = 0;
  int64_t before = 0;
  if (gridDim.x > 1)
    before =
        loadForWarp(numbers + static_cast<int64_t>(blockIdx.x) * tileItems);
#pragma unroll
  for (int k = 0; k < laneItems; k++) {
    int64_t i = first + k * warpLanes;
    mine[k] = i < count ? __ldg(values + i) : T(0);
    sum += mine[k];
  }
  before += sumOfWarpsBefore(sumOfLanes(sum), shared);
  if (gridDim.x == 1 && threadIdx.x == 0)
    lrmoeStore(numbers + count, sumOfShared(blockWarps, shared));
#pragma unroll
  for (int k = 0; k < laneItems; k++) {
    int64_t i = first + k * warpLanes;
    if (i - laneOf() >= count) break;
    int64_t upTo = sumUpToLane(mine[k]);
    if (i < count) lrmoeStore(numbers + i, before + upTo - mine[k]);
    before += __shfl_sync(allLanes, upTo, warpLanes - 1);
  }
}

static lrmoeResult_t scan(int64_t count, int64_t stride, int64_t *values,
                          int64_t *total, lrmoeStream_t stream) {
  unsigned threads = maxScanThreads;
  if (count < maxScanThreads)
    threads = static_cast<unsigned>(count / warpLanes + 1) * warpLanes;
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(scanKernel, dim3(1), dim3(threads),
                                sizeof(WarpSums), stream, count, stride, values,
                                total));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNumberInPlace(int64_t count, int64_t *values,
                                 lrmoeStream_t stream) {
  return scan(count, 1, values, values + count, stream);
}

/* numbers [count + 1] of values, which are elsewhere. */
template <class T>
static lrmoeResult_t number(int64_t count, const T *values, int64_t *numbers,
                            lrmoeStream_t stream) {
  dim3 grid;
  LRMOE_CHECK(gridFor(count > 0 ? count : 1, tileItems, &grid));
  if (grid.x > 1) {
    LRMOE_CUDA_CHECK(LRMOE_LAUNCH(sumTilesKernel<T>, grid, dim3(blockThreads),
                                  sizeof(WarpSums), stream, count, values,
                                  numbers));
    LRMOE_CHECK(scan(grid.x, tileItems, numbers, numbers + count, stream));
  }
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(numberTilesKernel<T>, grid, dim3(blockThreads),
                                sizeof(WarpSums), stream, count, values,
                                numbers));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaNumberMarks(int64_t count, const uint8_t *marks,
                                   int64_t *numbers, lrmoeStream_t stream) {
  return number(count, marks, numbers, stream);
}

/* ---- Inversion ---- */

__device__ __forceinline__ int64_t addAtomically(int64_t *counter,
                                                 int64_t value) {
  return static_cast<int64_t>(
      atomicAdd(reinterpret_cast<unsigned long long *>(counter),
                static_cast<unsigned long long>(value)));
}

__global__ void __launch_bounds__(blockThreads)
    countTargetsKernel(struct lrmoeInversion args) {
  int64_t i = indexOfThread();
  if (i < args.numItems) addAtomically(args.work + __ldg(args.targets + i), 1);
}

/* From the end of each list down. */
__global__ void __launch_bounds__(blockThreads)
    dropItemsKernel(struct lrmoeInversion args) {
  int64_t i = indexOfThread();
  if (i >= args.numItems) return;
  int64_t target = __ldg(args.targets + i);
  int64_t left = addAtomically(args.work + target, -1);
  lrmoeStore(args.list + __ldg(args.offsets + target) + left - 1, i);
}

__global__ void __launch_bounds__(blockThreads)
    sortListsKernel(struct lrmoeInversion args) {
  int64_t list = indexOfThread();
  if (list >= args.numLists) return;
  int64_t begin = __ldg(args.offsets + list);
  int64_t end = __ldg(args.offsets + list + 1);
  for (int64_t i = begin + 1; i < end; i++) {
    int64_t item = lrmoeLoad(args.list + i);
    int64_t at = i;
    for (; at > begin; at--) {
      int64_t before = lrmoeLoad(args.list + at - 1);
      if (before < item) break;
      lrmoeStore(args.list + at, before);
    }
    if (at < i) lrmoeStore(args.list + at, item);
  }
}

lrmoeResult_t lrmoeCudaInvert(const struct lrmoeInversion *args,
                              lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeCudaClear(
      args->work, static_cast<size_t>(args->numLists) * sizeof *args->work,
      stream));
  if (args->numItems > 0)
    LRMOE_RUN_KERNEL(countTargetsKernel, args->numItems, blockThreads, stream,
                     *args);
  LRMOE_CHECK(
      number<int64_t>(args->numLists, args->work, args->offsets, stream));
  if (args->numItems == 0) return lrmoeSuccess;
  LRMOE_RUN_KERNEL(dropItemsKernel, args->numItems, blockThreads, stream,
                   *args);
  LRMOE_RUN_KERNEL(sortListsKernel, args->numLists, blockThreads, stream,
                   *args);
  return lrmoeSuccess;
}
