/* Arrays of 4-byte words, and the scores: a thread for a word.
 *
 * All calls may be captured into a graph. */
#include "kernels/cuda/warps.cuh"
#include "kernels/select.h"

using namespace lrmoeCuda;

__global__ void __launch_bounds__(blockThreads)
    addFloatsKernel(int64_t count, const float *from, float *to) {
  int64_t i = indexOfThread();
  if (i < count)
    lrmoeStore(to + i, __fadd_rn(lrmoeLoad(to + i), __ldg(from + i)));
}

__global__ void __launch_bounds__(blockThreads)
    addFloats4Kernel(int64_t count, const float4 *from, float4 *to) {
  int64_t i = indexOfThread();
  if (i >= count) return;
  float4 a = lrmoeLoad(to + i);
  float4 b = __ldg(from + i);
  lrmoeStore(to + i, make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y),
                                 __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)));
}

lrmoeResult_t lrmoeCudaAddFloats(int64_t count, const float *from, float *to,
                                 lrmoeStream_t stream) {
  uintptr_t places =
      reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  int64_t numFours = places % sizeof(float4) == 0 ? count / 4 : 0;
  int64_t done = 4 * numFours;
  if (numFours > 0)
    LRMOE_RUN_KERNEL(addFloats4Kernel, numFours, blockThreads, stream, numFours,
                     reinterpret_cast<const float4 *>(from),
                     reinterpret_cast<float4 *>(to));
  if (done < count)
    LRMOE_RUN_KERNEL(addFloatsKernel, count - done, blockThreads, stream,
                     count - done, from + done, to + done);
  return lrmoeSuccess;
}

__global__ void __launch_bounds__(blockThreads)
    gatherWordsKernel(int64_t count, const int64_t *index, const uint32_t *from,
                      uint32_t *to) {
  int64_t i = indexOfThread();
  if (i < count) lrmoeStore(to + i, __ldg(from + lrmoeLoad(index + i)));
}

lrmoeResult_t lrmoeCudaGatherWords(int64_t count, const int64_t *index,
                                   const void *from, void *to,
                                   lrmoeStream_t stream) {
  if (count == 0) return lrmoeSuccess;
  LRMOE_RUN_KERNEL(gatherWordsKernel, count, blockThreads, stream, count, index,
                   static_cast<const uint32_t *>(from),
                   static_cast<uint32_t *>(to));
  return lrmoeSuccess;
}

/* Each thread reads its index before it writes there. */
__global__ void __launch_bounds__(blockThreads)
    gatherIndicesKernel(int64_t count, const int64_t *index,
                        const int64_t *from, int64_t *to) {
  int64_t i = indexOfThread();
  if (i < count) lrmoeStore(to + i, __ldg(from + lrmoeLoad(index + i)));
}

lrmoeResult_t lrmoeCudaGatherIndices(int64_t count, const int64_t *index,
                                     const int64_t *from, int64_t *to,
                                     lrmoeStream_t stream) {
  if (count == 0) return lrmoeSuccess;
  LRMOE_RUN_KERNEL(gatherIndicesKernel, count, blockThreads, stream, count,
                   index, from, to);
  return lrmoeSuccess;
}

__global__ void __launch_bounds__(blockThreads)
    scatterWordsKernel(int64_t count, const int64_t *index,
                       const uint32_t *from, uint32_t *to) {
  int64_t i = indexOfThread();
  if (i >= count) return;
  int64_t place = lrmoeLoad(index + i);
  if (place >= 0) lrmoeStore(to + place, __ldg(from + i));
}

lrmoeResult_t lrmoeCudaScatterWords(int64_t count, const int64_t *index,
                                    const void *from, void *to,
                                    lrmoeStream_t stream) {
  if (count == 0) return lrmoeSuccess;
  LRMOE_RUN_KERNEL(scatterWordsKernel, count, blockThreads, stream, count,
                   index, static_cast<const uint32_t *>(from),
                   static_cast<uint32_t *>(to));
  return lrmoeSuccess;
}

struct CopyPieces {
  const int64_t *source;
  const int64_t *target;
  const int64_t *counts;
  const uint32_t *from;
  uint32_t *to;
};

/* A column of blocks for a piece, for pieces differ in length: the blocks of a
 * short one end at once. */
__global__ void __launch_bounds__(blockThreads)
    copyPiecesKernel(CopyPieces args) {
  int64_t piece = blockIdx.x;
  int64_t count = loadForWarp(args.counts + piece);
  int64_t first = static_cast<int64_t>(blockIdx.y) * blockThreads + threadIdx.x;
  int64_t step = static_cast<int64_t>(gridDim.y) * blockThreads;
  int64_t inWarp = threadIdx.x % warpLanes;
  if (first - inWarp >= count) return;
  const uint32_t *from = args.from + loadForWarp(args.source + piece);
  uint32_t *to = args.to + loadForWarp(args.target + piece);
  for (int64_t word = first; word < count; word += step)
    lrmoeStore(to + word, __ldg(from + word));
}

