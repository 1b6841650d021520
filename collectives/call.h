/* A communication call as data: what a program asked for. */
#ifndef LRMOE_COLLECTIVES_CALL_H
#define LRMOE_COLLECTIVES_CALL_H

#include "base/result.h"

enum lrmoeCallKind {
  lrmoeCallSend,
  lrmoeCallRecv,
  lrmoeCallAllGather,
  lrmoeCallBroadcast,
  lrmoeCallAllToAll,
  lrmoeCallReduceScatter,
  lrmoeCallAllReduce
};

struct lrmoeCall {
  enum lrmoeCallKind kind;
  lrmoeDataType_t type;
  lrmoeRedOp_t op;
  int peer; /* or root */
  const void *send;
  void *recv;
  size_t count;
};

/* What NCCL's functions of these names ask for; a send has no receive buffer,
 * and so on. */
static inline struct lrmoeCall lrmoeCallOfSend(const void *buffer, size_t count,
                                               lrmoeDataType_t type, int peer) {
  return (struct lrmoeCall){.kind = lrmoeCallSend,
                            .type = type,
                            .peer = peer,
                            .send = buffer,
                            .count = count};
}

static inline struct lrmoeCall lrmoeCallOfRecv(void *buffer, size_t count,
                                               lrmoeDataType_t type, int peer) {
  return (struct lrmoeCall){.kind = lrmoeCallRecv,
                            .type = type,
                            .peer = peer,
                            .recv = buffer,
                            .count = count};
}

/* A collective; the operator and the root, where it has them, are to be set. */
static inline struct lrmoeCall lrmoeCallOf(enum lrmoeCallKind kind,
                                           const void *from, void *to,
                                           size_t count, lrmoeDataType_t type) {
  return (struct lrmoeCall){
      .kind = kind, .type = type, .send = from, .recv = to, .count = count};
}

/* Whether the arguments are right, for rank `rank` of numRanks. */
lrmoeResult_t lrmoeCallCheck(const struct lrmoeCall *call, int rank,
                             int numRanks);

#endif
