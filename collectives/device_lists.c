/* Lists of a route on the device, once counts are known: see device_route.h. */
#include "collectives/device_layout.h"
#include "collectives/handoff.h"
#include "collectives/select.h"

#include <string.h>

/* From the offsets of (instance, source) lists to the lengths of handoff lists,
 * of which those of moved pairs are empty. */
static void takeLengths(const struct lrmoeStep *step, const int64_t *offsets,
                        int64_t *lengths) {
  int64_t numRanks = step->plan->numRanks;
  for (int64_t i = 0; i < 2 * (int64_t)step->numInstances * numRanks; i++) {
    int64_t l = i / numRanks / 2 * numRanks + i % numRanks;
    lengths[i] = i / numRanks % 2 ? 0 : offsets[l + 1] - offsets[l];
  }
}

/* fwdRow, gRow, xRow and weights of the handoff. */
static lrmoeResult_t listHandoff(struct lrmoeStep *step,
                                 const struct lrmoeDeviceLayout *at) {
  const struct lrmoeBackend *backend = step->layer->backend;
  lrmoeHandoff_t *handoff = &step->handoff;
  int64_t numKept = handoff->numPairs;
  int64_t *rows = NULL; /* fwdRow, gRow, xRow, dxRow; then weights */
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockHandoff,
      numKept * (int64_t)(4 * sizeof *rows + sizeof(float)), &rows));
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockDAlpha, numKept * (int64_t)sizeof(float), &step->dAlpha));
  int64_t *xRow = rows + 2 * numKept;
  float *weights = (float *)(rows + 4 * numKept);
  struct lrmoeFlagged lists = lrmoeDeviceFlagged(step, at, 0);
  lists.list = rows;
  LRMOE_RUN(backend, listFlagged, &lists, step->stream);
  LRMOE_RUN(backend, gatherIndices, numKept, rows, step->device.xRow, xRow,
            step->stream);
  LRMOE_RUN(backend, gatherIndices, numKept, xRow, at->localNumbers,
            rows + 3 * numKept, step->stream);
  LRMOE_RUN(backend, gatherWords, numKept, rows, step->device.alpha, weights,
            step->stream);
  step->deviceDxRow = rows + 3 * numKept;
  handoff->fwdRow = rows;
  handoff->gRow = step->deviceDxRow;
  handoff->xRow = xRow;
  handoff->weights = weights;
  return lrmoeSuccess;
}

/* The rows of each token, and the token of each row unless rows are shifted. */
static lrmoeResult_t listTokens(struct lrmoeStep *step,
                                const struct lrmoeDeviceLayout *at,
                                const int64_t *shifts) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t numRows = step->backOffsets[step->plan->numRanks];
  int64_t length = step->numTokens + 1 + (shifts ? 1 : 2) * numRows;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockTokenLists,
                                    length * (int64_t)sizeof(int64_t),
                                    &step->tokenLists));
  step->devicePackTokens = step->tokenLists + step->numTokens + 1 + numRows;
  const struct lrmoeColumns columns = {
      .numRows = step->plan->numRanks,
      .numColumns = step->numTokens,
      .numbers = at->ownNumbers,
      .shifts = shifts,
      .offsets = step->tokenLists,
      .list = step->tokenLists + step->numTokens + 1,
      .columns = shifts ? NULL : step->devicePackTokens,
  };
  LRMOE_RUN(backend, listColumns, &columns, step->stream);
  return lrmoeSuccess;
}

static struct lrmoeDeviceLayout deviceLayout(const struct lrmoeStep *step) {
  return lrmoeDeviceLayoutAt(step, step->blocks[lrmoeBlockRoute].data);
}

lrmoeResult_t lrmoeDeviceRouteLists(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  const struct lrmoeDeviceLayout host =
      lrmoeDeviceLayoutAt(step, step->route.counts);
  int64_t *lengths = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayLengths, 2 * at.numLocal, &lengths));
  takeLengths(step, host.localOffsets, lengths);
  LRMOE_CHECK(lrmoeHandoffLayOut(step, lengths));
  step->handoff.numRows = step->backRecvOffsets[numRanks];
  LRMOE_CHECK(listHandoff(step, &at));
  return listTokens(step, &at, NULL);
}

