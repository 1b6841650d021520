/* Groups: see group.h.
 *
 * In `observe` every call goes to NCCL at once and is counted.  In `schedule`
 * and `elide` NCCL gets a group's messages at its outermost end: nothing in a
 * group runs before that, so a program cannot tell.  Calls with an argument
 * that NCCL may refuse are handed on at once, for the refusal to come where the
 * program looks for it. */
#include "plugin/preload/group.h"

#include "base/clock.h"
#include "plugin/preload/elide.h"
#include "plugin/preload/mode.h"
#include "plugin/preload/schedule.h"
#include "plugin/preload/zero.h"

_Thread_local int lrmoePreloadInside;

static _Thread_local struct {
  int depth;
  int64_t numCalls;
  int64_t maxCalls;
  struct lrmoePreloadCall *calls;
} group;

int64_t lrmoePreloadTypeBytes(lrmoeDataType_t type) {
  enum {
    float8e4m3 = 10,
    float8e5m2 = 11
  }; /* since NCCL 2.24 */
  if ((int)type == float8e4m3 || (int)type == float8e5m2) return 1;
  return (int64_t)lrmoeTypeBytes(type);
}

int lrmoePreloadGroupIsOpen(void) {
  return group.depth > 0;
}

/* ---- Counting ---- */

void lrmoePreloadCount(const struct lrmoePreloadCall *call) {
  struct lrmoePreloadComm *comm = call->comm;
  struct lrmoeTraffic *traffic = &comm->traffic;
  int64_t rowBytes = lrmoePreloadSettings()->rowBytes;
  if (!call->isSend) {
    traffic->recvBytes[call->peer] += call->bytes;
    return;
  }
  traffic->numMessages++;
  traffic->sentBytes[call->peer] += call->bytes;
  if (!rowBytes || comm->hasCuda || call->bytes % rowBytes) return;
  int64_t numRows = call->bytes / rowBytes;
  traffic->numRows += numRows;
  for (int64_t row = 0; row < numRows; row++)
    traffic->numZeroRows +=
        lrmoePreloadIsZero((const char *)call->send + row * rowBytes, rowBytes);
}

/* ---- Messages ---- */

lrmoeResult_t lrmoePreloadForward(const struct lrmoePreloadReal *real,
                                  const struct lrmoePreloadCall *call) {
  lrmoeNcclComm_t handle = call->comm->handle;
  if (call->isSend && call->peer != call->comm->rank)
    call->comm->traffic.wireBytes[call->peer] += call->bytes;
  if (call->isSend)
    return real->send(call->send, call->count, call->type, call->peer, handle,
                      call->stream);
  return real->recv(call->recv, call->count, call->type, call->peer, handle,
                    call->stream);
}

static lrmoeResult_t addCall(const struct lrmoePreloadCall *call) {
  LRMOE_CHECK(LRMOE_GROW(group.numCalls, 32, &group.maxCalls, &group.calls));
  group.calls[group.numCalls++] = *call;
  return lrmoeSuccess;
}

/* Whether NCCL will take it, as far as this library knows. */
static int isPlain(const struct lrmoePreloadCall *call) {
  const void *buffer = call->isSend ? call->send : call->recv;
  int64_t typeBytes = lrmoePreloadTypeBytes(call->type);
  return typeBytes && (buffer || !call->count) && call->peer >= 0 &&
         call->peer < call->comm->numRanks &&
         call->count <= (size_t)(INT64_MAX / typeBytes);
}

/* Gives NCCL the messages that it has not seen yet; whatever a failure is, its
 * ncclGroupEnd says so too.  A communicator may have been aborted meanwhile. */
static lrmoeResult_t flush(const struct lrmoePreloadReal *real) {
  for (int64_t i = 0; i < group.numCalls; i++) {
    struct lrmoePreloadCall *call = &group.calls[i];
    if (!call->isDeferred) continue;
    call->isDeferred = 0;
    if (atomic_load(&call->comm->isGone)) return lrmoeInternalError;
    lrmoeResult_t result = lrmoePreloadForward(real, call);
    if (result != lrmoeSuccess && result != lrmoeInProgress) return result;
  }
  return lrmoeSuccess;
}

