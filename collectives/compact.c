/* Compaction (round B2): the rows of g that kept pairs need, to their
 * executors (paper 3.1, 3.4), and beside them the rows of x and the alphas of
 * pairs that moved.
 *
 * Staged: pack, then one exchange.  Fused: each row of g is written straight
 * into the executor's window, at a place of its own per source, and the
 * exchange carries how many there are; it orders the writes before the reads
 * and checks that rows sent = rows received (design invariant 6). */
#include "collectives/compact.h"

#include "collectives/device_route.h"
#include "collectives/fused.h"
#include "collectives/node.h"
#include "collectives/span.h"

#include <string.h>

int64_t lrmoeWindowStride(const struct lrmoeRegion *region, int numRanks) {
  return region->numRows / numRanks;
}

lrmoeResult_t lrmoeCompactTokenLists(struct lrmoeStep *step) {
  struct lrmoeLists lists = {lrmoeBlockTokenLists,
                             step->backOffsets[step->plan->numRanks], NULL,
                             step->numTokens};
  int64_t *tokens = NULL;
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayBackTokens, lists.numRows,
                           step->backTokens, &tokens));
  lists.target = tokens;
  return lrmoeListsMake(step, &lists, &step->tokenLists);
}

/* The handoff as the backend sees it; alphas of moved pairs come later. */
static lrmoeResult_t uploadHandoff(struct lrmoeStep *step, float **weights) {
  lrmoeHandoff_t *handoff = &step->handoff;
  int64_t numKept = handoff->numPairs;
  int hasGaps = step->dxRow != step->gRow;
  int64_t *rows = NULL;
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayHandoffRows,
                           (hasGaps ? 4 : 3) * numKept, step->fwdRow, &rows));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayHandoffWeights, numKept,
                           step->backWeights, weights));
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockDAlpha, numKept * (int64_t)sizeof(float), &step->dAlpha));
  handoff->fwdRow = rows;
  handoff->gRow = rows + numKept;
  handoff->xRow = rows + 2 * numKept;
  step->deviceDxRow = rows + (hasGaps ? 3 : 1) * numKept;
  handoff->weights = *weights;
  return lrmoeSuccess;
}

/* Whether rows of x, and alphas, may come again. */
static int mayComeAgain(const struct lrmoeStep *step) {
  return step->layer->savedState == lrmoeSavedNone || lrmoeStepMayMove(step);
}

/* Rows of g, and of x behind them in the send region, from row `first` on; how
 * many ways these are. */
static int makeWays(const struct lrmoeStep *step, int64_t first,
                    struct lrmoeWay *ways) {
  const struct lrmoeLayer *layer = step->layer;
  ways[0] = (struct lrmoeWay){step->backOffsets,     step->backTokens,
                              step->backRecvOffsets, layer->send.data,
                              layer->recv.data,      lrmoeRelayRows};
  ways[1] = (struct lrmoeWay){
      step->xOffsets,     step->xTokens,
      step->xRecvOffsets, (char *)layer->send.data + first * layer->rowBytes,
      layer->movedX.data, lrmoeRelayX};
  return mayComeAgain(step) ? 2 : 1;
}

/* Makes the rows that go to relays the step's. */
static lrmoeResult_t routeRelays(struct lrmoeStep *step) {
  struct lrmoeWay ways[lrmoeNumRelays];
  LRMOE_CHECK(lrmoeNodeRoute(step, ways, makeWays(step, 0, ways)));
  step->backTokens = ways[0].tokens;
  step->packTokens = ways[0].tokens;
  step->xTokens = ways[1].tokens;
  return lrmoeSuccess;
}

/* What goes from rank to rank in B2 beside `first`: rows of x and alphas, or
 * alphas alone where rows go by relays. */
