/* One call, handed to NCCL: see issue.h.  An all-to-all, which releases before
 * 2.28 lack, is a group of sends and receives there. */
#include "collectives/nccl/issue.h"

/* Each rank begins with itself and goes round, as lrmoeExchangeRun does. */
static lrmoeResult_t sendToAll(const struct lrmoeNcclComm *comm,
                               const struct lrmoeCall *call,
                               lrmoeStream_t stream) {
  size_t bytes = call->count * lrmoeTypeBytes(call->type);
  lrmoeResult_t got = lrmoeSuccess;
  for (int step = 0; step < comm->numRanks && got == lrmoeSuccess; step++) {
    int to = (comm->rank + step) % comm->numRanks;
    int from = (comm->rank - step + comm->numRanks) % comm->numRanks;
    got = comm->api->send((const char *)call->send + (size_t)to * bytes,
                          call->count, call->type, to, comm->nccl, stream);
    if (got != lrmoeSuccess) break;
    got = comm->api->recv((char *)call->recv + (size_t)from * bytes,
                          call->count, call->type, from, comm->nccl, stream);
  }
  return got;
}

static lrmoeResult_t allToAll(const struct lrmoeNcclComm *comm,
                              const struct lrmoeCall *call,
                              lrmoeStream_t stream) {
  if (comm->api->allToAll)
    return comm->api->allToAll(call->send, call->recv, call->count, call->type,
                               comm->nccl, stream);
  lrmoeResult_t got = comm->api->groupStart();
  if (got != lrmoeSuccess) return got;
  got = sendToAll(comm, call, stream);
  lrmoeResult_t ended = comm->api->groupEnd();
  return got != lrmoeSuccess ? got : ended;
}

lrmoeResult_t lrmoeNcclIssue(const struct lrmoeNcclComm *comm,
                             const struct lrmoeCall *call, lrmoeStream_t stream,
                             const char **name) {
  const struct lrmoeNcclApi *api = comm->api;
  switch (call->kind) {
  case lrmoeCallSend:
    *name = "ncclSend";
    return api->send(call->send, call->count, call->type, call->peer,
                     comm->nccl, stream);
  case lrmoeCallRecv:
    *name = "ncclRecv";
    return api->recv(call->recv, call->count, call->type, call->peer,
                     comm->nccl, stream);
  case lrmoeCallAllGather:
    *name = "ncclAllGather";
    return api->allGather(call->send, call->recv, call->count, call->type,
                          comm->nccl, stream);
  case lrmoeCallBroadcast:
    *name = "ncclBroadcast";
    return api->broadcast(call->send, call->recv, call->count, call->type,
                          call->peer, comm->nccl, stream);
  case lrmoeCallReduceScatter:
    *name = "ncclReduceScatter";
    return api->reduceScatter(call->send, call->recv, call->count, call->type,
                              call->op, comm->nccl, stream);
  case lrmoeCallAllReduce:
    *name = "ncclAllReduce";
    return api->allReduce(call->send, call->recv, call->count, call->type,
                          call->op, comm->nccl, stream);
  case lrmoeCallAllToAll:
    break;
  }
  *name = "ncclAlltoAll";
  return allToAll(comm, call, stream);
}
