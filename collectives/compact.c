/* Compaction (round B2): the rows of g that kept pairs need, to their
 * executors (paper 3.1, 3.4), and beside them the rows of x and the alphas of
 * pairs that moved.
 *
 * Staged: pack, then one exchange.  Fused: each row of g is written straight
 * into the executor's window, at a place of its own per source, and the
 * exchange carries how many there are; it orders the writes before the reads
 * and checks that rows sent = rows received (design invariant 6). */
#include "collectives/compact.h"

#include <string.h>

int64_t lrmoeWindowStride(const struct lrmoeRegion *region, int numRanks) {
  return region->numRows / numRanks;
}

/* Rows of x that are needed again, behind the rows of g in the send region
 * (which begins at row `first`). */
static lrmoeResult_t packX(struct lrmoeStep *step, const void *x,
                           int64_t first) {
  struct lrmoeLayer *layer = step->layer;
  int64_t numSent = step->xOffsets[step->plan->numRanks];
  int64_t numReceived = step->xRecvOffsets[step->plan->numRanks];
  LRMOE_CHECK(lrmoeBufferReserve(&layer->movedX,
                                 (size_t)(numReceived * layer->rowBytes) + 1));
  const struct lrmoeRows rows = {x, step->xTokens, layer->type, layer->hidden};
  layer->experts.kernels->gather(&rows, numSent, layer->type,
                                 (char *)layer->send.data +
                                     first * layer->rowBytes);
  lrmoeMeterAdd(&step->meter, (numSent + numReceived) * layer->rowBytes);
  step->handoff.movedX = layer->movedX.data;
  return lrmoeSuccess;
}

/* Alphas of pairs that come with x: room for those sent, then those received.
 */
static lrmoeResult_t packAlpha(struct lrmoeStep *step, float **send,
                               float **recv) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numSent = step->alphaOffsets[numRanks];
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayMovedAlpha,
                            numSent + step->alphaRecvOffsets[numRanks], send));
  *recv = *send + numSent;
  float *at = *send;
  for (int32_t d = 0; d < numRanks; d++) {
    int64_t numMoved = step->alphaOffsets[d + 1] - step->alphaOffsets[d];
    for (int64_t i = step->keptOffsets[d];
         i < step->keptOffsets[d + 1] && numMoved; i++) {
      int64_t sorted = step->keptWire[i];
      if (lrmoeCompactComesWithX(step, step->sorted[sorted]))
        *at++ = step->sortedWeights[sorted];
    }
  }
  return lrmoeSuccess;
}

/* Puts the alphas that came into the handoff. */
static void placeAlpha(struct lrmoeStep *step, const float *recv) {
  int64_t numRanks = step->plan->numRanks;
  float *weights = step->arrays[lrmoeArrayHandoffWeights].data;
  for (int64_t s = 0; s < numRanks; s++) {
    for (int64_t j = 0; j < step->numInstances; j++) {
      const int64_t *list = &step->keptSegments[(2 * j + 1) * numRanks + s];
      memcpy(weights + list[0], recv,
             (size_t)(list[1] - list[0]) * sizeof *recv);
      recv += list[1] - list[0];
    }
  }
}

/* The exchange of B2: what `first` says (rows of g, or counts), rows of x and
 * alphas, in one group. */
static lrmoeResult_t exchangeRows(struct lrmoeStep *step, const void *x,
                                  int64_t xFirst,
                                  const struct lrmoeExchange *first) {
  struct lrmoeLayer *layer = step->layer;
  float *sent = NULL;
  float *received = NULL;
  LRMOE_CHECK(packX(step, x, xFirst));
  LRMOE_CHECK(packAlpha(step, &sent, &received));
  const struct lrmoeExchange exchanges[] = {
      *first,
      {(char *)layer->send.data + xFirst * layer->rowBytes, step->xOffsets,
       layer->movedX.data, step->xRecvOffsets, layer->rowBytes, 0},
      {sent, step->alphaOffsets, received, step->alphaRecvOffsets,
       sizeof(float), 0}};
  LRMOE_CHECK(
      lrmoeExchangeRun(layer->comm, exchanges, 3, &step->stats.rowBytes));
  placeAlpha(step, received);
  lrmoeMeterAdd(&step->meter,
                -step->xOffsets[step->plan->numRanks] * layer->rowBytes);
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

static lrmoeResult_t sendStaged(struct lrmoeStep *step, const void *x,
                                const void *g) {
  struct lrmoeLayer *layer = step->layer;
  LRMOE_CHECK(lrmoeCompactRoute(step));
  int64_t numRows = step->backOffsets[step->plan->numRanks];
  const struct lrmoeRows rows = {g, step->packTokens, layer->type,
                                 layer->hidden};
  layer->experts.kernels->gather(&rows, numRows, layer->type, layer->send.data);
  lrmoeMeterAdd(&step->meter,
                (numRows + step->handoff.numRows) * layer->rowBytes);
  const struct lrmoeExchange exchange = {
      layer->send.data,      step->backOffsets, layer->recv.data,
      step->backRecvOffsets, layer->rowBytes,   0};
  LRMOE_CHECK(exchangeRows(step, x, numRows, &exchange));
  lrmoeMeterAdd(&step->meter, -numRows * layer->rowBytes);
  step->handoff.g = layer->recv.data;
  return lrmoeSuccess;
}

static void pushG(struct lrmoeStep *step, const void *g) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeComm *comm = layer->comm;
  int64_t stride = lrmoeWindowStride(&layer->recv, comm->numRanks);
  for (int i = 0; i < comm->numRanks; i++) {
    int d = comm->targets[i];
    int64_t first = step->backOffsets[d];
    int64_t numRows = step->backOffsets[d + 1] - first;
    const struct lrmoeRows rows = {g, step->packTokens + first, layer->type,
                                   layer->hidden};
    layer->experts.kernels->gather(&rows, numRows, layer->type,
                                   (char *)layer->recv.peers[d] +
                                       comm->rank * stride * layer->rowBytes);
    if (d != comm->rank) step->stats.rowBytes += numRows * layer->rowBytes;
  }
}