static lrmoeResult_t runExchanges(struct lrmoeStep *step, int64_t xFirst,
                                  const struct lrmoeExchange *first,
                                  const struct lrmoeExchange *alphas) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoeExchange exchanges[] = {
      *first,
      {(char *)layer->send.data + xFirst * layer->rowBytes, step->xOffsets,
       layer->movedX.data, step->xRecvOffsets, layer->rowBytes, 0},
      *alphas};
  int numFirst = first->sendOffsets ? 0 : 1;
  if (lrmoeNodeIsUsed(layer, step->config.wire)) {
    struct lrmoeWay ways[lrmoeNumRelays];
    int numWays = makeWays(step, xFirst, ways);
    for (int w = 0; w < numWays; w++)
      LRMOE_CHECK(lrmoeNodeSend(step, &ways[w], &step->stats.rowBytes));
    numFirst = 2;
  }
  if (numFirst && !mayComeAgain(step)) return lrmoeSuccess;
  return lrmoeExchangeRun(layer->comm, exchanges + numFirst, 3 - numFirst,
                          step->stream, &step->stats.rowBytes);
}

/* The exchange of B2: what `first` says (rows of g, or counts, or nothing),
 * rows of x and alphas, in one group, or by relays; the handoff is whole
 * then. */
static lrmoeResult_t exchangeRows(struct lrmoeStep *step, const void *x,
                                  int64_t xFirst,
                                  const struct lrmoeExchange *first) {
  float *sent = NULL;
  float *received = NULL;
  float *weights = step->route.weights;
  LRMOE_CHECK(lrmoeCompactPackX(step, x, xFirst));
  LRMOE_CHECK(lrmoeCompactPackAlpha(step, &sent, &received));
  const struct lrmoeExchange alphas = {sent,          step->alphaOffsets,
                                       received,      step->alphaRecvOffsets,
                                       sizeof(float), 0};
  LRMOE_CHECK(runExchanges(step, xFirst, first, &alphas));
  if (!step->route.flags) LRMOE_CHECK(uploadHandoff(step, &weights));
  LRMOE_CHECK(lrmoeCompactPlaceAlpha(step, received, weights));
  step->stats.xNodeBytes = lrmoeNodeBytes(step, step->xOffsets);
  lrmoeMeterAdd(&step->meter,
                -step->xOffsets[step->plan->numRanks] * step->layer->rowBytes);
  return lrmoeSuccess;
}

/* What both public calls check before anything is sent. */
static lrmoeResult_t checkRows(const struct lrmoeStep *step, const void *x,
                               const void *g) {
  int needsX = step->layer->savedState == lrmoeSavedNone ||
               step->plan->numInstances > step->plan->numExperts;
  LRMOE_REQUIRE(g || !step->numTokens, "g is NULL");
  LRMOE_REQUIRE(x || !needsX || !step->numTokens,
                "x is NULL, but pairs may move or saved state is none");
  return lrmoeSuccess;
}

/* Packs rows of g, [first, first + numRows) of those that this rank sends. */
static lrmoeResult_t packG(struct lrmoeStep *step, const void *g,
                           const int64_t *tokens, int64_t numRows, void *to) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoeGather pack = {
      {g, tokens, layer->type, layer->hidden}, numRows, layer->type, to};
  LRMOE_RUN(layer->backend, gather, &pack, step->stream);
  return lrmoeSuccess;
}

static lrmoeResult_t uploadTokens(struct lrmoeStep *step, int64_t **tokens) {
  if (step->route.flags) {
    *tokens = step->devicePackTokens;
    return lrmoeSuccess;
  }
  return LRMOE_UPLOAD(step, lrmoeArrayPackTokens,
                      step->backOffsets[step->plan->numRanks], step->packTokens,
                      tokens);
}

/* Packs a row per (token, executor): each token's row is read once. */
static lrmoeResult_t spreadG(struct lrmoeStep *step, const void *g) {
  struct lrmoeLayer *layer = step->layer;
  if (!step->route.flags) LRMOE_CHECK(lrmoeCompactTokenLists(step));
  const struct lrmoeSpread pack = {{g, NULL, layer->type, layer->hidden},
                                   step->numTokens,
                                   step->tokenLists,
                                   step->tokenLists + step->numTokens + 1,
                                   layer->send.data};
  LRMOE_RUN(layer->backend, spread, &pack, step->stream);
  return lrmoeSuccess;
}

