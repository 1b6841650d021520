/* Groups: see group.h.
 *
 * The calls of a communicator run in rounds.  In round 0 go the first rounds
 * of all collectives and then the sends and receives, whatever their order
 * among each other in the group; in round i the i-th of the collectives that
 * have one.  So the two ends of a channel agree on the order of its messages
 * without tags, provided that each calls the collectives in one order and the
 * sends and receives between two ranks in one order, which NCCL asks for too.
 *
 * Communicators of a group advance independently, each at its own round. */
#include "collectives/cpu/group.h"

#include "collectives/cpu/collective.h"
#include "collectives/cpu/failure.h"
#include "collectives/cpu/fault.h"
#include "collectives/cpu/liveness.h"
#include "collectives/cpu/p2p.h"
#include "collectives/cpu/wait.h"
#include "collectives/transport.h"

/* Of one thread. */
static _Thread_local struct {
  int depth;
  lrmoeResult_t result; /* of the first call that failed */
  struct ncclComm *first;
  struct ncclComm *last;
} group;

lrmoeResult_t lrmoeCpuGroupStart(void) {
  if (group.depth++ == 0) group.result = lrmoeSuccess;
  return lrmoeSuccess;
}

static int isP2p(const struct lrmoeCall *call) {
  return call->kind == lrmoeCallSend || call->kind == lrmoeCallRecv;
}

static size_t alignScratch(size_t bytes) {
  return (bytes + lrmoeLineBytes - 1) / lrmoeLineBytes * lrmoeLineBytes;
}

/* ---- Running ---- */

static lrmoeResult_t beginP2p(struct ncclComm *comm,
                              const struct lrmoeCall *call) {
  uint64_t bytes = call->count * lrmoeTypeBytes(call->type);
  if (call->kind == lrmoeCallSend)
    return lrmoeMessageSend(comm, call->peer, call->send, bytes, call->type);
  return lrmoeMessageRecv(comm, call->peer, call->recv, bytes, call->type);
}

static lrmoeResult_t beginRound(struct ncclComm *comm) {
  lrmoeMessagesClear(comm);
  LRMOE_FAULT_POINT("wait");
  char *scratch = comm->scratch.data;
  for (int64_t i = 0; i < comm->numCalls; i++) {
    const struct lrmoeCall *call = &comm->calls[i];
    if (isP2p(call)) continue;
    if (comm->round < lrmoeCollectiveRounds(comm, call))
      LRMOE_CHECK(lrmoeCollectiveBegin(comm, call, comm->round, scratch));
    scratch += alignScratch(lrmoeCollectiveScratch(comm, call));
  }
  for (int64_t i = 0; i < comm->numCalls && comm->round == 0; i++)
    if (isP2p(&comm->calls[i])) LRMOE_CHECK(beginP2p(comm, &comm->calls[i]));
  return lrmoeSuccess;
}

static void endRound(struct ncclComm *comm) {
  char *scratch = comm->scratch.data;
  for (int64_t i = 0; i < comm->numCalls; i++) {
    const struct lrmoeCall *call = &comm->calls[i];
    if (isP2p(call)) continue;
    if (comm->round < lrmoeCollectiveRounds(comm, call))
      lrmoeCollectiveEnd(comm, call, comm->round, scratch);
    scratch += alignScratch(lrmoeCollectiveScratch(comm, call));
  }
  comm->round++;
}

static void leave(struct ncclComm *comm, lrmoeResult_t result) {
  if (result != lrmoeSuccess) {
    lrmoeFailureBreak(comm, result);
    result = lrmoeFailureCheck(comm);
    lrmoeMessagesQuiesce(comm);
  }
  comm->result = result;
  comm->isDone = 1;
  atomic_store(&comm->seat->waitsFor, -1);
  atomic_store(&comm->seat->isInCall, 0);
}

static lrmoeResult_t prepare(struct ncclComm *comm) {
  size_t scratchBytes = 0;
  comm->round = 0;
  comm->numRounds = 0;
  for (int64_t i = 0; i < comm->numCalls; i++) {
    int64_t numRounds = lrmoeCollectiveRounds(comm, &comm->calls[i]);
    if (numRounds > comm->numRounds) comm->numRounds = numRounds;
    scratchBytes += alignScratch(lrmoeCollectiveScratch(comm, &comm->calls[i]));
  }
  /* At least a byte, so that scratch addresses are never null. */
  LRMOE_CHECK(lrmoeBufferReserve(&comm->scratch, scratchBytes + 1));
  return beginRound(comm);
}

static void enter(struct ncclComm *comm) {
  comm->isDone = 0;
  comm->suspect = -1;
  comm->hasMoved = 0;
  comm->progressNs = comm->tickNs = lrmoeNowNs();
  lrmoeLivenessBeat(comm, comm->progressNs);
  atomic_store(&comm->seat->isInCall, 1);
  lrmoeResult_t result = lrmoeCommUsable(comm);
  if (result == lrmoeSuccess) result = prepare(comm);
  if (result != lrmoeSuccess) leave(comm, result);
}

