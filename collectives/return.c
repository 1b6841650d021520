/* Return (round B3): input gradients and d(alpha) home.
 *
 * The executor adds the rows of dx of one token, instances ascending, and the
 * source adds the ranks' rows in rank order, both in fp32 and rounded once;
 * relays of nodes (node.h) add and round between.  A token of which nothing was
 * kept gets exact zeros (paper 3.1: "zeros are restored only before the next
 * dense layer").  A pair with a non-finite score that had to be dropped makes
 * its token NaN: an overflow must reach the loss scaler (design invariant
 * 8). */
#include "collectives/alpha.h"
#include "collectives/compact.h"
#include "collectives/device_route.h"
#include "collectives/fused.h"
#include "collectives/gradients.h"
#include "collectives/node.h"
#include "collectives/replica.h"
#include "collectives/route.h"
#include "collectives/span.h"
#include "kernels/select.h"

#include <string.h>

/* Executor: d(alpha) from handoff into wire order, by (source, instance, stayed
 * or moved), and room for those of this rank's pairs. */
static lrmoeResult_t packDAlpha(struct lrmoeStep *step, float **send,
                                float **recv) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numKept = step->handoff.numPairs;
  int64_t bytes =
      (numKept + step->keptOffsets[numRanks]) * (int64_t)sizeof(float);
  struct lrmoeWords words;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockWords, bytes, send));
  *recv = *send + numKept;
  LRMOE_CHECK(lrmoeCompactWords(step, 0, &words));
  const struct lrmoePieces pieces = {
      words.numPieces, words.maxWords, words.handoff, words.wire,
      words.counts,    step->dAlpha,   *send};
  LRMOE_RUN(step->layer->backend, copyPieces, &pieces, step->stream);
  return lrmoeSuccess;
}

/* Source: all pairs in wire order; device. */
static lrmoeResult_t listAll(struct lrmoeStep *step, int64_t **device) {
  int64_t count = step->numPairs;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockIndices,
                                    count * (int64_t)sizeof **device, device));
  LRMOE_RUN(step->layer->backend, gatherIndices, count, step->device.wire,
            step->device.sorted, *device, step->stream);
  return lrmoeSuccess;
}

/* Whether words of all forward pairs come home, dropped ones too: how many
 * these are the host knows. */
static int comeAll(const struct lrmoeStep *step) {
  return step->layer->routerGrad == lrmoeRouterGradExecutor ||
         step->route.isDeferred;
}

/* Source: pairs in the order in which their d(alpha) comes; device. */
static lrmoeResult_t listDAlpha(struct lrmoeStep *step, int64_t **device,
                                int64_t *count) {
  int isAll = comeAll(step);
  int64_t *pairs = NULL;
  *count = isAll ? step->numPairs : step->keptOffsets[step->plan->numRanks];
  if (isAll) return listAll(step, device);
  if (step->route.flags) return lrmoeDeviceRoutePairs(step, device);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWordsIn, *count, &pairs));
  for (int64_t i = 0; i < *count; i++)
    pairs[i] = step->sorted[step->keptWire[i]];
  return LRMOE_UPLOAD(step, lrmoeArrayWordsIn, *count, pairs, device);
}

/* Source: d(alpha) from wire order to the pairs. */
static lrmoeResult_t unpackDAlpha(struct lrmoeStep *step, const float *recv,
                                  float *dWeights) {
  const struct lrmoeBackend *backend = step->layer->backend;
  size_t bytes =
      (size_t)(step->numTokens * step->layer->topk) * sizeof *dWeights;
  if (!dWeights) return lrmoeSuccess;
  if (step->layer->routerGrad == lrmoeRouterGradOwner) {
    LRMOE_RUN(backend, copy, dWeights, step->exactAlpha, bytes, lrmoeCopyWithin,
              step->stream);
    return lrmoeSuccess;
  }
  int64_t *device = NULL;
  int64_t count = 0;
  LRMOE_CHECK(listDAlpha(step, &device, &count));
  LRMOE_RUN(backend, clear, dWeights, bytes, step->stream);
  LRMOE_RUN(backend, scatterWords, count, device, recv, dWeights, step->stream);
  return lrmoeSuccess;
}

