/* The route of a backward on the device: see device_route.h.
 *
 * Whatever this rank keeps, as source or as executor, is ranges of flags
 * (device_ranges.c), and lists are the flagged items of ranges; labels
 * (device_labels.c) tell whose a pair is.  A row of g crosses once per (token,
 * rank).  The source marks (executor, token), the executor (source, token);
 * numbers of the marks are the rows' numbers on both ends.  Rows of x have
 * marks of their own. */
#include "collectives/device_route.h"

#include "collectives/device_layout.h"
#include "collectives/route.h"
#include "collectives/select.h"

#include <string.h>

static int32_t mostInstances(const struct lrmoePlan *plan) {
  int32_t most = 0;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int32_t count = plan->instanceOffsets[e + 1] - plan->instanceOffsets[e];
    if (count > most) most = count;
  }
  return most;
}

int lrmoeDeviceRouteHasX(const struct lrmoeStep *step) {
  return step->layer->savedState == lrmoeSavedNone || lrmoeStepMayMove(step);
}

int lrmoeDeviceRouteIsPossible(const struct lrmoeStep *step) {
  const struct lrmoeLayer *layer = step->layer;
  return !layer->backend->isHost && step->config.scope != lrmoeScopeLayer &&
         step->config.wire == lrmoeWireDedup &&
         mostInstances(step->plan) <= lrmoeMaxLabelled;
}

/* ---- Layout ---- */

static int64_t roundUp(int64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/* Sides: marks of rows of g, of the source and the executor; then of x. */
enum {
  ownG,
  localG,
  ownX,
  localX,
  numSides
};

static int sidesOf(const struct lrmoeDeviceLayout *at) {
  return at->hasX ? numSides : ownX;
}

static int64_t marksOf(const struct lrmoeDeviceLayout *at, int side) {
  return side % 2 == ownG ? at->ownMarks : at->localMarks;
}

static uint8_t *marksAt(const struct lrmoeDeviceLayout *at, int side) {
  uint8_t *marks = at->marks;
  for (int i = 0; i < side; i++)
    marks += roundUp(marksOf(at, i));
  return marks;
}

static int64_t *numbersAt(const struct lrmoeDeviceLayout *at, int side) {
  int64_t *const numbers[] = {at->ownNumbers, at->localNumbers, at->ownX,
                              at->localX};
  return numbers[side];
}

/* Words that the host reads. */
static int64_t readWords(const struct lrmoeStep *step,
                         const struct lrmoeDeviceLayout *at) {
  return 2 * at->numOwn + at->numLocal + 2 + at->numLabelled +
         sidesOf(at) * ((int64_t)step->plan->numRanks + 1);
}

static struct lrmoeDeviceLayout sizesOf(const struct lrmoeStep *step) {
  const struct lrmoePlan *plan = step->plan;
  return (struct lrmoeDeviceLayout){
      .numOwn = 2 * (int64_t)plan->numInstances,
      .numLocal = 2 * (int64_t)step->numInstances * plan->numRanks,
      .numLabelled = lrmoeDeviceNumLabelled(step),
      .ownMarks = plan->numRanks * step->numTokens,
      .localMarks = plan->numRanks * step->layer->maxTokens,
      .hasX = lrmoeDeviceRouteHasX(step),
  };
}

static void pointTo(const struct lrmoeStep *step, int64_t *block,
                    struct lrmoeDeviceLayout *at) {
  at->ownOffsets = block;
  at->localOffsets = at->ownOffsets + at->numOwn + 1;
  at->dropped = at->localOffsets + at->numLocal + 1;
  at->missing = at->dropped + at->numOwn;
  at->rows = at->missing + at->numLabelled;
  at->ownNumbers = at->rows + sidesOf(at) * ((int64_t)step->plan->numRanks + 1);
  at->localNumbers = at->ownNumbers + at->ownMarks + 1;
  int64_t *end = at->localNumbers + at->localMarks + 1;
  if (at->hasX) {
    at->ownX = end;
    at->localX = at->ownX + at->ownMarks + 1;
    end = at->localX + at->localMarks + 1;
  }
  at->marks = (uint8_t *)end;
}

static int64_t markBytes(const struct lrmoeDeviceLayout *at) {
  int64_t bytes = 0;
  for (int side = 0; side < sidesOf(at); side++)
    bytes += roundUp(marksOf(at, side));
  return bytes;
}

static lrmoeResult_t openLayout(struct lrmoeStep *step,
                                struct lrmoeDeviceLayout *at) {
  int64_t *block = NULL;
  *at = sizesOf(step);
  int64_t words = readWords(step, at);
  for (int side = 0; side < sidesOf(at); side++)
    words += marksOf(at, side) + 1;
  int64_t bytes = words * (int64_t)sizeof *block + markBytes(at);
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockRoute, bytes, &block));
  pointTo(step, block, at);
  lrmoeMeterAdd(&step->meter, bytes);
  return lrmoeSuccess;
}

