/* Compaction (round B2): the rows of g that kept pairs need, to their
 * executors (paper 3.1, 3.4).
 *
 * Both ends work out from kept flags which rows cross, so no count is
 * exchanged: the source lists its rows by (executor, token), the executor finds
 * the same sequence among the rows that forward brought it.
 *
 * Staged: pack, then one exchange.  Fused: each row is written straight into
 * the executor's window, at a place of its own per source, and a message of
 * eight bytes says that they are there. */
#include "collectives/compact.h"

#include "collectives/route.h"

#include <string.h>

/* Wire rows of the source, a row per pair. */
static void routePairs(struct lrmoeStep *step) {
  int isMasked = step->config.wire == lrmoeWireMasked;
  int64_t numRows = 0;
  for (int32_t d = 0; d < step->plan->numRanks; d++) {
    for (int64_t i = step->sendOffsets[d]; i < step->sendOffsets[d + 1]; i++) {
      int64_t at = step->wire[i];
      int isKept = step->kept[step->sorted[at]];
      if (!isKept && !isMasked) continue;
      step->backTokens[numRows] = step->sortedTokens[at];
      step->packTokens[numRows++] = isKept ? step->sortedTokens[at] : -1;
    }
    step->backOffsets[d + 1] = numRows;
  }
}

/* Pairs that this rank gets d(alpha) of, by executor. */
static void countKept(struct lrmoeStep *step) {
  int isMasked = step->config.wire == lrmoeWireMasked;
  int64_t numKept = 0;
  step->keptOffsets[0] = 0;
  for (int32_t d = 0; d < step->plan->numRanks; d++) {
    for (int64_t i = step->sendOffsets[d]; i < step->sendOffsets[d + 1]; i++)
      numKept += isMasked || step->kept[step->sorted[step->wire[i]]];
    step->keptOffsets[d + 1] = numKept;
  }
}

static lrmoeResult_t routeSource(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  int isDedup = step->config.wire == lrmoeWireDedup;
  int64_t perToken = step->layer->topk;
  if (isDedup && numRanks < perToken) perToken = numRanks;
  int64_t maxRows = step->numTokens * perToken;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayBackTokens, maxRows, &step->backTokens));
  step->packTokens = step->backTokens;
  step->backOffsets[0] = 0;
  countKept(step);
  if (isDedup) {
    const struct lrmoeRowRoute route = {step->kept, step->backOffsets,
                                        step->backTokens, NULL};
    LRMOE_CHECK(lrmoeRouteRows(step, &route));
  } else {
    LRMOE_CHECK(
        LRMOE_RESERVE(step, lrmoeArrayPackTokens, maxRows, &step->packTokens));
    routePairs(step);
  }
  int64_t numRows = step->backOffsets[numRanks];
  lrmoeMeterAdd(&step->meter,
                numRows * (int64_t)sizeof(int64_t) * (isDedup ? 1 : 2));
  return lrmoeSuccess;
}

/* Executor, a row per (token, rank): place of each forward row among those
 * that come again, -1 if it does not. */
static lrmoeResult_t routeRowsIn(struct lrmoeStep *step, int64_t **places) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numRows = step->recvRowOffsets[numRanks];
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch, numRows, places));
  for (int64_t r = 0; r < numRows; r++)
    (*places)[r] = -1;
  for (int64_t p = 0; p < numLocal; p++)
    if (step->keptLocal[p]) (*places)[step->xRow[p]] = 0;
  int64_t numBack = 0;
  for (int32_t s = 0; s < numRanks; s++) {
    step->backRecvOffsets[s] = numBack;
    for (int64_t r = step->recvRowOffsets[s]; r < step->recvRowOffsets[s + 1];
         r++)
      if ((*places)[r] == 0) (*places)[r] = numBack++;
  }
  step->backRecvOffsets[numRanks] = numBack;
  lrmoeMeterAdd(&step->meter, numRows * (int64_t)sizeof(int64_t));
  return lrmoeSuccess;
}

