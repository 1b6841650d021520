/* Expert forward and combine (round F2).
 *
 * The executor adds alpha * expert(x) of all its pairs of one token in fp32, in
 * instance order; the source adds the ranks' rows in rank order.  |phi| of
 * every pair goes home beside the rows: 4 bytes a pair that save the executor
 * from keeping phi, and let the source score alone in backward (paper 3.2). */
#include "collectives/alpha.h"
#include "collectives/replica.h"
#include "collectives/route.h"

#include <string.h>

static lrmoeResult_t expertForward(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  int64_t numRows = step->recvRowOffsets[layer->comm->numRanks];
  int64_t width = lrmoeFc1Width(layer->activation, layer->ffn);
  size_t typeBytes = lrmoeTypeBytes(layer->type);
  step->saved = NULL;
  if (layer->savedState == lrmoeSavedFull)
    LRMOE_CHECK(lrmoeStepReserve(step, lrmoeArraySaved, numLocal,
                                 (size_t)width * typeBytes, &step->saved));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayPhiLocal, numLocal, &step->phiLocal));
  int isOwner = layer->routerGrad == lrmoeRouterGradOwner;
  if (isOwner) {
    LRMOE_CHECK(lrmoeAlphaWirePlaces(step));
    numRows = numLocal; /* a row per pair */
  }
  size_t sumBytes = (size_t)(numRows * layer->hidden) * sizeof(float);
  LRMOE_CHECK(lrmoeBufferReserve(&layer->sums, sumBytes));
  if (numRows) memset(layer->sums.data, 0, sumBytes);
  for (int32_t j = 0; j < step->numInstances; j++) {
    int64_t first = step->instanceOffsets[j];
    const struct lrmoeExpertForward args = {
        .weights = lrmoeStepWeights(step, j),
        .numRows = step->instanceOffsets[j + 1] - first,
        .x = {step->xRows, step->xRow + first, layer->type, layer->hidden},
        .alpha = step->alpha + first,
        .saved = step->saved
                     ? (char *)step->saved + (size_t)(first * width) * typeBytes
                     : NULL,
        .phiNorm = step->phiLocal + first,
        .y = layer->sums.data,
        .yIndex = (isOwner ? step->allRows : step->xRow) + first,
        .isUnscaled = isOwner,
    };
    LRMOE_CHECK(lrmoeExpertRunForward(&layer->experts, &args));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertForward(lrmoeStep_t step, lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeExpertForward", lrmoeStepDispatched,
                              lrmoeStepDispatched, stream));
  if (!step->layer->isBound)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeExpertForward: lrmoeLayerBind must come before");
  LRMOE_CHECK(expertForward(step));
  step->version = step->layer->version;
  step->layer->active = step; /* its sums wait for combine */
  step->state = lrmoeStepComputed;
  return lrmoeSuccess;
}

/* |phi| from local into wire order, home, and into sorted order. */
static lrmoeResult_t reserveNorms(struct lrmoeStep *step, float **send,
                                  float **recv) {
  int numRanks = step->layer->comm->numRanks;
  int64_t numLocal = step->recvOffsets[numRanks];
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch2, numLocal + step->numPairs, send));
  *recv = *send + numLocal;
  lrmoeRouteToWire(step, step->phiLocal, *send);
  return lrmoeSuccess;
}

static void takeNorms(struct lrmoeStep *step, const float *norms) {
  for (int64_t i = 0; i < step->numPairs; i++)
    step->phiSorted[step->wire[i]] = norms[i];
}

/* A row per pair, which the source weighs, adds and keeps. */
static lrmoeResult_t combinePairs(struct lrmoeStep *step, void *y) {
  struct lrmoeLayer *layer = step->layer;
  float *normsSent = NULL;
  float *norms = NULL;
  LRMOE_CHECK(reserveNorms(step, &normsSent, &norms));
  LRMOE_CHECK(lrmoeStepReserve(step, lrmoeArrayOwnerRows, step->numPairs,
                               (size_t)layer->rowBytes, &step->ownerRows));
  const struct lrmoeRows sums = {layer->sums.data, NULL, lrmoeFloat32,
                                 layer->hidden};
  layer->experts.kernels->gather(&sums,
                                 step->recvOffsets[layer->comm->numRanks],
                                 layer->type, layer->send.data);
  const struct lrmoeExchange exchanges[] = {
      {layer->send.data, step->recvOffsets, step->ownerRows, step->sendOffsets,
       layer->rowBytes, 0},
      {normsSent, step->recvOffsets, norms, step->sendOffsets, sizeof(float),
       0}};
  LRMOE_CHECK(lrmoeExchangeRun(layer->comm, exchanges, 2, NULL));
  takeNorms(step, norms);
  return lrmoeAlphaCombine(step, y);
}

/* A row per (token, rank), which the source adds. */
static lrmoeResult_t combine(struct lrmoeStep *step, void *y) {
  struct lrmoeLayer *layer = step->layer;
  int numRanks = layer->comm->numRanks;
  int64_t numSent = step->rowOffsets[numRanks];
  float *normsSent = NULL;
  float *norms = NULL;
  LRMOE_CHECK(reserveNorms(step, &normsSent, &norms));
  int64_t *offsets = NULL; /* [T + 1], then the list */
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch,
                            step->numTokens + 1 + numSent, &offsets));
  const struct lrmoeRows sums = {layer->sums.data, NULL, lrmoeFloat32,
                                 layer->hidden};
  layer->experts.kernels->gather(&sums, step->recvRowOffsets[numRanks],
                                 layer->type, layer->send.data);
  const struct lrmoeExchange exchanges[] = {
      {layer->send.data, step->recvRowOffsets, layer->back.data,
       step->rowOffsets, layer->rowBytes, 0},
      {normsSent, step->recvOffsets, norms, step->sendOffsets, sizeof(float),
       0}};
  LRMOE_CHECK(lrmoeExchangeRun(layer->comm, exchanges, 2, NULL));
  takeNorms(step, norms);
  int64_t *list = offsets + step->numTokens + 1;
  lrmoeRouteInvert(numSent, step->rowTokens, step->numTokens, offsets, list);
  const struct lrmoeRows back = {layer->back.data, NULL, layer->type,
                                 layer->hidden};
  layer->experts.kernels->gatherSum(&back, step->numTokens, offsets, list, y);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCombine(lrmoeStep_t step, void *y, lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeCombine", lrmoeStepComputed,
                              lrmoeStepComputed, stream));
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
