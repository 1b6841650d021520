/* Rows by relays: see node.h.
 *
 * Two groups each way: between nodes, with the rows that stay in a node beside
 * them, and between relays and their nodes.  Messages of one group between two
 * ranks are posted in the same order on both: relayed ones by source. */
#include "collectives/node.h"
#include "collectives/route.h"
#include "collectives/span.h"

/* Messages of a way that are posted in one group. */
struct leg {
  struct lrmoeStep *step;
  const struct lrmoeWay *way;
  const struct lrmoeRelay *relay;
  char *relayRows; /* device, by source */
  char *relayOut;  /* device, by rank of the node and source */
  int isHome;      /* from executors to sources */
  int64_t *bytes;  /* adds up what goes to other ranks */
};

/* Rows [range[0], range[1]) of `rows`, to or from a peer. */
typedef lrmoeResult_t postRows(const struct leg *leg, char *rows,
                               const int64_t *range, int32_t peer);

static lrmoeResult_t sendRows(const struct leg *leg, char *rows,
                              const int64_t *range, int32_t to) {
  const struct lrmoeLayer *layer = leg->step->layer;
  int64_t bytes = (range[1] - range[0]) * layer->rowBytes;
  if (to != layer->comm->rank) *leg->bytes += bytes;
  return layer->comm->transport->send(rows + range[0] * layer->rowBytes,
                                      (size_t)bytes, lrmoeUint8, to,
                                      layer->comm->nccl, leg->step->stream);
}

static lrmoeResult_t recvRows(const struct leg *leg, char *rows,
                              const int64_t *range, int32_t from) {
  const struct lrmoeLayer *layer = leg->step->layer;
  int64_t bytes = (range[1] - range[0]) * layer->rowBytes;
  return layer->comm->transport->recv(rows + range[0] * layer->rowBytes,
                                      (size_t)bytes, lrmoeUint8, from,
                                      layer->comm->nccl, leg->step->stream);
}

/* Rows by peer, and which peers have some. */
struct end {
  char *rows;
  const int64_t *offsets;
  int (*has)(const struct lrmoeStep *step, int32_t peer);
};

static lrmoeResult_t postEnds(const struct leg *leg, const struct end *source,
                              const struct end *sink) {
  const struct end *out = leg->isHome ? sink : source;
  const struct end *in = leg->isHome ? source : sink;
  const struct lrmoeComm *comm = leg->step->layer->comm;
  for (int i = 0; i < comm->numRanks; i++) {
    int32_t to = comm->targets[i];
    int32_t from = comm->sources[i];
    if (out->has(leg->step, to))
      LRMOE_CHECK(sendRows(leg, out->rows, out->offsets + to, to));
    if (in->has(leg->step, from))
      LRMOE_CHECK(recvRows(leg, in->rows, in->offsets + from, from));
  }
  return lrmoeSuccess;
}

/* ---- Between sources and executors of a node, and sources and relays ---- */

static lrmoeResult_t postNear(const struct leg *leg) {
  const struct lrmoeWay *way = leg->way;
  const struct end source = {way->sourceRows, way->offsets, lrmoeNodeIsNear};
  const struct end executor = {way->executorRows, way->recvOffsets,
                               lrmoeNodeIsNear};
  return postEnds(leg, &source, &executor);
}

static lrmoeResult_t postFar(const struct leg *leg) {
  const struct lrmoeWay *way = leg->way;
  const struct end source = {way->sourceRows, way->offsets, lrmoeNodeIsRelay};
  const struct end relay = {leg->relayRows, leg->relay->rowOffsets,
                            lrmoeNodeIsRelayed};
  return postEnds(leg, &source, &relay);
}

static lrmoeResult_t postOuter(const struct leg *leg) {
  LRMOE_CHECK(postFar(leg));
  return postNear(leg);
}

/* ---- Between relays and executors of a node ---- */

/* A rank of this node as relay, ascending sources. */
static lrmoeResult_t postRelay(const struct leg *leg, postRows *post) {
  const struct lrmoeStep *step = leg->step;
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int32_t node = nodes->of[step->layer->comm->rank];
  int64_t numRanks = step->plan->numRanks;
  for (int32_t m = 0; m < lrmoeNodeSize(nodes, node); m++)
    for (int32_t s = 0; s < numRanks; s++)
      if (lrmoeNodeIsRelayed(step, s))
        LRMOE_CHECK(post(leg, leg->relayOut,
                         leg->relay->outOffsets + m * numRanks + s,
                         nodes->ranks[nodes->firsts[node] + m]));
  return lrmoeSuccess;
}