lrmoeResult_t lrmoeDeviceRoutePairs(struct lrmoeStep *step, int64_t **pairs) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t count = step->keptOffsets[step->plan->numRanks];
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  struct lrmoeFlagged lists = lrmoeDeviceFlagged(step, &at, 1);
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockIndices,
                                    count * (int64_t)sizeof **pairs, pairs));
  lists.list = *pairs;
  LRMOE_RUN(backend, listFlagged, &lists, step->stream);
  LRMOE_RUN(backend, gatherIndices, count, *pairs, step->device.sorted, *pairs,
            step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceRouteSpread(struct lrmoeStep *step, int64_t stride) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t numRanks = step->plan->numRanks;
  int64_t numKept = step->handoff.numPairs;
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  int64_t *gRow = step->deviceDxRow - 2 * numKept;
  int64_t *shifts = NULL;
  int64_t *device = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayShifts, at.numLocal, &shifts));
  for (int64_t l = 0; l < at.numLocal; l++)
    shifts[l] = l % numRanks * stride - step->backRecvOffsets[l % numRanks];
  LRMOE_CHECK(
      LRMOE_UPLOAD(step, lrmoeArrayShifts, at.numLocal, shifts, &device));
  LRMOE_RUN(backend, copy, gRow, step->deviceDxRow,
            (size_t)numKept * sizeof *gRow, lrmoeCopyWithin, step->stream);
  const struct lrmoeShifts spread = {at.numLocal, step->route.localMost,
                                     at.localOffsets, device, gRow};
  LRMOE_RUN(backend, shiftLists, &spread, step->stream);
  step->handoff.gRow = gRow;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceRouteTokens(struct lrmoeStep *step,
                                     const int64_t *shifts) {
  const struct lrmoeDeviceLayout at = deviceLayout(step);
  int64_t *device = NULL;
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayShifts, step->plan->numRanks, shifts,
                           &device));
  return listTokens(step, &at, device);
}

lrmoeResult_t lrmoeDeviceRouteSpreadHome(struct lrmoeStep *step,
                                         int64_t stride) {
  int64_t numRanks = step->plan->numRanks;
  int64_t *shifts = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayShifts, numRanks, &shifts));
  for (int64_t d = 0; d < numRanks; d++)
    shifts[d] = d * stride - step->backOffsets[d];
  return lrmoeDeviceRouteTokens(step, shifts);
}

/* Flags of this rank's pairs, from those of all pairs. */
static void takeKept(struct lrmoeStep *step, const uint8_t *flags) {
  const struct lrmoePlan *plan = step->plan;
  const int64_t *base =
      step->sourceBase + (int64_t)step->layer->comm->rank * plan->numExperts;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int64_t first = step->expertOffsets[e];
    for (int64_t i = first; i < step->expertOffsets[e + 1]; i++)
      step->kept[step->sorted[i]] = flags[base[e] + i - first];
    flags += lrmoeSelectNumPairs(step, e);
  }
}

lrmoeResult_t lrmoeSelectionFetch(struct lrmoeStep *step) {
  int64_t numSlots = step->numTokens * step->layer->topk;
  uint8_t *flags = NULL;
  uint8_t *kept = NULL;
  if (!step->route.flags || step->kept) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayKeys, step->deviceKeys,
                                step->numPairs * (int64_t)sizeof *step->keys,
                                &step->keys));
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayFlags, step->route.flags,
                                step->plan->pairs, &flags));
  LRMOE_CHECK(lrmoeStepSynchronize(step));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayKept, numSlots, &kept));
  if (numSlots) memset(kept, 0, (size_t)numSlots);
  step->kept = kept;
  takeKept(step, flags);
  return lrmoeSuccess;
}
