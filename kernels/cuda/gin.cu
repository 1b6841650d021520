/* Rows that the device hands to the NIC: kernels/gin.h.
 *
 * A thread for a peer.  Rows go in pieces, all of a pair of ranks through one
 * context of NCCL's, which keeps their order; pairs take turns.  A wait looks
 * at a word until it has grown, or until it has to end: NCCL's own waits cannot
 * be ended.
 *
 * Compiled where NCCL's device header is found and has GIN.  That interface is
 * of one release only: the backend says of which, and communicators are what
 * that header says.
 *
 * Capture into a graph: no call may be, the epoch is the host's. */
#include "kernels/cuda/calls.h"
#include "kernels/cuda/meeting.cuh"

#if __has_include(<nccl_device.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <nccl_device.h>
#pragma GCC diagnostic pop
#endif
#if defined(NCCL_VERSION_CODE) && NCCL_VERSION_CODE >= 22807

using namespace lrmoeCuda;

static void fillNeeds(int numSignals, void *needs) {
#ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
  ncclDevCommRequirements made = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  made.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
#else
  ncclDevCommRequirements made = {};
  made.ginForceEnable = true;
#endif
  made.ginSignalCount = numSignals;
  *static_cast<ncclDevCommRequirements *>(needs) = made;
}

/* NCCL's code needs registers. */
constexpr int maxGinThreads = 256;

/* struct lrmoeGin in a kernel. */
struct GinView {
  ncclDevComm comm;
  int rank;
  int numRanks;
  ncclWindow_t from;
  ncclWindow_t to;
  int numSends;
  int numReceives;
  const struct lrmoeGinPeer *sends;
  const struct lrmoeGinPeer *receives;
  uint64_t *seen;
  int64_t pieceBytes;
  int64_t epoch;
  struct lrmoeWatch *watch;
  const int64_t *gate;
  int64_t limit; /* ticks */
};

/* The same on both ends. */
__device__ __forceinline__ int contextOf(const GinView &view, int peer) {
  return static_cast<int>(static_cast<unsigned>(view.rank + peer) %
                          view.comm.ginContextCount);
}

__device__ __forceinline__ ncclGinSignal_t wordOf(const GinView &view, int word,
                                                  int rank) {
  return static_cast<ncclGinSignal_t>(word * view.numRanks + rank);
}

/* Fields of struct lrmoeGinPeer. */
struct PeerView {
  const int64_t *fields;
  __device__ __forceinline__ int peer() const {
    return static_cast<int>(lrmoeLoad(fields));
  }
  __device__ __forceinline__ int64_t rows() const {
    return lrmoeLoad(fields + 1);
  }
  __device__ __forceinline__ int64_t at() const {
    return lrmoeLoad(fields + 2);
  }
  __device__ __forceinline__ int64_t bytes() const {
    return lrmoeLoad(fields + 3);
  }
};

__device__ __forceinline__ PeerView peerAt(const struct lrmoeGinPeer *peers,
                                           int i) {
  return {reinterpret_cast<const int64_t *>(peers + i)};
}

/* Own word at the peer. */
__device__ __forceinline__ void tell(const GinView &view, int peer, int word,
                                     uint64_t value) {
  ncclGin gin(view.comm, contextOf(view, peer));
  const ncclGin_SignalAdd signal = {wordOf(view, word, view.rank), value};
  gin.signal(ncclTeamWorld(view.comm), peer, signal);
}

__device__ __forceinline__ uint64_t phaseWith(int64_t number) {
  return (uint64_t{1} << lrmoeSignalBits) + static_cast<uint64_t>(number);
}

/* Waits for a peer's word of this phase: what it says, or how it failed. */
__device__ __forceinline__ Failure awaitWord(const GinView &view, int peer,
                                             int word, int64_t start) {
  ncclGin gin(view.comm, contextOf(view, peer));
  ncclGinSignal_t at = wordOf(view, word, peer);
  uint64_t before = lrmoeLoad(view.seen + at);
  for (;;) {
    uint64_t now = gin.readSignal(at);
    uint64_t grown = now - before;
    if (grown & lrmoeGinSpoiled) return {lrmoeMeetingSpoiled, 0};
    if (grown >> lrmoeSignalBits) {
      lrmoeStore(view.seen + at, now);
      return {lrmoeMeetingGood, static_cast<int64_t>(grown - phaseWith(0))};
    }
    int end = endOfWait(view.watch, start, view.limit);
    if (end != lrmoeMeetingGood) return {end, 0};
    lrmoePause();
  }
}

