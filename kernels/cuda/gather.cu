/* Gathering rows: packing for the wire, operands of GEMMs, conversion.
 *
 * A warp copies a row, four 16-byte words a lane in flight.
 *
 * All calls may be captured into a graph. */
#include "kernels/cuda/tiles.cuh"
#include "kernels/select.h"

#include <type_traits>

using namespace lrmoeCuda;

__global__ void __launch_bounds__(blockThreads)
    copyRowsKernel(RowsView rows, int64_t numRows, char *out) {
  int64_t i = rowOfWarp();
  if (i >= numRows) return;
  copyRow(rowForWarp(rows, i), out + i * rows.rowBytes, rows.rowBytes);
}

template <class From, class To>
__global__ void __launch_bounds__(blockThreads)
    convertRowsKernel(RowsView rows, int numChunks, int64_t numRows,
                      char *out) {
  int64_t i = rowOfWarp();
  if (i >= numRows) return;
  const char *from = rowForWarp(rows, i);
  char *to =
      out + i * numChunks * static_cast<int64_t>(chunkElements * To::bytes);
#pragma unroll 2
  for (int chunk = laneOf(); chunk < numChunks; chunk += warpLanes) {
    typename To::Raw raw = To::zeros();
    if (from) raw = To::pack(From::unpack(From::load(from, chunk)));
    To::store(to, chunk, raw);
  }
}

static lrmoeResult_t convertRows(const struct lrmoeGather *args,
                                 lrmoeStream_t stream) {
  return withElements(args->rows.type, [=](auto from) -> lrmoeResult_t {
    return withElements(args->outType, [=](auto to) -> lrmoeResult_t {
      using From = decltype(from);
      using To = decltype(to);
      RowsView rows = viewOf(args->rows);
      if constexpr (!std::is_same<From, To>::value)
        LRMOE_RUN_KERNEL((convertRowsKernel<From, To>), args->numRows,
                         blockWarps, stream, rows, chunksOf(args->rows.width),
                         args->numRows, static_cast<char *>(args->out));
      return lrmoeSuccess;
    });
  });
}

lrmoeResult_t lrmoeCudaGather(const struct lrmoeGather *args,
                              lrmoeStream_t stream) {
  if (args->numRows == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireRows(args->rows));
  LRMOE_CHECK(lrmoeCudaCheckAligned(args->out));
  if (args->rows.type != args->outType) return convertRows(args, stream);
  RowsView rows = viewOf(args->rows);
  LRMOE_RUN_KERNEL(copyRowsKernel, args->numRows, blockWarps, stream, rows,
                   args->numRows, static_cast<char *>(args->out));
  return lrmoeSuccess;
}

/* struct lrmoeSpread in a kernel. */
struct SpreadView {
  const char *rows;
  const int64_t *offsets;
  const int64_t *list;
  char *out;
  int64_t numRows;
  int64_t rowBytes;
};

__global__ void __launch_bounds__(blockThreads)
    spreadRowsKernel(SpreadView view) {
  int64_t row = rowOfWarp();
  if (row >= view.numRows) return;
  int64_t first = loadForWarp(view.offsets + row);
  int64_t last = loadForWarp(view.offsets + row + 1);
  if (first == last) return;
  copyRowToPlaces(view.rows + row * view.rowBytes, view.rowBytes, first, last,
                  [&view](int64_t j) {
                    return view.out +
                           loadForWarp(view.list + j) * view.rowBytes;
                  });
}

lrmoeResult_t lrmoeCudaSpread(const struct lrmoeSpread *args,
                              lrmoeStream_t stream) {
  if (args->numRows == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireRows(args->rows));
  LRMOE_CHECK(lrmoeCudaCheckAligned(args->out));
  const SpreadView view = {static_cast<const char *>(args->rows.data),
                           args->offsets,
                           args->list,
                           static_cast<char *>(args->out),
                           args->numRows,
                           viewOf(args->rows).rowBytes};
  LRMOE_RUN_KERNEL(spreadRowsKernel, args->numRows, blockWarps, stream, view);
  return lrmoeSuccess;
}

/* By a warp. */
__device__ __forceinline__ void spoilRow(char *rows, int64_t row,
                                         int64_t rowBytes) {
  uint4 *to = reinterpret_cast<uint4 *>(rows + row * rowBytes);
  int64_t numWords = rowBytes / static_cast<int64_t>(sizeof(uint4));
  for (int64_t word = laneOf(); word < numWords; word += warpLanes)
    lrmoeStore(to + word, make_uint4(~0u, ~0u, ~0u, ~0u));
}

