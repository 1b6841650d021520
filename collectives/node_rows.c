/* Rows by relays: see node.h.
 *
 * Two groups each way.  Messages of one group between two ranks are posted in
 * the same order on both: rows of the ranks themselves, then those that are
 * relayed, by source. */
#include "collectives/node.h"
#include "collectives/route.h"
#include "collectives/span.h"

/* Rows at `base` as this rank's end of messages. */
struct rows {
  struct lrmoeStep *step;
  char *base;
  int64_t *bytes; /* adds up what goes to other ranks */
};

static lrmoeResult_t sendRows(const struct rows *rows, const int64_t *range,
                              int32_t to) {
  const struct lrmoeLayer *layer = rows->step->layer;
  int64_t bytes = (range[1] - range[0]) * layer->rowBytes;
  if (to != layer->comm->rank) *rows->bytes += bytes;
  return layer->comm->transport->send(rows->base + range[0] * layer->rowBytes,
                                      (size_t)bytes, lrmoeUint8, to,
                                      layer->comm->nccl, rows->step->stream);
}

static lrmoeResult_t recvRows(const struct rows *rows, const int64_t *range,
                              int32_t from) {
  const struct lrmoeLayer *layer = rows->step->layer;
  int64_t bytes = (range[1] - range[0]) * layer->rowBytes;
  return layer->comm->transport->recv(rows->base + range[0] * layer->rowBytes,
                                      (size_t)bytes, lrmoeUint8, from,
                                      layer->comm->nccl, rows->step->stream);
}

static int32_t nodeOf(const struct lrmoeStep *step, int32_t rank) {
  return step->layer->nodes->of[rank];
}

static int32_t ownNode(const struct lrmoeStep *step) {
  return nodeOf(step, step->layer->comm->rank);
}

/* Whether this rank sends rows to `peer` as source. */
static int isPeer(const struct lrmoeStep *step, int32_t peer) {
  int32_t node = nodeOf(step, peer);
  return node == ownNode(step) ||
         lrmoeNodeRelay(step->layer->nodes, step->layer->comm->rank, node) ==
             peer;
}

/* ---- Between a source, its node, and its relays ---- */

static lrmoeResult_t postOut(struct lrmoeStep *step, int64_t *bytes) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoeComm *comm = layer->comm;
  const struct rows sent = {step, layer->send.data, bytes};
  const struct rows received = {step, layer->recv.data, bytes};
  const struct rows relayed = {step, step->relay.rows, bytes};
  for (int i = 0; i < comm->numRanks; i++) {
    int32_t to = comm->targets[i];
    int32_t from = comm->sources[i];
    if (isPeer(step, to))
      LRMOE_CHECK(sendRows(&sent, step->backOffsets + to, to));
    if (nodeOf(step, from) == ownNode(step))
      LRMOE_CHECK(recvRows(&received, step->backRecvOffsets + from, from));
    else if (lrmoeNodeIsRelayed(step, from))
      LRMOE_CHECK(recvRows(&relayed, step->relay.rowOffsets + from, from));
  }
  return lrmoeSuccess;
}

/* Sums of the relay's, and of the source's node: the latter went in postBack. */
static lrmoeResult_t postHome(struct lrmoeStep *step, int64_t *bytes) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoeComm *comm = layer->comm;
  const struct rows relayed = {step, step->relay.rows, bytes};
  const struct rows received = {step, layer->back.data, bytes};
  for (int i = 0; i < comm->numRanks; i++) {
    int32_t to = comm->targets[i];
    int32_t from = comm->sources[i];
    if (lrmoeNodeIsRelayed(step, to))
      LRMOE_CHECK(sendRows(&relayed, step->relay.rowOffsets + to, to));
    if (nodeOf(step, from) != ownNode(step) && isPeer(step, from))
      LRMOE_CHECK(recvRows(&received, step->backOffsets + from, from));
  }
  return lrmoeSuccess;
}

/* ---- Within a node: executors and relays ---- */

/* Ends of a rank of this node as relay, ascending sources. */
static lrmoeResult_t postRelay(struct lrmoeStep *step, const struct rows *out,
                               lrmoeResult_t (*post)(const struct rows *rows,
                                                     const int64_t *range,
                                                     int32_t peer)) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int32_t first = nodes->firsts[ownNode(step)];
  int32_t numMembers = nodes->firsts[ownNode(step) + 1] - first;
  int64_t numRanks = step->plan->numRanks;
  for (int32_t m = 0; m < numMembers; m++)
    for (int32_t s = 0; s < numRanks; s++)
      if (lrmoeNodeIsRelayed(step, s))
        LRMOE_CHECK(post(out, step->relay.outOffsets + m * numRanks + s,
                         nodes->ranks[first + m]));
  return lrmoeSuccess;
}

