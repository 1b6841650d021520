/* The CPU transport's table: NCCL's prototypes over the calls of this folder.
 * Streams are NULL; a call is finished when it returns. */
#include "collectives/transport.h"

#include "collectives/cpu/comm.h"
#include "collectives/cpu/group.h"
#include "collectives/cpu/window.h"

static lrmoeResult_t commInitRank(struct ncclComm **comm, int numRanks,
                                  lrmoeUniqueId id, int rank) {
  return lrmoeCpuCommInit(numRanks, &id, rank, 0, comm);
}

static lrmoeResult_t commCount(struct ncclComm *comm, int *count) {
  LRMOE_REQUIRE(comm && count, "comm or count is NULL");
  *count = comm->numRanks;
  return lrmoeSuccess;
}

static lrmoeResult_t commUserRank(struct ncclComm *comm, int *rank) {
  LRMOE_REQUIRE(comm && rank, "comm or rank is NULL");
  *rank = comm->rank;
  return lrmoeSuccess;
}

static lrmoeResult_t memAlloc(void **pointer, size_t bytes) {
  return lrmoeHeapAllocate(bytes, pointer);
}

static lrmoeResult_t send(const void *buffer, size_t count,
                          lrmoeDataType_t type, int peer, struct ncclComm *comm,
                          lrmoeStream_t stream) {
  (void)stream;
  struct lrmoeCall call = lrmoeCallOfSend(buffer, count, type, peer);
  return lrmoeGroupCall(comm, &call);
}

static lrmoeResult_t recv(void *buffer, size_t count, lrmoeDataType_t type,
                          int peer, struct ncclComm *comm,
                          lrmoeStream_t stream) {
  (void)stream;
  struct lrmoeCall call = lrmoeCallOfRecv(buffer, count, type, peer);
  return lrmoeGroupCall(comm, &call);
}

/* NOLINTBEGIN(readability-function-size): as many parameters as NCCL has. */

static lrmoeResult_t allGather(const void *from, void *to, size_t sendCount,
                               lrmoeDataType_t type, struct ncclComm *comm,
                               lrmoeStream_t stream) {
  (void)stream;
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallAllGather, from, to, sendCount, type);
  return lrmoeGroupCall(comm, &call);
}

static lrmoeResult_t allReduce(const void *from, void *to, size_t count,
                               lrmoeDataType_t type, lrmoeRedOp_t op,
                               struct ncclComm *comm, lrmoeStream_t stream) {
  (void)stream;
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallAllReduce, from, to, count, type);
  call.op = op;
  return lrmoeGroupCall(comm, &call);
}

static lrmoeResult_t reduceScatter(const void *from, void *to, size_t recvCount,
                                   lrmoeDataType_t type, lrmoeRedOp_t op,
                                   struct ncclComm *comm,
                                   lrmoeStream_t stream) {
  (void)stream;
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallReduceScatter, from, to, recvCount, type);
  call.op = op;
  return lrmoeGroupCall(comm, &call);
}

static lrmoeResult_t broadcast(const void *from, void *to, size_t count,
                               lrmoeDataType_t type, int root,
                               struct ncclComm *comm, lrmoeStream_t stream) {
  (void)stream;
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallBroadcast, from, to, count, type);
  call.peer = root;
  return lrmoeGroupCall(comm, &call);
}

static lrmoeResult_t allToAll(const void *from, void *to, size_t count,
                              lrmoeDataType_t type, struct ncclComm *comm,
                              lrmoeStream_t stream) {
  (void)stream;
  struct lrmoeCall call = lrmoeCallOf(lrmoeCallAllToAll, from, to, count, type);
  return lrmoeGroupCall(comm, &call);
}

/* NOLINTEND(readability-function-size) */

const struct lrmoeTransport lrmoeCpuTransport = {
    .name = "cpu",
    .getUniqueId = lrmoeCommMakeId,
    .commInitRank = commInitRank,
    .commDestroy = lrmoeCommLeave,
    .commAbort = lrmoeCommBreakOff,
    .commGetAsyncError = lrmoeCommState,
    .commCount = commCount,
    .commUserRank = commUserRank,
    .memAlloc = memAlloc,
    .memFree = lrmoeHeapFree,
    .commWindowRegister = lrmoeWindowRegister,
    .commWindowDeregister = lrmoeWindowDeregister,
    .getPeerPointer = lrmoeWindowPointer,
    .groupStart = lrmoeCpuGroupStart,
    .groupEnd = lrmoeCpuGroupEnd,
    .send = send,
    .recv = recv,
    .allGather = allGather,
    .allReduce = allReduce,
    .reduceScatter = reduceScatter,
    .broadcast = broadcast,
    .allToAll = allToAll,
    .commInit = lrmoeCpuCommInit,
    .commSplit = lrmoeCpuCommSplit,
    .commBreak = lrmoeCpuCommBreak,
};

int lrmoeCpuMemHolds(const void *pointer) {
  return lrmoeHeapHoldsBlock(pointer, 0);
}