struct lrmoeDeviceLayout lrmoeDeviceLayoutAt(const struct lrmoeStep *step,
                                             void *block) {
  struct lrmoeDeviceLayout at = sizesOf(step);
  pointTo(step, block, &at);
  return at;
}

/* ---- Counting ---- */

static int hasKeys(const struct lrmoeStep *step) {
  return step->config.metric != lrmoeMetricAll;
}

static lrmoeResult_t countSide(struct lrmoeStep *step,
                               const struct lrmoeDeviceLayout *at, int isOwn) {
  int side = isOwn ? ownG : localG;
  struct lrmoeFlagCount count = {
      .lists = lrmoeDeviceFlagged(step, at, isOwn),
      .marks = marksAt(at, side),
      .xMarks = at->hasX ? marksAt(at, side + ownX) : NULL,
      .keys = isOwn && hasKeys(step) ? step->deviceKeys : NULL,
      .dropped = at->dropped,
  };
  count.marked = count.lists.wanted + count.lists.numLists;
  LRMOE_RUN(step->layer->backend, countFlagged, &count, step->stream);
  return lrmoeSuccess;
}

/* Numbers the marks of every side, and gathers where each rank's begin. */
static lrmoeResult_t numberSides(struct lrmoeStep *step,
                                 const struct lrmoeDeviceLayout *at,
                                 const int64_t *boundaries) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t length = step->plan->numRanks + 1;
  for (int side = 0; side < sidesOf(at); side++) {
    LRMOE_RUN(backend, numberMarks, marksOf(at, side), marksAt(at, side),
              numbersAt(at, side), step->stream);
    LRMOE_RUN(backend, gatherIndices, length, boundaries + side % 2 * length,
              numbersAt(at, side), at->rows + side * length, step->stream);
  }
  return lrmoeSuccess;
}