/* A row per pair, some of them zeros. */
static lrmoeResult_t gatherG(struct lrmoeStep *step, const void *g) {
  int64_t *tokens = NULL;
  LRMOE_CHECK(uploadTokens(step, &tokens));
  return packG(step, g, tokens, step->backOffsets[step->plan->numRanks],
               step->layer->send.data);
}

static lrmoeResult_t sendStaged(struct lrmoeStep *step, const void *x,
                                const void *g) {
  struct lrmoeLayer *layer = step->layer;
  int isRelayed = lrmoeNodeIsUsed(layer, step->config.wire);
  LRMOE_CHECK(lrmoeCompactRoute(step));
  if (isRelayed) LRMOE_CHECK(routeRelays(step));
  int64_t numRows = step->backOffsets[step->plan->numRanks];
  step->stats.nodeBytes = lrmoeNodeBytes(step, step->backOffsets);
  LRMOE_CHECK(lrmoeWireIsDedup(step) ? spreadG(step, g) : gatherG(step, g));
  lrmoeMeterAdd(&step->meter,
                (numRows + step->handoff.numRows) * layer->rowBytes);
  const struct lrmoeExchange exchange = {
      layer->send.data, isRelayed ? NULL : step->backOffsets,
      layer->recv.data, step->backRecvOffsets,
      layer->rowBytes,  0};
  LRMOE_CHECK(exchangeRows(step, x, numRows, &exchange));
  lrmoeMeterAdd(&step->meter, -numRows * layer->rowBytes);
  step->handoff.g = layer->recv.data;
  return lrmoeSuccess;
}

static lrmoeResult_t pushG(struct lrmoeStep *step, const void *g) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeComm *comm = layer->comm;
  int64_t stride = lrmoeWindowStride(&layer->recv, comm->numRanks);
  int64_t *tokens = NULL;
  LRMOE_CHECK(uploadTokens(step, &tokens));
  for (int i = 0; i < comm->numRanks; i++) {
    int d = comm->targets[i];
    int64_t first = step->backOffsets[d];
    int64_t numRows = step->backOffsets[d + 1] - first;
    LRMOE_CHECK(packG(step, g, tokens + first, numRows,
                      (char *)layer->recv.peers[d] +
                          comm->rank * stride * layer->rowBytes));
    if (d != comm->rank) step->stats.rowBytes += numRows * layer->rowBytes;
  }
  return lrmoeSuccess;
}

/* From one sequence of rows to a stretch per source; dx has no gaps. */
static lrmoeResult_t spreadRows(struct lrmoeStep *step) {
  int64_t numRanks = step->plan->numRanks;
  int64_t numKept = step->handoff.numPairs;
  int64_t stride = lrmoeWindowStride(&step->layer->recv, (int)numRanks);
  if (step->route.flags) return lrmoeDeviceRouteSpread(step, stride);
  step->dxRow = step->fwdRow + 3 * numKept;
  if (numKept)
    memcpy(step->dxRow, step->gRow, (size_t)numKept * sizeof *step->dxRow);
  for (int64_t list = 0; list < 2 * numRanks * step->numInstances; list++) {
    int64_t s = list % numRanks;
    for (int64_t i = step->keptSegments[list]; i < step->keptSegments[list + 1];
         i++)
      step->gRow[i] += s * stride - step->backRecvOffsets[s];
  }
  if (step->layer->routerGrad != lrmoeRouterGradExecutor) return lrmoeSuccess;
  for (int64_t i = 0; i < numRanks * step->numInstances; i++) {
    const struct lrmoeSegment *segment = &step->segments[i];
    int64_t s = i / step->numInstances;
    for (int64_t p = segment->local; p < segment->local + segment->count; p++)
      step->allRows[p] += s * stride - step->backRecvOffsets[s];
  }
  return lrmoeSuccess;
}

/* Rows that each rank has written here, against what this rank expects. */
static lrmoeResult_t checkCounts(const struct lrmoeStep *step,
                                 const int64_t *counts) {
  for (int r = 0; r < step->plan->numRanks; r++) {
    int64_t expected = step->backRecvOffsets[r + 1] - step->backRecvOffsets[r];
    if (counts[r] != expected)
      return LRMOE_FAIL(lrmoeInvalidUsage,
                        "rank %d wrote %lld rows, %lld were expected", r,
                        (long long)counts[r], (long long)expected);
  }
  return lrmoeSuccess;
}