/* One look at a communicator; whether anything moved. */
static int advance(struct ncclComm *comm) {
  int moved = 0;
  lrmoeResult_t result = lrmoeFailureResult(comm);
  if (result == lrmoeSuccess) result = lrmoeMessagesProgress(comm, &moved);
  while (result == lrmoeSuccess && !comm->numOpen && !comm->isDone) {
    endRound(comm);
    moved = 1;
    if (comm->round >= comm->numRounds)
      leave(comm, lrmoeSuccess);
    else
      result = beginRound(comm);
  }
  if (result != lrmoeSuccess) leave(comm, result);
  comm->hasMoved |= moved;
  return moved;
}

static int advanceAll(struct ncclComm *first, int *numOpen) {
  int moved = 0;
  *numOpen = 0;
  for (struct ncclComm *comm = first; comm; comm = comm->nextInGroup) {
    if (!comm->isDone) moved |= advance(comm);
    *numOpen += !comm->isDone;
  }
  return moved;
}

static void tickAll(struct ncclComm *first) {
  for (struct ncclComm *comm = first; comm; comm = comm->nextInGroup)
    if (!comm->isDone) lrmoeLivenessTick(comm);
}

static void run(struct ncclComm *first) {
  enum {
    looksPerTick = 64
  }; /* while there is much to do */
  struct lrmoeWait wait = {0};
  int numOpen = 0;
  for (struct ncclComm *comm = first; comm; comm = comm->nextInGroup)
    enter(comm);
  for (int64_t look = 1;; look++) {
    int moved = advanceAll(first, &numOpen);
    if (!numOpen) break;
    if (look % looksPerTick == 0) tickAll(first);
    if (moved)
      lrmoeWaitReset(&wait, first);
    else
      lrmoeWaitIdle(&wait, first);
  }
  lrmoeWaitReset(&wait, first);
}

/* Takes the calls off the communicators and gives the first failure. */
static lrmoeResult_t disband(struct ncclComm *first) {
  lrmoeResult_t result = lrmoeSuccess;
  while (first) {
    struct ncclComm *comm = first;
    first = comm->nextInGroup;
    if (result == lrmoeSuccess) result = comm->result;
    lrmoeMessagesClear(comm);
    comm->numCalls = 0;
    comm->nextInGroup = NULL;
    comm->isInGroup = 0;
  }
  return result;
}

lrmoeResult_t lrmoeCpuGroupEnd(void) {
  if (!group.depth)
    return LRMOE_FAIL(lrmoeInvalidUsage, "GroupEnd without GroupStart");
  if (--group.depth) return group.result;
  struct ncclComm *first = group.first;
  group.first = group.last = NULL;
  if (group.result == lrmoeSuccess) run(first);
  lrmoeResult_t ended = disband(first);
  return group.result != lrmoeSuccess ? group.result : ended;
}

/* ---- Collecting ---- */

static void join(struct ncclComm *comm) {
  if (comm->isInGroup) return;
  comm->isInGroup = 1;
  comm->result = lrmoeSuccess;
  comm->nextInGroup = NULL;
  if (group.last)
    group.last->nextInGroup = comm;
  else
    group.first = comm;
  group.last = comm;
}

static lrmoeResult_t addCall(struct ncclComm *comm,
                             const struct lrmoeCall *call) {
  join(comm);
  LRMOE_CHECK(LRMOE_GROW(comm->numCalls, 16, &comm->maxCalls, &comm->calls));
  comm->calls[comm->numCalls++] = *call;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeGroupCheck(struct ncclComm *comm,
                              const struct lrmoeCall *call) {
  LRMOE_CHECK(lrmoeCommUsable(comm));
  return lrmoeCallCheck(call, comm->rank, comm->numRanks);
}

/* A wrong argument leaves the communicator whole, as in NCCL; when this rank
 * cannot go on although its arguments are right, the others must know. */
lrmoeResult_t lrmoeGroupCall(struct ncclComm *comm,
                             const struct lrmoeCall *call) {
  LRMOE_REQUIRE(comm, "the communicator is NULL");
  LRMOE_CHECK(lrmoeCpuGroupStart());
  lrmoeResult_t result = lrmoeGroupCheck(comm, call);
  if (result == lrmoeSuccess) {
    result = addCall(comm, call);
    if (result != lrmoeSuccess) lrmoeFailureBreak(comm, result);
  }
  if (group.result == lrmoeSuccess) group.result = result;
  lrmoeResult_t ended = lrmoeCpuGroupEnd();
  return result != lrmoeSuccess ? result : ended;
}
