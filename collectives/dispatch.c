/* Dispatch (round F1): every routed pair to its executor, a row per (token,
 * rank), or per (token, node) where relays hand them on.
 *
 * Two messages per pair of ranks: what the rows are (dispatch_meta.c), then the
 * rows. */
#include "collectives/dispatch.h"

#include "collectives/replica.h"
#include "collectives/route.h"
#include "collectives/span.h"

#include <string.h>

struct lrmoeWay lrmoeDispatchWay(const struct lrmoeStep *step) {
  return (struct lrmoeWay){
      step->outOffsets, step->outTokens, step->recvRowOffsets, NULL, NULL,
      lrmoeRelayRows};
}

static lrmoeResult_t reserveExecutor(struct lrmoeStep *step) {
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayXRow, numLocal, &step->xRow));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayPairToken, numLocal, &step->pairToken));
  return LRMOE_RESERVE(step, lrmoeArrayAlpha, numLocal, &step->alpha);
}

/* Where the rows of x lie until backward, or until combine. */
static lrmoeResult_t openRows(struct lrmoeStep *step, int64_t numRows) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeBlock *kept = layer->savedState == lrmoeSavedNone
                                ? &layer->forwardRows
                                : &step->blocks[lrmoeBlockXRows];
  LRMOE_CHECK(lrmoeBlockReserve(
      layer->backend, (size_t)(numRows * layer->rowBytes), step->stream, kept));
  step->xRows = kept->data;
  return lrmoeSuccess;
}

static lrmoeResult_t exchangeRows(struct lrmoeStep *step, const void *x) {
  struct lrmoeLayer *layer = step->layer;
  int64_t numRows = step->outOffsets[layer->comm->numRanks];
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayRowTokens, numRows, step->outTokens,
                           &step->device.rowTokens));
  const struct lrmoeGather pack = {
      {x, step->device.rowTokens, layer->type, layer->hidden},
      numRows,
      layer->type,
      layer->send.data};
  LRMOE_RUN(layer->backend, gather, &pack, step->stream);
  step->stats.forwardNodeBytes = lrmoeNodeBytes(step, step->outOffsets);
  if (lrmoeNodeIsUsed(layer, layer->forwardWire)) {
    struct lrmoeWay way = lrmoeDispatchWay(step);
    int64_t bytes = 0; /* no figure of the stats */
    way.sourceRows = layer->send.data;
    way.executorRows = step->xRows;
    return lrmoeNodeSend(step, &way, &bytes);
  }
  const struct lrmoeExchange exchange = {layer->send.data, step->outOffsets,
                                         step->xRows,      step->recvRowOffsets,
                                         layer->rowBytes,  0};
  return lrmoeExchangeRun(layer->comm, &exchange, 1, step->stream, NULL);
}

static lrmoeResult_t dispatch(struct lrmoeStep *step, const void *x) {
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  LRMOE_CHECK(lrmoeReplicasAcquire(step)); /* when forward runs again */
  LRMOE_CHECK(reserveExecutor(step));
  LRMOE_CHECK(lrmoeDispatchMeta(step));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayXRow, numLocal, step->xRow,
                           &step->device.xRow));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayPairToken, numLocal, step->pairToken,
                           &step->device.pairToken));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayAlpha, numLocal, step->alpha,
                           &step->device.alpha));
  LRMOE_CHECK(openRows(step, step->recvRowOffsets[step->plan->numRanks]));
  return exchangeRows(step, x);
}

lrmoeResult_t lrmoeDispatch(lrmoeStep_t step, const void *x,
                            lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeDispatch", lrmoeStepPrepared,
                              lrmoeStepCombined, stream));
  LRMOE_SPAN_ON(step->layer->comm, "lrmoeDispatch", stream);
  if (step->state != lrmoeStepPrepared && step->state != lrmoeStepCombined)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeDispatch: the step's forward has begun");
  LRMOE_REQUIRE(x || !step->numTokens, "x is NULL");
  if (step->layer->active)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeDispatch: another step of the layer uses its "
                      "buffers");
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, dispatch(step, x)));
  /* With saved state none the rows lie in a buffer of the layer. */
  if (step->layer->savedState == lrmoeSavedNone) step->layer->active = step;
  step->state = lrmoeStepDispatched;
  return lrmoeSuccess;
}
