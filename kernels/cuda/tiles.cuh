/* Kernels over the rows of a batch, whose tiles lie in different arrays: a
 * warp for a row, which first finds its tile.  Tiles are a kernel's argument,
 * so that nothing has to be copied to the device before. */
#ifndef LRMOE_KERNELS_CUDA_TILES_CUH
#define LRMOE_KERNELS_CUDA_TILES_CUH

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/warps.cuh"

namespace lrmoeCuda {

/* The tile of a row, for tiles with ascending `firstRow` from 0 on. */
template <class Tile>
__device__ __forceinline__ int tileOfRow(const Tile *tiles, int numTiles,
                                         int64_t row) {
  int tile = 0;
#pragma unroll
  for (int step = LRMOE_MAX_GEMMS / 2; step > 0; step /= 2)
    if (tile + step < numTiles && tiles[tile + step].firstRow <= row)
      tile += step;
  return tile;
}

/* Words of 16 bytes that a lane has in flight. */
constexpr int wordsInFlight = 4;

/* A warp copies a row; `from` NULL is a row of zeros. */
__device__ __forceinline__ void copyRow(const char *from, char *to,
                                        int64_t rowBytes) {
  const uint4 *source = reinterpret_cast<const uint4 *>(from);
  uint4 *target = reinterpret_cast<uint4 *>(to);
  int numWords = static_cast<int>(rowBytes / static_cast<int>(sizeof(uint4)));
  const int step = wordsInFlight * warpLanes;
  for (int first = laneOf(); first < numWords; first += step) {
    uint4 words[wordsInFlight];
#pragma unroll
    for (int k = 0; k < wordsInFlight; k++) {
      int word = first + k * warpLanes;
      words[k] = make_uint4(0, 0, 0, 0);
      if (source && word < numWords) words[k] = __ldg(source + word);
    }
#pragma unroll
    for (int k = 0; k < wordsInFlight; k++) {
      int word = first + k * warpLanes;
      if (word < numWords) lrmoeStore(target + word, words[k]);
    }
  }
}

/* A warp holds a part of its row and writes it to all its places, which are
 * placeOf(j) for j from first to last - 1. */
template <class Place>
__device__ __forceinline__ void
copyRowToPlaces(const char *row, int64_t rowBytes, int64_t first, int64_t last,
                const Place &placeOf) {
  int64_t numWords = rowBytes / static_cast<int64_t>(sizeof(uint4));
  const uint4 *from = reinterpret_cast<const uint4 *>(row);
  for (int64_t part = laneOf(); part < numWords + laneOf();
       part += wordsInFlight * warpLanes) {
    uint4 held[wordsInFlight] = {};
#pragma unroll
    for (int k = 0; k < wordsInFlight; k++)
      if (part + k * warpLanes < numWords)
        held[k] = lrmoeLoad(from + part + k * warpLanes);
    for (int64_t j = first; j < last; j++) {
      uint4 *to = reinterpret_cast<uint4 *>(placeOf(j));
#pragma unroll
      for (int k = 0; k < wordsInFlight; k++)
        if (part + k * warpLanes < numWords)
          lrmoeStore(to + part + k * warpLanes, held[k]);
    }
  }
}

} // namespace lrmoeCuda

#endif