void lrmoePreloadOther(const struct lrmoePreloadReal *real,
                       lrmoeNcclComm_t handle) {
  struct lrmoePreloadComm *comm = lrmoePreloadCommTake(handle);
  flush(real);
  if (!comm) return;
  lrmoeElisionWithdraw(comm);
  lrmoePreloadCommGive(comm);
}

static int defers(const struct lrmoePreloadComm *comm) {
  return comm->places || lrmoeElisionIsOn(comm);
}

static lrmoeResult_t forwardAlone(const struct lrmoePreloadReal *real,
                                  struct lrmoePreloadComm *comm,
                                  lrmoeNcclComm_t handle,
                                  const struct lrmoePreloadCall *call) {
  if (comm) lrmoePreloadCommGive(comm);
  lrmoePreloadOther(real, handle);
  if (call->isSend)
    return real->send(call->send, call->count, call->type, call->peer, handle,
                      call->stream);
  return real->recv(call->recv, call->count, call->type, call->peer, handle,
                    call->stream);
}

static lrmoeResult_t timedForward(const struct lrmoePreloadReal *real,
                                  const struct lrmoePreloadCall *call) {
  int64_t start = lrmoeNowNs();
  lrmoeResult_t result = lrmoePreloadForward(real, call);
  call->comm->traffic.hostNs += lrmoeNowNs() - start;
  return result;
}

lrmoeResult_t lrmoePreloadMessage(const struct lrmoePreloadReal *real,
                                  lrmoeNcclComm_t handle,
                                  const struct lrmoePreloadCall *given) {
  struct lrmoePreloadCall call = *given;
  struct lrmoePreloadComm *comm = lrmoePreloadCommTake(handle);
  call.comm = comm;
  if (!comm || !isPlain(&call)) return forwardAlone(real, comm, handle, &call);
  call.bytes = (int64_t)call.count * lrmoePreloadTypeBytes(call.type);
  call.isDeferred = group.depth && defers(comm);
  if (lrmoePreloadSettings()->report) lrmoePreloadCount(&call);
  if (group.depth && addCall(&call) == lrmoeSuccess)
    return call.isDeferred ? lrmoeSuccess : lrmoePreloadForward(real, &call);
  lrmoePreloadOther(real, handle);
  lrmoeResult_t result = timedForward(real, &call);
  lrmoePreloadCommGive(comm);
  return result;
}

/* ---- Groups ---- */

lrmoeResult_t lrmoePreloadGroupStart(const struct lrmoePreloadReal *real) {
  lrmoeResult_t result = real->groupStart();
  if (result == lrmoeSuccess) group.depth++;
  return result;
}

/* Each communicator once: the start of the group marks those that were had. */
static void account(int64_t startNs) {
  int64_t elapsedNs = lrmoeNowNs() - startNs;
  for (int64_t i = 0; i < group.numCalls; i++) {
    struct lrmoeTraffic *traffic = &group.calls[i].comm->traffic;
    if (traffic->lastGroupNs == startNs) continue;
    traffic->lastGroupNs = startNs;
    traffic->numGroups++;
    traffic->hostNs += elapsedNs;
  }
}

static void clear(void) {
  for (int64_t i = 0; i < group.numCalls; i++)
    lrmoePreloadCommGive(group.calls[i].comm);
  lrmoeFree(group.calls);
  group.calls = NULL;
  group.numCalls = group.maxCalls = 0;
}

static lrmoeResult_t run(const struct lrmoePreloadReal *real) {
  struct lrmoeElision elision = {0};
  lrmoeResult_t issued =
      lrmoeElisionBegin(real, group.calls, group.numCalls, &elision);
  if (!elision.isElided && !elision.isGone) {
    lrmoePreloadSort(group.calls, group.numCalls);
    issued = flush(real);
  }
  lrmoeResult_t result = real->groupEnd();
  if (result == lrmoeSuccess) result = issued;
  return lrmoeElisionEnd(&elision, result);
}

lrmoeResult_t lrmoePreloadGroupEnd(const struct lrmoePreloadReal *real) {
  if (group.depth != 1 || !group.numCalls) {
    group.depth -= group.depth > 0;
    return real->groupEnd();
  }
  int64_t start = lrmoeNowNs();
  lrmoeResult_t result = run(real);
  group.depth = 0;
  account(start);
  clear();
  return result;
}

