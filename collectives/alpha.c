/* Exact router gradients: see alpha.h.
 *
 * d(alpha) = <g, e> where e is the expert's output without alpha.  The owner
 * has e (a row per pair came home; with `pre` it is alpha e, and is divided by
 * alpha); the executor has g W2 and phi, and <g, W2 phi> = <g W2, phi>. */
#include "collectives/alpha.h"

#include "collectives/device_route.h"
#include "collectives/replica.h"
#include "collectives/route.h"

static int isPre(const struct lrmoeStep *step) {
  return step->layer->convention == lrmoeWeightPre;
}

/* alpha in wire order, and behind it room for as many words; device. */
static lrmoeResult_t wireWeights(struct lrmoeStep *step, float **weights) {
  int64_t bytes = 2 * step->numPairs * (int64_t)sizeof(float);
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockWords, bytes, weights));
  LRMOE_RUN(step->layer->backend, gatherWords, step->numPairs,
            step->device.wire, step->device.sortedWeights, *weights,
            step->stream);
  return lrmoeSuccess;
}

/* Token, and pair unless NULL, of each in wire order; device. */
static lrmoeResult_t wireOrder(struct lrmoeStep *step, int64_t **tokens,
                               int64_t **pairs) {
  const struct lrmoeBackend *backend = step->layer->backend;
  const struct lrmoeStepDevice *device = &step->device;
  int64_t count = step->numPairs;
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockIndices, 2 * count * (int64_t)sizeof **tokens, tokens));
  LRMOE_RUN(backend, gatherIndices, count, device->wire, device->sortedTokens,
            *tokens, step->stream);
  if (!pairs) return lrmoeSuccess;
  *pairs = *tokens + count;
  LRMOE_RUN(backend, gatherIndices, count, device->wire, device->sorted, *pairs,
            step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeAlphaCombine(struct lrmoeStep *step, void *y) {
  float *weights = NULL;
  int64_t *tokens = NULL;
  LRMOE_CHECK(wireWeights(step, &weights));
  LRMOE_CHECK(wireOrder(step, &tokens, NULL));
  const struct lrmoeLists lists = {lrmoeBlockTokenLists, step->numPairs, tokens,
                                   step->numTokens};
  return lrmoeSumRows(step, &lists, step->ownerRows,
                      isPre(step) ? NULL : weights, y);
}

lrmoeResult_t lrmoeAlphaOwner(struct lrmoeStep *step, const void *g) {
  const struct lrmoeLayer *layer = step->layer;
  if (layer->routerGrad != lrmoeRouterGradOwner) return lrmoeSuccess;
  int64_t bytes = step->numTokens * layer->topk * (int64_t)sizeof(float);
  float *weights = NULL;
  int64_t *tokens = NULL;
  int64_t *pairs = NULL;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockExactAlpha, bytes,
                                    &step->exactAlpha));
  LRMOE_CHECK(wireWeights(step, &weights));
  LRMOE_CHECK(wireOrder(step, &tokens, &pairs));
  float *dots = weights + step->numPairs;
  const struct lrmoeDotRows dot = {
      {step->ownerRows, NULL, layer->type, layer->hidden},
      {g, tokens, layer->type, layer->hidden},
      step->numPairs,
      isPre(step) ? weights : NULL,
      dots};
  LRMOE_RUN(layer->backend, dotRows, &dot, step->stream);
  LRMOE_RUN(layer->backend, clear, step->exactAlpha, (size_t)bytes,
            step->stream);
  LRMOE_RUN(layer->backend, scatterWords, step->numPairs, pairs, dots,
            step->exactAlpha, step->stream);
  return lrmoeSuccess;
}

/* Pairs of this rank's instances that were dropped or moved away, by instance:
 * their rows of g, and their places in the forward pass. */
struct restOfPairs {
  int64_t *rows;    /* device */
  int64_t *fwdRows; /* device */
  int64_t *firsts;  /* [numInstances + 1] */
  int64_t count;
};

static lrmoeResult_t listRestOnDevice(struct lrmoeStep *step,
                                      struct restOfPairs *rest) {
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWordsOut, step->numInstances + 1,
                            &rest->firsts));
  LRMOE_CHECK(lrmoeDeviceRouteRest(step, rest->firsts, &rest->rows));
  rest->count = rest->firsts[step->numInstances];
  rest->fwdRows = rest->rows + rest->count;
  return lrmoeSuccess;
}

static lrmoeResult_t listRest(struct lrmoeStep *step,
                              struct restOfPairs *rest) {
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  int64_t *rows = NULL; /* then fwdRows, then firsts */
  if (step->route.flags) return listRestOnDevice(step, rest);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWordsOut,
                            2 * numLocal + step->numInstances + 1, &rows));
  int64_t *fwdRows = rows + numLocal;
  rest->firsts = fwdRows + numLocal;
  rest->count = 0;
  for (int32_t j = 0; j < step->numInstances; j++) {
    rest->firsts[j] = rest->count;
    for (int64_t p = step->instanceOffsets[j]; p < step->instanceOffsets[j + 1];
         p++) {
      if (step->keptLocal[p]) continue;
      rows[rest->count] = step->allRows[p];
      fwdRows[rest->count++] = p;
    }
  }
  rest->firsts[step->numInstances] = rest->count;
  LRMOE_CHECK(
      LRMOE_UPLOAD(step, lrmoeArrayWordsOut, 2 * numLocal, rows, &rest->rows));
  rest->fwdRows = rest->rows + numLocal;
  return lrmoeSuccess;
}

static lrmoeResult_t runRest(struct lrmoeStep *step,
                             const struct restOfPairs *rest, float *dAlpha) {
  struct lrmoeLayer *layer = step->layer;
  int64_t width = lrmoeFc1Width(layer->activation, layer->ffn);
  struct lrmoeExpertAlpha *runs = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayRuns, step->numInstances, &runs));
  for (int32_t j = 0; j < step->numInstances; j++) {
    int64_t first = rest->firsts[j];
    runs[j] = (struct lrmoeExpertAlpha){
        .w2 = lrmoeStepWeights(step, j).w2,
        .numRows = rest->firsts[j + 1] - first,
        .g = {step->handoff.g, rest->rows + first, layer->type, layer->hidden},
        .saved = {step->saved, rest->fwdRows + first, layer->type, width},
        .dAlpha = dAlpha + first,
    };
  }
  LRMOE_RUN(layer->backend, expertAlpha, layer->experts, step->numInstances,
            runs, step->stream);
  LRMOE_RUN(layer->backend, scatterWords, rest->count, rest->fwdRows, dAlpha,
            step->exactAlpha, step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeAlphaExecutor(struct lrmoeStep *step, float **send,
                                 float **recv) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  int64_t floatBytes = (int64_t)sizeof(float);
  struct restOfPairs rest;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockExactAlpha,
                                    numLocal * floatBytes, &step->exactAlpha));
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockWords, (2 * numLocal + step->numPairs) * floatBytes,
      send));
  *recv = *send + numLocal;
  LRMOE_CHECK(listRest(step, &rest));
  LRMOE_CHECK(runRest(step, &rest, *recv + step->numPairs));
  LRMOE_RUN(backend, scatterWords, step->handoff.numPairs, step->handoff.fwdRow,
            step->dAlpha, step->exactAlpha, step->stream);
  LRMOE_RUN(backend, gatherWords, numLocal, step->device.wirePlaces,
            step->exactAlpha, *send, step->stream);
  return lrmoeSuccess;
}
