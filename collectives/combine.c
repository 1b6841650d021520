/* Expert forward and combine (round F2).
 *
 * The executor adds the rows alpha * expert(x) of all its pairs of one token in
 * instance order; the source adds the ranks' rows in rank order; sums are fp32
 * and rounded once.  With forwardWire node relays add and round between, unless
 * rows of pairs come home (router gradient owner), which go straight.  |phi| of
 * every pair goes home beside the rows: 4 bytes a pair that save the executor
 * from keeping phi, and let the source score alone in backward (paper 3.2). */
#include "collectives/alpha.h"
#include "collectives/dispatch.h"
#include "collectives/replica.h"
#include "collectives/route.h"
#include "collectives/span.h"

#include <string.h>

/* What the experts keep for backward, and where their rows go. */
static lrmoeResult_t openForward(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  int64_t savedBytes = lrmoeLayerSavedBytes(layer);
  step->saved = NULL;
  if (layer->savedState == lrmoeSavedFull)
    LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockSaved,
                                      numLocal * savedBytes, &step->saved));
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockPhiLocal,
                                    numLocal * (int64_t)sizeof(float),
                                    &step->phiLocal));
  return lrmoeBlockReserve(layer->backend, (size_t)(numLocal * layer->rowBytes),
                           step->stream, &layer->pairRows);
}

static lrmoeResult_t expertForward(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  int64_t savedBytes = lrmoeLayerSavedBytes(layer);
  struct lrmoeExpertForward *runs = NULL;
  LRMOE_CHECK(openForward(step));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayRuns, step->numInstances, &runs));
  for (int32_t j = 0; j < step->numInstances; j++) {
    int64_t first = step->instanceOffsets[j];
    runs[j] = (struct lrmoeExpertForward){
        .weights = lrmoeStepWeights(step, j),
        .numRows = step->instanceOffsets[j + 1] - first,
        .x = {step->xRows, step->device.xRow + first, layer->type,
              layer->hidden},
        .alpha = step->device.alpha + first,
        .saved = step->saved ? (char *)step->saved + first * savedBytes : NULL,
        .phiNorm = step->phiLocal + first,
        .y = (char *)layer->pairRows.data + first * layer->rowBytes,
        .isUnscaled = layer->routerGrad == lrmoeRouterGradOwner,
    };
  }
  LRMOE_RUN(layer->backend, expertForward, layer->experts, step->numInstances,
            runs, step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertForward(lrmoeStep_t step, lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeExpertForward", lrmoeStepDispatched,
                              lrmoeStepDispatched, stream));
  LRMOE_SPAN_ON(step->layer->comm, "lrmoeExpertForward", stream);
  if (!step->layer->isBound)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeExpertForward: lrmoeLayerBind must come before");
  LRMOE_CHECK(expertForward(step));
  step->version = step->layer->version;
  step->layer->active = step; /* its sums wait for combine */
  step->state = lrmoeStepComputed;
  return lrmoeSuccess;
}

/* |phi| into wire order, and room for those that come home. */
static lrmoeResult_t packNorms(struct lrmoeStep *step, float **send,
                               float **recv) {
  int64_t numLocal = step->recvOffsets[step->plan->numRanks];
  int64_t bytes = (numLocal + step->numPairs) * (int64_t)sizeof(float);
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockWords, bytes, send));
  *recv = *send + numLocal;
  LRMOE_RUN(step->layer->backend, gatherWords, numLocal,
            step->device.wirePlaces, step->phiLocal, *send, step->stream);
  return lrmoeSuccess;
}

/* What came home, into sorted order. */
static lrmoeResult_t takeNorms(struct lrmoeStep *step, const float *norms) {
  int64_t bytes = step->numPairs * (int64_t)sizeof(float);
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockPhiSorted, bytes,
                                    &step->phiSorted));
  LRMOE_RUN(step->layer->backend, scatterWords, step->numPairs,
            step->device.wire, norms, step->phiSorted, step->stream);
  return lrmoeSuccess;
}