/* ---- All-to-all ---- */

static void countAll(struct lrmoePreloadComm *comm,
                     const struct lrmoePreloadAll *all, int64_t bytes) {
  comm->traffic.numAllToAlls++;
  for (int peer = 0; peer < comm->numRanks; peer++) {
    struct lrmoePreloadCall call = {.comm = comm,
                                    .send =
                                        (const char *)all->from + peer * bytes,
                                    .bytes = bytes,
                                    .peer = peer,
                                    .isSend = 1};
    lrmoePreloadCount(&call);
    call.isSend = 0;
    lrmoePreloadCount(&call);
  }
}

static lrmoeResult_t forwardAll(const struct lrmoePreloadReal *real,
                                struct lrmoePreloadComm *comm,
                                const struct lrmoePreloadAll *all,
                                int64_t bytes) {
  for (int peer = 0; peer < comm->numRanks; peer++)
    if (peer != comm->rank) comm->traffic.wireBytes[peer] += bytes;
  return real->allToAll(all->from, all->to, all->count, all->type, all->handle,
                        all->stream);
}

/* As sends and receives; they are what NCCL makes of it too. */
static lrmoeResult_t runAsGroup(const struct lrmoePreloadReal *real,
                                struct lrmoePreloadComm *comm,
                                const struct lrmoePreloadAll *all,
                                int64_t bytes) {
  struct lrmoePreloadCall *calls = NULL;
  struct lrmoeElision elision = {0};
  if (LRMOE_ALLOCATE(2 * (int64_t)comm->numRanks, &calls) != lrmoeSuccess) {
    lrmoeElisionWithdraw(comm);
    return forwardAll(real, comm, all, bytes);
  }
  for (int peer = 0; peer < comm->numRanks; peer++) {
    struct lrmoePreloadCall call = {.comm = comm,
                                    .count = all->count,
                                    .type = all->type,
                                    .bytes = bytes,
                                    .peer = peer,
                                    .stream = all->stream};
    struct lrmoePreloadCall *both = &calls[2 * (int64_t)peer];
    both[0] = both[1] = call;
    both[0].isSend = 1;
    both[0].send = (const char *)all->from + peer * bytes;
    both[1].recv = (char *)all->to + peer * bytes;
  }
  real->groupStart();
  lrmoeResult_t result =
      lrmoeElisionBegin(real, calls, 2 * (int64_t)comm->numRanks, &elision);
  lrmoeResult_t ended = real->groupEnd();
  if (result == lrmoeSuccess) result = ended;
  result = lrmoeElisionEnd(&elision, result);
  lrmoeFree(calls);
  if (elision.isElided || elision.isGone) return result;
  return forwardAll(real, comm, all, bytes);
}

static int isPlainAll(const struct lrmoePreloadComm *comm,
                      const struct lrmoePreloadAll *all) {
  int64_t typeBytes = lrmoePreloadTypeBytes(all->type);
  return comm && typeBytes && ((all->from && all->to) || !all->count) &&
         all->count <= (size_t)(INT64_MAX / typeBytes) / (size_t)comm->numRanks;
}

lrmoeResult_t lrmoePreloadAllToAll(const struct lrmoePreloadReal *real,
                                   const struct lrmoePreloadAll *all) {
  struct lrmoePreloadComm *comm = lrmoePreloadCommTake(all->handle);
  lrmoeResult_t result;
  if (!isPlainAll(comm, all)) {
    lrmoePreloadOther(real, all->handle);
    result = real->allToAll(all->from, all->to, all->count, all->type,
                            all->handle, all->stream);
  } else {
    int64_t bytes = (int64_t)all->count * lrmoePreloadTypeBytes(all->type);
    int64_t start = lrmoeNowNs();
    int mayElide = lrmoeElisionIsOn(comm) && !group.depth;
    if (lrmoePreloadSettings()->report) countAll(comm, all, bytes);
    if (!mayElide) lrmoePreloadOther(real, all->handle);
    result = mayElide ? runAsGroup(real, comm, all, bytes)
                      : forwardAll(real, comm, all, bytes);
    comm->traffic.hostNs += lrmoeNowNs() - start;
  }
  if (comm) lrmoePreloadCommGive(comm);
  return result;
}
