/* Norms and dot products of rows, reproducible: a warp for a row.
 *
 * Both may be captured into a graph. */
#include "kernels/cuda/warps.cuh"

using namespace lrmoeCuda;

/* Chunks of a row that a lane has in flight. */
constexpr int chunksInFlight = 4;

__device__ __forceinline__ float addAbs(float sum, const Chunk &chunk) {
#pragma unroll
  for (int k = 0; k < chunkElements; k++)
    sum = __fadd_rn(sum, fabsf(chunk.at[k]));
  return sum;
}

/* Adds this lane's chunks first, first + 32, ... to its sum, the loads of a
 * few of them before their additions. */
template <class T, bool isAbs>
__device__ __forceinline__ float addChunks(float sum, const char *row,
                                           int first, int numChunks) {
  typename T::Raw raws[chunksInFlight];
#pragma unroll
  for (int k = 0; k < chunksInFlight; k++)
    if (first + k * warpLanes < numChunks)
      raws[k] = T::load(row, first + k * warpLanes);
#pragma unroll
  for (int k = 0; k < chunksInFlight; k++) {
    if (first + k * warpLanes >= numChunks) break;
    Chunk values = T::unpack(raws[k]);
    sum = isAbs ? addAbs(sum, values) : addProducts(sum, values, values);
  }
  return sum;
}

template <class T, bool isAbs>
__global__ void __launch_bounds__(blockThreads)
    normsKernel(RowsView rows, int numChunks, int64_t numRows, float *out) {
  int64_t i = rowOfWarp();
  if (i >= numRows) return;
  const char *row = rowForWarp(rows, i);
  const int step = chunksInFlight * warpLanes;
  float sum = 0;
  for (int first = laneOf(); row && first < numChunks; first += step)
    sum = addChunks<T, isAbs>(sum, row, first, numChunks);
  sum = foldLanes(sum);
  if (laneOf() == 0) lrmoeStore(out + i, isAbs ? sum : __fsqrt_rn(sum));
}

lrmoeResult_t lrmoeCudaNorms(const struct lrmoeNorms *args,
                             lrmoeStream_t stream) {
  if (args->numRows == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireRows(args->rows));
  return withElements(args->rows.type, [=](auto elements) -> lrmoeResult_t {
    using T = decltype(elements);
    RowsView rows = viewOf(args->rows);
    int numChunks = chunksOf(args->rows.width);
    if (args->isAbs)
      LRMOE_RUN_KERNEL((normsKernel<T, true>), args->numRows, blockWarps,
                       stream, rows, numChunks, args->numRows, args->out);
    else
      LRMOE_RUN_KERNEL((normsKernel<T, false>), args->numRows, blockWarps,
                       stream, rows, numChunks, args->numRows, args->out);
    return lrmoeSuccess;
  });
}

struct DotRows {
  RowsView a;
  RowsView b;
  int numChunks;
  int64_t numRows;
  const float *divisors;
  float *out;
};

template <class T>
__global__ void __launch_bounds__(blockThreads) dotRowsKernel(DotRows args) {
  int64_t i = rowOfWarp();
  if (i >= args.numRows) return;
  const char *a = rowForWarp(args.a, i);
  const char *b = rowForWarp(args.b, i);
  float sum = 0;
  int end = a && b ? args.numChunks : 0; /* a row of zeros meets no NaN */
#pragma unroll 4
  for (int chunk = laneOf(); chunk < end; chunk += warpLanes) {
    typename T::Raw left = T::load(a, chunk);
    typename T::Raw right = T::load(b, chunk);
    sum = addProducts(sum, T::unpack(left), T::unpack(right));
  }
  sum = foldLanes(sum);
  if (laneOf() != 0) return;
  if (args.divisors) {
    float divisor = lrmoeLoad(args.divisors + i);
    sum = divisor == 0 ? 0 : __fdiv_rn(sum, divisor);
  }
  lrmoeStore(args.out + i, sum);
}

lrmoeResult_t lrmoeCudaDotRows(const struct lrmoeDotRows *args,
                               lrmoeStream_t stream) {
  if (args->numRows == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireRows(args->a));
  LRMOE_CHECK(requireRows(args->b));
  LRMOE_CUDA_REQUIRE(
      args->a.width == args->b.width && args->a.type == args->b.type,
      "dot products of rows of %lld and %lld elements, types %d "
      "and %d",
      static_cast<long long>(args->a.width),
      static_cast<long long>(args->b.width), static_cast<int>(args->a.type),
      static_cast<int>(args->b.type));
  return withElements(args->a.type, [=](auto elements) -> lrmoeResult_t {
    using T = decltype(elements);
    DotRows run = {viewOf(args->a), viewOf(args->b), chunksOf(args->a.width),
                   args->numRows,   args->divisors,  args->out};
    LRMOE_RUN_KERNEL((dotRowsKernel<T>), args->numRows, blockWarps, stream,
                     run);
    return lrmoeSuccess;
  });
}