__global__ void __launch_bounds__(blockThreads)
    spoilRowsKernel(int64_t count, const int64_t *index, int64_t rowBytes,
                    char *rows) {
  int64_t i = rowOfWarp();
  if (i >= count) return;
  spoilRow(rows, loadForWarp(index + i), rowBytes);
}

static lrmoeResult_t requireBytes(int64_t rowBytes, const void *rows) {
  LRMOE_CUDA_REQUIRE(rowBytes % static_cast<int64_t>(sizeof(uint4)) == 0,
                     "rows of %lld bytes: the CUDA backend takes multiples of "
                     "16",
                     static_cast<long long>(rowBytes));
  return lrmoeCudaCheckAligned(rows);
}

lrmoeResult_t lrmoeCudaSpoilRows(int64_t count, const int64_t *index,
                                 int64_t rowBytes, void *rows,
                                 lrmoeStream_t stream) {
  if (count == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireBytes(rowBytes, rows));
  LRMOE_RUN_KERNEL(spoilRowsKernel, count, blockWarps, stream, count, index,
                   rowBytes, static_cast<char *>(rows));
  return lrmoeSuccess;
}

/* The same where other warps may spoil the row as well: pairs of one token. */
__device__ __forceinline__ void spoilShared(char *rows, int64_t row,
                                            int64_t rowBytes) {
  uint32_t *to = reinterpret_cast<uint32_t *>(rows + row * rowBytes);
  int64_t numWords = rowBytes / static_cast<int64_t>(sizeof *to);
  for (int64_t word = laneOf(); word < numWords; word += warpLanes)
    atomicOr(to + word, ~0u);
}

/* A warp for 32 items at a time of the block's range; overflows are rare. */
__global__ void __launch_bounds__(blockThreads)
    spoilDroppedKernel(struct lrmoeSpoils args) {
  int64_t l = blockIdx.x;
  int64_t count = loadForWarp(args.lists.counts + l);
  int64_t item = loadForWarp(args.lists.itemFirsts + l);
  const uint8_t *flags =
      args.lists.flags + loadForWarp(args.lists.flagFirsts + l);
  int64_t inWarp = threadIdx.x / warpLanes * warpLanes;
  for (int64_t first = inWarp; first < count; first += blockThreads) {
    int64_t i = first + laneOf();
    bool isLost = i < count && __ldg(flags + i) == 0 &&
                  __ldg(args.keys + item + i) == LRMOE_KEY_NON_FINITE;
    uint32_t lost = __ballot_sync(allLanes, isLost);
    for (; lost; lost &= lost - 1) {
      int64_t row =
          loadForWarp(args.lists.places + item + first + __ffs(lost) - 1);
      spoilShared(static_cast<char *>(args.rows), row, args.rowBytes);
    }
  }
}

lrmoeResult_t lrmoeCudaSpoilDropped(const struct lrmoeSpoils *args,
                                    lrmoeStream_t stream) {
  if (args->lists.numLists == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireBytes(args->rowBytes, args->rows));
  LRMOE_RUN_KERNEL(spoilDroppedKernel, args->lists.numLists, 1, stream, *args);
  return lrmoeSuccess;
}

/* A row that is not zero is mostly known by its first words. */
__global__ void __launch_bounds__(blockThreads)
    markRowsKernel(int64_t count, int64_t rowBytes, const char *rows,
                   uint8_t *marks) {
  int64_t i = rowOfWarp();
  if (i >= count) return;
  const uint4 *from = reinterpret_cast<const uint4 *>(rows + i * rowBytes);
  int64_t numWords = rowBytes / static_cast<int64_t>(sizeof(uint4));
  int isMarked = 0;
  for (int64_t first = 0; first < numWords && !isMarked; first += warpLanes) {
    uint4 word = make_uint4(0, 0, 0, 0);
    if (first + laneOf() < numWords) word = lrmoeLoad(from + first + laneOf());
    isMarked = __any_sync(allLanes, (word.x | word.y | word.z | word.w) != 0);
  }
  if (laneOf() == 0) lrmoeStore(marks + i, static_cast<uint8_t>(isMarked != 0));
}

lrmoeResult_t lrmoeCudaMarkRows(int64_t count, int64_t rowBytes,
                                const void *rows, uint8_t *marks,
                                lrmoeStream_t stream) {
  if (count == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireBytes(rowBytes, rows));
  LRMOE_RUN_KERNEL(markRowsKernel, count, blockWarps, stream, count, rowBytes,
                   static_cast<const char *>(rows), marks);
  return lrmoeSuccess;
}
