/* The NCCL filler's table: NCCL's calls, behind the checks of group.h and
 * comm.h.
 *
 * What a release lacks is emulated (all-to-all: issue.c) or refused by name
 * (memory, windows); pointers into peers' windows are there or the field is
 * NULL. */
#include "collectives/transport.h"

#include "collectives/nccl/call.h"
#include "collectives/nccl/gin.h"
#include "collectives/nccl/group.h"
#include "collectives/nccl/window.h"

#include <pthread.h>

static lrmoeResult_t failMissing(const char *name) {
  const struct lrmoeNccl *nccl = lrmoeNcclLoaded();
  return LRMOE_FAIL(lrmoeUnsupported, "%s (NCCL %s) has no %s", nccl->file,
                    nccl->versionText, name);
}

/* Every table call comes after the table was got, so NCCL is loaded. */
static const struct lrmoeNcclApi *theApi(void) {
  return &lrmoeNcclLoaded()->api;
}

static lrmoeResult_t settle(const char *name, lrmoeResult_t got) {
  return got == lrmoeSuccess ? got : lrmoeNcclFail(theApi(), name, got);
}

static lrmoeResult_t getUniqueId(lrmoeUniqueId *id) {
  LRMOE_REQUIRE(id, "id is NULL");
  return settle("ncclGetUniqueId", theApi()->getUniqueId(id));
}

static lrmoeResult_t commInitRank(struct ncclComm **comm, int numRanks,
                                  lrmoeUniqueId id, int rank) {
  return lrmoeNcclCommInit(numRanks, &id, rank, 0, comm);
}

static lrmoeResult_t commCount(struct ncclComm *handle, int *count) {
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  LRMOE_REQUIRE(comm && count, "comm or count is NULL");
  LRMOE_CHECK(lrmoeNcclCommCheck(comm));
  *count = comm->numRanks;
  return lrmoeSuccess;
}

static lrmoeResult_t commUserRank(struct ncclComm *handle, int *rank) {
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  LRMOE_REQUIRE(comm && rank, "comm or rank is NULL");
  LRMOE_CHECK(lrmoeNcclCommCheck(comm));
  *rank = comm->rank;
  return lrmoeSuccess;
}

/* ---- Memory and windows ---- */

static lrmoeResult_t memAlloc(void **pointer, size_t bytes) {
  void *made = NULL;
  LRMOE_REQUIRE(pointer, "pointer is NULL");
  if (!theApi()->memAlloc || !theApi()->memFree)
    return failMissing("ncclMemAlloc");
  LRMOE_CHECK(settle("ncclMemAlloc", theApi()->memAlloc(&made, bytes)));
  *pointer = made;
  return lrmoeSuccess;
}

static lrmoeResult_t memFree(void *pointer) {
  if (!pointer) return lrmoeSuccess;
  if (!theApi()->memFree) return failMissing("ncclMemFree");
  return settle("ncclMemFree", theApi()->memFree(pointer));
}

/* Where ranks cannot reach each other's memory NCCL succeeds and leaves the
 * window NULL. */
static lrmoeResult_t commWindowRegister(struct ncclComm *handle, void *buffer,
                                        size_t bytes,
                                        struct ncclWindow_vidmem **window,
                                        int flags) {
  static const char name[] = "ncclCommWindowRegister";
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  struct ncclWindow_vidmem *made = NULL;
  LRMOE_REQUIRE(window, "window is NULL");
  if (!theApi()->commWindowRegister || !theApi()->commWindowDeregister)
    return failMissing(name);
  LRMOE_REQUIRE(comm, "the communicator is NULL");
  LRMOE_CHECK(lrmoeNcclOutside());
  LRMOE_CHECK(lrmoeNcclCommEnter(comm));
  LRMOE_CHECK(lrmoeNcclLeave(
      comm, name,
      comm->api->commWindowRegister(comm->nccl, buffer, bytes, &made, flags)));
  if (!made)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "%s: these ranks cannot address each other's memory",
                      name);
  if (lrmoeNcclWindow228Is(lrmoeNcclLoaded()))
    LRMOE_CHECK(lrmoeNcclWindow228Note(comm, made));
  *window = made;
  return lrmoeSuccess;
}

/* The abort of a communicator has freed its windows. */
static lrmoeResult_t commWindowDeregister(struct ncclComm *handle,
                                          struct ncclWindow_vidmem *window) {
  static const char name[] = "ncclCommWindowDeregister";
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  LRMOE_REQUIRE(comm, "comm is NULL");
  if (!window) return lrmoeSuccess;
  if (!theApi()->commWindowDeregister) return failMissing(name);
  lrmoeNcclWindow228Forget(window);
  if (!lrmoeNcclCommHold(comm)) return lrmoeSuccess;
  lrmoeResult_t got = comm->api->commWindowDeregister(comm->nccl, window);
  lrmoeNcclCommExit(comm);
  return settle(name, got);
}

