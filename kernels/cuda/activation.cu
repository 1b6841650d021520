/* Gathered operands and activations of a batch: see activation.h.
 *
 * Rows are streamed once: forward reads FC1's output and writes FC2's input
 * and a norm; backward reads g W2 and the saved row and writes alpha phi over
 * the former, dFc1, and d(alpha).  What is kept between GEMMs has the layer's
 * type.  Norms and d(alpha) are reproducible sums. */
#include "kernels/cuda/activation.h"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/tiles.cuh"

using namespace lrmoeCuda;

__global__ void __launch_bounds__(blockThreads)
    gatherTilesKernel(struct lrmoeGatherTiles run) {
  int64_t i = rowOfWarp();
  if (i >= run.numRows) return;
  int t = tileOfRow(run.tiles, run.numTiles, i);
  int64_t row = i - run.tiles[t].firstRow;
  RowsView rows = {run.tiles[t].data, run.tiles[t].index, run.rowBytes};
  copyRow(rowForWarp(rows, row), run.tiles[t].out + row * run.rowBytes,
          run.rowBytes);
}

lrmoeResult_t lrmoeCudaGatherTiles(const struct lrmoeGatherTiles *run,
                                   lrmoeStream_t stream) {
  if (run->numRows == 0) return lrmoeSuccess;
  LRMOE_RUN_KERNEL(gatherTilesKernel, run->numRows, blockWarps, stream, *run);
  return lrmoeSuccess;
}

/* Columns of an FC1 row; `row` NULL is a row of zeros. */
struct Fc1 {
  Chunk gate; /* GELU: x */
  Chunk up;
};

template <class T, class A>
__device__ __forceinline__ Fc1 loadFc1(const char *row, int chunk,
                                       int numChunks) {
  typename T::Raw gate = row ? T::loadOwn(row, chunk) : T::zeros();
  typename T::Raw up = T::zeros();
  if (A::hasUp && row) up = T::loadOwn(row, numChunks + chunk);
  return {T::unpack(gate), T::unpack(up)};
}

__device__ __forceinline__ void scale(Chunk *chunk, float factor) {
#pragma unroll
  for (int k = 0; k < chunkElements; k++)
    chunk->at[k] = __fmul_rn(chunk->at[k], factor);
}

/* What a row's kernel needs besides its columns. */
template <class T, class A>
struct RowPlace {
  int64_t row; /* of the tile */
  const char *saved;
  float alpha;
  float *out;
};

template <class T, class A>
__device__ __forceinline__ RowPlace<T, A>
placeOf(const struct lrmoeActivationTiles &run, int64_t i) {
  int t = tileOfRow(run.tiles, run.numTiles, i);
  int64_t row = i - run.tiles[t].firstRow;
  int64_t width = (A::hasUp ? 2 : 1) * run.ffn;
  RowsView saved = {run.tiles[t].saved, run.tiles[t].index, width * T::bytes};
  const float *alpha = run.tiles[t].alpha;
  return {row, rowForWarp(saved, row), alpha ? loadForWarp(alpha + row) : 1.0f,
          run.tiles[t].out + row};
}

template <class T, class A>
__global__ void __launch_bounds__(blockThreads)
    activationForwardKernel(struct lrmoeActivationTiles run) {
  int64_t i = rowOfWarp();
  if (i >= run.numRows) return;
  RowPlace<T, A> place = placeOf<T, A>(run, i);
  int numChunks = static_cast<int>(run.ffn) / chunkElements;
  char *phiRow = run.phi + i * run.ffn * T::bytes;
  float sum = 0;
  for (int chunk = laneOf(); chunk < numChunks; chunk += warpLanes) {
    Fc1 fc1 = loadFc1<T, A>(place.saved, chunk, numChunks);
    Chunk phi;
#pragma unroll
    for (int k = 0; k < chunkElements; k++)
      phi.at[k] = A::phi(fc1.gate.at[k], fc1.up.at[k]);
    if (run.isPre) scale(&phi, place.alpha);
    phi = rounded<T>(phi);
    sum = addProducts(sum, phi, phi);
    if (!run.isPre) scale(&phi, place.alpha);
    T::store(phiRow, chunk, T::pack(phi));
  }
  sum = foldLanes(sum);
  if (laneOf() == 0) lrmoeStore(place.out, __fsqrt_rn(sum));
}

