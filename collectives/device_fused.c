/* A step's rows straight into peers' memory: see fused.h.
 *
 * After round B1 every rank knows every row's place, so a source reads a row of
 * g once and writes it to its place at each executor; sums of dx come back the
 * same way.  Rows of one source, or one executor, lie in a stretch of their
 * own, so that nobody needs another rank's counts: meetings only check them. */
#include "collectives/compact.h"
#include "collectives/device_route.h"
#include "collectives/fused.h"

int lrmoeFusedIsPossible(const struct lrmoeStep *step) {
  return step->layer->fused && step->config.wire == lrmoeWireDedup;
}

/* Rows of each rank, from offsets. */
static void countRows(const int64_t *offsets, int32_t numRanks,
                      int64_t *counts) {
  for (int32_t r = 0; r < numRanks; r++)
    counts[r] = offsets[r + 1] - offsets[r];
}

/* What this rank puts and what it expects, [G] each, then the offsets [G + 1]
 * of what it puts; device. */
static lrmoeResult_t uploadCounts(struct lrmoeStep *step, const int64_t *sent,
                                  const int64_t *expected, int64_t **counts) {
  int32_t numRanks = step->plan->numRanks;
  int64_t *host = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayMeetCounts, 3 * numRanks + 1, &host));
  countRows(sent, numRanks, host);
  countRows(expected, numRanks, host + numRanks);
  for (int32_t r = 0; r <= numRanks; r++)
    host[2 * numRanks + r] = sent[r];
  return LRMOE_UPLOAD(step, lrmoeArrayMeetCounts, 3 * numRanks + 1, host,
                      counts);
}

static struct lrmoeMeet meetingOf(const struct lrmoeStep *step,
                                  const int64_t *counts) {
  const struct lrmoeFused *fused = step->layer->fused;
  const struct lrmoeComm *comm = step->layer->comm;
  return (struct lrmoeMeet){
      .rank = comm->rank,
      .numRanks = comm->numRanks,
      .epoch = fused->epoch,
      .words = fused->words,
      .sent = counts,
      .expected = counts + comm->numRanks,
      .watch = fused->watch,
      .gate = fused->gate,
      .timeoutMs = comm->timeoutMs,
  };
}

/* A phase begins; nothing has been put since the last one. */
static lrmoeResult_t enter(struct lrmoeStep *step, const int64_t *counts) {
  LRMOE_CHECK(lrmoeFusedCheck(step->layer->comm));
  step->layer->fused->epoch++;
  const struct lrmoeMeet meeting = meetingOf(step, counts);
  LRMOE_RUN(step->layer->backend, enter, &meeting, step->stream);
  return lrmoeSuccess;
}

static lrmoeResult_t meet(struct lrmoeStep *step, const int64_t *counts) {
  const struct lrmoeMeet meeting = meetingOf(step, counts);
  const struct lrmoeBackend *backend = step->layer->backend;
  LRMOE_RUN(backend, meet, &meeting, step->stream);
  LRMOE_RUN(backend, eventRecord, step->layer->fused->event, step->stream);
  return lrmoeSuccess;
}

/* Experts of peers may still read rows of the last backward, beside its return
 * (gradients.h): they have read them all when ranks have met once more. */
static lrmoeResult_t awaitRoom(struct lrmoeStep *step) {
  const struct lrmoeLayer *layer = step->layer;
  if (!layer->overlapsReturn) return lrmoeSuccess;
  LRMOE_CHECK(enter(step, layer->fused->noCounts));
  return meet(step, layer->fused->noCounts);
}

/* From rows in one sequence to places, for a route that the host worked out. */
static lrmoeResult_t placeRows(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numRows = step->backOffsets[numRanks];
  int64_t *places = NULL;
  int64_t *device = NULL;
  LRMOE_CHECK(lrmoeCompactTokenLists(step));
  int64_t *list = step->tokenLists + step->numTokens + 1;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWordsOut, numRows, &places));
  for (int32_t d = 0; d < numRanks; d++)
    for (int64_t i = step->backOffsets[d]; i < step->backOffsets[d + 1]; i++)
      places[i] = lrmoePlaceOf(d, i - step->backOffsets[d]);
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayWordsOut, numRows, places, &device));
  LRMOE_RUN(step->layer->backend, gatherIndices, numRows, list, device, list,
            step->stream);
  return lrmoeSuccess;
}