/* And as executor of rows that other nodes' ranks are the sources of. */
static lrmoeResult_t
postExecutor(struct lrmoeStep *step, const struct rows *rows,
             lrmoeResult_t (*post)(const struct rows *rows,
                                   const int64_t *range, int32_t peer)) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  for (int32_t s = 0; s < step->plan->numRanks; s++)
    if (nodeOf(step, s) != ownNode(step))
      LRMOE_CHECK(post(rows, step->backRecvOffsets + s,
                       lrmoeNodeRelay(nodes, s, ownNode(step))));
  return lrmoeSuccess;
}

static lrmoeResult_t postIn(struct lrmoeStep *step, int64_t *bytes) {
  const struct rows out = {step, step->relay.out, bytes};
  const struct rows received = {step, step->layer->recv.data, bytes};
  LRMOE_CHECK(postRelay(step, &out, sendRows));
  return postExecutor(step, &received, recvRows);
}

static lrmoeResult_t postBack(struct lrmoeStep *step, int64_t *bytes) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoeComm *comm = layer->comm;
  const struct rows sums = {step, layer->send.data, bytes};
  const struct rows back = {step, layer->back.data, bytes};
  const struct rows out = {step, step->relay.out, bytes};
  for (int i = 0; i < comm->numRanks; i++) {
    int32_t to = comm->targets[i];
    int32_t from = comm->sources[i];
    if (nodeOf(step, to) == ownNode(step))
      LRMOE_CHECK(sendRows(&sums, step->backRecvOffsets + to, to));
    if (nodeOf(step, from) == ownNode(step))
      LRMOE_CHECK(recvRows(&back, step->backOffsets + from, from));
  }
  LRMOE_CHECK(postExecutor(step, &sums, sendRows));
  return postRelay(step, &out, recvRows);
}

/* ---- The two ways ---- */

static lrmoeResult_t
runGroup(struct lrmoeStep *step, const char *name, int64_t *bytes,
         lrmoeResult_t (*post)(struct lrmoeStep *step, int64_t *bytes)) {
  struct lrmoeComm *comm = step->layer->comm;
  LRMOE_SPAN_ON(comm, name, step->stream);
  int64_t before = *bytes;
  LRMOE_CHECK(comm->transport->groupStart());
  lrmoeResult_t result = post(step, bytes);
  lrmoeResult_t ended = comm->transport->groupEnd();
  span_.bytes = *bytes - before;
  return result == lrmoeSuccess ? ended : result;
}

static lrmoeResult_t reserveRows(struct lrmoeStep *step) {
  struct lrmoeRelay *relay = &step->relay;
  int64_t rowBytes = step->layer->rowBytes;
  int64_t numRows = relay->rowOffsets[step->plan->numRanks] + relay->numOut;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockRelay, numRows * rowBytes,
                                    &relay->rows));
  relay->out =
      (char *)relay->rows + relay->rowOffsets[step->plan->numRanks] * rowBytes;
  lrmoeMeterAdd(&step->meter, numRows * rowBytes);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNodeSend(struct lrmoeStep *step) {
  struct lrmoeRelay *relay = &step->relay;
  const struct lrmoeLayer *layer = step->layer;
  LRMOE_CHECK(reserveRows(step));
  LRMOE_CHECK(runGroup(step, "to relays", &step->stats.rowBytes, postOut));
  const struct lrmoeGather pack = {
      {relay->rows, relay->rowOf, layer->type, layer->hidden},
      relay->numOut,
      layer->type,
      relay->out};
  LRMOE_RUN(layer->backend, gather, &pack, step->stream);
  return runGroup(step, "from relays", &step->stats.rowBytes, postIn);
}

lrmoeResult_t lrmoeNodeReturn(struct lrmoeStep *step) {
  const struct lrmoeRelay *relay = &step->relay;
  const struct lrmoeLists lists = {lrmoeBlockRelayLists, relay->numOut,
                                   relay->rowOf,
                                   relay->rowOffsets[step->plan->numRanks]};
  LRMOE_CHECK(runGroup(step, "to relays", &step->stats.returnBytes, postBack));
  LRMOE_CHECK(lrmoeSumRows(step, &lists, relay->out, NULL, relay->rows));
  return runGroup(step, "from relays", &step->stats.returnBytes, postHome);
}