/* A chunk backward, all times alpha. */
struct Backward {
  Chunk phi;
  Chunk dGate;
  Chunk dUp;
};

template <class T, class A>
__device__ __forceinline__ void storeBackward(const Backward &values,
                                              char *phiRow, char *dFc1Row,
                                              int chunk, int numChunks) {
  T::store(phiRow, chunk, T::pack(values.phi));
  T::store(dFc1Row, chunk, T::pack(values.dGate));
  if (A::hasUp) T::store(dFc1Row, numChunks + chunk, T::pack(values.dUp));
}

template <class T, class A, bool isAlphaOnly>
__global__ void __launch_bounds__(blockThreads)
    activationBackwardKernel(struct lrmoeActivationTiles run) {
  int64_t i = rowOfWarp();
  if (i >= run.numRows) return;
  RowPlace<T, A> place = placeOf<T, A>(run, i);
  int numChunks = static_cast<int>(run.ffn) / chunkElements;
  int64_t phiBytes = run.ffn * T::bytes;
  char *phiRow = run.phi + i * phiBytes;
  char *dFc1Row =
      isAlphaOnly ? nullptr : run.dFc1 + i * (A::hasUp ? 2 : 1) * phiBytes;
  float sum = 0;
  for (int chunk = laneOf(); chunk < numChunks; chunk += warpLanes) {
    Fc1 fc1 = loadFc1<T, A>(place.saved, chunk, numChunks);
    Chunk g = T::unpack(T::loadOwn(phiRow, chunk));
    Backward values;
#pragma unroll
    for (int k = 0; k < chunkElements; k++) {
      Slopes slopes = A::slopes(fc1.gate.at[k], fc1.up.at[k]);
      float gAlpha = __fmul_rn(g.at[k], place.alpha);
      values.phi.at[k] = slopes.phi;
      values.dGate.at[k] = __fmul_rn(slopes.dGate, gAlpha);
      values.dUp.at[k] = __fmul_rn(slopes.dUp, gAlpha);
    }
    if (!run.isPre) values.phi = rounded<T>(values.phi);
    sum = addProducts(sum, g, values.phi);
    scale(&values.phi, place.alpha);
    if (!isAlphaOnly)
      storeBackward<T, A>(values, phiRow, dFc1Row, chunk, numChunks);
  }
  sum = foldLanes(sum);
  if (laneOf() == 0) lrmoeStore(place.out, sum);
}

/* Calls function(T(), A()) for the layer's type and activation. */
template <class Function>
static lrmoeResult_t withShape(const struct lrmoeExpertShape *shape,
                               Function function) {
  return withElements(shape->type, [=](auto elements) -> lrmoeResult_t {
    if (shape->activation == lrmoeSwiglu) return function(elements, Swiglu());
    return function(elements, Gelu());
  });
}

lrmoeResult_t lrmoeCudaActivationForward(const struct lrmoeExpertShape *shape,
                                         const struct lrmoeActivationTiles *run,
                                         lrmoeStream_t stream) {
  return withShape(shape, [=](auto elements, auto activation) -> lrmoeResult_t {
    using T = decltype(elements);
    using A = decltype(activation);
    LRMOE_RUN_KERNEL((activationForwardKernel<T, A>), run->numRows, blockWarps,
                     stream, *run);
    return lrmoeSuccess;
  });
}

lrmoeResult_t
lrmoeCudaActivationBackward(const struct lrmoeExpertShape *shape,
                            const struct lrmoeActivationTiles *run,
                            lrmoeStream_t stream) {
  return withShape(shape, [=](auto elements, auto activation) -> lrmoeResult_t {
    using T = decltype(elements);
    using A = decltype(activation);
    if (run->dFc1)
      LRMOE_RUN_KERNEL((activationBackwardKernel<T, A, false>), run->numRows,
                       blockWarps, stream, *run);
    else
      LRMOE_RUN_KERNEL((activationBackwardKernel<T, A, true>), run->numRows,
                       blockWarps, stream, *run);
    return lrmoeSuccess;
  });
}
