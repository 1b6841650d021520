/* Exact top-quota selection, a block for a segment: kernels/select.h.
 *
 * Long segments, such as those of few experts or of global top-k, are limited
 * by what one SM reads; they go to select_long.cu.
 *
 * The call may be captured into a graph. */
#include "kernels/cuda/calls.h"
#include "kernels/cuda/selection.cuh"

using namespace lrmoeCuda;

/* Segments up to this length take a small block. */
constexpr int64_t shortSegment = 2048;

template <int threads>
__device__ __forceinline__ Threshold findThreshold(const uint32_t *keys,
                                                   SelectShared &shared) {
  Threshold threshold = {0, 0, shared.quota, shared.length};
  KeyRange range = {0, shared.length};
#pragma unroll 1
  for (int digit = 0; digit < numDigits; digit++) {
    if (threshold.needed == threshold.available) break;
    countDigits<threads>(keys, range, threshold, shiftOf(digit), shared);
    threshold = refine<threads>(threshold, digit, shared);
  }
  return threshold;
}

template <int threads>
__global__ void __launch_bounds__(threads)
    selectKernel(struct lrmoeSelection args) {
  LRMOE_SHARED(SelectShared, shared);
  loadSegment(args, blockIdx.x, shared);
  const uint32_t *keys = args.keys + shared.begin;
  uint8_t *flags = args.flags + shared.begin;
  KeyRange range = {0, shared.length};
  if (isAllOrNone(shared)) {
    flagAll(partOfKeys<threads>(range), shared.quota > 0, flags);
    return;
  }
  Threshold threshold = findThreshold<threads>(keys, shared);
  flagRange<threads>(keys, range, threshold, 0, flags, shared);
}

template <int threads>
static lrmoeResult_t runSelect(const struct lrmoeSelection *args, dim3 grid,
                               lrmoeStream_t stream) {
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(selectKernel<threads>, grid, dim3(threads),
                                sizeof(SelectShared), stream, *args));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaSelectTop(const struct lrmoeSelection *args,
                                 lrmoeStream_t stream) {
  if (args->numSegments == 0 || args->maxPairs == 0) return lrmoeSuccess;
  LRMOE_CUDA_REQUIRE(args->maxPairs <= INT32_MAX, "a segment of %lld pairs",
                     static_cast<long long>(args->maxPairs));
  dim3 grid;
  LRMOE_CHECK(gridFor(args->numSegments, 1, &grid));
  if (args->maxPairs > lrmoeLongSegment)
    return lrmoeCudaSelectLong(args, stream);
  if (args->maxPairs <= shortSegment) return runSelect<256>(args, grid, stream);
  return runSelect<1024>(args, grid, stream);
}