/* From one sequence of rows to a stretch per source. */
static void spreadRows(struct lrmoeStep *step) {
  int64_t numRanks = step->plan->numRanks;
  int64_t stride = lrmoeWindowStride(&step->layer->recv, (int)numRanks);
  int64_t *gRow = (int64_t *)step->arrays[lrmoeArrayHandoffRows].data +
                  step->handoff.numPairs;
  for (int64_t list = 0; list < 2 * numRanks * step->numInstances; list++) {
    int64_t s = list % numRanks;
    for (int64_t i = step->keptSegments[list]; i < step->keptSegments[list + 1];
         i++)
      gRow[i] += s * stride - step->backRecvOffsets[s];
  }
  if (step->layer->routerGrad != lrmoeRouterGradExecutor) return;
  for (int64_t i = 0; i < numRanks * step->numInstances; i++) {
    const struct lrmoeSegment *segment = &step->segments[i];
    int64_t s = i / step->numInstances;
    for (int64_t p = segment->local; p < segment->local + segment->count; p++)
      step->allRows[p] += s * stride - step->backRecvOffsets[s];
  }
}

static lrmoeResult_t sendFused(struct lrmoeStep *step, const void *x,
                               const void *g) {
  struct lrmoeLayer *layer = step->layer;
  int numRanks = layer->comm->numRanks;
  LRMOE_CHECK(lrmoeCompactRoute(step));
  pushG(step, g);
  int64_t *counts = NULL; /* sent [G], received [G], 0 .. G */
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch2, 3 * (int64_t)numRanks + 1,
                            &counts));
  int64_t *each = counts + 2 * (int64_t)numRanks;
  for (int r = 0; r <= numRanks; r++)
    each[r] = r;
  for (int r = 0; r < numRanks; r++)
    counts[r] = step->backOffsets[r + 1] - step->backOffsets[r];
  const struct lrmoeExchange exchange = {
      counts, each, counts + numRanks, each, sizeof *counts, 0};
  LRMOE_CHECK(exchangeRows(step, x, 0, &exchange));
  for (int r = 0; r < numRanks; r++) {
    int64_t expected = step->backRecvOffsets[r + 1] - step->backRecvOffsets[r];
    if (counts[numRanks + r] != expected)
      return LRMOE_FAIL(lrmoeInvalidUsage,
                        "rank %d wrote %lld rows, %lld were expected", r,
                        (long long)counts[numRanks + r], (long long)expected);
  }
  spreadRows(step);
  lrmoeMeterAdd(&step->meter, step->handoff.numRows * layer->rowBytes);
  step->handoff.g = layer->recv.data;
  step->isFused = 1;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeAllToAllCompact(lrmoeStep_t step, const void *x,
                                   const void *g, lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeAllToAllCompact", lrmoeStepSelected,
                              lrmoeStepSelected, stream));
  LRMOE_CHECK(checkRows(step, x, g));
  int64_t start = lrmoeNow();
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, sendStaged(step, x, g)));
  step->stats.sendNs = lrmoeNow() - start;
  step->state = lrmoeStepSent;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeSelectPackSend(lrmoeStep_t step, const void *x,
                                  const void *g,
                                  const lrmoeBackwardConfig_t *config,
                                  lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeSelectPackSend", lrmoeStepCombined,
                              lrmoeStepCombined, stream));
  LRMOE_CHECK(checkRows(step, x, g));
  LRMOE_CHECK(lrmoeSelectBegin(step, g, config));
  int64_t start = lrmoeNow();
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, step->layer->recv.peers
                                                     ? sendFused(step, x, g)
                                                     : sendStaged(step, x, g)));
  step->stats.sendNs = lrmoeNow() - start;
  step->state = lrmoeStepSent;
  return lrmoeSuccess;
}
