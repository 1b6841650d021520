/* Collectives: see collective.h.
 *
 * AllGather, Broadcast and AllToAll are one round of messages.  Reductions
 * send each piece to the rank that owns it, which combines the operands in
 * rank order; AllReduce then hands the results round.  Pieces bound the
 * scratch memory.  A small AllReduce takes one round instead of two: every
 * rank gets every operand and computes all of it, in the same order. */
#include "collectives/cpu/collective.h"

#include "collectives/cpu/copy.h"
#include "collectives/cpu/p2p.h"
#include "collectives/cpu/reduce.h"
#include "collectives/transport.h"

#include <string.h>

/* Scratch memory of one reduction. */
static const size_t maxScratchBytes = 4 << 20;
/* Bytes up to which an AllReduce takes one round. */
static const size_t maxDirectBytes = 4 << 10;

static size_t minSize(size_t a, size_t b) {
  return a < b ? a : b;
}

/* Elements of a rank's share of one piece. */
static size_t shareOf(const struct ncclComm *comm, const struct lrmoeCall *call,
                      size_t needed) {
  size_t room = maxScratchBytes / (size_t)comm->numRanks;
  size_t share = room / lrmoeTypeBytes(call->type);
  return minSize(share ? share : 1, needed);
}

static int isDirect(const struct ncclComm *comm, const struct lrmoeCall *call) {
  size_t bytes = call->count * lrmoeTypeBytes(call->type);
  return bytes <= maxDirectBytes || comm->numRanks == 1;
}

/* AllReduce: elements of one piece that a rank owns. */
static size_t allReduceShare(const struct ncclComm *comm,
                             const struct lrmoeCall *call) {
  size_t numRanks = (size_t)comm->numRanks;
  return shareOf(comm, call, (call->count + numRanks - 1) / numRanks);
}

static size_t numPieces(size_t count, size_t piece) {
  return (count + piece - 1) / piece;
}

int64_t lrmoeCollectiveRounds(const struct ncclComm *comm,
                              const struct lrmoeCall *call) {
  if (!call->count && call->kind > lrmoeCallRecv) return 0;
  if (call->kind == lrmoeCallReduceScatter)
    return (int64_t)numPieces(call->count, shareOf(comm, call, call->count));
  if (call->kind != lrmoeCallAllReduce || isDirect(comm, call)) return 1;
  size_t piece = allReduceShare(comm, call) * (size_t)comm->numRanks;
  return 2 * (int64_t)numPieces(call->count, piece);
}

size_t lrmoeCollectiveScratch(const struct ncclComm *comm,
                              const struct lrmoeCall *call) {
  size_t numRanks = (size_t)comm->numRanks;
  size_t bytes = numRanks * lrmoeTypeBytes(call->type);
  if (!call->count || numRanks == 1) return 0;
  if (call->kind == lrmoeCallReduceScatter)
    return bytes * shareOf(comm, call, call->count);
  if (call->kind != lrmoeCallAllReduce) return 0;
  return bytes *
         (isDirect(comm, call) ? call->count : allReduceShare(comm, call));
}

/* A part of a buffer, in elements. */
struct range {
  size_t first;
  size_t count;
};

/* What `rank` owns of piece `piece` of an AllReduce. */
static struct range allReduceRange(const struct ncclComm *comm,
                                   const struct lrmoeCall *call, int64_t piece,
                                   int rank) {
  size_t share = allReduceShare(comm, call);
  size_t first =
      ((size_t)piece * (size_t)comm->numRanks + (size_t)rank) * share;
  struct range range = {minSize(first, call->count), 0};
  range.count = minSize(share, call->count - range.first);
  return range;
}

/* What `rank` gets of piece `piece` of a ReduceScatter, within the send
 * buffer. */
static struct range reduceScatterRange(const struct ncclComm *comm,
                                       const struct lrmoeCall *call,
                                       int64_t piece, int rank) {
  size_t share = shareOf(comm, call, call->count);
  size_t first = (size_t)piece * share;
  struct range range = {(size_t)rank * call->count + first,
                        minSize(share, call->count - first)};
  return range;
}

static const char *sendAt(const struct lrmoeCall *call, size_t element) {
  return (const char *)call->send + element * lrmoeTypeBytes(call->type);
}

static char *recvAt(const struct lrmoeCall *call, size_t element) {
  return (char *)call->recv + element * lrmoeTypeBytes(call->type);
}

static void copyOwn(void *to, const void *from, size_t bytes) {
  if (to != from) lrmoeCopy(to, from, bytes);
}

static int peerAt(const struct ncclComm *comm, int step) {
  return (comm->rank + step) % comm->numRanks;
}

static lrmoeResult_t beginAllGather(struct ncclComm *comm,
                                    const struct lrmoeCall *call) {
  size_t bytes = call->count * lrmoeTypeBytes(call->type);
  for (int step = 1; step < comm->numRanks; step++) {
    int peer = peerAt(comm, step);
    char *to = recvAt(call, (size_t)peer * call->count);
    LRMOE_CHECK(lrmoeMessageSend(comm, peer, call->send, bytes, call->type));
    LRMOE_CHECK(lrmoeMessageRecv(comm, peer, to, bytes, call->type));
  }
  copyOwn(recvAt(call, (size_t)comm->rank * call->count), call->send, bytes);
  return lrmoeSuccess;
}