static lrmoeResult_t gridOfPieces(int64_t numPieces, int64_t most, dim3 *grid) {
  const int64_t maxRows = 65535; /* of a grid */
  LRMOE_CHECK(gridFor(numPieces, 1, grid));
  int64_t blocks = (most + blockThreads - 1) / blockThreads;
  grid->y = static_cast<unsigned>(blocks < maxRows ? blocks : maxRows);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaCopyPieces(const struct lrmoePieces *args,
                                  lrmoeStream_t stream) {
  if (args->numPieces == 0 || args->maxWords == 0) return lrmoeSuccess;
  dim3 grid;
  LRMOE_CHECK(gridOfPieces(args->numPieces, args->maxWords, &grid));
  CopyPieces run = {args->source, args->target, args->counts,
                    static_cast<const uint32_t *>(args->from),
                    static_cast<uint32_t *>(args->to)};
  LRMOE_CUDA_CHECK(
      LRMOE_LAUNCH(copyPiecesKernel, grid, dim3(blockThreads), 0, stream, run));
  return lrmoeSuccess;
}

/* A warp for 32 flags of a piece; the blocks of a short one end at once. */
__global__ void __launch_bounds__(blockThreads)
    packBitsKernel(struct lrmoeBits args) {
  int64_t piece = blockIdx.x;
  int64_t count = loadForWarp(args.counts + piece);
  int64_t i = static_cast<int64_t>(blockIdx.y) * blockThreads + threadIdx.x;
  int64_t step = static_cast<int64_t>(gridDim.y) * blockThreads;
  if (i - laneOf() >= count) return;
  const uint8_t *flags = args.flags + loadForWarp(args.flagFirsts + piece);
  uint32_t *words = args.words + loadForWarp(args.wordFirsts + piece);
  for (; i - laneOf() < count; i += step) {
    uint32_t bits = __ballot_sync(allLanes, i < count && __ldg(flags + i));
    if (laneOf() == 0) lrmoeStore(words + i / warpLanes, bits);
  }
}

__global__ void __launch_bounds__(blockThreads)
    unpackBitsKernel(struct lrmoeBits args) {
  int64_t piece = blockIdx.x;
  int64_t count = loadForWarp(args.counts + piece);
  int64_t i = static_cast<int64_t>(blockIdx.y) * blockThreads + threadIdx.x;
  int64_t step = static_cast<int64_t>(gridDim.y) * blockThreads;
  if (i - laneOf() >= count) return;
  uint8_t *flags = args.flags + loadForWarp(args.flagFirsts + piece);
  const uint32_t *words = args.words + loadForWarp(args.wordFirsts + piece);
  for (; i < count; i += step)
    lrmoeStore(flags + i, static_cast<uint8_t>(
                              __ldg(words + i / warpLanes) >> laneOf() & 1));
}

lrmoeResult_t lrmoeCudaPackBits(const struct lrmoeBits *args,
                                lrmoeStream_t stream) {
  if (args->numPieces == 0 || args->maxFlags == 0) return lrmoeSuccess;
  dim3 grid;
  LRMOE_CHECK(gridOfPieces(args->numPieces, args->maxFlags, &grid));
  LRMOE_CUDA_CHECK(
      LRMOE_LAUNCH(packBitsKernel, grid, dim3(blockThreads), 0, stream, *args));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaUnpackBits(const struct lrmoeBits *args,
                                  lrmoeStream_t stream) {
  if (args->numPieces == 0 || args->maxFlags == 0) return lrmoeSuccess;
  dim3 grid;
  LRMOE_CHECK(gridOfPieces(args->numPieces, args->maxFlags, &grid));
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(unpackBitsKernel, grid, dim3(blockThreads), 0,
                                stream, *args));
  return lrmoeSuccess;
}

/* As lrmoeScoreKey. */
__device__ __forceinline__ uint32_t keyOf(float score) {
  uint32_t bits = __float_as_uint(score) & 0x7fffffff;
  return bits >= 0x7f800000 ? LRMOE_KEY_NON_FINITE : bits;
}

/* As lrmoeMix. */
__device__ __forceinline__ uint64_t mixOf(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdu;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53u;
  return value ^ value >> 33;
}

template <lrmoeMetric_t metric>
__global__ void __launch_bounds__(blockThreads)
    scoresKernel(struct lrmoeScores args) {
  int64_t i = indexOfThread();
  if (i >= args.numPairs) return;
  float score = __ldg(args.gNorms + lrmoeLoad(args.tokens + i));
  if (metric == lrmoeMetricLrm) {
    float weight = args.weights ? fabsf(lrmoeLoad(args.weights + i)) : 1.0f;
    score = __fmul_rn(__fmul_rn(weight, score), lrmoeLoad(args.phiNorms + i));
  }
  uint32_t key = keyOf(score);
  if (metric == lrmoeMetricRandom && key != LRMOE_KEY_NON_FINITE) {
    uint64_t pair = static_cast<uint64_t>(lrmoeLoad(args.pairs + i));
    key = static_cast<uint32_t>(mixOf(args.salt ^ pair) >> 33);
  }
  lrmoeStore(args.keys + i, key);
}

lrmoeResult_t lrmoeCudaScores(const struct lrmoeScores *args,
                              lrmoeStream_t stream) {
  if (args->numPairs == 0) return lrmoeSuccess;
  switch (args->metric) {
  case lrmoeMetricLrm:
    LRMOE_RUN_KERNEL(scoresKernel<lrmoeMetricLrm>, args->numPairs, blockThreads,
                     stream, *args);
    return lrmoeSuccess;
  case lrmoeMetricGrad1:
  case lrmoeMetricGrad2:
    LRMOE_RUN_KERNEL(scoresKernel<lrmoeMetricGrad2>, args->numPairs,
                     blockThreads, stream, *args);
    return lrmoeSuccess;
  case lrmoeMetricRandom:
    LRMOE_RUN_KERNEL(scoresKernel<lrmoeMetricRandom>, args->numPairs,
                     blockThreads, stream, *args);
    return lrmoeSuccess;
  default:
    return lrmoeCudaFail(lrmoeInvalidArgument, "no scores for metric %d",
                         static_cast<int>(args->metric));
  }
}
