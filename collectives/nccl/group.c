/* Groups of the NCCL filler: see group.h.
 *
 * Calls are collected here and given to NCCL, in a group of its own, at the
 * outermost end.  So a group in which a call is wrong is dropped whole, while a
 * group that has begun in NCCL cannot be dropped without the loss of its
 * non-blocking communicators; an abort finds no half-open group; and NCCL's
 * depth stays the program's.
 *
 * After its end every communicator of the group is asked how it went: for a
 * non-blocking one the end says only "in progress". */
#include "collectives/nccl/group.h"

#include "base/alloc.h"
#include "collectives/nccl/call.h"
#include "collectives/nccl/issue.h"

#include <stdio.h>

struct collected {
  struct lrmoeNcclComm *comm;
  lrmoeStream_t stream;
  struct lrmoeCall call;
};

/* Of one thread. */
static _Thread_local struct {
  int depth;
  lrmoeResult_t result; /* of the first call that failed */
  char text[lrmoeNcclTextBytes];
  struct collected *calls;
  int64_t numCalls;
  int64_t maxCalls;
} group;

lrmoeResult_t lrmoeNcclGroupStart(void) {
  if (group.depth++ == 0) group.result = lrmoeSuccess;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNcclOutside(void) {
  if (!group.depth) return lrmoeSuccess;
  return LRMOE_FAIL(lrmoeInvalidUsage,
                    "NCCL communicators and windows cannot be made, split or "
                    "destroyed in an open group");
}

/* Drops the calls; no memory stays behind, since threads end. */
static void forget(void) {
  lrmoeFree(group.calls);
  group.calls = NULL;
  group.numCalls = group.maxCalls = 0;
}

/* ---- Running ---- */

static lrmoeResult_t runOne(const struct collected *only) {
  const char *name = NULL;
  LRMOE_CHECK(lrmoeNcclCommEnter(only->comm));
  lrmoeResult_t got =
      lrmoeNcclIssue(only->comm, &only->call, only->stream, &name);
  return lrmoeNcclLeave(only->comm, name, got);
}

/* Enters the communicators of the group, each once, and links them. */
static lrmoeResult_t enterAll(struct lrmoeNcclComm **first) {
  lrmoeResult_t result = lrmoeSuccess;
  for (int64_t i = 0; i < group.numCalls && result == lrmoeSuccess; i++) {
    struct lrmoeNcclComm *comm = group.calls[i].comm;
    if (comm->isInGroup) continue;
    result = lrmoeNcclCommEnter(comm);
    if (result != lrmoeSuccess) break;
    comm->isInGroup = 1;
    comm->nextInGroup = *first;
    *first = comm;
  }
  return result;
}

static void exitAll(struct lrmoeNcclComm *first) {
  for (struct lrmoeNcclComm *comm = first; comm; comm = comm->nextInGroup) {
    comm->isInGroup = 0;
    lrmoeNcclCommExit(comm);
  }
}

/* In NCCL's own group.  The first call that fails has the useful text; the end
 * repeats its bare result. */
static lrmoeResult_t issueAll(const struct lrmoeNcclApi *api) {
  const char *name = "ncclGroupStart";
  lrmoeResult_t result = lrmoeSuccess;
  lrmoeResult_t got = api->groupStart();
  if (got != lrmoeSuccess) return lrmoeNcclFail(api, name, got);
  for (int64_t i = 0; i < group.numCalls && result == lrmoeSuccess; i++) {
    const struct collected *next = &group.calls[i];
    got = lrmoeNcclIssue(next->comm, &next->call, next->stream, &name);
    if (got != lrmoeSuccess && got != lrmoeInProgress)
      result = lrmoeNcclFail(api, name, got);
  }
  got = api->groupEnd();
  if (result != lrmoeSuccess) return result;
  return got == lrmoeSuccess || got == lrmoeInProgress
             ? lrmoeSuccess
             : lrmoeNcclFail(api, "ncclGroupEnd", got);
}

/* The group failed with `result`, for the reason in the last error.  When no
 * communicator says that the failure is its own, none of them is known to be
 * whole. */
static lrmoeResult_t blame(struct lrmoeNcclComm *first, lrmoeResult_t result) {
  char text[lrmoeNcclTextBytes];
  snprintf(text, sizeof text, "%s", lrmoeGetLastError());
  int isOwned = 0;
  for (struct lrmoeNcclComm *comm = first; comm; comm = comm->nextInGroup)
    isOwned |= lrmoeNcclIsFatal(comm, lrmoeNcclCommAsk(comm));
  for (struct lrmoeNcclComm *comm = first; comm; comm = comm->nextInGroup) {
    LRMOE_FAIL(result, "%s", text);
    if (!isOwned && lrmoeNcclIsFatal(comm, result))
      lrmoeNcclGiveUp(comm, result);
  }
  return LRMOE_FAIL(result, "%s", text);
}

/* Gives the first failure that a communicator tells. */
static lrmoeResult_t waitForAll(struct lrmoeNcclComm *first) {
  lrmoeResult_t result = lrmoeSuccess;
  for (struct lrmoeNcclComm *comm = first; comm; comm = comm->nextInGroup) {
    lrmoeResult_t ended = lrmoeNcclWait(comm, "ncclGroupEnd");
    if (result == lrmoeSuccess) result = ended;
  }
  return result;
}

static lrmoeResult_t runAll(void) {
  struct lrmoeNcclComm *first = NULL;
  lrmoeResult_t result = enterAll(&first);
  if (result == lrmoeSuccess && first) {
    result = issueAll(first->api);
    if (result != lrmoeSuccess) result = blame(first, result);
  }
  exitAll(first);
  return result == lrmoeSuccess ? waitForAll(first) : result;
}

lrmoeResult_t lrmoeNcclGroupEnd(void) {
  if (!group.depth)
    return LRMOE_FAIL(lrmoeInvalidUsage, "GroupEnd without GroupStart");
  if (--group.depth) return group.result;
  lrmoeResult_t result = group.result;
  if (result != lrmoeSuccess)
    LRMOE_FAIL(result, "%s", group.text);
  else if (group.numCalls == 1)
    result = runOne(&group.calls[0]);
  else if (group.numCalls)
    result = runAll();
  forget();
  return result;
}

/* ---- Collecting ---- */

static lrmoeResult_t collect(const struct collected *call) {
  LRMOE_CHECK(LRMOE_GROW(group.numCalls, 16, &group.maxCalls, &group.calls));
  group.calls[group.numCalls++] = *call;
  return lrmoeSuccess;
}

static lrmoeResult_t check(const struct collected *call) {
  struct lrmoeNcclComm *comm = call->comm;
  LRMOE_REQUIRE(comm, "the communicator is NULL");
  LRMOE_CHECK(lrmoeNcclCommCheck(comm));
  return lrmoeCallCheck(&call->call, comm->rank, comm->numRanks);
}

/* A wrong argument leaves the communicator whole; when this rank cannot go on
 * although its arguments are right, the others must not wait for it. */
lrmoeResult_t lrmoeNcclGroupCall(struct ncclComm *handle,
                                 const struct lrmoeCall *call,
                                 lrmoeStream_t stream) {
  const struct collected next = {lrmoeNcclCommOf(handle), stream, *call};
  lrmoeResult_t result = check(&next);
  if (!group.depth) return result == lrmoeSuccess ? runOne(&next) : result;
  if (result == lrmoeSuccess) {
    result = collect(&next);
    if (result != lrmoeSuccess) lrmoeNcclGiveUp(next.comm, result);
  }
  if (result == lrmoeSuccess || group.result != lrmoeSuccess) return result;
  group.result = result;
  snprintf(group.text, sizeof group.text, "%s", lrmoeGetLastError());
  return result;
}
