/* Lists from flags: kernels/lists.h.
 *
 * A block takes a range.  Each warp owns a contiguous part of it: it counts its
 * flags, learns how many the warps before it have, and writes its items by
 * ballots, so that lists ascend whatever the order of threads.  Only marks are
 * shared between blocks: they are set by atomics on words of four.
 *
 * All calls may be captured into a graph. */
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/numbers.h"
#include "kernels/labels.h"
#include "kernels/select.h"

using namespace lrmoeCuda;

/* Ranges up to this length take a small block. */
constexpr int64_t shortRange = 512;

/* marks[place] = 1 */
__device__ __forceinline__ void setMark(uint8_t *marks, int64_t place) {
  uint32_t *words = reinterpret_cast<uint32_t *>(marks);
  atomicOr(words + place / 4, 1u << 8 * static_cast<int>(place % 4));
}

/* As lrmoeIsWanted. */
__device__ __forceinline__ bool isWanted(int64_t wanted, uint32_t flag) {
  return ((flag - static_cast<uint32_t>(wanted)) & 255) <= wanted >> 8;
}

struct CountShared {
  WarpSums listed;
  WarpSums dropped;
};

/* What a block knows of its range. */
struct Range {
  int64_t first; /* item */
  int64_t placeFirst;
  int64_t wanted;
  int64_t marked;
};

/* Marks item i of a range; whether it is listed. */
__device__ __forceinline__ bool markItem(const struct lrmoeFlagCount &args,
                                         const Range &range, int64_t i,
                                         uint32_t flag) {
  bool isListed = isWanted(range.wanted, flag);
  bool isMarked = isWanted(range.marked, flag);
  bool comesWithX = isListed && args.xMarks && flag >= lrmoeLabelMoved;
  if (!isMarked && !comesWithX) return isListed;
  int64_t place = range.placeFirst + __ldg(args.lists.places + range.first + i);
  if (isMarked) setMark(args.marks, place);
  if (comesWithX) setMark(args.xMarks, place);
  return isListed;
}

/* offsets[l] = how many list l will have, for now. */
template <int threads>
__global__ void __launch_bounds__(threads)
    countFlaggedKernel(struct lrmoeFlagCount args) {
  LRMOE_SHARED(CountShared, shared);
  int64_t l = blockIdx.x;
  int64_t count = loadForWarp(args.lists.counts + l);
  Range range = {loadForWarp(args.lists.itemFirsts + l),
                 loadForWarp(args.lists.placeFirsts + l),
                 loadForWarp(args.lists.wanted + l),
                 loadForWarp(args.marked + l)};
  const uint8_t *flags =
      args.lists.flags + loadForWarp(args.lists.flagFirsts + l);
  int64_t listed = 0;
  int64_t dropped = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += threads) {
    uint32_t flag = __ldg(flags + i);
    listed += markItem(args, range, i, flag);
    if (args.keys && flag == 0)
      dropped += __ldg(args.keys + range.first + i) == LRMOE_KEY_NON_FINITE;
  }
  constexpr int numWarps = threads / warpLanes;
  listed = sumOfWarps(sumOfLanes(listed), numWarps, shared.listed);
  dropped = sumOfWarps(sumOfLanes(dropped), numWarps, shared.dropped);
  if (threadIdx.x > 0) return;
  lrmoeStore(args.lists.offsets + l, listed);
  if (args.keys) lrmoeStore(args.dropped + l, dropped);
}

template <int threads>
static lrmoeResult_t runCount(const struct lrmoeFlagCount *args, dim3 grid,
                              lrmoeStream_t stream) {
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(countFlaggedKernel<threads>, grid,
                                dim3(threads), sizeof(CountShared), stream,
                                *args));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaCountFlagged(const struct lrmoeFlagCount *args,
                                    lrmoeStream_t stream) {
  const struct lrmoeFlagged *lists = &args->lists;
  dim3 grid;
  LRMOE_CHECK(gridFor(lists->numLists, 1, &grid));
  if (lists->numLists > 0)
    LRMOE_CHECK(lists->maxItems <= shortRange
                    ? runCount<64>(args, grid, stream)
                    : runCount<512>(args, grid, stream));
  return lrmoeNumberInPlace(lists->numLists, lists->offsets, stream);
}

/* Writes the list's entry `at`. */
__device__ __forceinline__ void listItem(const struct lrmoeFlagged &args,
                                         int64_t at, int64_t item,
                                         int64_t placeFirst) {
  lrmoeStore(args.list + at, item);
  if (args.listPlaces)
    lrmoeStore(args.listPlaces + at, placeFirst + __ldg(args.places + item));
}

