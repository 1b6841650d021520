/* The sum of listed rows by a warp, for kernels of several files.
 *
 * Each lane keeps the fp32 sums of one chunk and walks the list, so that an
 * output is written once, nothing is zeroed before, and the order of addition
 * is the list's.  Lane e holds the e-th entry of a batch of 32, so that a list
 * is read once; four rows are in flight. */
#ifndef LRMOE_KERNELS_CUDA_SUM_ROWS_CUH
#define LRMOE_KERNELS_CUDA_SUM_ROWS_CUH

#include "kernels/cuda/warps.cuh"

namespace lrmoeCuda {

constexpr int rowsInFlight = 4;

struct GatherSum {
  const char *rows;
  int64_t rowBytes;
  int numChunks;
  int64_t numOut;
  const int64_t *offsets;
  const int64_t *list;
  const float *weights;
  char *out;
};

/* A lane's entry of a batch. */
struct SumEntry {
  int64_t row;
  float weight;
};

template <bool isWeighted>
__device__ __forceinline__ SumEntry loadEntry(const GatherSum &args,
                                              int64_t entry, int64_t end) {
  SumEntry mine = {0, 1};
  if (entry < end) {
    mine.row = lrmoeLoad(args.list + entry);
    if (isWeighted) mine.weight = lrmoeLoad(args.weights + mine.row);
  }
  return mine;
}

/* sum (+)= weight * row; the first entry of a list begins it, so that one
 * unweighted entry keeps its bits (-0 too). */
template <bool isWeighted>
__device__ __forceinline__ void addEntry(const Chunk &values, float weight,
                                         bool isFirst, Chunk *sum) {
#pragma unroll
  for (int k = 0; k < chunkElements; k++) {
    float term = isWeighted ? __fmul_rn(weight, values.at[k]) : values.at[k];
    sum->at[k] = isFirst ? term : __fadd_rn(sum->at[k], term);
  }
}

/* Up to 32 entries of a list, one a lane. */
struct SumBatch {
  SumEntry mine;
  int numEntries;
  bool beginsSum; /* it is the list's first */
};

/* Adds up to rowsInFlight entries of a batch, from `first` on. */
template <class T, bool isWeighted>
__device__ __forceinline__ void addEntries(const GatherSum &args,
                                           const SumBatch &batch, int first,
                                           int chunk, Chunk *sum) {
  typename T::Raw raws[rowsInFlight];
  float weights[rowsInFlight];
#pragma unroll
  for (int k = 0; k < rowsInFlight; k++) {
    int64_t row = __shfl_sync(allLanes, batch.mine.row, first + k);
    weights[k] =
        isWeighted ? __shfl_sync(allLanes, batch.mine.weight, first + k) : 1.0f;
    raws[k] = T::zeros();
    if (first + k < batch.numEntries && chunk < args.numChunks)
      raws[k] = T::load(args.rows + row * args.rowBytes, chunk);
  }
#pragma unroll
  for (int k = 0; k < rowsInFlight; k++)
    if (first + k < batch.numEntries)
      addEntry<isWeighted>(T::unpack(raws[k]), weights[k],
                           batch.beginsSum && first + k == 0, sum);
}

/* The sum of list i to `out`; for all lanes of a warp. */
template <class T, bool isWeighted>
__device__ __forceinline__ void sumRows(const GatherSum &args, int64_t i,
                                        char *out) {
  int64_t begin = loadForWarp(args.offsets + i);
  int64_t end = loadForWarp(args.offsets + i + 1);
  SumBatch batch;
  batch.mine = loadEntry<isWeighted>(args, begin + laneOf(), end);
  bool isLong = end - begin > warpLanes;
  for (int first = 0; first < args.numChunks; first += warpLanes) {
    int chunk = first + laneOf();
    Chunk sum = T::unpack(T::zeros());
    for (int64_t at = begin; at < end; at += warpLanes) {
      if (isLong) batch.mine = loadEntry<isWeighted>(args, at + laneOf(), end);
      batch.numEntries = static_cast<int>(
          end - at < warpLanes ? end - at : int64_t{warpLanes});
      batch.beginsSum = at == begin;
      for (int entry = 0; entry < batch.numEntries; entry += rowsInFlight)
        addEntries<T, isWeighted>(args, batch, entry, chunk, &sum);
    }
    if (chunk < args.numChunks) T::store(out, chunk, T::pack(sum));
  }
}

} // namespace lrmoeCuda

#endif