/* First handoff row of every (instance, source), and what follows from it. */
static lrmoeResult_t layOutHandoff(struct lrmoeStep *step) {
  int64_t numRanks = step->plan->numRanks;
  int64_t numInstances = step->numInstances;
  int isMasked = step->config.wire == lrmoeWireMasked;
  int64_t *offsets = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayHandoffOffsets, numInstances + 1,
                            &offsets));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayKeptSegments,
                            numRanks * numInstances + 1, &step->keptSegments));
  int64_t numKept = 0;
  memset(step->keptRecvOffsets, 0,
         (size_t)(numRanks + 1) * sizeof *step->keptRecvOffsets);
  for (int64_t j = 0; j < numInstances; j++) {
    offsets[j] = numKept;
    for (int64_t s = 0; s < numRanks; s++) {
      const struct lrmoeSegment *segment =
          &step->segments[s * numInstances + j];
      step->keptSegments[j * numRanks + s] = numKept;
      int64_t before = numKept;
      for (int64_t i = 0; i < segment->count; i++)
        numKept += isMasked || step->keptLocal[segment->local + i];
      step->keptRecvOffsets[s + 1] += numKept - before;
    }
  }
  offsets[numInstances] = numKept;
  step->keptSegments[numRanks * numInstances] = numKept;
  for (int64_t s = 0; s < numRanks; s++)
    step->keptRecvOffsets[s + 1] += step->keptRecvOffsets[s];
  step->handoff.offsets = offsets;
  step->handoff.numPairs = numKept;
  step->handoff.numInstances = numInstances;
  return lrmoeSuccess;
}

static lrmoeResult_t reserveHandoff(struct lrmoeStep *step, int64_t **rows) {
  lrmoeHandoff_t *handoff = &step->handoff;
  int64_t numKept = handoff->numPairs;
  int64_t *stayed = NULL;
  int32_t *experts = NULL;
  float *weights = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayHandoffStayed, step->numInstances,
                            &stayed));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayHandoffExperts, step->numInstances,
                            &experts));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayHandoffRows, 4 * numKept, rows));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayHandoffWeights, numKept, &weights));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayDAlpha, numKept, &step->dAlpha));
  for (int32_t j = 0; j < step->numInstances; j++) {
    stayed[j] = handoff->offsets[j + 1] - handoff->offsets[j];
    experts[j] = lrmoeStepExpert(step, j);
  }
  handoff->stayed = stayed;
  handoff->experts = experts;
  handoff->weights = weights;
  handoff->fwdRow = *rows;
  handoff->gRow = *rows + numKept;
  handoff->xRow = *rows + 2 * numKept;
  handoff->x = step->xRows;
  step->dxRow = *rows + 3 * numKept;
  lrmoeMeterAdd(&step->meter,
                numKept * (int64_t)(4 * sizeof(int64_t) + 2 * sizeof(float)));
  return lrmoeSuccess;
}

/* Fills the handoff rows of one (instance, source).  places NULL: a row per
 * pair, whose number begins at wireRow. */
static int64_t fillSegment(struct lrmoeStep *step, int32_t j, int32_t s,
                           const int64_t *places, int64_t wireRow) {
  const struct lrmoeSegment *segment =
      &step->segments[(int64_t)s * step->numInstances + j];
  int isMasked = step->config.wire == lrmoeWireMasked;
  int64_t row = step->keptSegments[(int64_t)j * step->plan->numRanks + s];
  int64_t numKept = step->handoff.numPairs;
  int64_t *fwdRow = step->arrays[lrmoeArrayHandoffRows].data;
  float *weights = step->arrays[lrmoeArrayHandoffWeights].data;
  for (int64_t i = 0; i < segment->count; i++) {
    int64_t p = segment->local + i;
    if (!isMasked && !step->keptLocal[p]) continue;
    fwdRow[row] = p;
    fwdRow[numKept + row] = places ? places[step->xRow[p]] : wireRow;
    fwdRow[2 * numKept + row] = step->xRow[p];
    step->dxRow[row] = fwdRow[numKept + row];
    weights[row] = step->alpha[p];
    row++;
    wireRow++;
  }
  return wireRow;
}

static lrmoeResult_t compactRoute(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  step->handoff = (lrmoeHandoff_t)LRMOE_HANDOFF_INITIALIZER;
  LRMOE_CHECK(routeSource(step));
  LRMOE_CHECK(layOutHandoff(step));
  int64_t *rows = NULL;
  LRMOE_CHECK(reserveHandoff(step, &rows));
  int64_t *places = NULL;
  if (step->config.wire == lrmoeWireDedup)
    LRMOE_CHECK(routeRowsIn(step, &places));
  else
    memcpy(step->backRecvOffsets, step->keptRecvOffsets,
           (size_t)(numRanks + 1) * sizeof *step->backRecvOffsets);
  for (int32_t s = 0; s < numRanks; s++) {
    int64_t wireRow = step->backRecvOffsets[s];
    for (int32_t j = 0; j < step->numInstances; j++)
      wireRow = fillSegment(step, j, s, places, wireRow);
  }
  step->handoff.numRows = step->backRecvOffsets[numRanks];
  return lrmoeSuccess;
}