/* Local pairs' tokens before those that may move here. */
static lrmoeResult_t joinTokens(struct lrmoeStep *step) {
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  LRMOE_RUN(step->layer->backend, copy, step->route.tokens,
            step->device.pairToken,
            (size_t)numLocal * sizeof *step->device.pairToken, lrmoeCopyWithin,
            step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t
lrmoeDeviceRouteCount(struct lrmoeStep *step,
                      const struct lrmoeDeviceSelected *selected) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t *boundaries = NULL;
  struct lrmoeDeviceLayout at;
  step->route = (struct lrmoeDeviceRoute){.flags = selected->flags,
                                          .tokens = selected->tokens,
                                          .tokenFirsts = selected->tokenFirsts};
  LRMOE_CHECK(joinTokens(step));
  LRMOE_CHECK(openLayout(step, &at));
  LRMOE_CHECK(lrmoeDeviceTabulate(step, &at, &boundaries));
  LRMOE_CHECK(lrmoeDeviceLabel(step, &at));
  LRMOE_RUN(backend, clear, at.marks, (size_t)markBytes(&at), step->stream);
  LRMOE_CHECK(countSide(step, &at, 1));
  LRMOE_CHECK(countSide(step, &at, 0));
  LRMOE_CHECK(numberSides(step, &at, boundaries));
  return lrmoeStepDownload(step, lrmoeArrayRouteCounts, at.ownOffsets,
                           readWords(step, &at) *
                               (int64_t)sizeof *step->route.counts,
                           &step->route.counts);
}

/* ---- Counts on the host ---- */

/* Pairs of an array of lists that come with x. */
static int64_t countMoved(const int64_t *offsets, int64_t first, int64_t end) {
  int64_t count = 0;
  for (int64_t l = first + 1; l < end; l += 2)
    count += offsets[l + 1] - offsets[l];
  return count;
}

static lrmoeResult_t checkMissing(const struct lrmoeStep *step,
                                  const struct lrmoeDeviceLayout *at) {
  for (int64_t n = 0; n < at->numLabelled; n++)
    if (at->missing[n])
      return LRMOE_FAIL(lrmoeInternalError,
                        "expert %d: %lld pairs of the plan's share are missing",
                        lrmoeDeviceLabelled(step, n),
                        (long long)at->missing[n]);
  return lrmoeSuccess;
}

static void takeStats(struct lrmoeStep *step,
                      const struct lrmoeDeviceLayout *at) {
  int64_t numRanks = step->plan->numRanks;
  step->stats.kept = at->ownOffsets[at->numOwn];
  step->stats.executedKept = at->localOffsets[at->numLocal];
  for (int64_t l = numRanks; l < at->numLocal; l += 2 * numRanks)
    step->stats.movedIn += at->localOffsets[l + numRanks] - at->localOffsets[l];
  for (int64_t l = 0; l < at->numOwn && hasKeys(step); l += 2)
    step->stats.nonFiniteDropped += at->dropped[l];
}

lrmoeResult_t lrmoeDeviceRouteTake(struct lrmoeStep *step) {
  int64_t numRanks = step->plan->numRanks;
  size_t bytes = (size_t)(numRanks + 1) * sizeof(int64_t);
  const struct lrmoeDeviceLayout at =
      lrmoeDeviceLayoutAt(step, step->route.counts);
  const int64_t *lists = step->route.rankLists;
  int64_t *const rows[] = {step->backOffsets, step->backRecvOffsets,
                           step->xOffsets, step->xRecvOffsets};
  LRMOE_CHECK(checkMissing(step, &at));
  step->alphaOffsets[0] = 0;
  for (int64_t r = 0; r <= numRanks; r++)
    step->keptOffsets[r] = at.ownOffsets[lists[r]];
  for (int64_t r = 0; r < numRanks; r++)
    step->alphaOffsets[r + 1] =
        step->alphaOffsets[r] +
        countMoved(at.ownOffsets, lists[r], lists[r + 1]);
  for (int side = 0; side < numSides; side++)
    if (side < sidesOf(&at))
      memcpy(rows[side], at.rows + side * (numRanks + 1), bytes);
    else
      memset(rows[side], 0, bytes);
  takeStats(step, &at);
  return lrmoeSuccess;
}

/* ---- All pairs ---- */

lrmoeResult_t lrmoeDeviceKeepAll(struct lrmoeStep *step) {
  const int64_t numPairs = step->plan->pairs;
  const int64_t table[] = {0, numPairs, numPairs}; /* offsets, quota */
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  int64_t *device = NULL;
  struct lrmoeDeviceSelected selected = {NULL, NULL, NULL};
  struct lrmoeSelection all = {.numSegments = 1, .maxPairs = numPairs};
  LRMOE_CHECK(
      lrmoeStepReserveBlock(step, lrmoeBlockFlags, numPairs, &selected.flags));
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockTokens,
                                    numLocal * (int64_t)sizeof *selected.tokens,
                                    &selected.tokens));
  LRMOE_CHECK(
      lrmoeStepUpload(step, lrmoeArraySelection, table, sizeof table, &device));
  LRMOE_CHECK(lrmoeSelectReserveWork(step, &all));
  all.offsets = device;
  all.quotas = device + 2;
  all.flags = selected.flags;
  LRMOE_RUN(step->layer->backend, selectTop, &all, step->stream);
  LRMOE_CHECK(lrmoeDeviceRouteCount(step, &selected));
  if (lrmoeDeviceRouteMayDefer(step)) {
    lrmoeDeviceRouteDefer(step, NULL);
    return lrmoeSuccess;
  }
  LRMOE_CHECK(lrmoeStepSynchronize(step));
  return lrmoeDeviceRouteTake(step);
}
