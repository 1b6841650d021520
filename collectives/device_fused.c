/* A step's rows straight into peers' memory: see fused.h.
 *
 * After round B1 every rank knows every row's place, so a source reads a row of
 * g once and writes it to its place at each executor; sums of dx come back the
 * same way.  Rows of one source, or one executor, lie in a stretch of their
 * own, so that nobody needs another rank's counts: meetings only check them.
 * Counts may be the device's alone: the host has bounds then. */
#include "collectives/compact.h"
#include "collectives/device_route.h"
#include "collectives/fused.h"

#include <string.h>

int lrmoeFusedIsPossible(const struct lrmoeStep *step) {
  return step->layer->fused && step->config.wire == lrmoeWireDedup;
}

/* What this rank puts and what it expects, as offsets on the device. */
static lrmoeResult_t openRows(struct lrmoeStep *step) {
  int64_t length = step->plan->numRanks + 1;
  size_t bytes = (size_t)length * sizeof(int64_t);
  int64_t *host = NULL;
  int64_t *device = NULL;
  if (step->route.flags) {
    step->meetRows = lrmoeDeviceRouteRows(step);
    return lrmoeSuccess;
  }
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayMeetRows, 2 * length, &host));
  memcpy(host, step->backOffsets, bytes);
  memcpy(host + length, step->backRecvOffsets, bytes);
  LRMOE_CHECK(
      LRMOE_UPLOAD(step, lrmoeArrayMeetRows, 2 * length, host, &device));
  step->meetRows = device;
  return lrmoeSuccess;
}

/* Of the way out, or the way back. */
static struct lrmoeMeet meetingOf(const struct lrmoeStep *step, int isBack) {
  const struct lrmoeFused *fused = step->layer->fused;
  const struct lrmoeComm *comm = step->layer->comm;
  const int64_t *recv = step->meetRows + comm->numRanks + 1;
  return (struct lrmoeMeet){
      .rank = comm->rank,
      .numRanks = comm->numRanks,
      .epoch = fused->epoch,
      .words = fused->words,
      .sent = isBack ? recv : step->meetRows,
      .expected = isBack ? step->meetRows : recv,
      .tags = step->route.tags,
      .watch = fused->watched.watch,
      .gate = fused->gate,
      .timeoutMs = comm->timeoutMs,
  };
}

/* A phase begins; nothing has been put since the last one. */
static lrmoeResult_t enter(struct lrmoeStep *step, int isBack) {
  LRMOE_CHECK(lrmoeWatchCheck(step->layer->comm));
  step->layer->fused->epoch++;
  const struct lrmoeMeet meeting = meetingOf(step, isBack);
  LRMOE_RUN(step->layer->backend, enter, &meeting, step->stream);
  return lrmoeSuccess;
}

static lrmoeResult_t meet(struct lrmoeStep *step, int isBack) {
  const struct lrmoeMeet meeting = meetingOf(step, isBack);
  const struct lrmoeBackend *backend = step->layer->backend;
  LRMOE_RUN(backend, meet, &meeting, step->stream);
  LRMOE_RUN(backend, eventRecord, step->layer->fused->watched.event,
            step->stream);
  return lrmoeSuccess;
}

/* Ranks meet before the first put, where no keys have told that peers are done
 * with what was in their windows, or where their experts may still read it
 * beside the return of the last backward (gradients.h). */
static lrmoeResult_t gather(struct lrmoeStep *step) {
  const struct lrmoeLayer *layer = step->layer;
  const struct lrmoeFused *fused = layer->fused;
  if (step->config.metric != lrmoeMetricAll && !layer->overlapsReturn)
    return lrmoeSuccess;
  LRMOE_CHECK(enter(step, 0));
  struct lrmoeMeet meeting = meetingOf(step, 0);
  meeting.sent = meeting.expected = fused->nothing;
  LRMOE_RUN(layer->backend, meet, &meeting, step->stream);
  return lrmoeSuccess;
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

int64_t lrmoeFusedBytes(const struct lrmoeStep *step, const int64_t *sent) {
  const struct lrmoeLayer *layer = step->layer;
  int32_t rank = layer->comm->rank;
  int64_t own = sent[rank + 1] - sent[rank];
  return (sent[step->plan->numRanks] - own) * layer->rowBytes;
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
  LRMOE_CHECK(step->route.flags
                  ? lrmoeDeviceRouteTokens(step, lrmoePlaceOf(1, 0))
                  : placeRows(step));
  LRMOE_CHECK(openRows(step));
  struct lrmoePut put = {
      .rows = {g, NULL, layer->type, layer->hidden},
      .numRows = step->numTokens,
      .offsets = step->tokenLists,
      .list = step->tokenLists + step->numTokens + 1,
      .targets = layer->fused->recvTargets,
      .gate = layer->fused->gate,
  };
  LRMOE_CHECK(packX(step, &put.own));
  LRMOE_CHECK(gather(step));
  LRMOE_CHECK(enter(step, 0));
  LRMOE_RUN(layer->backend, putRows, &put, step->stream);
  if (!step->route.isDeferred)
    step->stats.rowBytes += lrmoeFusedBytes(step, step->backOffsets);
  /* Of places now; a route of the device lists anew on the way back anyhow. */
  if (!step->route.flags) step->tokenLists = NULL;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeFusedMeet(struct lrmoeStep *step) {
  LRMOE_CHECK(meet(step, 0));
  step->route.isPending = step->route.isDeferred;
  return lrmoeSuccess;
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
  const struct lrmoePutSums put = {
      .rows = {layer->pairRows.data, NULL, layer->type, layer->hidden},
      .offsets = sums->offsets,
      .list = sums->offsets + sums->numOut + 1,
      .numRanks = step->plan->numRanks,
      .first = layer->comm->rank,
      .maxOut = mostRows(step->backRecvOffsets, step->plan->numRanks),
      .bounds = step->meetRows + step->plan->numRanks + 1,
      .targets = layer->fused->backTargets,
      .gate = layer->fused->gate,
  };
  LRMOE_CHECK(enter(step, 1));
  LRMOE_RUN(layer->backend, putSums, &put, step->stream);
  if (!step->route.isPending)
    step->stats.returnBytes += lrmoeFusedBytes(step, step->backRecvOffsets);
  step->route.isReturned = 1;
  return meet(step, 1);
}
