/* Expert backward on the handoff: a row of dx per pair, in the layer's type,
 * which the way back adds up (return.c). */
#include "base/config.h"
#include "collectives/replica.h"
#include "collectives/span.h"
#include "collectives/step.h"

/* Room for dx of all rows, once per backward. */
static lrmoeResult_t openRows(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  int64_t bytes = step->handoff.numPairs * layer->rowBytes;
  if (step->numPut) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeBlockReserve(layer->backend, (size_t)bytes, step->stream,
                                &layer->pairRows));
  lrmoeMeterAdd(&step->meter, bytes);
  return lrmoeSuccess;
}

/* Rows of x that came, to those that stayed and were copied before: the terms
 * of a weight gradient then lie in one piece, as gathered ones do. */
static lrmoeResult_t packMovedX(struct lrmoeStep *step) {
  const struct lrmoeLayer *layer = step->layer;
  const lrmoeHandoff_t *handoff = &step->handoff;
  for (int64_t j = 0; j < handoff->numInstances && step->isXPacked; j++) {
    int64_t first = handoff->offsets[j] + handoff->stayed[j];
    const struct lrmoeGather pack = {
        {handoff->movedX, handoff->xRow + first, layer->type, layer->hidden},
        handoff->offsets[j + 1] - first,
        layer->type,
        (char *)layer->packedX.data + first * layer->rowBytes};
    LRMOE_RUN(layer->backend, gather, &pack, step->stream);
  }
  return lrmoeSuccess;
}

/* The rows of one instance that stayed, or those that moved here and whose
 * state is computed again. */
static struct lrmoeExpertBackward runOf(const struct lrmoeStep *step, int32_t j,
                                        int isMoved) {
  const struct lrmoeLayer *layer = step->layer;
  const lrmoeHandoff_t *handoff = &step->handoff;
  int64_t width = lrmoeFc1Width(layer->activation, layer->ffn);
  int64_t split = handoff->offsets[j] + handoff->stayed[j];
  int64_t first = isMoved ? split : handoff->offsets[j];
  int64_t last = isMoved ? handoff->offsets[j + 1] : split;
  struct lrmoeRows x = {isMoved ? handoff->movedX : handoff->x,
                        handoff->xRow + first, layer->type, layer->hidden};
  if (step->isXPacked) {
    x.data = (const char *)layer->packedX.data + first * layer->rowBytes;
    x.index = NULL;
  }
  return (struct lrmoeExpertBackward){
      .weights = lrmoeStepWeights(step, j),
      .numRows = last - first,
      .g = {handoff->g, handoff->gRow + first, layer->type, layer->hidden},
      .x = x,
      .saved = {isMoved ? NULL : step->saved, handoff->fwdRow + first,
                layer->type, width},
      .alpha = handoff->weights + first,
      .dx = (char *)layer->pairRows.data + first * layer->rowBytes,
      .dAlpha = step->dAlpha + first,
  };
}

static lrmoeResult_t expertBackward(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeExpertBackward *runs = NULL;
  LRMOE_CHECK(openRows(step));
  LRMOE_CHECK(packMovedX(step));
  int32_t numRuns = 2 * step->numInstances;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayRuns, numRuns, &runs));
  for (int32_t i = 0; i < numRuns; i++)
    runs[i] = runOf(step, i / 2, i % 2);
  if (layer->overlapsReturn)
    LRMOE_RUN(layer->backend, expertBackwardSplit, layer->experts, numRuns,
              runs, layer->gradients, step->stream);
  else
    LRMOE_RUN(layer->backend, expertBackward, layer->experts, numRuns, runs,
              step->stream);
  layer->hasOpenGradients = layer->overlapsReturn;
  step->numPut = step->handoff.numPairs;
  int64_t scratch = layer->backend->expertScratchBytes(layer->experts);
  lrmoeMeterAdd(&step->meter, scratch);
  lrmoeMeterAdd(&step->meter, -scratch);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertBackward(lrmoeStep_t step, lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeExpertBackward", lrmoeStepSent,
                              lrmoeStepSent, stream));
  LRMOE_SPAN_ON(step->layer->comm, "lrmoeExpertBackward", stream);
  if (step->numPut)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeExpertBackward: lrmoeHandoffPut has already given "
                      "%lld rows",
                      (long long)step->numPut);
  int64_t start = lrmoeNowNs();
  LRMOE_CHECK(expertBackward(step));
  step->stats.gemmNs = lrmoeNowNs() - start;
  step->state = lrmoeStepExecuted;
  return lrmoeSuccess;
}

/* Rounds the rows of dx into their places, from handoff row `first` on. */
static lrmoeResult_t putRows(struct lrmoeStep *step, int64_t first,
                             const lrmoeHandoffRows_t *put) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoeGather round = {
      {put->dx, NULL, lrmoeFloat32, layer->hidden},
      put->rows,
      layer->type,
      (char *)layer->pairRows.data + first * layer->rowBytes};
  LRMOE_RUN(layer->backend, gather, &round, step->stream);
  LRMOE_RUN(layer->backend, copy, step->dAlpha + first, put->dWeights,
            (size_t)put->rows * sizeof(float), lrmoeCopyWithin, step->stream);
  step->numPut += put->rows;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHandoffPut(lrmoeStep_t step, const lrmoeHandoffRows_t *rows,
                              lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeHandoffPut", lrmoeStepSent,
                              lrmoeStepSent, stream));
  lrmoeHandoffRows_t put = LRMOE_HANDOFF_ROWS_INITIALIZER;
  LRMOE_CHECK(lrmoeConfigRead("lrmoeHandoffRows_t", rows, sizeof put, &put));
  LRMOE_REQUIRE(put.instance >= 0 && put.instance < step->numInstances,
                "instance is %lld, of %d", (long long)put.instance,
                step->numInstances);
  int64_t base = step->handoff.offsets[put.instance];
  int64_t numRows = step->handoff.offsets[put.instance + 1] - base;
  LRMOE_REQUIRE(put.first >= 0 && put.rows >= 0 && put.rows <= numRows &&
                    put.first <= numRows - put.rows,
                "%lld rows from %lld, of the %lld of instance %lld",
                (long long)put.rows, (long long)put.first, (long long)numRows,
                (long long)put.instance);
  LRMOE_REQUIRE(!put.rows || (put.dx && put.dWeights),
                "dx or dWeights is NULL");
  LRMOE_CHECK(openRows(step));
  return putRows(step, base + put.first, &put);
}