static lrmoeResult_t sendFused(struct lrmoeStep *step, const void *x,
                               const void *g) {
  struct lrmoeLayer *layer = step->layer;
  int64_t numRanks = layer->comm->numRanks;
  LRMOE_CHECK(lrmoeCompactRoute(step));
  step->stats.nodeBytes = lrmoeNodeBytes(step, step->backOffsets);
  LRMOE_CHECK(pushG(step, g));
  int64_t *counts = NULL; /* sent [G], received [G], 0 .. G */
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch2, 3 * numRanks + 1, &counts));
  int64_t *each = counts + 2 * numRanks;
  for (int64_t r = 0; r <= numRanks; r++)
    each[r] = r;
  for (int64_t r = 0; r < numRanks; r++)
    counts[r] = step->backOffsets[r + 1] - step->backOffsets[r];
  LRMOE_CHECK(spreadRows(step));
  const struct lrmoeExchange exchange = {
      counts, each, counts + numRanks, each, sizeof *counts, 0};
  LRMOE_CHECK(exchangeRows(step, x, 0, &exchange));
  LRMOE_CHECK(checkCounts(step, counts + numRanks));
  lrmoeMeterAdd(&step->meter, step->handoff.numRows * layer->rowBytes);
  step->handoff.g = layer->recv.data;
  step->isFused = 1;
  return lrmoeSuccess;
}

/* On a device: rows of g by its kernels, the others as messages. */
static lrmoeResult_t sendDevice(struct lrmoeStep *step, const void *x,
                                const void *g) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoeExchange nothing = {NULL, NULL, NULL, NULL, 0, 0};
  LRMOE_CHECK(lrmoeCompactRoute(step));
  LRMOE_CHECK(lrmoeFusedPut(step, g));
  LRMOE_CHECK(spreadRows(step));
  LRMOE_CHECK(exchangeRows(step, x, 0, &nothing));
  LRMOE_CHECK(lrmoeFusedMeet(step));
  lrmoeMeterAdd(&step->meter, step->handoff.numRows * layer->rowBytes);
  step->handoff.g = layer->recv.data;
  step->isFused = 1;
  return lrmoeSuccess;
}

static lrmoeResult_t sendFast(struct lrmoeStep *step, const void *x,
                              const void *g) {
  if (lrmoeNodeIsUsed(step->layer, step->config.wire))
    return sendStaged(step, x, g);
  if (step->layer->recv.peers) return sendFused(step, x, g);
  if (lrmoeFusedIsPossible(step)) return sendDevice(step, x, g);
  return sendStaged(step, x, g);
}

lrmoeResult_t lrmoeAllToAllCompact(lrmoeStep_t step, const void *x,
                                   const void *g, lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeAllToAllCompact", lrmoeStepSelected,
                              lrmoeStepSelected, stream));
  LRMOE_SPAN_ON(step->layer->comm, "lrmoeAllToAllCompact", stream);
  LRMOE_CHECK(checkRows(step, x, g));
  int64_t start = lrmoeNowNs();
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, sendStaged(step, x, g)));
  step->stats.sendNs = lrmoeNowNs() - start;
  step->state = lrmoeStepSent;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeSelectPackSend(lrmoeStep_t step, const void *x,
                                  const void *g,
                                  const lrmoeBackwardConfig_t *config,
                                  lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeSelectPackSend", lrmoeStepCombined,
                              lrmoeStepCombined, stream));
  LRMOE_SPAN_ON(step->layer->comm, "lrmoeSelectPackSend", stream);
  LRMOE_CHECK(checkRows(step, x, g));
  step->mayDefer = 1;
  lrmoeResult_t selected = lrmoeSelectBegin(step, g, config);
  step->mayDefer = 0;
  LRMOE_CHECK(selected);
  int64_t start = lrmoeNowNs();
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, sendFast(step, x, g)));
  step->stats.sendNs = lrmoeNowNs() - start;
  step->state = lrmoeStepSent;
  return lrmoeSuccess;
}
