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

/* Whether the arguments are right, for rank `rank` of numRanks. */
lrmoeResult_t lrmoeCallCheck(const struct lrmoeCall *call, int rank,
                             int numRanks);

#endif
