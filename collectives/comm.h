/* The communicator handle: a transport table and the transport's own handle. */
#ifndef LRMOE_COLLECTIVES_COMM_H
#define LRMOE_COLLECTIVES_COMM_H

#include "base/trace.h"
#include "collectives/memory.h"
#include "collectives/transport.h"

#include <pthread.h>

struct lrmoeComm {
  const struct lrmoeTransport *transport;
  /* Of the memory that it transports; NULL until a layer needs it. */
  const struct lrmoeBackend *backend;
  struct ncclComm *nccl;
  int rank;
  int numRanks;
  int numLayers; /* that must be destroyed first */
  int numEvents; /* as well; of several threads */
  /* [numRanks] each: whom this rank sends to, and receives from, in each step
   * of an all-to-all; one allocation. */
  int32_t *targets;
  int32_t *sources;
  struct lrmoeTwin hostOut; /* messages between hosts, on a device backend */
  struct lrmoeTwin hostIn;
  struct lrmoeTrace *trace;             /* NULL: not wanted */
  struct lrmoeDeviceTimes *deviceTimes; /* NULL: not wanted, or the host's */
  int64_t timeoutMs;
  struct lrmoeWatched *watched; /* of its layers (watch.h), guarded by ... */
  pthread_mutex_t watchMutex;
};

struct lrmoeWindow {
  struct lrmoeComm *comm;
  struct ncclWindow_vidmem *nccl;
};

/* Loads the communicator's backend, if it has not been yet. */
lrmoeResult_t lrmoeCommNeedBackend(struct lrmoeComm *comm);

/* Waits for the stream.  What has failed on it by then, a peer's death for one,
 * is this call's failure: a stream itself tells nothing of it. */
lrmoeResult_t lrmoeCommSynchronize(struct lrmoeComm *comm,
                                   lrmoeStream_t stream);

/* What has failed by now. */
lrmoeResult_t lrmoeCommCheck(struct lrmoeComm *comm);

/* Passes a collective call's result on.  A rank that fails in the middle of a
 * collective leaves its peers waiting, so a failure breaks the communicator
 * and the peers fail too, with this rank's name. */
lrmoeResult_t lrmoeCommSettle(struct lrmoeComm *comm, lrmoeResult_t result);

/* A variable all-to-all in units of unitBytes: this rank's units
 * [sendOffsets[d], sendOffsets[d + 1]) go to rank d, and those of rank s land
 * at [recvOffsets[s], recvOffsets[s + 1]).  With sendOffsets NULL every rank
 * gets the same numSame units.  Counts are exact on both ends. */
struct lrmoeExchange {
  const void *send;
  const int64_t *sendOffsets;
  void *recv;
  const int64_t *recvOffsets;
  int64_t unitBytes;
  int64_t numSame;
};

/* Runs the exchanges in one group, ordered by the stream, and adds the bytes
 * that left this rank for others to *bytesSent. */
lrmoeResult_t lrmoeExchangeRun(struct lrmoeComm *comm,
                               const struct lrmoeExchange *exchanges,
                               int numExchanges, lrmoeStream_t stream,
                               int64_t *bytesSent);

/* An exchange of host memory, done when it returns: on a device backend the
 * host waits for the stream. */
lrmoeResult_t lrmoeExchangeHost(struct lrmoeComm *comm,
                                const struct lrmoeExchange *exchange,
                                lrmoeStream_t stream, int64_t *bytesSent);

/* The same for an all-gather: rank r's bytes land at all + r * bytes. */
lrmoeResult_t lrmoeAllGatherHost(struct lrmoeComm *comm, const void *mine,
                                 void *all, int64_t bytes,
                                 lrmoeStream_t stream);

/* lrmoeCommWindowRegister, but *window stays as it is where there are no such
 * windows: rows go as messages then. */
lrmoeResult_t lrmoeCommWindowTry(struct lrmoeComm *comm, void *buffer,
                                 size_t bytes, lrmoeWindow_t *window);

/* *all = whether isGood on every rank.  Collective. */
lrmoeResult_t lrmoeCommAgree(struct lrmoeComm *comm, int isGood, int *all);

#endif