/* Sends rows, NULL for none, and the norms home. */
static lrmoeResult_t sendHome(struct lrmoeStep *step,
                              const struct lrmoeExchange *rows) {
  float *normsSent = NULL;
  float *norms = NULL;
  LRMOE_CHECK(packNorms(step, &normsSent, &norms));
  struct lrmoeExchange exchanges[2] = {{normsSent, step->recvOffsets, norms,
                                        step->sendOffsets, sizeof(float), 0}};
  if (rows) exchanges[1] = *rows;
  LRMOE_CHECK(lrmoeExchangeRun(step->layer->comm, exchanges, rows ? 2 : 1,
                               step->stream, NULL));
  return takeNorms(step, norms);
}

/* A row per pair, which the source weighs, adds and keeps. */
static lrmoeResult_t combinePairs(struct lrmoeStep *step, void *y) {
  struct lrmoeLayer *layer = step->layer;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockOwnerRows,
                                    step->numPairs * layer->rowBytes,
                                    &step->ownerRows));
  const struct lrmoeGather pack = {{layer->pairRows.data,
                                    step->device.wirePlaces, layer->type,
                                    layer->hidden},
                                   step->recvOffsets[step->plan->numRanks],
                                   layer->type,
                                   layer->send.data};
  LRMOE_RUN(layer->backend, gather, &pack, step->stream);
  const struct lrmoeExchange rows = {layer->send.data, step->recvOffsets,
                                     step->ownerRows,  step->sendOffsets,
                                     layer->rowBytes,  0};
  LRMOE_CHECK(sendHome(step, &rows));
  return lrmoeAlphaCombine(step, y);
}

/* The executors' sums home, by relays or each by itself. */
static lrmoeResult_t sendSums(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoeExchange rows = {layer->send.data, step->recvRowOffsets,
                                     layer->back.data, step->outOffsets,
                                     layer->rowBytes,  0};
  if (!lrmoeNodeIsUsed(layer, layer->forwardWire)) return sendHome(step, &rows);
  struct lrmoeWay way = lrmoeDispatchWay(step);
  int64_t bytes = 0; /* no figure of the stats */
  way.sourceRows = layer->back.data;
  way.executorRows = layer->send.data;
  LRMOE_CHECK(sendHome(step, NULL));
  return lrmoeNodeReturn(step, &way, &bytes);
}

/* A row per (token, rank), which the source adds; relays add theirs before. */
static lrmoeResult_t combine(struct lrmoeStep *step, void *y) {
  struct lrmoeLayer *layer = step->layer;
  int32_t numRanks = step->plan->numRanks;
  const struct lrmoeLists executor = {
      lrmoeBlockRowLists, step->instanceOffsets[step->numInstances],
      step->device.xRow, step->recvRowOffsets[numRanks]};
  const struct lrmoeLists source = {lrmoeBlockTokenLists,
                                    step->outOffsets[numRanks],
                                    step->device.rowTokens, step->numTokens};
  LRMOE_CHECK(lrmoeSumRows(step, &executor, layer->pairRows.data, NULL,
                           layer->send.data));
  LRMOE_CHECK(sendSums(step));
  return lrmoeSumRows(step, &source, layer->back.data, NULL, y);
}

lrmoeResult_t lrmoeCombine(lrmoeStep_t step, void *y, lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeCombine", lrmoeStepComputed,
                              lrmoeStepComputed, stream));
  LRMOE_SPAN_ON(step->layer->comm, "lrmoeCombine", stream);
  LRMOE_REQUIRE(y || !step->numTokens, "y is NULL");
  if (step->layer->active != step)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeCombine: another step of the layer has used its "
                      "buffers since lrmoeExpertForward");
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm,
                              step->layer->routerGrad == lrmoeRouterGradOwner
                                  ? combinePairs(step, y)
                                  : combine(step, y)));
  lrmoeReplicasRelease(step);
  if (step->layer->savedState == lrmoeSavedNone) step->xRows = NULL;
  step->layer->active = NULL;
  step->state = lrmoeStepCombined;
  return lrmoeSuccess;
}
