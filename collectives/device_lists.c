/* Lists of a route on the device, once counts are known: see device_route.h. */
#include "collectives/device_layout.h"
#include "collectives/handoff.h"
#include "collectives/select.h"

#include <string.h>

/* Lengths of consecutive lists. */
static void takeLengths(int64_t numLists, const int64_t *offsets,
                        int64_t *lengths) {
  for (int64_t l = 0; l < numLists; l++)
    lengths[l] = offsets[l + 1] - offsets[l];
}

/* fwdRow, gRow, xRow and weights of the handoff. */
static lrmoeResult_t listHandoff(struct lrmoeStep *step,
                                 const struct lrmoeDeviceLayout *at) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int isAllX = step->layer->savedState == lrmoeSavedNone;
  lrmoeHandoff_t *handoff = &step->handoff;
  int64_t numKept = handoff->numPairs;
  int64_t *rows = NULL; /* fwdRow, gRow, xRow, dxRow; then weights */
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockHandoff,
      numKept * (int64_t)(4 * sizeof *rows + sizeof(float)), &rows));
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockDAlpha, numKept * (int64_t)sizeof(float), &step->dAlpha));
  struct lrmoeFlagged lists = lrmoeDeviceFlagged(step, at, 0);
  lists.list = rows;
  lists.listPlaces = rows + 3 * numKept;
  LRMOE_RUN(backend, listFlagged, &lists, step->stream);
  const struct lrmoeHandoffLists list = {
      .numRows = numKept,
      .numLocal = isAllX ? 0 : step->instanceOffsets[step->numInstances],
      .items = rows,
      .places = lists.listPlaces,
      .gNumbers = at->localNumbers,
      .xNumbers = at->localX,
      .xRow = step->device.xRow,
      .alpha = step->device.alpha,
      .xRows = rows + 2 * numKept,
      .weights = (float *)(rows + 4 * numKept),
  };
  LRMOE_RUN(backend, listHandoff, &list, step->stream);
  step->route.weights = list.weights;
  step->deviceDxRow = list.places;
  handoff->fwdRow = rows;
  handoff->gRow = step->deviceDxRow;
  handoff->xRow = list.xRows;
  handoff->weights = list.weights;
  return lrmoeSuccess;
}

/* The rows of each token, and the token of each row unless rows are numbered
 * anew. */
static lrmoeResult_t listTokens(struct lrmoeStep *step,
                                const struct lrmoeDeviceLayout *at,
                                int64_t stride) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t numRows = step->backOffsets[step->plan->numRanks];
  int64_t length = step->numTokens + 1 + (stride ? 1 : 2) * numRows;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockTokenLists,
                                    length * (int64_t)sizeof(int64_t),
                                    &step->tokenLists));
  step->devicePackTokens = step->tokenLists + step->numTokens + 1 + numRows;
  const struct lrmoeColumns columns = {
      .numRows = step->plan->numRanks,
      .numColumns = step->numTokens,
      .numbers = at->ownNumbers,
      .stride = stride,
      .offsets = step->tokenLists,
      .list = step->tokenLists + step->numTokens + 1,
      .columns = stride ? NULL : step->devicePackTokens,
  };
  LRMOE_RUN(backend, listColumns, &columns, step->stream);
  return lrmoeSuccess;
}

static struct lrmoeDeviceLayout deviceLayout(const struct lrmoeStep *step) {
  return lrmoeDeviceLayoutAt(step, step->blocks[lrmoeBlockRoute].data);
}

static lrmoeResult_t layOutHandoff(struct lrmoeStep *step) {
  const struct lrmoeDeviceLayout host =
      lrmoeDeviceLayoutAt(step, step->route.counts);
  int64_t *lengths = NULL;
  if (step->route.isDeferred) return lrmoeDeviceRouteLayOut(step);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayLengths, host.numLocal, &lengths));
  takeLengths(host.numLocal, host.localOffsets, lengths);
  return lrmoeHandoffLayOut(step, lengths);
}