/* And as executor of rows that other nodes' ranks are the sources of. */
static lrmoeResult_t postExecutor(const struct leg *leg, postRows *post) {
  const struct lrmoeStep *step = leg->step;
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int32_t node = nodes->of[step->layer->comm->rank];
  for (int32_t s = 0; s < step->plan->numRanks; s++)
    if (!lrmoeNodeIsNear(step, s))
      LRMOE_CHECK(post(leg, leg->way->executorRows, leg->way->recvOffsets + s,
                       lrmoeNodeRelay(nodes, s, node)));
  return lrmoeSuccess;
}

static lrmoeResult_t postInner(const struct leg *leg) {
  LRMOE_CHECK(postRelay(leg, leg->isHome ? recvRows : sendRows));
  return postExecutor(leg, leg->isHome ? sendRows : recvRows);
}

/* ---- Out and home ---- */

static lrmoeResult_t runGroup(const char *name, const struct leg *leg,
                              lrmoeResult_t (*post)(const struct leg *leg)) {
  struct lrmoeStep *step = leg->step;
  struct lrmoeComm *comm = step->layer->comm;
  LRMOE_SPAN_ON(comm, name, step->stream);
  int64_t before = *leg->bytes;
  LRMOE_CHECK(comm->transport->groupStart());
  lrmoeResult_t result = post(leg);
  lrmoeResult_t ended = comm->transport->groupEnd();
  span_.bytes = *leg->bytes - before;
  return result == lrmoeSuccess ? ended : result;
}

/* Room for the relay's rows: what one call of the layer puts there, the next
 * one may overwrite. */
static lrmoeResult_t openLeg(struct leg *leg) {
  struct lrmoeStep *step = leg->step;
  struct lrmoeLayer *layer = step->layer;
  leg->relay = &step->relays[leg->way->relay];
  int64_t inBytes =
      leg->relay->rowOffsets[step->plan->numRanks] * layer->rowBytes;
  int64_t bytes = inBytes + leg->relay->numOut * layer->rowBytes;
  LRMOE_CHECK(lrmoeBlockReserve(layer->backend, (size_t)bytes, step->stream,
                                &layer->relayRows));
  leg->relayRows = layer->relayRows.data;
  leg->relayOut = leg->relayRows + inBytes;
  lrmoeMeterAdd(&step->meter, bytes);
  lrmoeMeterAdd(&step->meter, -bytes);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNodeSend(struct lrmoeStep *step, const struct lrmoeWay *way,
                            int64_t *bytes) {
  const struct lrmoeLayer *layer = step->layer;
  struct leg leg = {.step = step, .way = way, .bytes = bytes};
  LRMOE_CHECK(openLeg(&leg));
  LRMOE_CHECK(runGroup("to relays", &leg, postOuter));
  const struct lrmoeGather pack = {
      {leg.relayRows, leg.relay->rowOf, layer->type, layer->hidden},
      leg.relay->numOut,
      layer->type,
      leg.relayOut};
  LRMOE_RUN(layer->backend, gather, &pack, step->stream);
  return runGroup("from relays", &leg, postInner);
}

lrmoeResult_t lrmoeNodeReturn(struct lrmoeStep *step,
                              const struct lrmoeWay *way, int64_t *bytes) {
  struct leg leg = {.step = step, .way = way, .isHome = 1, .bytes = bytes};
  LRMOE_CHECK(openLeg(&leg));
  const struct lrmoeLists lists = {lrmoeBlockRelayLists, leg.relay->numOut,
                                   leg.relay->rowOf,
                                   leg.relay->rowOffsets[step->plan->numRanks]};
  LRMOE_CHECK(runGroup("to relays", &leg, postInner));
  LRMOE_CHECK(lrmoeSumRows(step, &lists, leg.relayOut, NULL, leg.relayRows));
  return runGroup("from relays", &leg, postOuter);
}
