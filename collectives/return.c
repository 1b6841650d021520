/* Return (round B3): input gradients and d(alpha) home.
 *
 * The source adds the ranks' rows of a token in rank order, in fp32, and rounds
 * once; a token of which nothing was kept gets exact zeros (paper 3.1: "zeros
 * are restored only before the next dense layer").  A pair with a non-finite
 * score that had to be dropped makes its token NaN: an overflow must reach the
 * loss scaler (design invariant 8). */
#include "collectives/alpha.h"
#include "collectives/compact.h"
#include "collectives/replica.h"
#include "collectives/route.h"
#include "kernels/select.h"

#include <string.h>

/* Executor: d(alpha) from handoff into wire order. */
static lrmoeResult_t packDAlpha(struct lrmoeStep *step, float **send,
                                float **recv) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numKept = step->handoff.numPairs;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch2,
                            numKept + step->keptOffsets[numRanks], send));
  *recv = *send + numKept;
  float *at = *send;
  for (int64_t s = 0; s < numRanks; s++) {
    for (int64_t j = 0; j < 2 * (int64_t)step->numInstances; j++) {
      const int64_t *list = &step->keptSegments[j * numRanks + s];
      memcpy(at, step->dAlpha + list[0],
             (size_t)(list[1] - list[0]) * sizeof *at);
      at += list[1] - list[0];
    }
  }
  return lrmoeSuccess;
}

/* Source: d(alpha) from wire order to the pairs. */
static void unpackDAlpha(const struct lrmoeStep *step, const float *recv,
                         float *dWeights) {
  int64_t numSlots = step->numTokens * step->layer->topk;
  if (!dWeights || !numSlots) return;
  memset(dWeights, 0, (size_t)numSlots * sizeof *dWeights);
  switch (step->layer->routerGrad) {
  case lrmoeRouterGradOwner:
    memcpy(dWeights, step->exactAlpha, (size_t)numSlots * sizeof *dWeights);
    break;
  case lrmoeRouterGradExecutor:
    for (int64_t i = 0; i < step->numPairs; i++)
      dWeights[step->sorted[step->wire[i]]] = recv[i];
    break;
  default:
    for (int64_t i = 0; i < step->keptOffsets[step->plan->numRanks]; i++)
      dWeights[step->sorted[step->keptWire[i]]] = recv[i];
    break;
  }
}

/* Executor: rounds its sums into `out`, rows [first, last). */
static void roundSums(struct lrmoeStep *step, int64_t first, int64_t last,
                      void *out) {
  struct lrmoeLayer *layer = step->layer;
  if (first == last) return; /* the sums may not exist */
  const struct lrmoeRows rows = {(const float *)layer->sums.data +
                                     first * layer->hidden,
                                 NULL, lrmoeFloat32, layer->hidden};
  layer->experts.kernels->gather(&rows, last - first, layer->type, out);
}

/* Executor: rounds its sums straight into the sources' windows. */
static void pushSums(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeComm *comm = layer->comm;
  int64_t stride = lrmoeWindowStride(&layer->back, comm->numRanks);
  for (int i = 0; i < comm->numRanks; i++) {
    int s = comm->targets[i];
    int64_t first = step->backRecvOffsets[s];
    int64_t last = step->backRecvOffsets[s + 1];
    roundSums(step, first, last,
              (char *)layer->back.peers[s] +
                  comm->rank * stride * layer->rowBytes);
    if (s != comm->rank)
      step->stats.returnBytes += (last - first) * layer->rowBytes;
  }
}

/* Source: adds the rows of each token.  List entries point into the window
 * where the rows were pushed, or into one sequence. */