/* ---- Start ---- */

__global__ void __launch_bounds__(maxGinThreads, 1)
    ginResetKernel(const __grid_constant__ GinView view) {
  int step = static_cast<int>(blockDim.x);
  int numWords = lrmoeNumGinWords * view.numRanks;
  for (int word = static_cast<int>(threadIdx.x); word < numWords;
       word += step) {
    lrmoeStore(view.seen + word, uint64_t{0});
    for (int i = 0; i < static_cast<int>(view.comm.ginContextCount); i++) {
      ncclGin gin(view.comm, i);
      gin.resetSignal(static_cast<ncclGinSignal_t>(word));
    }
  }
}

/* ---- Failures ---- */

/* Peers must not wait for a rank that has failed: none of its words comes. */
__device__ __forceinline__ void spoil(const GinView &view) {
  int step = static_cast<int>(blockDim.x);
  int numPeers = view.numSends + view.numReceives;
  for (int i = static_cast<int>(threadIdx.x); i < lrmoeNumGinWords * numPeers;
       i += step) {
    int at = i / lrmoeNumGinWords;
    PeerView peer = at < view.numSends
                        ? peerAt(view.sends, at)
                        : peerAt(view.receives, at - view.numSends);
    tell(view, peer.peer(), i % lrmoeNumGinWords, lrmoeGinSpoiled);
  }
}

/* A thread's wait that failed, or none. */
struct Ended {
  Failure failure;
  int peer;
  int64_t expected;
};

/* The block: of failures the lowest peer's is told.  Whether there was none. */
__device__ __forceinline__ bool settle(const GinView &view, MeetShared &shared,
                                       const Ended &ended) {
  bool hasFailed = ended.failure.meeting != lrmoeMeetingGood;
  if (threadIdx.x == 0) shared.failedPeer = view.numRanks;
  __syncthreads();
  if (hasFailed) atomicMin(&shared.failedPeer, ended.peer);
  __syncthreads();
  bool isGood = shared.failedPeer == view.numRanks;
  if (!isGood) spoil(view);
  if (hasFailed && ended.peer == shared.failedPeer)
    tellFailure(view.watch, ended.peer, ended.expected, ended.failure);
  __syncthreads();
  return isGood;
}

/* ---- Puts ---- */

__device__ __forceinline__ void putPieces(const GinView &view, PeerView send,
                                          int64_t place) {
  int peer = send.peer();
  int64_t left = send.bytes();
  int64_t from = send.at();
  ncclGin gin(view.comm, contextOf(view, peer));
  while (left > 0) {
    int64_t bytes = left < view.pieceBytes ? left : view.pieceBytes;
    gin.put(ncclTeamWorld(view.comm), peer, view.to, static_cast<size_t>(place),
            view.from, static_cast<size_t>(from), static_cast<size_t>(bytes));
    left -= bytes;
    from += bytes;
    place += bytes;
  }
}

__device__ __forceinline__ Failure putRows(const GinView &view, PeerView send,
                                           int64_t start) {
  Failure place = awaitWord(view, send.peer(), lrmoeGinPlace, start);
  if (place.meeting != lrmoeMeetingGood) return place;
  putPieces(view, send, place.got);
  tell(view, send.peer(), lrmoeGinRows, phaseWith(send.rows()));
  return {lrmoeMeetingGood, 0};
}

__global__ void __launch_bounds__(maxGinThreads, 1)
    ginPutKernel(const __grid_constant__ GinView view) {
  LRMOE_SHARED(MeetShared, shared);
  int step = static_cast<int>(blockDim.x);
  int own = static_cast<int>(threadIdx.x);
  if (!lrmoeLoad(view.gate)) return;
  __threadfence_system();
  for (int i = own; i < view.numReceives; i += step) {
    PeerView receive = peerAt(view.receives, i);
    tell(view, receive.peer(), lrmoeGinPlace, phaseWith(receive.at()));
  }
  int64_t start = lrmoeTicks();
  Ended ended = {{lrmoeMeetingGood, 0}, 0, 0};
  for (int i = own; i < view.numSends; i += step) {
    PeerView send = peerAt(view.sends, i);
    ended = {putRows(view, send, start), send.peer(), send.rows()};
    if (ended.failure.meeting != lrmoeMeetingGood) break;
  }
  settle(view, shared, ended);
}