template <int threads>
__global__ void __launch_bounds__(threads)
    listFlaggedKernel(struct lrmoeFlagged args) {
  LRMOE_SHARED(WarpSums, shared);
  int64_t range = blockIdx.x;
  Part part = partOfWarp<threads>(loadForWarp(args.counts + range));
  const uint8_t *flags = args.flags + loadForWarp(args.flagFirsts + range);
  int64_t wanted = loadForWarp(args.wanted + range);
  int64_t count = 0;
#pragma unroll 4
  for (int64_t i = part.begin + laneOf(); i < part.end; i += warpLanes)
    count += isWanted(wanted, __ldg(flags + i));
  int64_t at = sumOfWarpsBefore(sumOfLanes(count), shared);
  at += loadForWarp(args.offsets + range);
  int64_t item = loadForWarp(args.itemFirsts + range);
  int64_t placeFirst =
      args.listPlaces ? loadForWarp(args.placeFirsts + range) : 0;
  uint32_t lower = (1u << laneOf()) - 1;
  for (int64_t first = part.begin; first < part.end; first += warpLanes) {
    int64_t i = first + laneOf();
    bool isListed = i < part.end && isWanted(wanted, __ldg(flags + i));
    uint32_t listed = __ballot_sync(allLanes, isListed);
    if (isListed)
      listItem(args, at + __popc(listed & lower), item + i, placeFirst);
    at += __popc(listed);
  }
}

template <int threads>
static lrmoeResult_t runList(const struct lrmoeFlagged *args, dim3 grid,
                             lrmoeStream_t stream) {
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(listFlaggedKernel<threads>, grid, dim3(threads),
                                sizeof(WarpSums), stream, *args));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaListFlagged(const struct lrmoeFlagged *args,
                                   lrmoeStream_t stream) {
  if (args->numLists == 0) return lrmoeSuccess;
  dim3 grid;
  LRMOE_CHECK(gridFor(args->numLists, 1, &grid));
  if (args->maxItems <= shortRange) return runList<64>(args, grid, stream);
  return runList<512>(args, grid, stream);
}

__device__ __forceinline__ int64_t shiftOf(const struct lrmoeColumns &args,
                                           int64_t row) {
  if (args.stride == 0) return 0;
  return row * args.stride - __ldg(args.numbers + row * args.numColumns);
}

/* A thread for a column, and one for the end.  Marks of the columns before are
 * counted by the numbers, row by row. */
__global__ void __launch_bounds__(blockThreads)
    listColumnsKernel(struct lrmoeColumns args) {
  int64_t column = indexOfThread();
  if (column > args.numColumns) return;
  int64_t at = 0;
  for (int64_t row = 0; row < args.numRows; row++) {
    const int64_t *numbers = args.numbers + row * args.numColumns;
    at += __ldg(numbers + column) - __ldg(numbers);
  }
  lrmoeStore(args.offsets + column, at);
  if (column == args.numColumns) return;
  for (int64_t row = 0; row < args.numRows; row++) {
    const int64_t *numbers = args.numbers + row * args.numColumns + column;
    int64_t number = __ldg(numbers);
    if (number == __ldg(numbers + 1)) continue;
    if (args.list) lrmoeStore(args.list + at++, number + shiftOf(args, row));
    if (args.columns) lrmoeStore(args.columns + number, column);
  }
}

lrmoeResult_t lrmoeCudaListColumns(const struct lrmoeColumns *args,
                                   lrmoeStream_t stream) {
  LRMOE_RUN_KERNEL(listColumnsKernel, args->numColumns + 1, blockThreads,
                   stream, *args);
  return lrmoeSuccess;
}

__global__ void __launch_bounds__(blockThreads)
    shiftListsKernel(struct lrmoeShifts args) {
  int64_t list = blockIdx.x;
  int64_t end = loadForWarp(args.offsets + list + 1);
  int64_t rank = list % args.numRanks;
  int64_t shift = rank * args.stride - loadForWarp(args.begins + rank);
  for (int64_t i = loadForWarp(args.offsets + list) + threadIdx.x; i < end;
       i += blockThreads)
    lrmoeStore(args.values + i, lrmoeLoad(args.values + i) + shift);
}

lrmoeResult_t lrmoeCudaShiftLists(const struct lrmoeShifts *args,
                                  lrmoeStream_t stream) {
  if (args->numLists == 0) return lrmoeSuccess;
  LRMOE_RUN_KERNEL(shiftListsKernel, args->numLists, 1, stream, *args);
  return lrmoeSuccess;
}

__global__ void __launch_bounds__(blockThreads)
    listHandoffKernel(struct lrmoeHandoffLists args) {
  int64_t i = indexOfThread();
  if (i >= args.numRows) return;
  int64_t item = lrmoeLoad(args.items + i);
  int64_t place = lrmoeLoad(args.places + i);
  bool isHere = item < args.numLocal;
  lrmoeStore(args.xRows + i,
             isHere ? __ldg(args.xRow + item) : __ldg(args.xNumbers + place));
  lrmoeStore(args.weights + i, isHere ? __ldg(args.alpha + item) : 0.0f);
  if (!isHere) lrmoeStore(args.items + i, int64_t(-1));
  lrmoeStore(args.places + i, __ldg(args.gNumbers + place));
}

lrmoeResult_t lrmoeCudaListHandoff(const struct lrmoeHandoffLists *args,
                                   lrmoeStream_t stream) {
  if (args->numRows == 0) return lrmoeSuccess;
  LRMOE_RUN_KERNEL(listHandoffKernel, args->numRows, blockThreads, stream,
                   *args);
  return lrmoeSuccess;
}
