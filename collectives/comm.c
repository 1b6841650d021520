/* Public communicator calls: checks, then the transport's table. */
#include "collectives/comm.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/param.h"
#include "collectives/device_times.h"
#include "collectives/order.h"
#include "collectives/span.h"
#include "collectives/watch.h"

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
                              struct ncclComm *nccl, int64_t timeoutMs,
                              lrmoeComm_t *comm) {
  struct lrmoeComm *made = NULL;
  lrmoeResult_t result = LRMOE_ALLOCATE(1, &made);
  if (result == lrmoeSuccess) {
    made->transport = transport;
    made->backend = transport->hasStreams ? NULL : &lrmoeCpuBackend;
    made->nccl = nccl;
    pthread_mutex_init(&made->watchMutex, NULL);
    result = transport->commCount(nccl, &made->numRanks);
  }
  if (result == lrmoeSuccess)
    result = transport->commUserRank(nccl, &made->rank);
  if (result == lrmoeSuccess)
    result = lrmoeTraceOpen(made->rank, made->numRanks, &made->trace);
  if (result == lrmoeSuccess) result = goRound(made);
  if (result != lrmoeSuccess) {
    transport->commBreak(nccl);
    transport->commDestroy(nccl);
    if (made) {
      lrmoeTraceClose(made->trace);
      lrmoeFree(made->targets);
    }
    lrmoeFree(made);
    return result;
  }
  made->timeoutMs = timeoutMs ? timeoutMs : lrmoeParamGet(lrmoeParamTimeoutMs);
  *comm = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeGetUniqueId(lrmoeUniqueId *id) {
  const struct lrmoeTransport *transport = NULL;
  LRMOE_REQUIRE(id, "id is NULL");
  LRMOE_CHECK(lrmoeTransportChoose(&transport));
  return transport->getUniqueId(id);
}

static lrmoeResult_t readConfig(const lrmoeCommConfig_t *config,
                                int64_t *timeoutMs) {
  lrmoeCommConfig_t known = LRMOE_COMM_CONFIG_INITIALIZER;
  if (config)
    LRMOE_CHECK(
        lrmoeConfigRead("lrmoeCommConfig_t", config, sizeof known, &known));
  LRMOE_REQUIRE(known.timeoutMs >= 0, "timeoutMs is %lld",
                (long long)known.timeoutMs);
  *timeoutMs = known.timeoutMs;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCommInitRank(int numRanks, const lrmoeUniqueId *id, int rank,
                                const lrmoeCommConfig_t *config,
                                lrmoeComm_t *comm) {
  int64_t timeoutMs = 0;
  const struct lrmoeTransport *transport = NULL;
  struct ncclComm *nccl = NULL;
  LRMOE_CHECK(readConfig(config, &timeoutMs));
  LRMOE_REQUIRE(id && comm, "id or comm is NULL");
  LRMOE_REQUIRE(numRanks >= 1, "numRanks is %d", numRanks);
  LRMOE_REQUIRE(rank >= 0 && rank < numRanks, "rank is %d, of %d", rank,
                numRanks);
  LRMOE_CHECK(lrmoeTransportChoose(&transport));
  LRMOE_CHECK(transport->commInit(numRanks, id, rank, timeoutMs, &nccl));
  return makeComm(transport, nccl, timeoutMs, comm);
}

lrmoeResult_t lrmoeCommInitFromNccl(struct ncclComm *nccl,
                                    const lrmoeCommConfig_t *config,
                                    lrmoeComm_t *comm) {
  int64_t timeoutMs = 0;
  const struct lrmoeTransport *transport = NULL;
  struct ncclComm *borrowed = NULL;
  LRMOE_CHECK(readConfig(config, &timeoutMs));
  LRMOE_REQUIRE(nccl && comm, "nccl or comm is NULL");
  LRMOE_CHECK(lrmoeNcclTransportGet(1, &transport));
  LRMOE_CHECK(lrmoeNcclCommBorrow(nccl, timeoutMs, &borrowed));
  return makeComm(transport, borrowed, timeoutMs, comm);
}

lrmoeResult_t lrmoeCommSplit(lrmoeComm_t comm, int color, int key,
                             lrmoeComm_t *newComm) {
  LRMOE_REQUIRE(comm && newComm, "comm or newComm is NULL");
  struct ncclComm *nccl = NULL;
  LRMOE_CHECK(comm->transport->commSplit(comm->nccl, color, key, &nccl));
  if (nccl) return makeComm(comm->transport, nccl, comm->timeoutMs, newComm);
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
  lrmoeResult_t failed = lrmoeWatchCheck(comm);
  if (failed == lrmoeSuccess)
    return comm->transport->commGetAsyncError(comm->nccl, asyncError);
  *asyncError = failed;
  return lrmoeSuccess;
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
  int numEvents = __atomic_load_n(&comm->numEvents, __ATOMIC_ACQUIRE);
  if (numEvents)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "the communicator still has %d event(s)", numEvents);
  lrmoeResult_t result = comm->transport->commDestroy(comm->nccl);
  if (comm->backend) {
    lrmoeTwinFree(comm->backend, &comm->hostOut);
    lrmoeTwinFree(comm->backend, &comm->hostIn);
  }
  lrmoeDeviceTimesClose(comm->deviceTimes);
  lrmoeTraceClose(comm->trace);
  pthread_mutex_destroy(&comm->watchMutex);
  lrmoeFree(comm->targets);
  lrmoeFree(comm);
  return result;
}

lrmoeResult_t lrmoeCommNeedBackend(struct lrmoeComm *comm) {
  if (comm->backend) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeBackendLoad("cuda", &comm->backend));
  return lrmoeDeviceTimesOpen(comm->backend, comm->trace, &comm->deviceTimes);
}

