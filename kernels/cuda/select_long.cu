/* Exact top-quota selection, several blocks for a segment: kernels/select.h.
 *
 * Each block has a contiguous slice of the segment.  A launch counts a digit:
 * blocks add their histograms up in global memory.  The next launch begins with
 * each block looking for the bin in that sum, all with the same result, of
 * which the first keeps a copy; so a digit needs one launch.  Two more count
 * the keys that equal the threshold, by slice, and write the flags.  Sums are
 * of integers: neither the order of blocks nor that of threads shows.
 *
 * The call may be captured into a graph. */
#include "kernels/cuda/calls.h"
#include "kernels/cuda/selection.cuh"

using namespace lrmoeCuda;

constexpr int longThreads = 512;
constexpr int64_t sliceKeys = 8192; /* about, while slices last */
constexpr int maxSlices = 64;

/* Of a segment, in `work`. */
struct LongWork {
  uint32_t counts[numDigits][numBins];
  uint32_t ties[maxSlices];            /* keys that equal the threshold */
  Threshold thresholds[numDigits + 1]; /* once so many digits are known */
};
static_assert(sizeof(LongWork) == lrmoeLongWords * sizeof(uint32_t), "work");

__device__ __forceinline__ Threshold loadThreshold(const Threshold *from) {
  const uint32_t *words = reinterpret_cast<const uint32_t *>(from);
  return {lrmoeLoad(words), lrmoeLoad(words + 1), lrmoeLoad(words + 2),
          lrmoeLoad(words + 3)};
}

__device__ __forceinline__ void storeThreshold(Threshold *to,
                                               const Threshold &threshold) {
  uint32_t *words = reinterpret_cast<uint32_t *>(to);
  lrmoeStore(words, threshold.prefix);
  lrmoeStore(words + 1, threshold.mask);
  lrmoeStore(words + 2, threshold.needed);
  lrmoeStore(words + 3, threshold.available);
}

__device__ __forceinline__ KeyRange sliceOfBlock(const SelectShared &shared) {
  return partOf({0, shared.length}, blockIdx.y, gridDim.y);
}

/* The sum of all blocks' histograms, as one of four that are side by side. */
__device__ __forceinline__ void loadCounts(const uint32_t *counts,
                                           SelectShared &shared) {
  for (int i = threadIdx.x; i < numBins * numHistograms; i += longThreads)
    shared.counts[i] =
        i % numHistograms ? 0 : lrmoeLoad(counts + i / numHistograms);
  __syncthreads();
}

/* This block's histogram into the sum of all. */
__device__ __forceinline__ void addCounts(uint32_t *counts,
                                          const SelectShared &shared) {
  for (int bin = threadIdx.x; bin < numBins; bin += longThreads) {
    uint32_t sum = 0;
    for (int h = 0; h < numHistograms; h++)
      sum += shared.counts[bin * numHistograms + h];
    if (sum > 0) atomicAdd(counts + bin, sum);
  }
}

/* The threshold with `digits` digits, from the counts of the last one. */
__device__ __forceinline__ Threshold thresholdOf(LongWork *work, int digits,
                                                 SelectShared &shared) {
  Threshold threshold = {0, 0, shared.quota, shared.length};
  if (digits > 1) threshold = loadThreshold(work->thresholds + digits - 1);
  if (digits > 0 && threshold.needed != threshold.available) {
    loadCounts(work->counts[digits - 1], shared);
    threshold = refine<longThreads>(threshold, digits - 1, shared);
  }
  if (blockIdx.y == 0 && threadIdx.x == 0)
    storeThreshold(work->thresholds + digits, threshold);
  return threshold;
}

__global__ void __launch_bounds__(longThreads)
    countDigitKernel(struct lrmoeSelection args, LongWork *works, int digit) {
  LRMOE_SHARED(SelectShared, shared);
  LongWork *work = works + blockIdx.x;
  loadSegment(args, blockIdx.x, shared);
  if (isAllOrNone(shared)) return;
  Threshold threshold = thresholdOf(work, digit, shared);
  if (threshold.needed == threshold.available) return;
  countDigits<longThreads>(args.keys + shared.begin, sliceOfBlock(shared),
                           threshold, shiftOf(digit), shared);
  addCounts(work->counts[digit], shared);
}

__global__ void __launch_bounds__(longThreads)
    countTiesKernel(struct lrmoeSelection args, LongWork *works) {
  LRMOE_SHARED(SelectShared, shared);
  LongWork *work = works + blockIdx.x;
  loadSegment(args, blockIdx.x, shared);
  if (isAllOrNone(shared)) return;
  Threshold threshold = thresholdOf(work, numDigits, shared);
  if (threshold.needed == threshold.available) return;
  KeyRange part = partOfKeys<longThreads>(sliceOfBlock(shared));
  uint32_t ties = countEqual(args.keys + shared.begin, part, threshold.prefix);
  uint32_t before = sumBefore<longThreads>(ties, shared);
  if (threadIdx.x == longThreads - 1)
    lrmoeStore(work->ties + blockIdx.y, before + ties);
}

__global__ void __launch_bounds__(longThreads)
    flagSliceKernel(struct lrmoeSelection args, LongWork *works) {
  LRMOE_SHARED(SelectShared, shared);
  LongWork *work = works + blockIdx.x;
  loadSegment(args, blockIdx.x, shared);
  KeyRange slice = sliceOfBlock(shared);
  uint8_t *flags = args.flags + shared.begin;
  if (isAllOrNone(shared)) {
    flagAll(partOfKeys<longThreads>(slice), shared.quota > 0, flags);
    return;
  }
  Threshold threshold = loadThreshold(work->thresholds + numDigits);
  uint32_t before = 0;
  if (threshold.needed != threshold.available)
    for (unsigned y = laneOf(); y < blockIdx.y; y += warpLanes)
      before += lrmoeLoad(work->ties + y);
  before = __reduce_add_sync(allLanes, before);
  flagRange<longThreads>(args.keys + shared.begin, slice, threshold, before,
                         flags, shared);
}

lrmoeResult_t lrmoeCudaSelectLong(const struct lrmoeSelection *args,
                                  lrmoeStream_t stream) {
  const dim3 threads(longThreads);
  const size_t shared = sizeof(SelectShared);
  int64_t slices = (args->maxPairs + sliceKeys - 1) / sliceKeys;
  LongWork *works = reinterpret_cast<LongWork *>(args->work);
  dim3 grid;
  LRMOE_CHECK(gridFor(args->numSegments, 1, &grid));
  grid.y = static_cast<unsigned>(slices < maxSlices ? slices : maxSlices);
  LRMOE_CHECK(lrmoeCudaClear(
      works, static_cast<size_t>(args->numSegments) * sizeof *works, stream));
  for (int digit = 0; digit < numDigits; digit++)
    LRMOE_CUDA_CHECK(LRMOE_LAUNCH(countDigitKernel, grid, threads, shared,
                                  stream, *args, works, digit));
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(countTiesKernel, grid, threads, shared, stream,
                                *args, works));
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(flagSliceKernel, grid, threads, shared, stream,
                                *args, works));
  return lrmoeSuccess;
}
