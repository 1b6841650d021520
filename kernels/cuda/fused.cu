/* Puts into peers' windows, and meetings of ranks: kernels/fused.h.
 *
 * A put is a spread, or a sum, whose output rows lie in windows: stores of 16
 * bytes that the link carries, no copy before and none after.  Sums for
 * different ranks take turns warp by warp, so that all links work at once.
 *
 * A meeting is one block, a thread for a peer.  Kernels end between puts and
 * the meeting, so that rows are written before the signal leaves; the wait is
 * bounded by the clock and looks at the host's flag each time round.
 *
 * Capture into a graph: no call may be, the epoch is the host's. */
#include "kernels/cuda/meeting.cuh"
#include "kernels/cuda/sum_rows.cuh"
#include "kernels/cuda/tiles.cuh"

using namespace lrmoeCuda;

/* ---- Puts ---- */

/* struct lrmoePut in a kernel. */
struct PutView {
  const char *rows;
  int64_t rowBytes;
  int64_t numRows;
  const int64_t *offsets;
  const int64_t *list;
  char *const *targets;
  const int64_t *gate;
};

/* Row 0 of a rank. */
__device__ __forceinline__ char *targetForWarp(char *const *targets,
                                               int64_t rank) {
  const int64_t *addresses = reinterpret_cast<const int64_t *>(targets);
  return reinterpret_cast<char *>(loadForWarp(addresses + rank));
}

__device__ __forceinline__ char *placeAt(const PutView &view, int64_t i) {
  uint64_t place = static_cast<uint64_t>(loadForWarp(view.list + i));
  uint64_t row = place & ((uint64_t{1} << lrmoePlaceBits) - 1);
  return targetForWarp(view.targets,
                       static_cast<int64_t>(place >> lrmoePlaceBits)) +
         static_cast<int64_t>(row) * view.rowBytes;
}

/* struct lrmoeOwnRows in a kernel. */
struct OwnView {
  RowsView rows;
  int64_t numRows;
  const int64_t *isOwn;
  char *out;
  int64_t numBlocks;
};

__device__ __forceinline__ void copyOwnRow(const OwnView &own, int64_t row) {
  if (row >= own.numRows || loadForWarp(own.isOwn + row) < 0) return;
  copyRow(rowForWarp(own.rows, row), own.out + row * own.rows.rowBytes,
          own.rows.rowBytes);
}

/* Blocks that copy lie evenly among those that put, so that the memory and the
 * links both have work from the first to the last. */
template <bool hasOwn>
__global__ void __launch_bounds__(blockThreads)
    putRowsKernel(PutView view, OwnView own) {
  int64_t row = rowOfWarp();
  if (hasOwn) {
    int64_t block = blockIdx.x;
    int64_t before = block * own.numBlocks / gridDim.x;
    int64_t inBlock = row - block * blockWarps;
    if ((block + 1) * own.numBlocks / gridDim.x != before) {
      copyOwnRow(own, before * blockWarps + inBlock);
      return;
    }
    row -= before * blockWarps;
  }
  if (row >= view.numRows || !loadForWarp(view.gate)) return;
  int64_t first = loadForWarp(view.offsets + row);
  int64_t last = loadForWarp(view.offsets + row + 1);
  if (first == last) return;
  copyRowToPlaces(view.rows + row * view.rowBytes, view.rowBytes, first, last,
                  [&view](int64_t j) { return placeAt(view, j); });
}

static int64_t blocksOf(int64_t numRows) {
  return (numRows + blockWarps - 1) / blockWarps;
}

lrmoeResult_t lrmoeCudaPutRows(const struct lrmoePut *args,
                               lrmoeStream_t stream) {
  const struct lrmoeOwnRows *own = &args->own;
  if (args->numRows == 0 && own->numRows == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireRows(args->rows));
  RowsView rows = viewOf(args->rows);
  const PutView view = {rows.data,  rows.rowBytes, args->numRows, args->offsets,
                        args->list, args->targets, args->gate};
  OwnView ownView = {viewOf(own->rows), own->numRows, own->isOwn,
                     static_cast<char *>(own->out), blocksOf(own->numRows)};
  int64_t numBlocks = blocksOf(args->numRows) + ownView.numBlocks;
  if (own->numRows == 0) {
    LRMOE_RUN_KERNEL(putRowsKernel<false>, args->numRows, blockWarps, stream,
                     view, ownView);
    return lrmoeSuccess;
  }
  LRMOE_CHECK(requireRows(own->rows));
  LRMOE_CHECK(lrmoeCudaCheckAligned(own->out));
  LRMOE_RUN_KERNEL(putRowsKernel<true>, numBlocks, 1, stream, view, ownView);
  return lrmoeSuccess;
}

