/* What surrounds every call of NCCL: see call.h.
 *
 * Of NCCL's errors an invalid argument has no effect; all others end the
 * communicator (comm.h).  In a group nothing has begun before the outermost
 * end: then every communicator of the group is asked how it went, for a
 * non-blocking one the end says only "in progress".  The first call of a group
 * that failed gave the useful text; ncclGroupEnd repeats the bare result. */
#include "collectives/nccl/call.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

/* Of one thread. */
static _Thread_local struct {
  int depth;
  lrmoeResult_t result; /* of the first call that failed */
  char text[lrmoeNcclTextBytes];
  struct lrmoeNcclComm *first;
  struct lrmoeNcclComm *last;
} group;

/* ---- Errors ---- */

/* NCCL's values are ours up to 7; 2.30 has one more, for its time-out. */
static lrmoeResult_t resultOf(lrmoeResult_t got) {
  const int ncclTimeout = 8;
  if ((int)got >= 0 && got <= lrmoeInProgress) return got;
  return (int)got == ncclTimeout ? lrmoeRemoteError : lrmoeInternalError;
}

lrmoeResult_t lrmoeNcclFail(const struct lrmoeNcclApi *api, const char *name,
                            lrmoeResult_t got) {
  const char *kind = api->getErrorString(got);
  const char *text = api->getLastError(NULL);
  int hasText = text && *text;
  return LRMOE_FAIL(resultOf(got), "%s: %s%s%s", name,
                    kind ? kind : "unknown result", hasText ? ": " : "",
                    hasText ? text : "");
}

int lrmoeNcclIsFatal(lrmoeResult_t result) {
  return result != lrmoeSuccess && result != lrmoeInProgress &&
         result != lrmoeInvalidArgument;
}

/* Ends comm, unless it was borrowed.  When an abort by another thread was the
 * cause, or it had failed before, that is what is told. */
static lrmoeResult_t giveUp(struct lrmoeNcclComm *comm, lrmoeResult_t result) {
  lrmoeNcclCommNote(comm, result);
  lrmoeNcclCommBreak(lrmoeNcclCommHandle(comm));
  return lrmoeNcclCommCheck(comm);
}

static lrmoeResult_t fail(struct lrmoeNcclComm *comm, const char *name,
                          lrmoeResult_t got) {
  lrmoeResult_t result = lrmoeNcclFail(comm->api, name, got);
  return lrmoeNcclIsFatal(result) ? giveUp(comm, result) : result;
}

/* ---- Waiting ---- */

static int64_t nowMs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Yields at first, then sleeps: a call takes microseconds, or a long time. */
static void pauseBriefly(int64_t look) {
  const struct timespec nap = {0, 50000};
  if (look < 200)
    sched_yield();
  else
    nanosleep(&nap, NULL);
}

lrmoeResult_t lrmoeNcclWait(struct lrmoeNcclComm *comm, const char *name) {
  lrmoeResult_t result = lrmoeNcclCommAsk(comm);
  int64_t startMs = result == lrmoeInProgress ? nowMs() : 0;
  for (int64_t look = 0; result == lrmoeInProgress; look++) {
    if (nowMs() - startMs > comm->timeoutMs) {
      result = LRMOE_FAIL(lrmoeRemoteError,
                          "%s: NCCL was not done within %lld ms: a peer is "
                          "dead, stopped, late or never came",
                          name, (long long)comm->timeoutMs);
      return giveUp(comm, result);
    }
    pauseBriefly(look);
    result = lrmoeNcclCommAsk(comm);
  }
  return result == lrmoeSuccess ? result : giveUp(comm, result);
}

/* ---- Calls ---- */

/* NCCL will look at it at the group's end, so it is inside until then. */
static void join(struct lrmoeNcclComm *comm) {
  if (comm->isInGroup || !lrmoeNcclCommHold(comm)) return;
  lrmoeNcclCommCollect(comm);
  comm->isInGroup = 1;
  comm->nextInGroup = NULL;
  if (group.last)
    group.last->nextInGroup = comm;
  else
    group.first = comm;
  group.last = comm;
}

/* Notes a failed call of a group. */
static lrmoeResult_t noteInGroup(lrmoeResult_t result) {
  if (!group.depth || group.result != lrmoeSuccess) return result;
  group.result = result;
  snprintf(group.text, sizeof group.text, "%s", lrmoeGetLastError());
  return result;
}