lrmoeResult_t lrmoeCommSynchronize(struct lrmoeComm *comm,
                                   lrmoeStream_t stream) {
  LRMOE_SPAN(comm->backend->isHost ? NULL : comm, "wait");
  LRMOE_RUN(comm->backend, synchronize, stream);
  if (!comm->transport->hasStreams) return lrmoeSuccess;
  return lrmoeCommCheck(comm);
}

lrmoeResult_t lrmoeCommCheck(struct lrmoeComm *comm) {
  lrmoeResult_t error = lrmoeSuccess;
  LRMOE_CHECK(lrmoeWatchCheck(comm));
  LRMOE_CHECK(comm->transport->commGetAsyncError(comm->nccl, &error));
  if (error == lrmoeSuccess || error == lrmoeInProgress) return lrmoeSuccess;
  return LRMOE_FAIL(error, "the communicator has failed%s",
                    comm->transport->hasStreams ? " on its stream" : "");
}

lrmoeResult_t lrmoeCommSettle(struct lrmoeComm *comm, lrmoeResult_t result) {
  if (result != lrmoeSuccess) comm->transport->commBreak(comm->nccl);
  return result;
}

lrmoeResult_t lrmoeCommWindowRegister(lrmoeComm_t comm, void *buffer,
                                      size_t bytes, lrmoeWindow_t *window) {
  LRMOE_REQUIRE(comm && window, "comm or window is NULL");
  struct lrmoeWindow *made = NULL;
  LRMOE_CHECK(lrmoeCommSettle(comm, LRMOE_ALLOCATE(1, &made)));
  made->comm = comm;
  lrmoeResult_t result = comm->transport->commWindowRegister(
      comm->nccl, buffer, bytes, &made->nccl, lrmoeWindowSymmetric);
  if (result == lrmoeSuccess)
    *window = made;
  else
    lrmoeFree(made);
  return result;
}

lrmoeResult_t lrmoeCommWindowTry(struct lrmoeComm *comm, void *buffer,
                                 size_t bytes, lrmoeWindow_t *window) {
  lrmoeResult_t result = lrmoeCommWindowRegister(comm, buffer, bytes, window);
  return result == lrmoeUnsupported ? lrmoeSuccess : result;
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