/* ---- Messages and collectives ---- */

static lrmoeResult_t send(const void *buffer, size_t count,
                          lrmoeDataType_t type, int peer, struct ncclComm *comm,
                          lrmoeStream_t stream) {
  struct lrmoeCall call = lrmoeCallOfSend(buffer, count, type, peer);
  return lrmoeNcclGroupCall(comm, &call, stream);
}

static lrmoeResult_t recv(void *buffer, size_t count, lrmoeDataType_t type,
                          int peer, struct ncclComm *comm,
                          lrmoeStream_t stream) {
  struct lrmoeCall call = lrmoeCallOfRecv(buffer, count, type, peer);
  return lrmoeNcclGroupCall(comm, &call, stream);
}

/* NOLINTBEGIN(readability-function-size): as many parameters as NCCL has. */

static lrmoeResult_t allGather(const void *from, void *to, size_t sendCount,
                               lrmoeDataType_t type, struct ncclComm *comm,
                               lrmoeStream_t stream) {
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallAllGather, from, to, sendCount, type);
  return lrmoeNcclGroupCall(comm, &call, stream);
}

static lrmoeResult_t allReduce(const void *from, void *to, size_t count,
                               lrmoeDataType_t type, lrmoeRedOp_t op,
                               struct ncclComm *comm, lrmoeStream_t stream) {
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallAllReduce, from, to, count, type);
  call.op = op;
  return lrmoeNcclGroupCall(comm, &call, stream);
}

static lrmoeResult_t reduceScatter(const void *from, void *to, size_t recvCount,
                                   lrmoeDataType_t type, lrmoeRedOp_t op,
                                   struct ncclComm *comm,
                                   lrmoeStream_t stream) {
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallReduceScatter, from, to, recvCount, type);
  call.op = op;
  return lrmoeNcclGroupCall(comm, &call, stream);
}

static lrmoeResult_t broadcast(const void *from, void *to, size_t count,
                               lrmoeDataType_t type, int root,
                               struct ncclComm *comm, lrmoeStream_t stream) {
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallBroadcast, from, to, count, type);
  call.peer = root;
  return lrmoeNcclGroupCall(comm, &call, stream);
}

static lrmoeResult_t allToAll(const void *from, void *to, size_t count,
                              lrmoeDataType_t type, struct ncclComm *comm,
                              lrmoeStream_t stream) {
  struct lrmoeCall call = lrmoeCallOf(lrmoeCallAllToAll, from, to, count, type);
  return lrmoeNcclGroupCall(comm, &call, stream);
}

/* NOLINTEND(readability-function-size) */

/* ---- The table, whole but for what depends on the release ---- */

static struct lrmoeTransport table = {
    .name = "nccl",
    .getUniqueId = getUniqueId,
    .commInitRank = commInitRank,
    .commDestroy = lrmoeNcclCommDestroy,
    .commAbort = lrmoeNcclCommAbort,
    .commGetAsyncError = lrmoeNcclCommGetAsyncError,
    .commCount = commCount,
    .commUserRank = commUserRank,
    .memAlloc = memAlloc,
    .memFree = memFree,
    .commWindowRegister = commWindowRegister,
    .commWindowDeregister = commWindowDeregister,
    .groupStart = lrmoeNcclGroupStart,
    .groupEnd = lrmoeNcclGroupEnd,
    .send = send,
    .recv = recv,
    .allGather = allGather,
    .allReduce = allReduce,
    .reduceScatter = reduceScatter,
    .broadcast = broadcast,
    .allToAll = allToAll,
    .commInit = lrmoeNcclCommInit,
    .commSplit = lrmoeNcclCommSplit,
    .commBreak = lrmoeNcclCommBreak,
    .commGuard = lrmoeNcclCommGuard,
    .hasStreams = 1,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void complete(void) {
  if (lrmoeNcclGinVersion()) {
    table.ginVersion = lrmoeNcclGinVersion;
    table.ginProbe = lrmoeNcclGinProbe;
    table.ginOpen = lrmoeNcclGinOpen;
    table.ginClose = lrmoeNcclGinClose;
  }
  if (theApi()->getPeerPointer)
    table.getPeerPointer = lrmoeNcclWindow229Pointer;
  else if (lrmoeNcclWindow228Is(lrmoeNcclLoaded()))
    table.getPeerPointer = lrmoeNcclWindow228Pointer;
}

lrmoeResult_t lrmoeNcclTransportGet(int mustBeHere,
                                    const struct lrmoeTransport **transport) {
  const struct lrmoeNccl *nccl = NULL;
  LRMOE_CHECK(lrmoeNcclLoad(mustBeHere, &nccl));
  pthread_once(&once, complete);
  *transport = &table;
  return lrmoeSuccess;
}

const struct lrmoeTransport *lrmoeNcclTransportLoaded(void) {
  if (!lrmoeNcclLoaded()) return NULL;
  pthread_once(&once, complete);
  return &table;
}