lrmoeResult_t lrmoeDeviceRouteLists(struct lrmoeStep *step) {
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  LRMOE_CHECK(layOutHandoff(step));
  step->handoff.numRows = step->backRecvOffsets[step->plan->numRanks];
  LRMOE_CHECK(listHandoff(step, &at));
  return listTokens(step, &at, 0);
}

/* Device: places in sorted order of this rank's kept pairs, in wire order. */
static lrmoeResult_t listOwn(struct lrmoeStep *step,
                             const struct lrmoeDeviceLayout *at,
                             int64_t **list) {
  int64_t count = step->keptOffsets[step->plan->numRanks];
  struct lrmoeFlagged lists = lrmoeDeviceFlagged(step, at, 1);
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockIndices,
                                    count * (int64_t)sizeof **list, list));
  lists.list = *list;
  LRMOE_RUN(step->layer->backend, listFlagged, &lists, step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceRoutePairs(struct lrmoeStep *step, int64_t **pairs) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t count = step->keptOffsets[step->plan->numRanks];
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  LRMOE_CHECK(listOwn(step, &at, pairs));
  LRMOE_RUN(backend, gatherIndices, count, *pairs, step->device.sorted, *pairs,
            step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceRouteXTokens(struct lrmoeStep *step,
                                      int64_t **tokens) {
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  int64_t numRows = step->xOffsets[step->plan->numRanks];
  int64_t *offsets = NULL; /* not used; then the tokens */
  *tokens = NULL;
  if (!at.hasX) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockIndices,
      (step->numTokens + 1 + numRows) * (int64_t)sizeof *offsets, &offsets));
  *tokens = offsets + step->numTokens + 1;
  const struct lrmoeColumns columns = {
      .numRows = step->plan->numRanks,
      .numColumns = step->numTokens,
      .numbers = at.ownX,
      .offsets = offsets,
      .columns = *tokens,
  };
  LRMOE_RUN(step->layer->backend, listColumns, &columns, step->stream);
  return lrmoeSuccess;
}