/* Executor: its sums straight into the sources' windows. */
static lrmoeResult_t pushSums(struct lrmoeStep *step, struct lrmoeSums *sums) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeComm *comm = layer->comm;
  int64_t stride = lrmoeWindowStride(&layer->back, comm->numRanks);
  for (int i = 0; i < comm->numRanks; i++) {
    int s = comm->targets[i];
    sums->first = step->backRecvOffsets[s];
    sums->last = step->backRecvOffsets[s + 1];
    LRMOE_CHECK(lrmoeSumListed(step, sums, layer->pairRows.data, NULL,
                               (char *)layer->back.peers[s] +
                                   comm->rank * stride * layer->rowBytes));
    if (s != comm->rank)
      step->stats.returnBytes += (sums->last - sums->first) * layer->rowBytes;
  }
  return lrmoeSuccess;
}

/* Source: from rows in one sequence to where they were pushed, a stretch per
 * executor. */
static lrmoeResult_t spreadList(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  int64_t stride = lrmoeWindowStride(&step->layer->back, numRanks);
  if (step->route.flags) return lrmoeDeviceRouteTokens(step, stride);
  int64_t numRows = step->backOffsets[numRanks];
  int64_t *list = step->tokenLists + step->numTokens + 1;
  int64_t *places = NULL;
  int64_t *device = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWordsOut, numRows, &places));
  for (int32_t d = 0; d < numRanks; d++)
    for (int64_t i = step->backOffsets[d]; i < step->backOffsets[d + 1]; i++)
      places[i] = i + d * stride - step->backOffsets[d];
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayWordsOut, numRows, places, &device));
  LRMOE_RUN(step->layer->backend, gatherIndices, numRows, list, device, list,
            step->stream);
  return lrmoeSuccess;
}

/* Source: adds the rows of each token. */
static lrmoeResult_t addRows(struct lrmoeStep *step, int isPushed, void *dx) {
  int64_t numTokens = step->numTokens;
  if (!step->tokenLists) LRMOE_CHECK(lrmoeCompactTokenLists(step));
  if (isPushed) LRMOE_CHECK(spreadList(step));
  const struct lrmoeSums sums = {step->tokenLists, numTokens, 0, numTokens};
  return lrmoeSumListed(step, &sums, step->layer->back.data, NULL, dx);
}

/* Tokens of the pairs that are dropped though their score is not finite. */
static lrmoeResult_t listNonFinite(struct lrmoeStep *step, int64_t **tokens,
                                   int64_t *count) {
  uint8_t *isListed = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch, step->numTokens, &isListed));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWordsOut,
                            step->stats.nonFiniteDropped, tokens));
  memset(isListed, 0, (size_t)step->numTokens);
  *count = 0;
  for (int64_t i = 0; i < step->numPairs; i++) {
    int64_t token = step->sortedTokens[i];
    if (step->keys[i] != LRMOE_KEY_NON_FINITE || step->kept[step->sorted[i]] ||
        isListed[token])
      continue;
    isListed[token] = 1;
    (*tokens)[(*count)++] = token;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t markNonFinite(struct lrmoeStep *step, void *dx) {
  struct lrmoeLayer *layer = step->layer;
  int64_t *tokens = NULL;
  int64_t *device = NULL;
  int64_t count = 0;
  if (step->route.flags) return lrmoeDeviceRouteSpoil(step, dx);
  if (!step->stats.nonFiniteDropped) return lrmoeSuccess;
  LRMOE_CHECK(listNonFinite(step, &tokens, &count));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayWordsOut, count, tokens, &device));
  LRMOE_RUN(layer->backend, spoilRows, count, device, layer->rowBytes, dx,
            step->stream);
  return lrmoeSuccess;
}

/* Executor: its pairs' rows of dx as sums, in the sources' windows or in the
 * send region. */