static lrmoeResult_t beginAllToAll(struct ncclComm *comm,
                                   const struct lrmoeCall *call) {
  size_t bytes = call->count * lrmoeTypeBytes(call->type);
  for (int step = 1; step < comm->numRanks; step++) {
    int peer = peerAt(comm, step);
    size_t at = (size_t)peer * call->count;
    LRMOE_CHECK(
        lrmoeMessageSend(comm, peer, sendAt(call, at), bytes, call->type));
    LRMOE_CHECK(
        lrmoeMessageRecv(comm, peer, recvAt(call, at), bytes, call->type));
  }
  size_t own = (size_t)comm->rank * call->count;
  copyOwn(recvAt(call, own), sendAt(call, own), bytes);
  return lrmoeSuccess;
}

static lrmoeResult_t beginBroadcast(struct ncclComm *comm,
                                    const struct lrmoeCall *call) {
  size_t bytes = call->count * lrmoeTypeBytes(call->type);
  if (comm->rank != call->peer)
    return lrmoeMessageRecv(comm, call->peer, call->recv, bytes, call->type);
  for (int step = 1; step < comm->numRanks; step++)
    LRMOE_CHECK(lrmoeMessageSend(comm, peerAt(comm, step), call->send, bytes,
                                 call->type));
  copyOwn(call->recv, call->send, bytes);
  return lrmoeSuccess;
}

/* Everybody's operand to everybody. */
static lrmoeResult_t beginDirect(struct ncclComm *comm,
                                 const struct lrmoeCall *call, char *scratch) {
  size_t bytes = call->count * lrmoeTypeBytes(call->type);
  for (int step = 1; step < comm->numRanks; step++) {
    int peer = peerAt(comm, step);
    char *to = scratch + (size_t)peer * bytes;
    LRMOE_CHECK(lrmoeMessageSend(comm, peer, call->send, bytes, call->type));
    LRMOE_CHECK(lrmoeMessageRecv(comm, peer, to, bytes, call->type));
  }
  return lrmoeSuccess;
}

typedef struct range (*rangeOf)(const struct ncclComm *comm,
                                const struct lrmoeCall *call, int64_t piece,
                                int rank);

/* Each rank's part of the piece to its owner. */
static lrmoeResult_t beginReduce(struct ncclComm *comm,
                                 const struct lrmoeCall *call, int64_t piece,
                                 rangeOf owned, char *scratch) {
  size_t elementBytes = lrmoeTypeBytes(call->type);
  size_t ownBytes = owned(comm, call, piece, comm->rank).count * elementBytes;
  for (int step = 1; step < comm->numRanks; step++) {
    int peer = peerAt(comm, step);
    struct range range = owned(comm, call, piece, peer);
    char *to = scratch + (size_t)peer * ownBytes;
    LRMOE_CHECK(lrmoeMessageSend(comm, peer, sendAt(call, range.first),
                                 range.count * elementBytes, call->type));
    LRMOE_CHECK(lrmoeMessageRecv(comm, peer, to, ownBytes, call->type));
  }
  return lrmoeSuccess;
}

static void endReduce(struct ncclComm *comm, const struct lrmoeCall *call,
                      struct range own, void *to, const char *scratch) {
  struct lrmoeReduceArgs args = {.to = to,
                                 .others = scratch,
                                 .own = sendAt(call, own.first),
                                 .ownRank = comm->rank,
                                 .numRanks = comm->numRanks,
                                 .count = own.count,
                                 .type = call->type,
                                 .op = call->op};
  args.strideBytes = own.count * lrmoeTypeBytes(call->type);
  lrmoeReduce(&args);
}

/* The owners' results to everybody. */
static lrmoeResult_t beginShare(struct ncclComm *comm,
                                const struct lrmoeCall *call, int64_t piece) {
  size_t elementBytes = lrmoeTypeBytes(call->type);
  struct range own = allReduceRange(comm, call, piece, comm->rank);
  for (int step = 1; step < comm->numRanks; step++) {
    int peer = peerAt(comm, step);
    struct range range = allReduceRange(comm, call, piece, peer);
    LRMOE_CHECK(lrmoeMessageSend(comm, peer, recvAt(call, own.first),
                                 own.count * elementBytes, call->type));
    LRMOE_CHECK(lrmoeMessageRecv(comm, peer, recvAt(call, range.first),
                                 range.count * elementBytes, call->type));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCollectiveBegin(struct ncclComm *comm,
                                   const struct lrmoeCall *call, int64_t round,
                                   char *scratch) {
  switch (call->kind) {
  case lrmoeCallAllGather:
    return beginAllGather(comm, call);
  case lrmoeCallAllToAll:
    return beginAllToAll(comm, call);
  case lrmoeCallBroadcast:
    return beginBroadcast(comm, call);
  case lrmoeCallReduceScatter:
    return beginReduce(comm, call, round, reduceScatterRange, scratch);
  case lrmoeCallAllReduce:
    if (isDirect(comm, call)) return beginDirect(comm, call, scratch);
    if (round % 2) return beginShare(comm, call, round / 2);
    return beginReduce(comm, call, round / 2, allReduceRange, scratch);
  default:
    return lrmoeSuccess;
  }
}

void lrmoeCollectiveEnd(struct ncclComm *comm, const struct lrmoeCall *call,
                        int64_t round, char *scratch) {
  if (call->kind == lrmoeCallReduceScatter) {
    struct range own = reduceScatterRange(comm, call, round, comm->rank);
    size_t to = own.first - (size_t)comm->rank * call->count;
    endReduce(comm, call, own, recvAt(call, to), scratch);
  }
  if (call->kind != lrmoeCallAllReduce) return;
  if (isDirect(comm, call)) {
    struct range all = {0, call->count};
    endReduce(comm, call, all, call->recv, scratch);
  } else if (round % 2 == 0) {
    struct range own = allReduceRange(comm, call, round / 2, comm->rank);
    endReduce(comm, call, own, recvAt(call, own.first), scratch);
  }
}
