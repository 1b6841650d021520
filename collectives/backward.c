/* Expert backward on the handoff, and the place where dx of its rows goes.
 *
 * With a row per (token, rank) the executor adds the dx rows of one token in
 * fp32, instances ascending; with a row per pair each dx is rounded into its
 * place among the rows to be sent. */
#include "base/config.h"
#include "collectives/replica.h"
#include "collectives/step.h"

#include <string.h>

/* Rows of dx that follow each other on the wire are converted in one go. */
static void putPairs(struct lrmoeStep *step, int64_t first, int64_t rows,
                     const float *dx) {
  struct lrmoeLayer *layer = step->layer;
  const int64_t *at = step->dxRow + first;
  for (int64_t i = 0; i < rows;) {
    int64_t end = i + 1;
    while (end < rows && at[end] == at[end - 1] + 1)
      end++;
    const struct lrmoeRows run = {dx + i * layer->hidden, NULL, lrmoeFloat32,
                                  layer->hidden};
    layer->experts.kernels->gather(&run, end - i, layer->type,
                                   (char *)layer->send.data +
                                       at[i] * layer->rowBytes);
    i = end;
  }
}

/* Where a sink's rows lie in the handoff. */
struct putTarget {
  struct lrmoeStep *step;
  int64_t base;
};

static lrmoeResult_t putRows(void *user, int64_t first, int64_t rows,
                             const float *dx, const float *dAlpha) {
  struct putTarget *target = user;
  struct lrmoeStep *step = target->step;
  struct lrmoeLayer *layer = step->layer;
  int64_t at = target->base + first;
  if (step->config.wire == lrmoeWireDedup)
    layer->experts.kernels->addRows(layer->hidden, rows, dx, NULL,
                                    step->dxRow + at, layer->sums.data);
  else
    putPairs(step, at, rows, dx);
  memcpy(step->dAlpha + at, dAlpha, (size_t)rows * sizeof *dAlpha);
  step->numPut += rows;
  return lrmoeSuccess;
}

/* Room for what the rows are added into, once per backward. */
static lrmoeResult_t openSums(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  if (step->numPut) return lrmoeSuccess;
  int64_t numRows = step->handoff.numRows;
  if (step->config.wire != lrmoeWireDedup) {
    lrmoeMeterAdd(&step->meter, numRows * layer->rowBytes);
    return lrmoeSuccess;
  }
  size_t bytes = (size_t)(numRows * layer->hidden) * sizeof(float);
  LRMOE_CHECK(lrmoeBufferReserve(&layer->sums, bytes));
  if (numRows) memset(layer->sums.data, 0, bytes);
  lrmoeMeterAdd(&step->meter, (int64_t)bytes);
  return lrmoeSuccess;
}

/* The rows of one instance that stayed, or those that moved here and whose
 * state is computed again. */
static lrmoeResult_t runRows(struct lrmoeStep *step, int32_t j, int isMoved) {
  struct lrmoeLayer *layer = step->layer;
  const lrmoeHandoff_t *handoff = &step->handoff;
  int64_t width = lrmoeFc1Width(layer->activation, layer->ffn);
  int64_t split = handoff->offsets[j] + handoff->stayed[j];
  int64_t first = isMoved ? split : handoff->offsets[j];
  int64_t last = isMoved ? handoff->offsets[j + 1] : split;
  struct putTarget target = {step, first};
  const struct lrmoeExpertBackward args = {
      .weights = lrmoeStepWeights(step, j),
      .numRows = last - first,
      .g = {handoff->g, handoff->gRow + first, layer->type, layer->hidden},
      .x = {isMoved ? handoff->movedX : handoff->x, handoff->xRow + first,
            layer->type, layer->hidden},
      .saved = {isMoved ? NULL : step->saved, handoff->fwdRow + first,
                layer->type, width},
      .alpha = handoff->weights + first,
      .sink = putRows,
      .user = &target,
  };
  return lrmoeExpertRunBackward(&layer->experts, &args);
}

static lrmoeResult_t expertBackward(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  LRMOE_CHECK(openSums(step));
  for (int32_t j = 0; j < step->numInstances; j++) {
    LRMOE_CHECK(runRows(step, j, 0));
    LRMOE_CHECK(runRows(step, j, 1));
  }
  lrmoeMeterAdd(&step->meter, lrmoeExpertScratchBytes(&layer->experts));
  lrmoeMeterAdd(&step->meter, -lrmoeExpertScratchBytes(&layer->experts));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertBackward(lrmoeStep_t step, lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeExpertBackward", lrmoeStepSent,
                              lrmoeStepSent, stream));
  if (step->numPut)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeExpertBackward: lrmoeHandoffPut has already given "
                      "%lld rows",
                      (long long)step->numPut);
  int64_t start = lrmoeNow();
  LRMOE_CHECK(expertBackward(step));
  step->stats.gemmNs = lrmoeNow() - start;
  step->state = lrmoeStepExecuted;
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
  LRMOE_CHECK(openSums(step));
  if (!put.rows) return lrmoeSuccess;
  struct putTarget target = {step, base};
  return putRows(&target, put.first, put.rows, put.dx, put.dWeights);
}