static lrmoeResult_t sendStaged(struct lrmoeStep *step, const void *g) {
  struct lrmoeLayer *layer = step->layer;
  int32_t numRanks = step->plan->numRanks;
  LRMOE_CHECK(compactRoute(step));
  int64_t numRows = step->backOffsets[numRanks];
  const struct lrmoeRows rows = {g, step->packTokens, layer->type,
                                 layer->hidden};
  layer->experts.kernels->gather(&rows, numRows, layer->type, layer->send.data);
  lrmoeMeterAdd(&step->meter,
                (numRows + step->handoff.numRows) * layer->rowBytes);
  const struct lrmoeExchange exchange = {
      layer->send.data,      step->backOffsets, layer->recv.data,
      step->backRecvOffsets, layer->rowBytes,   0};
  LRMOE_CHECK(
      lrmoeExchangeRun(layer->comm, &exchange, 1, &step->stats.rowBytes));
  lrmoeMeterAdd(&step->meter, -numRows * layer->rowBytes);
  step->handoff.g = layer->recv.data;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeAllToAllCompact(lrmoeStep_t step, const void *g,
                                   lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeAllToAllCompact", lrmoeStepSelected,
                              lrmoeStepSelected, stream));
  LRMOE_REQUIRE(g || !step->numTokens, "g is NULL");
  int64_t start = lrmoeNow();
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, sendStaged(step, g)));
  step->stats.sendNs = lrmoeNow() - start;
  step->state = lrmoeStepSent;
  return lrmoeSuccess;
}

/* Rows that one source may write into an executor's window. */
int64_t lrmoeWindowStride(const struct lrmoeRegion *region, int numRanks) {
  return region->numRows / numRanks;
}

static lrmoeResult_t sendFused(struct lrmoeStep *step, const void *g) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeComm *comm = layer->comm;
  int64_t stride = lrmoeWindowStride(&layer->recv, comm->numRanks);
  LRMOE_CHECK(compactRoute(step));
  for (int i = 0; i < comm->numRanks; i++) {
    int d = (comm->rank + i) % comm->numRanks;
    int64_t first = step->backOffsets[d];
    const struct lrmoeRows rows = {g, step->packTokens + first, layer->type,
                                   layer->hidden};
    int64_t numRows = step->backOffsets[d + 1] - first;
    layer->experts.kernels->gather(&rows, numRows, layer->type,
                                   (char *)layer->recv.peers[d] +
                                       comm->rank * stride * layer->rowBytes);
    if (d != comm->rank) step->stats.rowBytes += numRows * layer->rowBytes;
  }
  LRMOE_CHECK(
      lrmoeCompactArrived(step, step->backOffsets, step->backRecvOffsets));
  /* From one sequence to a stretch per source. */
  int64_t *gRow = (int64_t *)step->arrays[lrmoeArrayHandoffRows].data +
                  step->handoff.numPairs;
  for (int32_t j = 0; j < step->numInstances; j++)
    for (int s = 0; s < comm->numRanks; s++)
      for (int64_t i = step->keptSegments[j * comm->numRanks + s];
           i < step->keptSegments[j * comm->numRanks + s + 1]; i++)
        gRow[i] += s * stride - step->backRecvOffsets[s];
  lrmoeMeterAdd(&step->meter, step->handoff.numRows * layer->rowBytes);
  step->handoff.g = layer->recv.data;
  step->isFused = 1;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCompactArrived(struct lrmoeStep *step, const int64_t *sent,
                                  const int64_t *expected) {
  struct lrmoeComm *comm = step->layer->comm;
  int numRanks = comm->numRanks;
  int64_t *counts = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch2, 2 * (int64_t)numRanks, &counts));
  for (int r = 0; r < numRanks; r++)
    counts[r] = sent[r + 1] - sent[r];
  LRMOE_CHECK(comm->transport->allToAll(counts, counts + numRanks, 1,
                                        lrmoeInt64, comm->nccl, NULL));
  for (int r = 0; r < numRanks; r++)
    if (counts[numRanks + r] != expected[r + 1] - expected[r])
      return LRMOE_FAIL(lrmoeInvalidUsage,
                        "rank %d wrote %lld rows, %lld were expected", r,
                        (long long)counts[numRanks + r],
                        (long long)(expected[r + 1] - expected[r]));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeSelectPackSend(lrmoeStep_t step, const void *g,
                                  const lrmoeBackwardConfig_t *config,
                                  lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeSelectPackSend", lrmoeStepCombined,
                              lrmoeStepCombined, stream));
  LRMOE_CHECK(lrmoeSelectBegin(step, g, config));
  int64_t start = lrmoeNow();
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, step->layer->recv.peers
                                                     ? sendFused(step, g)
                                                     : sendStaged(step, g)));
  step->stats.sendNs = lrmoeNow() - start;
  step->state = lrmoeStepSent;
  return lrmoeSuccess;
}