/* ---- Waits ---- */

/* Rows, which are answered, and then answers: nobody waits in a circle. */
__device__ __forceinline__ Ended awaitAll(const GinView &view, int64_t start) {
  int step = static_cast<int>(blockDim.x);
  int numWaits = view.numReceives + view.numSends;
  for (int i = static_cast<int>(threadIdx.x); i < numWaits; i += step) {
    bool isAnswer = i >= view.numReceives;
    PeerView wait = isAnswer ? peerAt(view.sends, i - view.numReceives)
                             : peerAt(view.receives, i);
    int64_t rows = wait.rows();
    Failure said = awaitWord(view, wait.peer(),
                             isAnswer ? lrmoeGinAnswer : lrmoeGinRows, start);
    if (said.meeting == lrmoeMeetingGood && said.got != rows)
      said.meeting = lrmoeMeetingCount;
    if (said.meeting != lrmoeMeetingGood) return {said, wait.peer(), rows};
    if (!isAnswer) tell(view, wait.peer(), lrmoeGinAnswer, phaseWith(rows));
  }
  return {{lrmoeMeetingGood, 0}, 0, 0};
}

__global__ void __launch_bounds__(maxGinThreads, 1)
    ginAwaitKernel(const __grid_constant__ GinView view) {
  LRMOE_SHARED(MeetShared, shared);
  if (!lrmoeLoad(view.gate)) return;
  /* The puts may have failed: the same for all threads, who read it once. */
  bool isGood = lrmoeObserve(&view.watch->status) == 0;
  if (__syncthreads_and(isGood))
    settle(view, shared, awaitAll(view, lrmoeTicks()));
  if (threadIdx.x == 0) lrmoeSignal(&view.watch->numLeft, view.epoch);
}

/* ---- Calls ---- */

static lrmoeResult_t viewOf(const struct lrmoeGin *args, GinView *view) {
  int64_t limit = 0;
  LRMOE_CHECK(ticksOf(args->timeoutMs, &limit));
  *view = {*static_cast<const ncclDevComm *>(args->comm),
           args->rank,
           args->numRanks,
           args->from,
           args->to,
           args->numSends,
           args->numReceives,
           args->sends,
           args->receives,
           args->seen,
           args->pieceBytes,
           args->epoch,
           args->watch,
           args->gate,
           limit};
  return lrmoeSuccess;
}

static lrmoeResult_t ginReset(const struct lrmoeGin *args,
                              lrmoeStream_t stream) {
  GinView view;
  LRMOE_CHECK(viewOf(args, &view));
  dim3 block =
      meetThreads(lrmoeNumGinWords * int64_t{args->numRanks}, maxGinThreads);
  LRMOE_CUDA_CHECK(
      LRMOE_LAUNCH(ginResetKernel, dim3(1), block, 0, stream, view));
  return lrmoeSuccess;
}

static lrmoeResult_t ginPut(const struct lrmoeGin *args, lrmoeStream_t stream) {
  GinView view;
  LRMOE_CHECK(viewOf(args, &view));
  int count =
      args->numReceives > args->numSends ? args->numReceives : args->numSends;
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH_WAITING(ginPutKernel, dim3(1),
                                        meetThreads(count, maxGinThreads),
                                        sizeof(MeetShared), stream, view));
  return lrmoeSuccess;
}

static lrmoeResult_t ginAwait(const struct lrmoeGin *args,
                              lrmoeStream_t stream) {
  GinView view;
  LRMOE_CHECK(viewOf(args, &view));
  int64_t count = int64_t{args->numSends} + args->numReceives;
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH_WAITING(ginAwaitKernel, dim3(1),
                                        meetThreads(count, maxGinThreads),
                                        sizeof(MeetShared), stream, view));
  return lrmoeSuccess;
}

const struct lrmoeGinBackend lrmoeCudaGin = {NCCL_VERSION_CODE,
                                             sizeof(ncclDevComm),
                                             sizeof(ncclDevCommRequirements),
                                             fillNeeds,
                                             ginReset,
                                             ginPut,
                                             ginAwait};

#else

const struct lrmoeGinBackend lrmoeCudaGin = {};

#endif
