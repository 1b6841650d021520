/* The arguments of calls: see call.h.  Both transports refuse the same. */
#include "collectives/call.h"

#include "collectives/transport.h"

static lrmoeResult_t checkBuffers(const struct lrmoeCall *call, int rank) {
  int needsSend = call->kind != lrmoeCallRecv &&
                  (call->kind != lrmoeCallBroadcast || call->peer == rank);
  int needsRecv = call->kind != lrmoeCallSend;
  if (!call->count) return lrmoeSuccess;
  LRMOE_REQUIRE(!needsSend || call->send,
                "the send buffer is NULL for %zu elements", call->count);
  LRMOE_REQUIRE(!needsRecv || call->recv,
                "the receive buffer is NULL for %zu elements", call->count);
  LRMOE_REQUIRE(call->kind != lrmoeCallAllToAll || call->send != call->recv,
                "an all-to-all cannot be in place");
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCallCheck(const struct lrmoeCall *call, int rank,
                             int numRanks) {
  size_t elementBytes = lrmoeTypeBytes(call->type);
  LRMOE_REQUIRE(elementBytes, "unknown data type %d", (int)call->type);
  LRMOE_REQUIRE(call->op >= lrmoeSum && call->op <= lrmoeAvg,
                "unknown operator %d", (int)call->op);
  LRMOE_REQUIRE(call->peer >= 0 && call->peer < numRanks,
                "peer or root is rank %d, of %d", call->peer, numRanks);
  size_t most = INT64_MAX / elementBytes / (size_t)numRanks;
  LRMOE_REQUIRE(call->count <= most, "count is %zu, too large", call->count);
  return checkBuffers(call, rank);
}