/* What a sum is, and where it goes. */
struct PutSums {
  GatherSum sums;
  int numRanks;
  int first;
  int64_t maxOut;
  const int64_t *bounds;
  char *const *targets;
  const int64_t *gate;
};

template <class T>
__global__ void __launch_bounds__(blockThreads) putSumsKernel(PutSums args) {
  int64_t warp = rowOfWarp();
  if (warp >= args.maxOut * args.numRanks || !loadForWarp(args.gate)) return;
  int rank = static_cast<int>((warp + args.first) % args.numRanks);
  int64_t row = warp / args.numRanks;
  int64_t begin = loadForWarp(args.bounds + rank);
  if (row >= loadForWarp(args.bounds + rank + 1) - begin) return;
  sumRows<T, false>(args.sums, begin + row,
                    targetForWarp(args.targets, rank) +
                        row * args.sums.rowBytes);
}

lrmoeResult_t lrmoeCudaPutSums(const struct lrmoePutSums *args,
                               lrmoeStream_t stream) {
  if (args->maxOut == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireRows(args->rows));
  return withElements(args->rows.type, [=](auto elements) -> lrmoeResult_t {
    using T = decltype(elements);
    RowsView rows = viewOf(args->rows);
    PutSums run = {{rows.data, rows.rowBytes, chunksOf(args->rows.width), 0,
                    args->offsets, args->list, NULL, NULL},
                   args->numRanks,
                   args->first,
                   args->maxOut,
                   args->bounds,
                   args->targets,
                   args->gate};
    LRMOE_RUN_KERNEL(putSumsKernel<T>, args->maxOut * args->numRanks,
                     blockWarps, stream, run);
    return lrmoeSuccess;
  });
}

/* ---- Meetings ---- */

constexpr int maxMeetThreads = 1024;

/* struct lrmoeMeet in a kernel. */
struct MeetView {
  int rank;
  int numRanks;
  int64_t epoch;
  int64_t *const *words;
  const int64_t *sent;
  const int64_t *expected;
  const uint64_t *tags;
  struct lrmoeWatch *watch;
  int64_t *gate;
  int64_t limit; /* ticks */
};

/* A warp: a rank that has another tag than this one, or -1. */
__device__ __forceinline__ int findOther(const MeetView &view) {
  if (!view.tags) return -1;
  uint64_t own = loadForWarp(view.tags + view.rank);
  for (int first = 0; first < view.numRanks; first += warpLanes) {
    int rank = first + laneOf();
    bool isOther = rank < view.numRanks && __ldg(view.tags + rank) != own;
    uint32_t others = __ballot_sync(allLanes, isOther);
    if (others) return first + __ffs(others) - 1;
  }
  return -1;
}

/* The host raises isStopped and then reads numEntered: either it sees this
 * phase or this phase sees the flag. */
__global__ void __launch_bounds__(warpLanes) enterKernel(MeetView view) {
  int other = findOther(view);
  if (laneOf() > 0) return;
  if (other >= 0 && lrmoeObserve(&view.watch->status) == 0) {
    lrmoeSignal(&view.watch->peer, other);
    lrmoeSignal(&view.watch->status, lrmoeMeetingOther);
  }
  lrmoeSignal(&view.watch->numEntered, view.epoch);
  __threadfence_system();
  bool isOpen = lrmoeObserve(&view.watch->isStopped) == 0 &&
                lrmoeObserve(&view.watch->status) == 0;
  lrmoeStore(view.gate, static_cast<int64_t>(isOpen));
  if (!isOpen) lrmoeSignal(&view.watch->numLeft, view.epoch);
}

__device__ __forceinline__ int64_t rowsOf(const int64_t *offsets, int rank) {
  return lrmoeLoad(offsets + rank + 1) - lrmoeLoad(offsets + rank);
}

/* A rank's word for another one. */
__device__ __forceinline__ int64_t *wordOf(const MeetView &view, int to,
                                           int from, int64_t side) {
  return lrmoeLoad(view.words + to) + side * view.numRanks + from;
}