static lrmoeResult_t addRows(struct lrmoeStep *step, int isPushed, void *dx) {
  struct lrmoeLayer *layer = step->layer;
  int32_t numRanks = step->plan->numRanks;
  int64_t numRows = step->backOffsets[numRanks];
  int64_t *offsets = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch,
                            step->numTokens + 1 + numRows, &offsets));
  int64_t *list = offsets + step->numTokens + 1;
  lrmoeRouteInvert(numRows, step->backTokens, step->numTokens, offsets, list);
  if (isPushed) {
    int64_t stride = lrmoeWindowStride(&layer->back, numRanks);
    for (int64_t i = 0; i < numRows; i++) {
      int32_t d = 0;
      while (list[i] >= step->backOffsets[d + 1])
        d++;
      list[i] += d * stride - step->backOffsets[d];
    }
  }
  const struct lrmoeRows rows = {layer->back.data, NULL, layer->type,
                                 layer->hidden};
  layer->experts.kernels->gatherSum(&rows, step->numTokens, offsets, list, dx);
  return lrmoeSuccess;
}

static void markNonFinite(const struct lrmoeStep *step, void *dx) {
  if (!step->stats.nonFiniteDropped) return;
  struct lrmoeLayer *layer = step->layer;
  for (int64_t i = 0; i < step->numPairs; i++) {
    if (step->keys[i] != LRMOE_KEY_NON_FINITE || step->kept[step->sorted[i]])
      continue;
    /* All bits set is a NaN in every floating-point type. */
    memset((char *)dx + step->sortedTokens[i] * layer->rowBytes, 0xff,
           (size_t)layer->rowBytes);
  }
}

static lrmoeResult_t returnRows(struct lrmoeStep *step, void *dx,
                                float *dWeights) {
  struct lrmoeLayer *layer = step->layer;
  int32_t numRanks = step->plan->numRanks;
  int isDedup = step->config.wire == lrmoeWireDedup;
  int isPushed = step->isFused && isDedup && layer->back.peers;
  int isExact = layer->routerGrad == lrmoeRouterGradExecutor;
  float *sent = NULL;
  float *received = NULL;
  if (isExact)
    LRMOE_CHECK(lrmoeAlphaExecutor(step, &sent, &received));
  else
    LRMOE_CHECK(packDAlpha(step, &sent, &received));
  if (isPushed)
    pushSums(step);
  else if (isDedup)
    roundSums(step, 0, step->handoff.numRows, layer->send.data);
  int64_t numBack = step->backOffsets[numRanks];
  lrmoeMeterAdd(&step->meter, numBack * layer->rowBytes);
  if (isDedup && !isPushed)
    lrmoeMeterAdd(&step->meter, step->handoff.numRows * layer->rowBytes);
  const struct lrmoeExchange exchanges[] = {
      {sent, isExact ? step->recvOffsets : step->keptRecvOffsets, received,
       isExact ? step->sendOffsets : step->keptOffsets, sizeof(float), 0},
      {layer->send.data, step->backRecvOffsets, layer->back.data,
       step->backOffsets, layer->rowBytes, 0}};
  LRMOE_CHECK(lrmoeExchangeRun(layer->comm, exchanges, isPushed ? 1 : 2,
                               &step->stats.returnBytes));
  unpackDAlpha(step, received, dWeights);
  LRMOE_CHECK(addRows(step, isPushed, dx));
  markNonFinite(step, dx);
  step->stats.workspaceBytes = step->meter.peak;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeReturn(lrmoeStep_t step, void *dx, float *dWeights,
                          lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeReturn", lrmoeStepSent,
                              lrmoeStepExecuted, stream));
  LRMOE_REQUIRE(dx || !step->numTokens, "dx is NULL");
  if (step->numPut != step->handoff.numPairs)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeReturn: dx of %lld of %lld handoff rows was given",
                      (long long)step->numPut,
                      (long long)step->handoff.numPairs);
  int64_t start = lrmoeNow();
  LRMOE_CHECK(
      lrmoeCommSettle(step->layer->comm, returnRows(step, dx, dWeights)));
  step->stats.returnNs = lrmoeNow() - start;
  lrmoeReplicasRelease(step);
  step->layer->active = NULL;
  step->state = lrmoeStepCombined;
  return lrmoeSuccess;
}
