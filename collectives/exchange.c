/* Exchanges: see comm.h. */
#include "base/alloc.h"
#include "base/copy.h"
#include "collectives/span.h"

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
  LRMOE_SPAN_ON(comm, "exchange", stream);
  LRMOE_CHECK(comm->transport->groupStart());
  lrmoeResult_t result = lrmoeSuccess;
  int64_t sent = 0;
  for (int i = 0; i < numExchanges && result == lrmoeSuccess; i++)
    result = postExchange(comm, &exchanges[i], stream, &sent);
  lrmoeResult_t ended = comm->transport->groupEnd();
  if (result == lrmoeSuccess) result = ended;
  span_.bytes = sent;
  if (result == lrmoeSuccess && bytesSent) *bytesSent += sent;
  return result;
}

/* ---- Host memory ---- */

/* A message of host memory as the transport sees it: host memory itself, or
 * the communicator's staging on a device. */
struct staging {
  struct lrmoeComm *comm;
  lrmoeStream_t stream;
  void *out;
  void *in;
};

static lrmoeResult_t openStaging(struct staging *staging, const void *send,
                                 size_t sendBytes, void *recv,
                                 size_t recvBytes) {
  struct lrmoeComm *comm = staging->comm;
  LRMOE_CHECK(lrmoeTwinUpload(comm->backend, &comm->hostOut, send, sendBytes,
                              staging->stream, &staging->out));
  staging->in = recv;
  if (comm->backend->isHost) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeBlockReserve(comm->backend, recvBytes, staging->stream,
                                &comm->hostIn.device));
  staging->in = comm->hostIn.device.data;
  return lrmoeSuccess;
}

/* Waits for what has come, and puts it into recv. */
static lrmoeResult_t closeStaging(const struct staging *staging, void *recv,
                                  size_t recvBytes) {
  struct lrmoeComm *comm = staging->comm;
  void *host = NULL;
  LRMOE_CHECK(lrmoeTwinDownload(comm->backend, &comm->hostIn, staging->in,
                                recvBytes, staging->stream, &host));
  LRMOE_CHECK(lrmoeCommSynchronize(comm, staging->stream));
  if (recvBytes && host != recv) lrmoeCopyBytes(recv, host, recvBytes);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExchangeHost(struct lrmoeComm *comm,
                                const struct lrmoeExchange *exchange,
                                lrmoeStream_t stream, int64_t *bytesSent) {
  struct staging staging = {comm, stream, NULL, NULL};
  struct lrmoeExchange staged = *exchange;
  int64_t numSent = exchange->sendOffsets
                        ? exchange->sendOffsets[comm->numRanks]
                        : exchange->numSame;
  size_t sendBytes = (size_t)(numSent * exchange->unitBytes);
  size_t recvBytes =
      (size_t)(exchange->recvOffsets[comm->numRanks] * exchange->unitBytes);
  LRMOE_CHECK(openStaging(&staging, exchange->send, sendBytes, exchange->recv,
                          recvBytes));
  staged.send = staging.out;
  staged.recv = staging.in;
  LRMOE_CHECK(lrmoeExchangeRun(comm, &staged, 1, stream, bytesSent));
  return closeStaging(&staging, exchange->recv, recvBytes);
}

lrmoeResult_t lrmoeAllGatherHost(struct lrmoeComm *comm, const void *mine,
                                 void *all, int64_t bytes,
                                 lrmoeStream_t stream) {
  struct staging staging = {comm, stream, NULL, NULL};
  size_t allBytes = (size_t)bytes * (size_t)comm->numRanks;
  LRMOE_CHECK(openStaging(&staging, mine, (size_t)bytes, all, allBytes));
  LRMOE_CHECK(comm->transport->allGather(staging.out, staging.in, (size_t)bytes,
                                         lrmoeUint8, comm->nccl, stream));
  return closeStaging(&staging, all, allBytes);
}

lrmoeResult_t lrmoeCommAgree(struct lrmoeComm *comm, int isGood, int *all) {
  int64_t mine = isGood;
  int64_t *answers = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(comm->numRanks, &answers));
  lrmoeResult_t result =
      lrmoeAllGatherHost(comm, &mine, answers, (int64_t)sizeof mine, NULL);
  *all = result == lrmoeSuccess;
  for (int r = 0; r < comm->numRanks; r++)
    *all &= answers[r] == 1;
  lrmoeFree(answers);
  return result;
}
