/* The group calls and collectives of lrmoe.h: NCCL's, over the table. */
#include "collectives/comm.h"

/* A group has no communicator, so both transports open theirs: a program that
 * borrows NCCL's communicators need not set LRMOE_BACKEND.  Of one thread; a
 * group that began before NCCL was loaded ends without it. */
static _Thread_local struct {
  int depth;
  const struct lrmoeTransport *nccl;
} group;

lrmoeResult_t lrmoeGroupStart(void) {
  if (!group.depth) group.nccl = lrmoeNcclTransportLoaded();
  if (group.nccl) LRMOE_CHECK(group.nccl->groupStart());
  group.depth++;
  return lrmoeCpuTransport.groupStart(); /* which cannot fail */
}

lrmoeResult_t lrmoeGroupEnd(void) {
  lrmoeResult_t result = lrmoeCpuTransport.groupEnd();
  if (!group.depth) return result;
  group.depth--;
  if (!group.nccl) return result;
  lrmoeResult_t ended = group.nccl->groupEnd();
  return result != lrmoeSuccess ? result : ended;
}

/* Checks what every call has in common. */
static lrmoeResult_t check(lrmoeComm_t comm, lrmoeDataType_t type, int peer,
                           lrmoeStream_t stream) {
  LRMOE_REQUIRE(comm, "comm is NULL");
  LRMOE_REQUIRE(lrmoeTypeBytes(type), "unknown data type %d", (int)type);
  LRMOE_REQUIRE(peer >= 0 && peer < comm->numRanks,
                "peer or root is %d, of %d ranks", peer, comm->numRanks);
  LRMOE_REQUIRE(!stream || comm->transport->hasStreams,
                "a CPU communicator has no streams: pass NULL");
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeSend(const void *buffer, size_t count, lrmoeDataType_t type,
                        int peer, lrmoeComm_t comm, lrmoeStream_t stream) {
  LRMOE_CHECK(check(comm, type, peer, stream));
  return comm->transport->send(buffer, count, type, peer, comm->nccl, stream);
}

lrmoeResult_t lrmoeRecv(void *buffer, size_t count, lrmoeDataType_t type,
                        int peer, lrmoeComm_t comm, lrmoeStream_t stream) {
  LRMOE_CHECK(check(comm, type, peer, stream));
  return comm->transport->recv(buffer, count, type, peer, comm->nccl, stream);
}

lrmoeResult_t lrmoeAllGather(const void *send, void *recv, size_t sendCount,
                             lrmoeDataType_t type, lrmoeComm_t comm,
                             lrmoeStream_t stream) {
  LRMOE_CHECK(check(comm, type, 0, stream));
  return comm->transport->allGather(send, recv, sendCount, type, comm->nccl,
                                    stream);
}

/* NCCL's parameters. NOLINTBEGIN(readability-function-size) */
lrmoeResult_t lrmoeAllReduce(const void *send, void *recv, size_t count,
                             lrmoeDataType_t type, lrmoeRedOp_t op,
                             lrmoeComm_t comm, lrmoeStream_t stream) {
  LRMOE_CHECK(check(comm, type, 0, stream));
  LRMOE_REQUIRE(op >= lrmoeSum && op <= lrmoeAvg, "unknown operator %d",
                (int)op);
  return comm->transport->allReduce(send, recv, count, type, op, comm->nccl,
                                    stream);
}

lrmoeResult_t lrmoeReduceScatter(const void *send, void *recv, size_t recvCount,
                                 lrmoeDataType_t type, lrmoeRedOp_t op,
                                 lrmoeComm_t comm, lrmoeStream_t stream) {
  LRMOE_CHECK(check(comm, type, 0, stream));
  LRMOE_REQUIRE(op >= lrmoeSum && op <= lrmoeAvg, "unknown operator %d",
                (int)op);
  return comm->transport->reduceScatter(send, recv, recvCount, type, op,
                                        comm->nccl, stream);
}

lrmoeResult_t lrmoeBroadcast(const void *send, void *recv, size_t count,
                             lrmoeDataType_t type, int root, lrmoeComm_t comm,
                             lrmoeStream_t stream) {
  LRMOE_CHECK(check(comm, type, root, stream));
  return comm->transport->broadcast(send, recv, count, type, root, comm->nccl,
                                    stream);
}

/* NOLINTEND(readability-function-size) */

lrmoeResult_t lrmoeAllToAll(const void *send, void *recv, size_t count,
                            lrmoeDataType_t type, lrmoeComm_t comm,
                            lrmoeStream_t stream) {
  LRMOE_CHECK(check(comm, type, 0, stream));
  return comm->transport->allToAll(send, recv, count, type, comm->nccl, stream);
}