/* Pieces of what comes with x, from all lists of the source to these alone. */
static lrmoeResult_t pieceMoved(struct lrmoeStep *step, int64_t numLists,
                                const int64_t *offsets,
                                struct lrmoePieces *pieces) {
  int64_t count = numLists / 2;
  int64_t *table = NULL; /* source, target, counts */
  int64_t *device = NULL;
  int64_t target = 0;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWordsOut, 3 * count, &table));
  for (int64_t i = 0; i < count; i++) {
    const int64_t *list = offsets + 2 * i + 1;
    int64_t length = list[1] - list[0];
    table[i] = list[0];
    table[count + i] = target;
    table[2 * count + i] = length;
    target += length;
    if (length > pieces->maxWords) pieces->maxWords = length;
  }
  LRMOE_CHECK(
      LRMOE_UPLOAD(step, lrmoeArrayWordsOut, 3 * count, table, &device));
  pieces->numPieces = count;
  pieces->source = device;
  pieces->target = device + count;
  pieces->counts = device + 2 * count;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceRouteAlphas(struct lrmoeStep *step, float *alphas) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t count = step->keptOffsets[step->plan->numRanks];
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  const struct lrmoeDeviceLayout host =
      lrmoeDeviceLayoutAt(step, step->route.counts);
  struct lrmoePieces pieces = {0};
  int64_t *list = NULL;
  float *words = NULL;
  if (!step->alphaOffsets[step->plan->numRanks]) return lrmoeSuccess;
  LRMOE_CHECK(listOwn(step, &at, &list));
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockKeptWords,
                                    count * (int64_t)sizeof *words, &words));
  LRMOE_RUN(backend, gatherWords, count, list, step->device.sortedWeights,
            words, step->stream);
  LRMOE_CHECK(pieceMoved(step, at.numOwn, host.ownOffsets, &pieces));
  pieces.from = words;
  pieces.to = alphas;
  LRMOE_RUN(backend, copyPieces, &pieces, step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceRouteSpread(struct lrmoeStep *step, int64_t stride) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t numRanks = step->plan->numRanks;
  int64_t numKept = step->handoff.numPairs;
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  int64_t *gRow = step->deviceDxRow - 2 * numKept;
  LRMOE_RUN(backend, copy, gRow, step->deviceDxRow,
            (size_t)numKept * sizeof *gRow, lrmoeCopyWithin, step->stream);
  const struct lrmoeShifts spread = {at.numLocal,
                                     numRanks,
                                     stride,
                                     at.localOffsets,
                                     lrmoeDeviceRouteRows(step) + numRanks + 1,
                                     gRow};
  LRMOE_RUN(backend, shiftLists, &spread, step->stream);
  step->handoff.gRow = gRow;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceRouteTokens(struct lrmoeStep *step, int64_t stride) {
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  return listTokens(step, &at, stride);
}

const int64_t *lrmoeDeviceRouteRows(const struct lrmoeStep *step) {
  return deviceLayout(step).rows;
}

lrmoeResult_t lrmoeDeviceRouteSpoil(struct lrmoeStep *step, void *dx) {
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  const struct lrmoeSpoils spoils = {lrmoeDeviceFlagged(step, &at, 1),
                                     step->deviceKeys, step->layer->rowBytes,
                                     dx};
  if (step->config.metric == lrmoeMetricAll) return lrmoeSuccess;
  if (!step->route.isPending && !step->stats.nonFiniteDropped)
    return lrmoeSuccess;
  LRMOE_RUN(step->layer->backend, spoilDropped, &spoils, step->stream);
  return lrmoeSuccess;
}

/* Who executes a pair of expert e, by its label; -1: nobody. */
static int32_t destOf(const struct lrmoeStep *step, int32_t e, int64_t pair,
                      uint8_t label) {
  const struct lrmoePlan *plan = step->plan;
  if (label == lrmoeLabelDropped) return -1;
  if (label == lrmoeLabelStayed) return step->dest[pair];
  return plan
      ->instanceRanks[plan->instanceOffsets[e] + label - lrmoeLabelMoved];
}

/* This rank's pairs, from the labels of all pairs. */
static void takeKept(struct lrmoeStep *step, const uint8_t *labels) {
  const struct lrmoePlan *plan = step->plan;
  const int64_t *base =
      step->sourceBase + (int64_t)step->layer->comm->rank * plan->numExperts;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int64_t first = step->expertOffsets[e];
    for (int64_t i = first; i < step->expertOffsets[e + 1]; i++) {
      uint8_t label = labels[base[e] + i - first];
      int64_t pair = step->sorted[i];
      step->kept[pair] = label != lrmoeLabelDropped;
      step->backDest[pair] = destOf(step, e, pair, label);
    }
    labels += lrmoeSelectNumPairs(step, e);
  }
}

lrmoeResult_t lrmoeSelectionFetch(struct lrmoeStep *step) {
  int64_t numSlots = step->numTokens * step->layer->topk;
  uint8_t *flags = NULL;
  uint8_t *kept = NULL;
  if (!step->route.flags || step->kept) return lrmoeSuccess;
  if (step->config.metric != lrmoeMetricAll)
    LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayKeys, step->deviceKeys,
                                  step->numPairs * (int64_t)sizeof *step->keys,
                                  &step->keys));
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayFlags, step->route.flags,
                                step->plan->pairs, &flags));
  LRMOE_CHECK(lrmoeStepSynchronize(step));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayKept, numSlots, &kept));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayBackDest, numSlots, &step->backDest));
  for (int64_t i = 0; i < numSlots; i++) {
    kept[i] = 0;
    step->backDest[i] = -1;
  }
  step->kept = kept;
  takeKept(step, flags);
  return lrmoeSuccess;
}