lrmoeResult_t lrmoeNcclEnter(struct lrmoeNcclComm *comm) {
  if (!comm)
    return noteInGroup(
        LRMOE_FAIL(lrmoeInvalidArgument, "the communicator is NULL"));
  lrmoeResult_t result = lrmoeNcclCommEnter(comm);
  if (result != lrmoeSuccess) return noteInGroup(result);
  if (group.depth) join(comm);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNcclLeave(struct lrmoeNcclComm *comm, const char *name,
                             lrmoeResult_t got) {
  lrmoeResult_t result = lrmoeSuccess;
  int isUnderWay = got == lrmoeInProgress;
  if (got != lrmoeSuccess && !isUnderWay)
    result = noteInGroup(fail(comm, name, got));
  lrmoeNcclCommExit(comm);
  return isUnderWay && !group.depth ? lrmoeNcclWait(comm, name) : result;
}

/* ---- Groups ---- */

lrmoeResult_t lrmoeNcclGroupStart(void) {
  const struct lrmoeNccl *nccl = NULL;
  LRMOE_CHECK(lrmoeNcclLoad(0, &nccl));
  lrmoeResult_t got = nccl->api.groupStart();
  if (got != lrmoeSuccess)
    return lrmoeNcclFail(&nccl->api, "ncclGroupStart", got);
  if (group.depth++ == 0) group.result = lrmoeSuccess;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNcclOutside(void) {
  if (!group.depth) return lrmoeSuccess;
  return LRMOE_FAIL(lrmoeInvalidUsage,
                    "NCCL communicators and windows cannot be made, split or "
                    "destroyed in an open group");
}

/* Takes the communicators out of the group, each when NCCL is done with it,
 * and gives the first failure. */
static lrmoeResult_t disband(struct lrmoeNcclComm *first) {
  lrmoeResult_t result = lrmoeSuccess;
  for (struct lrmoeNcclComm *comm = first; comm; comm = comm->nextInGroup) {
    lrmoeNcclCommExit(comm);
    lrmoeResult_t ended = lrmoeNcclWait(comm, "ncclGroupEnd");
    if (result == lrmoeSuccess) result = ended;
  }
  while (first) {
    struct lrmoeNcclComm *comm = first;
    first = comm->nextInGroup;
    comm->nextInGroup = NULL;
    comm->isInGroup = 0;
  }
  return result;
}

/* When no communicator of the group says that the failure is its own, none of
 * them is known to be whole. */
static lrmoeResult_t endWith(const struct lrmoeNccl *nccl,
                             struct lrmoeNcclComm *first, lrmoeResult_t got) {
  lrmoeResult_t result = lrmoeNcclFail(&nccl->api, "ncclGroupEnd", got);
  char text[lrmoeNcclTextBytes];
  snprintf(text, sizeof text, "%s", lrmoeGetLastError());
  int isOwned = 0;
  for (struct lrmoeNcclComm *comm = first; comm; comm = comm->nextInGroup)
    isOwned |= lrmoeNcclIsFatal(lrmoeNcclCommAsk(comm));
  LRMOE_FAIL(result, "%s", text);
  for (struct lrmoeNcclComm *comm = first;
       comm && !isOwned && lrmoeNcclIsFatal(result); comm = comm->nextInGroup)
    lrmoeNcclCommNote(comm, result);
  lrmoeResult_t ended = disband(first);
  return ended != lrmoeSuccess ? ended : LRMOE_FAIL(result, "%s", text);
}

/* A group with a communicator that is to be aborted must not begin: it might
 * block.  A wrong call in it is how NCCL drops a group. */
static void submit(const struct lrmoeNcclApi *api,
                   struct lrmoeNcclComm *first) {
  int isAsked = 0;
  for (struct lrmoeNcclComm *comm = first; comm; comm = comm->nextInGroup)
    isAsked |= lrmoeNcclCommSubmit(comm);
  if (isAsked) api->send(NULL, 0, lrmoeInt8, 0, NULL, NULL);
}

lrmoeResult_t lrmoeNcclGroupEnd(void) {
  const struct lrmoeNccl *nccl = lrmoeNcclLoaded();
  if (!group.depth || !nccl) /* NCCL's own depth may be the program's */
    return LRMOE_FAIL(lrmoeInvalidUsage, "GroupEnd without GroupStart");
  struct lrmoeNcclComm *first = group.depth > 1 ? NULL : group.first;
  submit(&nccl->api, first);
  lrmoeResult_t got = nccl->api.groupEnd();
  if (--group.depth) return group.result;
  group.first = group.last = NULL;
  int isGood = got == lrmoeSuccess || got == lrmoeInProgress;
  if (group.result != lrmoeSuccess) {
    disband(first);
    return LRMOE_FAIL(group.result, "%s", group.text);
  }
  return isGood ? disband(first) : endWith(nccl, first, got);
}
