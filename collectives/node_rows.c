/* Rows by relays: see node.h.
 *
 * Two groups each way: between nodes, with the rows that stay in a node beside
 * them, and between relays and their nodes.  Messages of one group between two
 * ranks are posted in the same order on both: relayed ones by source.  Rows
 * between nodes may be the devices' own matter (node_gin.h). */
#include "collectives/node_gin.h"
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
  int isGin;       /* between nodes by NICs */
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

static lrmoeResult_t postEnds(const struct leg *leg,
                              const struct lrmoeNodeEnd *source,
                              const struct lrmoeNodeEnd *sink) {
  const struct lrmoeNodeEnd *out = leg->isHome ? sink : source;
  const struct lrmoeNodeEnd *in = leg->isHome ? source : sink;
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
  const struct lrmoeNodeEnd source = {way->sourceRows, way->offsets,
                                      lrmoeNodeIsNear};
  const struct lrmoeNodeEnd executor = {way->executorRows, way->recvOffsets,
                                        lrmoeNodeIsNear};
  return postEnds(leg, &source, &executor);
}

static struct lrmoeNodeEnd farSource(const struct leg *leg) {
  return (struct lrmoeNodeEnd){leg->way->sourceRows, leg->way->offsets,
                               lrmoeNodeIsRelay};
}

static struct lrmoeNodeEnd farRelay(const struct leg *leg) {
  return (struct lrmoeNodeEnd){leg->relayRows, leg->relay->rowOffsets,
                               lrmoeNodeIsRelayed};
}

static lrmoeResult_t postOuter(const struct leg *leg) {
  const struct lrmoeNodeEnd source = farSource(leg);
  const struct lrmoeNodeEnd relay = farRelay(leg);
  if (!leg->isGin) LRMOE_CHECK(postEnds(leg, &source, &relay));
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

typedef lrmoeResult_t runLeg(const struct leg *leg);

static lrmoeResult_t postGroup(const struct leg *leg, runLeg *post) {
  const struct lrmoeTransport *transport = leg->step->layer->comm->transport;
  LRMOE_CHECK(transport->groupStart());
  lrmoeResult_t result = post(leg);
  lrmoeResult_t ended = transport->groupEnd();
  return result == lrmoeSuccess ? ended : result;
}

/* Rows are put before messages within the node begin, and awaited after. */
static lrmoeResult_t runOuter(const struct leg *leg) {
  int isX = leg->way->relay == lrmoeRelayX;
  struct lrmoeNodePhase phase = {.isHome = leg->isHome,
                                 .array = leg->isHome ? lrmoeArrayGinHome
                                          : isX       ? lrmoeArrayGinOutX
                                                      : lrmoeArrayGinOut,
                                 .source = farSource(leg),
                                 .relay = farRelay(leg)};
  if (!leg->isGin) return postGroup(leg, postOuter);
  LRMOE_CHECK(lrmoeNodeGinPut(leg->step, &phase, leg->bytes));
  LRMOE_CHECK(postGroup(leg, postOuter));
  return lrmoeNodeGinAwait(leg->step, &phase);
}

static lrmoeResult_t runInner(const struct leg *leg) {
  return postGroup(leg, postInner);
}

static lrmoeResult_t runSpan(const char *name, const struct leg *leg,
                             runLeg *run) {
  int64_t before = *leg->bytes;
  LRMOE_SPAN_ON(leg->step->layer->comm, name, leg->step->stream);
  lrmoeResult_t result = run(leg);
  span_.bytes = *leg->bytes - before;
  return result;
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
  leg->isGin = lrmoeNodeGinHas(layer, leg->way->sourceRows);
  LRMOE_CHECK(lrmoeBlockReserve(layer->backend,
                                (size_t)(leg->isGin ? bytes - inBytes : bytes),
                                step->stream, &layer->relayRows));
  leg->relayRows = layer->relayRows.data;
  leg->relayOut = leg->relayRows + (leg->isGin ? 0 : inBytes);
  if (leg->isGin)
    LRMOE_CHECK(lrmoeNodeGinRelay(layer, inBytes, &leg->relayRows));
  lrmoeMeterAdd(&step->meter, bytes);
  lrmoeMeterAdd(&step->meter, -bytes);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNodeSend(struct lrmoeStep *step, const struct lrmoeWay *way,
                            int64_t *bytes) {
  const struct lrmoeLayer *layer = step->layer;
  struct leg leg = {.step = step, .way = way, .bytes = bytes};
  LRMOE_CHECK(openLeg(&leg));
  LRMOE_CHECK(runSpan("to relays", &leg, runOuter));
  const struct lrmoeGather pack = {
      {leg.relayRows, leg.relay->rowOf, layer->type, layer->hidden},
      leg.relay->numOut,
      layer->type,
      leg.relayOut};
  LRMOE_RUN(layer->backend, gather, &pack, step->stream);
  return runSpan("from relays", &leg, runInner);
}

lrmoeResult_t lrmoeNodeReturn(struct lrmoeStep *step,
                              const struct lrmoeWay *way, int64_t *bytes) {
  struct leg leg = {.step = step, .way = way, .isHome = 1, .bytes = bytes};
  LRMOE_CHECK(openLeg(&leg));
  const struct lrmoeLists lists = {lrmoeBlockRelayLists, leg.relay->numOut,
                                   leg.relay->rowOf,
                                   leg.relay->rowOffsets[step->plan->numRanks]};
  LRMOE_CHECK(runSpan("to relays", &leg, runInner));
  LRMOE_CHECK(lrmoeSumRows(step, &lists, leg.relayOut, NULL, leg.relayRows));
  return runSpan("from relays", &leg, runOuter);
}
