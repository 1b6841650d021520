/* Exchanges: see comm.h. */
#include "collectives/comm.h"

#include <string.h>

/* What goes to one rank, and what comes from one. */
static lrmoeResult_t sendUnits(struct lrmoeComm *comm,
                               const struct lrmoeExchange *x, int to,
                               lrmoeStream_t stream, int64_t *bytesSent) {
  int64_t first = x->sendOffsets ? x->sendOffsets[to] : 0;
  int64_t units = x->sendOffsets ? x->sendOffsets[to + 1] - first : x->numSame;
  if (to != comm->rank) *bytesSent += units * x->unitBytes;
  return comm->transport->send((const char *)x->send + first * x->unitBytes,
                               (size_t)(units * x->unitBytes), lrmoeUint8, to,
                               comm->nccl, stream);
}

static lrmoeResult_t recvUnits(struct lrmoeComm *comm,
                               const struct lrmoeExchange *x, int from,
                               lrmoeStream_t stream) {
  int64_t first = x->recvOffsets[from];
  int64_t units = x->recvOffsets[from + 1] - first;
  return comm->transport->recv((char *)x->recv + first * x->unitBytes,
                               (size_t)(units * x->unitBytes), lrmoeUint8, from,
                               comm->nccl, stream);
}

static lrmoeResult_t postExchange(struct lrmoeComm *comm,
                                  const struct lrmoeExchange *x,
                                  lrmoeStream_t stream, int64_t *bytesSent) {
  for (int step = 0; step < comm->numRanks; step++) {
    LRMOE_CHECK(sendUnits(comm, x, comm->targets[step], stream, bytesSent));
    LRMOE_CHECK(recvUnits(comm, x, comm->sources[step], stream));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExchangeRun(struct lrmoeComm *comm,
                               const struct lrmoeExchange *exchanges,
                               int numExchanges, lrmoeStream_t stream,
                               int64_t *bytesSent) {
  LRMOE_CHECK(comm->transport->groupStart());
  lrmoeResult_t result = lrmoeSuccess;
  int64_t sent = 0;
  for (int i = 0; i < numExchanges && result == lrmoeSuccess; i++)
    result = postExchange(comm, &exchanges[i], stream, &sent);
  lrmoeResult_t ended = comm->transport->groupEnd();
  if (result == lrmoeSuccess) result = ended;
  if (result == lrmoeSuccess && bytesSent) *bytesSent += sent;
  return result;
}

/* Sends from `out` and receives into hostIn's device memory, and waits. */
static lrmoeResult_t exchangeStaged(struct lrmoeComm *comm,
                                    const struct lrmoeExchange *staged,
                                    size_t recvBytes, lrmoeStream_t stream,
                                    int64_t *bytesSent) {
  void *host = NULL;
  LRMOE_CHECK(lrmoeExchangeRun(comm, staged, 1, stream, bytesSent));
  LRMOE_CHECK(lrmoeTwinDownload(comm->backend, &comm->hostIn, staged->recv,
                                recvBytes, stream, &host));
  return lrmoeCommSynchronize(comm, stream);
}

lrmoeResult_t lrmoeExchangeHost(struct lrmoeComm *comm,
                                const struct lrmoeExchange *exchange,
                                lrmoeStream_t stream, int64_t *bytesSent) {
  if (comm->backend->isHost)
    return lrmoeExchangeRun(comm, exchange, 1, stream, bytesSent);
  struct lrmoeExchange staged = *exchange;
  int64_t numSent = exchange->sendOffsets
                        ? exchange->sendOffsets[comm->numRanks]
                        : exchange->numSame;
  size_t sendBytes = (size_t)(numSent * exchange->unitBytes);
  size_t recvBytes =
      (size_t)(exchange->recvOffsets[comm->numRanks] * exchange->unitBytes);
  void *out = NULL;
  LRMOE_CHECK(lrmoeTwinUpload(comm->backend, &comm->hostOut, exchange->send,
                              sendBytes, stream, &out));
  LRMOE_CHECK(lrmoeBlockReserve(comm->backend, recvBytes, stream,
                                &comm->hostIn.device));
  staged.send = out;
  staged.recv = comm->hostIn.device.data;
  LRMOE_CHECK(exchangeStaged(comm, &staged, recvBytes, stream, bytesSent));
  if (recvBytes) memcpy(exchange->recv, comm->hostIn.pinned, recvBytes);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeAllGatherHost(struct lrmoeComm *comm, const void *mine,
                                 void *all, int64_t bytes,
                                 lrmoeStream_t stream) {
  const struct lrmoeBackend *backend = comm->backend;
  size_t allBytes = (size_t)bytes * (size_t)comm->numRanks;
  void *out = NULL;
  void *in = all;
  LRMOE_CHECK(lrmoeTwinUpload(backend, &comm->hostOut, mine, (size_t)bytes,
                              stream, &out));
  if (!backend->isHost) {
    LRMOE_CHECK(
        lrmoeBlockReserve(backend, allBytes, stream, &comm->hostIn.device));
    in = comm->hostIn.device.data;
  }
  LRMOE_CHECK(comm->transport->allGather(out, in, (size_t)bytes, lrmoeUint8,
                                         comm->nccl, stream));
  void *host = NULL;
  LRMOE_CHECK(
      lrmoeTwinDownload(backend, &comm->hostIn, in, allBytes, stream, &host));
  LRMOE_CHECK(lrmoeCommSynchronize(comm, stream));
  if (host != all) memcpy(all, host, allBytes);
  return lrmoeSuccess;
}
