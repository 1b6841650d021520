/* Exact router gradients: see alpha.h.
 *
 * d(alpha) = <g, e> where e is the expert's output without alpha.  The owner
 * has e (a row per pair came home; with `pre` it is alpha e, and is divided by
 * alpha); the executor has g W2 and phi, and <g, W2 phi> = <g W2, phi>. */
#include "collectives/alpha.h"

#include "collectives/replica.h"
#include "collectives/route.h"

#include <string.h>

enum {
  chunkRows = 64
};

lrmoeResult_t lrmoeAlphaWirePlaces(struct lrmoeStep *step) {
  int64_t numSegments = (int64_t)step->plan->numRanks * step->numInstances;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayAllRows,
                            step->instanceOffsets[step->numInstances],
                            &step->allRows));
  for (int64_t k = 0; k < numSegments; k++) {
    const struct lrmoeSegment *segment = &step->segments[k];
    for (int64_t i = 0; i < segment->count; i++)
      step->allRows[segment->local + i] = segment->wire + i;
  }
  return lrmoeSuccess;
}

/* A chunk of pairs in wire order: their rows as fp32, tokens and alphas. */
struct chunk {
  float *rows;  /* [chunkRows, H] */
  float *other; /* [chunkRows, H] */
  int64_t tokens[chunkRows];
  float weights[chunkRows];
  int64_t count;
};

static lrmoeResult_t openChunk(struct lrmoeStep *step, struct chunk *chunk) {
  int64_t count = (int64_t)2 * chunkRows * step->layer->hidden;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch, count, &chunk->rows));
  chunk->other = chunk->rows + count / 2;
  return lrmoeSuccess;
}

static void readChunk(const struct lrmoeStep *step, int64_t first,
                      struct chunk *chunk) {
  const struct lrmoeLayer *layer = step->layer;
  int64_t left = step->numPairs - first;
  chunk->count = left < chunkRows ? left : chunkRows;
  for (int64_t i = 0; i < chunk->count; i++) {
    int64_t sorted = step->wire[first + i];
    chunk->tokens[i] = step->sortedTokens[sorted];
    chunk->weights[i] = step->sortedWeights[sorted];
  }
  const struct lrmoeRows rows = {(const char *)step->ownerRows +
                                     first * layer->rowBytes,
                                 NULL, layer->type, layer->hidden};
  layer->experts.kernels->gather(&rows, chunk->count, lrmoeFloat32,
                                 chunk->rows);
}

static int isPre(const struct lrmoeStep *step) {
  return step->layer->experts.shape.convention == lrmoeWeightPre;
}

lrmoeResult_t lrmoeAlphaCombine(struct lrmoeStep *step, void *y) {
  struct lrmoeLayer *layer = step->layer;
  struct chunk chunk;
  size_t bytes = (size_t)(step->numTokens * layer->hidden) * sizeof(float);
  LRMOE_CHECK(openChunk(step, &chunk));
  LRMOE_CHECK(lrmoeBufferReserve(&layer->sums, bytes + 1));
  memset(layer->sums.data, 0, bytes);
  for (int64_t first = 0; first < step->numPairs; first += chunkRows) {
    readChunk(step, first, &chunk);
    layer->experts.kernels->addRows(layer->hidden, chunk.count, chunk.rows,
                                    isPre(step) ? NULL : chunk.weights,
                                    chunk.tokens, layer->sums.data);
  }
  const struct lrmoeRows sums = {layer->sums.data, NULL, lrmoeFloat32,
                                 layer->hidden};
  layer->experts.kernels->gather(&sums, step->numTokens, layer->type, y);
  return lrmoeSuccess;
}

static float dot(const float *a, const float *b, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += a[i] * b[i];
  return sum;
}

lrmoeResult_t lrmoeAlphaOwner(struct lrmoeStep *step, const void *g) {
  const struct lrmoeLayer *layer = step->layer;
  if (layer->routerGrad != lrmoeRouterGradOwner) return lrmoeSuccess;
  struct chunk chunk;
  int64_t numSlots = step->numTokens * layer->topk;
  LRMOE_CHECK(openChunk(step, &chunk));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayExactAlpha, numSlots, &step->exactAlpha));
  memset(step->exactAlpha, 0, (size_t)numSlots * sizeof(float));
  for (int64_t first = 0; first < step->numPairs; first += chunkRows) {
    readChunk(step, first, &chunk);
    const struct lrmoeRows rows = {g, chunk.tokens, layer->type, layer->hidden};
    layer->experts.kernels->gather(&rows, chunk.count, lrmoeFloat32,
                                   chunk.other);
    for (int64_t i = 0; i < chunk.count; i++) {
      float got = dot(chunk.rows + i * layer->hidden,
                      chunk.other + i * layer->hidden, layer->hidden);
      if (isPre(step)) got = chunk.weights[i] == 0 ? 0 : got / chunk.weights[i];
      step->exactAlpha[step->sorted[step->wire[first + i]]] = got;
    }
  }
  return lrmoeSuccess;
}

/* d(alpha) of the pairs of instance j that were dropped or moved away; list is
 * room for their indices, two times, and their results. */
static lrmoeResult_t runRest(struct lrmoeStep *step, int32_t j, int64_t *rows) {
  struct lrmoeLayer *layer = step->layer;
  int64_t first = step->instanceOffsets[j];
  int64_t most = step->instanceOffsets[j + 1] - first;
  int64_t *fwdRows = rows + most;
  float *dAlpha = (float *)(fwdRows + most);
  int64_t count = 0;
  for (int64_t p = first; p < first + most; p++) {
    if (step->keptLocal[p]) continue;
    rows[count] = step->allRows[p];
    fwdRows[count++] = p;
  }
  const struct lrmoeExpertAlpha args = {
      .w2 = lrmoeStepWeights(step, j).w2,
      .numRows = count,
      .g = {step->handoff.g, rows, layer->type, layer->hidden},
      .saved = {step->saved, fwdRows, layer->type,
                lrmoeFc1Width(layer->activation, layer->ffn)},
      .dAlpha = dAlpha,
  };
  LRMOE_CHECK(lrmoeExpertRunAlpha(&layer->experts, &args));
  for (int64_t i = 0; i < count; i++)
    step->exactAlpha[fwdRows[i]] = dAlpha[i];
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeAlphaExecutor(struct lrmoeStep *step, float **send,
                                 float **recv) {
  const lrmoeHandoff_t *handoff = &step->handoff;
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  int64_t *rows = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayExactAlpha, numLocal, &step->exactAlpha));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch, 3 * numLocal, &rows));
  for (int32_t j = 0; j < step->numInstances; j++)
    LRMOE_CHECK(runRest(step, j, rows));
  for (int64_t i = 0; i < handoff->numPairs; i++)
    if (handoff->fwdRow[i] >= 0)
      step->exactAlpha[handoff->fwdRow[i]] = step->dAlpha[i];
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch2, numLocal + step->numPairs, send));
  *recv = *send + numLocal;
  lrmoeRouteToWire(step, step->exactAlpha, *send);
  return lrmoeSuccess;
}
