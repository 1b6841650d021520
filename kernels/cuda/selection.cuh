/* Exact top-quota selection: what a block does (select.cu, select_long.cu).
 *
 * The threshold is found digit by digit, highest first (11, 11 and 10 bits):
 * of the keys that share the digits found so far, a histogram of the next one
 * in shared memory tells in which bin the quota-th largest key lies.  When a
 * bin is needed whole, the search ends.  Each warp then owns a contiguous
 * part: it counts its keys that equal the threshold, learns how many the warps
 * before it have, and writes the flags, ties in ascending order.  Only integers
 * are added, so that the order of threads does not matter; the result is that
 * of a stable sort, as on the CPU.
 *
 * Scores of one expert share few exponents, so that many lanes hit one bin;
 * four histograms, by lane, keep them apart. */
#ifndef LRMOE_KERNELS_CUDA_SELECTION_CUH
#define LRMOE_KERNELS_CUDA_SELECTION_CUH

#include "kernels/cuda/warps.cuh"

namespace lrmoeCuda {

constexpr int digitBits = 11;
constexpr int numBins = 1 << digitBits;
constexpr int numHistograms = 4;
constexpr int numDigits = 3; /* of 11, 11 and 10 bits */

struct SelectShared {
  uint32_t counts[numBins * numHistograms];
  uint32_t warpSums[warpLanes];
  /* What thread 0 or the finder of the bin tells all others. */
  int64_t begin;
  uint32_t length;
  uint32_t quota;
  uint32_t digit;
  uint32_t above;
  uint32_t inBin;
};

/* The quota-th largest key lies among those with (key & mask) == prefix, of
 * which the `needed` largest are kept. */
struct Threshold {
  uint32_t prefix;
  uint32_t mask;
  uint32_t needed;
  uint32_t available;
};

/* Sum of the values of the threads before this one. */
template <int threads>
__device__ __forceinline__ uint32_t sumBefore(uint32_t value,
                                              SelectShared &shared) {
  constexpr int numWarps = threads / warpLanes;
  int lane = laneOf();
  int warp = static_cast<int>(threadIdx.x) / warpLanes;
  uint32_t sum = value;
#pragma unroll
  for (int step = 1; step < warpLanes; step *= 2) {
    uint32_t before = __shfl_up_sync(allLanes, sum, step);
    if (lane >= step) sum += before;
  }
  if (lane == warpLanes - 1) shared.warpSums[warp] = sum;
  __syncthreads();
  uint32_t others = lane < numWarps && lane < warp ? shared.warpSums[lane] : 0;
  return __reduce_add_sync(allLanes, others) + sum - value;
}

/* What a block or a warp works on of a segment. */
struct KeyRange {
  uint32_t begin;
  uint32_t end;
};

template <int threads>
__device__ __forceinline__ void
countDigits(const uint32_t *keys, const KeyRange &range,
            const Threshold &threshold, int shift, SelectShared &shared) {
  for (int i = threadIdx.x; i < numBins * numHistograms; i += threads)
    shared.counts[i] = 0;
  __syncthreads();
  uint32_t histogram = threadIdx.x % numHistograms;
#pragma unroll 4
  for (uint32_t i = range.begin + threadIdx.x; i < range.end; i += threads) {
    uint32_t key = __ldg(keys + i);
    uint32_t bin = key >> shift & (numBins - 1);
    if ((key & threshold.mask) == threshold.prefix)
      atomicAdd(&shared.counts[bin * numHistograms + histogram], 1u);
  }
  __syncthreads();
}

/* Bins from the highest down, a few a thread: the one in which the count
 * reaches what is needed. */
template <int threads>
__device__ __forceinline__ void findBin(uint32_t needed, SelectShared &shared) {
  constexpr int binsEach = numBins / threads;
  uint32_t counts[binsEach];
  uint32_t sum = 0;
  int highest = numBins - 1 - static_cast<int>(threadIdx.x) * binsEach;
#pragma unroll
  for (int k = 0; k < binsEach; k++) {
    counts[k] = 0;
    for (int h = 0; h < numHistograms; h++)
      counts[k] += shared.counts[(highest - k) * numHistograms + h];
    sum += counts[k];
  }
  uint32_t above = sumBefore<threads>(sum, shared);
#pragma unroll
  for (int k = 0; k < binsEach; k++) {
    if (above < needed && needed <= above + counts[k]) {
      shared.digit = static_cast<uint32_t>(highest - k);
      shared.above = above;
      shared.inBin = counts[k];
    }
    above += counts[k];
  }
  __syncthreads();
}

/* Bits of a digit, and how many lie below it. */
__device__ __forceinline__ int shiftOf(int digit) {
  return digit < 2 ? 32 - (digit + 1) * digitBits : 0;
}

/* The threshold with one more digit, of which shared.counts has the keys. */
template <int threads>
__device__ __forceinline__ Threshold refine(Threshold threshold, int digit,
                                            SelectShared &shared) {
  findBin<threads>(threshold.needed, shared);
  threshold.prefix |= shared.digit << shiftOf(digit);
  threshold.mask = ~0u << shiftOf(digit);
  threshold.needed -= shared.above;
  threshold.available = shared.inBin;
  __syncthreads();
  return threshold;
}

/* What thread 0 tells of the block's segment. */
__device__ __forceinline__ void loadSegment(const struct lrmoeSelection &args,
                                            int64_t segment,
                                            SelectShared &shared) {
  if (threadIdx.x == 0) {
    shared.begin = lrmoeLoad(args.offsets + segment);
    shared.length = static_cast<uint32_t>(
        lrmoeLoad(args.offsets + segment + 1) - shared.begin);
    shared.quota = static_cast<uint32_t>(lrmoeLoad(args.quotas + segment));
  }
  __syncthreads();
}

__device__ __forceinline__ bool isAllOrNone(const SelectShared &shared) {
  return shared.quota == 0 || shared.quota == shared.length;
}

/* Part `index` of `count` equal ones, of whole warps. */
__device__ __forceinline__ KeyRange partOf(const KeyRange &range,
                                           uint32_t index, uint32_t count) {
  uint32_t length = range.end - range.begin;
  uint32_t size = (length + count - 1) / count;
  size = (size + warpLanes - 1) / warpLanes * warpLanes;
  KeyRange part = {index * size, (index + 1) * size};
  part.begin = range.begin + (part.begin < length ? part.begin : length);
  part.end = range.begin + (part.end < length ? part.end : length);
  return part;
}

template <int threads>
__device__ __forceinline__ KeyRange partOfKeys(const KeyRange &range) {
  return partOf(range, threadIdx.x / warpLanes, threads / warpLanes);
}

__device__ __forceinline__ uint32_t countEqual(const uint32_t *keys,
                                               KeyRange part, uint32_t least) {
  uint32_t count = 0;
#pragma unroll 4
  for (uint32_t i = part.begin + laneOf(); i < part.end; i += warpLanes)
    count += __ldg(keys + i) == least;
  return count;
}

/* Keys above `least`, and those equal to it while fewer than `needed` equal
 * ones came before; `rank` of them came before this warp's part. */
__device__ __forceinline__ void flagTies(const uint32_t *keys, KeyRange part,
                                         const Threshold &threshold,
                                         uint32_t rank, uint8_t *flags) {
  uint32_t lower = (1u << laneOf()) - 1;
  for (uint32_t first = part.begin; first < part.end; first += warpLanes) {
    uint32_t i = first + laneOf();
    uint32_t key = i < part.end ? __ldg(keys + i) : 0;
    bool isTie = i < part.end && key == threshold.prefix;
    uint32_t ties = __ballot_sync(allLanes, isTie);
    bool isKept = isTie ? rank + __popc(ties & lower) < threshold.needed
                        : key > threshold.prefix;
    if (i < part.end) lrmoeStore(flags + i, static_cast<uint8_t>(isKept));
    rank += __popc(ties);
  }
}

__device__ __forceinline__ void flagFrom(const uint32_t *keys, KeyRange part,
                                         uint32_t least, uint8_t *flags) {
#pragma unroll 4
  for (uint32_t i = part.begin + laneOf(); i < part.end; i += warpLanes)
    lrmoeStore(flags + i, static_cast<uint8_t>(__ldg(keys + i) >= least));
}

__device__ __forceinline__ void flagAll(KeyRange part, uint8_t flag,
                                        uint8_t *flags) {
  for (uint32_t i = part.begin + laneOf(); i < part.end; i += warpLanes)
    lrmoeStore(flags + i, flag);
}

/* Writes the flags of a block's range: `before` keys that equal the threshold
 * come before it. */
template <int threads>
__device__ __forceinline__ void
flagRange(const uint32_t *keys, const KeyRange &range,
          const Threshold &threshold, uint32_t before, uint8_t *flags,
          SelectShared &shared) {
  KeyRange part = partOfKeys<threads>(range);
  if (threshold.needed == threshold.available) {
    flagFrom(keys, part, threshold.prefix, flags);
    return;
  }
  uint32_t ties = countEqual(keys, part, threshold.prefix);
  before += sumBefore<threads>(ties, shared);
  flagTies(keys, part, threshold, __shfl_sync(allLanes, before, 0), flags);
}

} // namespace lrmoeCuda

#endif
