/* Public communicator calls: checks, then the transport's table. */
#include "collectives/comm.h"

#include "base/alloc.h"
#include "base/config.h"
#include "collectives/order.h"

/* Each rank begins with itself and goes round: no rank is everybody's first
 * target. */
static lrmoeResult_t goRound(struct lrmoeComm *comm) {
  int32_t numRanks = comm->numRanks;
  LRMOE_CHECK(LRMOE_ALLOCATE(2 * (int64_t)numRanks, &comm->targets));
  comm->sources = comm->targets + numRanks;
  for (int32_t step = 0; step < numRanks; step++) {
    comm->targets[step] = (comm->rank + step) % numRanks;
    comm->sources[step] = (comm->rank - step + numRanks) % numRanks;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t makeComm(const struct lrmoeTransport *transport,
                              struct ncclComm *nccl, lrmoeComm_t *comm) {
  struct lrmoeComm *made = NULL;
  lrmoeResult_t result = LRMOE_ALLOCATE(1, &made);
  if (result == lrmoeSuccess) {
    made->transport = transport;
    made->nccl = nccl;
    result = transport->commCount(nccl, &made->numRanks);
  }
  if (result == lrmoeSuccess)
    result = transport->commUserRank(nccl, &made->rank);
  if (result == lrmoeSuccess) result = goRound(made);
  if (result != lrmoeSuccess) {
    transport->commAbort(nccl);
    transport->commDestroy(nccl);
    if (made) lrmoeFree(made->targets);
    lrmoeFree(made);
    return result;
  }
  *comm = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeGetUniqueId(lrmoeUniqueId *id) {
  LRMOE_REQUIRE(id, "id is NULL");
  return lrmoeCpuTransport.getUniqueId(id);
}

lrmoeResult_t lrmoeCommInitRank(int numRanks, const lrmoeUniqueId *id, int rank,
                                const lrmoeCommConfig_t *config,
                                lrmoeComm_t *comm) {
  lrmoeCommConfig_t known = LRMOE_COMM_CONFIG_INITIALIZER;
  if (config)
    LRMOE_CHECK(
        lrmoeConfigRead("lrmoeCommConfig_t", config, sizeof known, &known));
  LRMOE_REQUIRE(id && comm, "id or comm is NULL");
  LRMOE_REQUIRE(numRanks >= 1, "numRanks is %d", numRanks);
  LRMOE_REQUIRE(rank >= 0 && rank < numRanks, "rank is %d, of %d", rank,
                numRanks);
  LRMOE_REQUIRE(known.timeoutMs >= 0, "timeoutMs is %lld",
                (long long)known.timeoutMs);
  struct ncclComm *nccl = NULL;
  LRMOE_CHECK(lrmoeCpuCommInit(numRanks, id, rank, known.timeoutMs, &nccl));
  return makeComm(&lrmoeCpuTransport, nccl, comm);
}

lrmoeResult_t lrmoeCommSplit(lrmoeComm_t comm, int color, int key,
                             lrmoeComm_t *newComm) {
  LRMOE_REQUIRE(comm && newComm, "comm or newComm is NULL");
  struct ncclComm *nccl = NULL;
  LRMOE_CHECK(lrmoeCpuCommSplit(comm->nccl, color, key, &nccl));
  if (nccl) return makeComm(comm->transport, nccl, newComm);
  *newComm = NULL;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCommSetTopology(lrmoeComm_t comm, lrmoeTopology_t topology) {
  LRMOE_REQUIRE(comm && topology, "%s is NULL", comm ? "topology" : "comm");
  LRMOE_REQUIRE(topology->numRanks == comm->numRanks,
                "the topology has %d ranks, the communicator %d",
                topology->numRanks, comm->numRanks);
  return lrmoeOrderMake(topology, comm->rank, comm->targets, comm->sources);
}

lrmoeResult_t lrmoeCommGetPeers(lrmoeComm_t comm, int step, int *target,
                                int *source) {
  LRMOE_REQUIRE(comm && target && source, "%s is NULL",
                !comm     ? "comm"
                : !target ? "target"
                          : "source");
  LRMOE_REQUIRE(step >= 0 && step < comm->numRanks, "step is %d, of %d ranks",
                step, comm->numRanks);
  *target = comm->targets[step];
  *source = comm->sources[step];
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCommCount(lrmoeComm_t comm, int *count) {
  LRMOE_REQUIRE(comm && count, "comm or count is NULL");
  *count = comm->numRanks;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCommUserRank(lrmoeComm_t comm, int *rank) {
  LRMOE_REQUIRE(comm && rank, "comm or rank is NULL");
  *rank = comm->rank;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCommGetAsyncError(lrmoeComm_t comm,
                                     lrmoeResult_t *asyncError) {
  LRMOE_REQUIRE(comm && asyncError, "comm or asyncError is NULL");
  return comm->transport->commGetAsyncError(comm->nccl, asyncError);
}

lrmoeResult_t lrmoeCommAbort(lrmoeComm_t comm) {
  LRMOE_REQUIRE(comm, "comm is NULL");
  return comm->transport->commAbort(comm->nccl);
}

lrmoeResult_t lrmoeCommDestroy(lrmoeComm_t comm) {
  if (!comm) return lrmoeSuccess;
  if (comm->numLayers)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "the communicator still has %d layer(s)",
                      comm->numLayers);
  lrmoeResult_t result = comm->transport->commDestroy(comm->nccl);
  lrmoeFree(comm->targets);
  lrmoeFree(comm);
  return result;
}

lrmoeResult_t lrmoeCommSettle(struct lrmoeComm *comm, lrmoeResult_t result) {
  if (result != lrmoeSuccess) lrmoeCpuCommBreak(comm->nccl);
  return result;
}

lrmoeResult_t lrmoeMemAlloc(size_t bytes, void **pointer) {
  LRMOE_REQUIRE(pointer, "pointer is NULL");
  return lrmoeCpuTransport.memAlloc(pointer, bytes);
}

lrmoeResult_t lrmoeMemFree(void *pointer) {
  return pointer ? lrmoeCpuTransport.memFree(pointer) : lrmoeSuccess;
}

lrmoeResult_t lrmoeCommWindowRegister(lrmoeComm_t comm, void *buffer,
                                      size_t bytes, lrmoeWindow_t *window) {
  LRMOE_REQUIRE(comm && window, "comm or window is NULL");
  struct lrmoeWindow *made = NULL;
  LRMOE_CHECK(lrmoeCommSettle(comm, LRMOE_ALLOCATE(1, &made)));
  made->comm = comm;
  lrmoeResult_t result = comm->transport->commWindowRegister(
      comm->nccl, buffer, bytes, &made->nccl, 0);
  if (result == lrmoeSuccess)
    *window = made;
  else
    lrmoeFree(made);
  return result;
}

lrmoeResult_t lrmoeCommWindowDeregister(lrmoeComm_t comm,
                                        lrmoeWindow_t window) {
  LRMOE_REQUIRE(comm, "comm is NULL");
  if (!window) return lrmoeSuccess;
  lrmoeResult_t result =
      comm->transport->commWindowDeregister(comm->nccl, window->nccl);
  lrmoeFree(window);
  return result;
}

lrmoeResult_t lrmoeWindowPeerPointer(lrmoeWindow_t window, int peer,
                                     void **pointer) {
  LRMOE_REQUIRE(window && pointer, "window or pointer is NULL");
  LRMOE_REQUIRE(peer >= 0 && peer < window->comm->numRanks,
                "peer is %d, of %d ranks", peer, window->comm->numRanks);
  const struct lrmoeTransport *transport = window->comm->transport;
  if (!transport->getPeerPointer)
    return LRMOE_FAIL(lrmoeUnsupported, "%s has no peer pointers",
                      transport->name);
  return transport->getPeerPointer(window->nccl, 0, peer, pointer);
}

/* What goes to one rank, and what comes from one. */
static lrmoeResult_t sendUnits(struct lrmoeComm *comm,
                               const struct lrmoeExchange *x, int to,
                               int64_t *bytesSent) {
  int64_t first = x->sendOffsets ? x->sendOffsets[to] : 0;
  int64_t units = x->sendOffsets ? x->sendOffsets[to + 1] - first : x->numSame;
  if (to != comm->rank) *bytesSent += units * x->unitBytes;
  return comm->transport->send((const char *)x->send + first * x->unitBytes,
                               (size_t)(units * x->unitBytes), lrmoeUint8, to,
                               comm->nccl, NULL);
}

static lrmoeResult_t recvUnits(struct lrmoeComm *comm,
                               const struct lrmoeExchange *x, int from) {
  int64_t first = x->recvOffsets[from];
  int64_t units = x->recvOffsets[from + 1] - first;
  return comm->transport->recv((char *)x->recv + first * x->unitBytes,
                               (size_t)(units * x->unitBytes), lrmoeUint8, from,
                               comm->nccl, NULL);
}

static lrmoeResult_t postExchange(struct lrmoeComm *comm,
                                  const struct lrmoeExchange *x,
                                  int64_t *bytesSent) {
  for (int step = 0; step < comm->numRanks; step++) {
    LRMOE_CHECK(sendUnits(comm, x, comm->targets[step], bytesSent));
    LRMOE_CHECK(recvUnits(comm, x, comm->sources[step]));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExchangeRun(struct lrmoeComm *comm,
                               const struct lrmoeExchange *exchanges,
                               int numExchanges, int64_t *bytesSent) {
  LRMOE_CHECK(comm->transport->groupStart());
  lrmoeResult_t result = lrmoeSuccess;
  int64_t sent = 0;
  for (int i = 0; i < numExchanges && result == lrmoeSuccess; i++)
    result = postExchange(comm, &exchanges[i], &sent);
  lrmoeResult_t ended = comm->transport->groupEnd();
  if (result == lrmoeSuccess) result = ended;
  if (result == lrmoeSuccess && bytesSent) *bytesSent += sent;
  return result;
}