/* The same for one of the device. */
static lrmoeResult_t placeDeviceRows(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  int64_t *shifts = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayShifts, numRanks, &shifts));
  for (int32_t d = 0; d < numRanks; d++)
    shifts[d] = lrmoePlaceOf(d, -step->backOffsets[d]);
  return lrmoeDeviceRouteTokens(step, shifts);
}

static void countBytes(const struct lrmoeStep *step, const int64_t *sent,
                       int64_t *bytes) {
  const struct lrmoeLayer *layer = step->layer;
  int32_t rank = layer->comm->rank;
  int64_t own = sent[rank + 1] - sent[rank];
  *bytes += (sent[step->plan->numRanks] - own) * layer->rowBytes;
}

/* Rows of x of pairs that stayed, into the order of the handoff.  A route that
 * the host works out is not on the device yet. */
static lrmoeResult_t packX(struct lrmoeStep *step, struct lrmoeOwnRows *own) {
  struct lrmoeLayer *layer = step->layer;
  const lrmoeHandoff_t *handoff = &step->handoff;
  int64_t bytes = handoff->numPairs * layer->rowBytes;
  if (!layer->packsX || !step->route.flags ||
      layer->savedState == lrmoeSavedNone)
    return lrmoeSuccess;
  LRMOE_CHECK(lrmoeBlockReserve(layer->backend, (size_t)bytes, step->stream,
                                &layer->packedX));
  lrmoeMeterAdd(&step->meter, bytes);
  *own = (struct lrmoeOwnRows){
      {handoff->x, handoff->xRow, layer->type, layer->hidden},
      handoff->numPairs,
      handoff->fwdRow,
      layer->packedX.data};
  step->isXPacked = 1;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeFusedPut(struct lrmoeStep *step, const void *g) {
  const struct lrmoeLayer *layer = step->layer;
  LRMOE_CHECK(step->route.flags ? placeDeviceRows(step) : placeRows(step));
  LRMOE_CHECK(uploadCounts(step, step->backOffsets, step->backRecvOffsets,
                           &step->meetCounts));
  struct lrmoePut put = {
      .rows = {g, NULL, layer->type, layer->hidden},
      .numRows = step->numTokens,
      .offsets = step->tokenLists,
      .list = step->tokenLists + step->numTokens + 1,
      .targets = layer->fused->recvTargets,
      .gate = layer->fused->gate,
  };
  LRMOE_CHECK(packX(step, &put.own));
  LRMOE_CHECK(awaitRoom(step));
  LRMOE_CHECK(enter(step, step->meetCounts));
  LRMOE_RUN(layer->backend, putRows, &put, step->stream);
  countBytes(step, step->backOffsets, &step->stats.rowBytes);
  /* Of places now; a route of the device lists anew on the way back anyhow. */
  if (!step->route.flags) step->tokenLists = NULL;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeFusedMeet(struct lrmoeStep *step) {
  return meet(step, step->meetCounts);
}

static int64_t mostRows(const int64_t *offsets, int32_t numRanks) {
  int64_t most = 0;
  for (int32_t r = 0; r < numRanks; r++)
    if (offsets[r + 1] - offsets[r] > most) most = offsets[r + 1] - offsets[r];
  return most;
}

lrmoeResult_t lrmoeFusedPutSums(struct lrmoeStep *step,
                                const struct lrmoeSums *sums) {
  const struct lrmoeLayer *layer = step->layer;
  int64_t numRanks = step->plan->numRanks;
  int64_t *counts = NULL;
  LRMOE_CHECK(
      uploadCounts(step, step->backRecvOffsets, step->backOffsets, &counts));
  const struct lrmoePutSums put = {
      .rows = {layer->pairRows.data, NULL, layer->type, layer->hidden},
      .offsets = sums->offsets,
      .list = sums->offsets + sums->numOut + 1,
      .numRanks = step->plan->numRanks,
      .first = layer->comm->rank,
      .maxOut = mostRows(step->backRecvOffsets, step->plan->numRanks),
      .bounds = counts + 2 * numRanks,
      .targets = layer->fused->backTargets,
      .gate = layer->fused->gate,
  };
  LRMOE_CHECK(enter(step, counts));
  LRMOE_RUN(layer->backend, putSums, &put, step->stream);
  countBytes(step, step->backRecvOffsets, &step->stats.returnBytes);
  return meet(step, counts);
}