static lrmoeResult_t giveSums(struct lrmoeStep *step, int isPushed) {
  struct lrmoeLayer *layer = step->layer;
  const lrmoeHandoff_t *handoff = &step->handoff;
  const struct lrmoeLists lists = {lrmoeBlockRowLists, handoff->numPairs,
                                   step->deviceDxRow, handoff->numRows};
  int64_t *offsets = NULL;
  LRMOE_CHECK(lrmoeListsMake(step, &lists, &offsets));
  struct lrmoeSums sums = {offsets, lists.numOut, 0, lists.numOut};
  if (isPushed && layer->fused) return lrmoeFusedPutSums(step, &sums);
  if (isPushed) return pushSums(step, &sums);
  lrmoeMeterAdd(&step->meter, handoff->numRows * layer->rowBytes);
  return lrmoeSumListed(step, &sums, layer->pairRows.data, NULL,
                        layer->send.data);
}

/* Executor: d(alpha) that goes home, and room for what comes. */
static lrmoeResult_t giveDAlpha(struct lrmoeStep *step, float **send,
                                float **recv) {
  if (step->layer->routerGrad == lrmoeRouterGradExecutor)
    return lrmoeAlphaExecutor(step, send, recv);
  if (step->route.isDeferred) return lrmoeDeviceRouteDAlpha(step, send, recv);
  return packDAlpha(step, send, recv);
}

static lrmoeResult_t returnRows(struct lrmoeStep *step, void *dx,
                                float *dWeights) {
  struct lrmoeLayer *layer = step->layer;
  int32_t numRanks = step->plan->numRanks;
  int isPushed = step->isFused && step->config.wire == lrmoeWireDedup &&
                 (layer->back.peers || layer->fused);
  int isRelayed = lrmoeNodeIsUsed(layer, step->config.wire);
  int isAll = comeAll(step);
  float *sent = NULL;
  float *received = NULL;
  LRMOE_CHECK(giveDAlpha(step, &sent, &received));
  LRMOE_CHECK(giveSums(step, isPushed));
  lrmoeMeterAdd(&step->meter, step->backOffsets[numRanks] * layer->rowBytes);
  const struct lrmoeExchange exchanges[] = {
      {sent, isAll ? step->recvOffsets : step->keptRecvOffsets, received,
       isAll ? step->sendOffsets : step->keptOffsets, sizeof(float), 0},
      {layer->send.data, step->backRecvOffsets, layer->back.data,
       step->backOffsets, layer->rowBytes, 0}};
  LRMOE_CHECK(lrmoeExchangeRun(layer->comm, exchanges,
                               isPushed || isRelayed ? 1 : 2, step->stream,
                               &step->stats.returnBytes));
  const struct lrmoeWay way = {step->backOffsets,     step->backTokens,
                               step->backRecvOffsets, layer->back.data,
                               layer->send.data,      lrmoeRelayRows};
  if (isRelayed)
    LRMOE_CHECK(lrmoeNodeReturn(step, &way, &step->stats.returnBytes));
  LRMOE_CHECK(unpackDAlpha(step, received, dWeights));
  LRMOE_CHECK(addRows(step, isPushed, dx));
  LRMOE_CHECK(markNonFinite(step, dx));
  step->stats.workspaceBytes = step->meter.peak;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeReturn(lrmoeStep_t step, void *dx, float *dWeights,
                          lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeReturn", lrmoeStepSent,
                              lrmoeStepExecuted, stream));
  LRMOE_SPAN_ON(step->layer->comm, "lrmoeReturn", stream);
  LRMOE_REQUIRE(dx || !step->numTokens, "dx is NULL");
  if (step->numPut != step->handoff.numPairs)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeReturn: dx of %lld of %lld handoff rows was given",
                      (long long)step->numPut,
                      (long long)step->handoff.numPairs);
  int64_t start = lrmoeNowNs();
  lrmoeResult_t result = returnRows(step, dx, dWeights);
  lrmoeResult_t ended = lrmoeGradientsEnd(step->layer, stream);
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm,
                              result != lrmoeSuccess ? result : ended));
  step->stats.returnNs = lrmoeNowNs() - start;
  lrmoeReplicasRelease(step);
  step->layer->active = NULL;
  step->state = lrmoeStepCombined;
  return lrmoeSuccess;
}