__device__ __forceinline__ Failure awaitPeer(const MeetView &view, int peer,
                                             int64_t start) {
  constexpr int64_t countMask = (int64_t{1} << lrmoeSignalBits) - 1;
  int64_t wanted = view.epoch % lrmoeSignalEpochs;
  int64_t expected = rowsOf(view.expected, peer);
  const int64_t *word = wordOf(view, view.rank, peer, view.epoch % 2);
  for (;;) {
    int64_t seen = lrmoeObserve(word);
    if (seen == lrmoeSignalSpoiled) return {lrmoeMeetingSpoiled, 0};
    if (seen >> lrmoeSignalBits == wanted) {
      int64_t got = seen & countMask;
      return {got == expected ? lrmoeMeetingGood : lrmoeMeetingCount, got};
    }
    int end = endOfWait(view.watch, start, view.limit);
    if (end != lrmoeMeetingGood) return {end, 0};
    lrmoePause();
  }
}

/* Peers must not wait for a rank that has failed. */
__device__ __forceinline__ void spoil(const MeetView &view) {
  for (int peer = static_cast<int>(threadIdx.x); peer < view.numRanks;
       peer += static_cast<int>(blockDim.x))
    for (int side = 0; side < 2; side++)
      lrmoeSignal(wordOf(view, peer, view.rank, side), lrmoeSignalSpoiled);
}

__global__ void __launch_bounds__(maxMeetThreads) meetKernel(MeetView view) {
  LRMOE_SHARED(MeetShared, shared);
  int step = static_cast<int>(blockDim.x);
  int own = static_cast<int>(threadIdx.x);
  if (!lrmoeLoad(view.gate)) return;
  if (own == 0) shared.failedPeer = view.numRanks;
  __syncthreads();
  for (int peer = own; peer < view.numRanks; peer += step) {
    int64_t signal = view.epoch % lrmoeSignalEpochs << lrmoeSignalBits;
    lrmoeSignal(wordOf(view, peer, view.rank, view.epoch % 2),
                signal + rowsOf(view.sent, peer));
  }
  int64_t start = lrmoeTicks();
  Failure failure = {lrmoeMeetingGood, 0};
  int peer = own;
  for (; peer < view.numRanks; peer += step) {
    failure = awaitPeer(view, peer, start);
    if (failure.meeting != lrmoeMeetingGood) break;
  }
  if (failure.meeting != lrmoeMeetingGood) atomicMin(&shared.failedPeer, peer);
  __syncthreads();
  bool isGood = shared.failedPeer == view.numRanks;
  if (!isGood) spoil(view);
  if (!isGood && peer == shared.failedPeer)
    tellFailure(view.watch, peer, rowsOf(view.expected, peer), failure);
  __syncthreads();
  if (own == 0) lrmoeSignal(&view.watch->numLeft, view.epoch);
}

static lrmoeResult_t viewOfMeet(const struct lrmoeMeet *args, MeetView *view) {
  int64_t limit = 0;
  LRMOE_CHECK(ticksOf(args->timeoutMs, &limit));
  *view = {args->rank,     args->numRanks, args->epoch, args->words, args->sent,
           args->expected, args->tags,     args->watch, args->gate,  limit};
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaEnter(const struct lrmoeMeet *args,
                             lrmoeStream_t stream) {
  MeetView view;
  LRMOE_CHECK(viewOfMeet(args, &view));
  LRMOE_CUDA_CHECK(
      LRMOE_LAUNCH(enterKernel, dim3(1), dim3(warpLanes), 0, stream, view));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaMeet(const struct lrmoeMeet *args,
                            lrmoeStream_t stream) {
  MeetView view;
  LRMOE_CHECK(viewOfMeet(args, &view));
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH_WAITING(
      meetKernel, dim3(1), meetThreads(args->numRanks, maxMeetThreads),
      sizeof(MeetShared), stream, view));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaPeek(const void *from, size_t bytes, void *to) {
  cudaPointerAttributes attributes = {};
  LRMOE_CUDA_CHECK(cudaPointerGetAttributes(&attributes, from));
  if (attributes.type != cudaMemoryTypeDevice)
    return lrmoeCudaFail(lrmoeUnsupported, "%p is no memory of a device", from);
  LRMOE_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
  return lrmoeSuccess;
}
