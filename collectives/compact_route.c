/* The route of a backward: which rows cross, and the handoff's indices.
 *
 * Source and executor work the same sequences out by themselves.  Kept pairs
 * of a (source, executor) come by expert, those that stayed before those that
 * moved, by ordinal.  Rows of g and rows of x come by token: the executor knows
 * the tokens of its own forward pairs since dispatch, and those of pairs that
 * moved here since selection. */
#include "collectives/compact.h"
#include "collectives/device_route.h"
#include "collectives/handoff.h"
#include "collectives/node.h"
#include "collectives/route.h"

#include <string.h>

static int isMasked(const struct lrmoeStep *step) {
  return step->config.wire == lrmoeWireMasked;
}

/* Where a pair's row goes, -1: nowhere. */
static int32_t wireDest(const struct lrmoeStep *step, int64_t pair) {
  return isMasked(step) ? step->dest[pair] : step->backDest[pair];
}

int lrmoeCompactComesWithX(const struct lrmoeStep *step, int64_t pair) {
  return step->layer->savedState == lrmoeSavedNone ||
         wireDest(step, pair) != step->dest[pair];
}

/* ---- Source ---- */

/* Counts of kept pairs, and of those that come with x, per executor. */
static void countKept(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  size_t bytes = (size_t)(numRanks + 1) * sizeof(int64_t);
  memset(step->keptOffsets, 0, bytes);
  memset(step->alphaOffsets, 0, bytes);
  for (int64_t i = 0; i < step->numPairs; i++) {
    int32_t to = wireDest(step, step->sorted[i]);
    if (to < 0) continue;
    step->keptOffsets[to + 1]++;
    step->alphaOffsets[to + 1] += lrmoeCompactComesWithX(step, step->sorted[i]);
  }
  for (int32_t r = 0; r < numRanks; r++) {
    step->keptOffsets[r + 1] += step->keptOffsets[r];
    step->alphaOffsets[r + 1] += step->alphaOffsets[r];
  }
}

/* Lists the pairs of expert e that stayed, or those that come with x. */
static void listExpert(struct lrmoeStep *step, int32_t e, int isMoved,
                       int64_t *cursors) {
  for (int64_t i = step->expertOffsets[e]; i < step->expertOffsets[e + 1];
       i++) {
    int64_t pair = step->sorted[i];
    int32_t to = wireDest(step, pair);
    if (to >= 0 && lrmoeCompactComesWithX(step, pair) == isMoved)
      step->keptWire[cursors[to]++] = i;
  }
}

/* keptWire, with cursors [G] into it. */
static void listKept(struct lrmoeStep *step, int64_t *cursors) {
  memcpy(cursors, step->keptOffsets,
         (size_t)step->plan->numRanks * sizeof *cursors);
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    listExpert(step, e, 0, cursors);
    listExpert(step, e, 1, cursors);
  }
}

/* A row of g per (token, executor); with router gradient executor also to the
 * ranks where forward ran. */
static lrmoeResult_t routeTokens(struct lrmoeStep *step) {
  int32_t k = step->layer->topk;
  struct lrmoeRowRoute route = {step->backDest, k, step->backOffsets,
                                step->backTokens};
  if (step->layer->routerGrad != lrmoeRouterGradExecutor)
    return lrmoeRouteRows(step, &route);
  int32_t *dest = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayXDest, 2 * step->numTokens * k, &dest));
  for (int64_t pair = 0; pair < step->numTokens * k; pair++) {
    dest[2 * pair] = step->dest[pair];
    dest[2 * pair + 1] = step->backDest[pair];
  }
  route.dest = dest;
  route.perToken = 2 * k;
  return lrmoeRouteRows(step, &route);
}

/* A row of g per (token, executor), or per pair. */
static lrmoeResult_t routeG(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numKept = step->keptOffsets[numRanks];
  int64_t perToken = 2 * (int64_t)step->layer->topk; /* with both ranks */
  int64_t maxRows = step->layer->routerGrad == lrmoeRouterGradExecutor
                        ? step->numTokens * perToken
                        : numKept;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayBackTokens, maxRows, &step->backTokens));
  step->packTokens = step->backTokens;
  lrmoeMeterAdd(&step->meter, 2 * numKept * (int64_t)sizeof(int64_t));
  if (lrmoeWireIsDedup(step)) return routeTokens(step);
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayPackTokens, numKept, &step->packTokens));
  memcpy(step->backOffsets, step->keptOffsets,
         (size_t)(numRanks + 1) * sizeof *step->backOffsets);
  for (int64_t i = 0; i < numKept; i++) {
    int64_t at = step->keptWire[i];
    step->backTokens[i] = step->sortedTokens[at];
    step->packTokens[i] =
        step->kept[step->sorted[at]] ? step->sortedTokens[at] : -1;
  }
  return lrmoeSuccess;
}

/* A row of x per (token, executor) that needs it. */
static lrmoeResult_t routeX(struct lrmoeStep *step) {
  int64_t numSlots = step->numTokens * step->layer->topk;
  int64_t numMoved = step->alphaOffsets[step->plan->numRanks];
  int32_t *dest = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayXDest, numSlots, &dest));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayXTokens, numMoved, &step->xTokens));
  lrmoeMeterAdd(&step->meter, numMoved * (int64_t)sizeof(int64_t));
  for (int64_t pair = 0; pair < numSlots; pair++) {
    int32_t to = wireDest(step, pair);
    dest[pair] = to >= 0 && lrmoeCompactComesWithX(step, pair) ? to : -1;
  }
  const struct lrmoeRowRoute route = {dest, step->layer->topk, step->xOffsets,
                                      step->xTokens};
  return lrmoeRouteRows(step, &route);
}

static lrmoeResult_t routeSource(struct lrmoeStep *step) {
  int64_t *cursors = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch, step->plan->numRanks, &cursors));
  countKept(step);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayKeptWire,
                            step->keptOffsets[step->plan->numRanks],
                            &step->keptWire));
  listKept(step, cursors);
  LRMOE_CHECK(routeG(step));
  return routeX(step);
}

/* ---- Executor ---- */

/* Pairs of one (instance, source): those that stayed here, or those that come
 * with x. */
struct pairList {
  int32_t instance;
  int32_t source;
  int isMoved;
};

/* With masked rows every pair is in the list. */
static int isListed(const struct lrmoeStep *step, int64_t p) {
  return isMasked(step) || step->keptLocal[p];
}

static int64_t countListed(const struct lrmoeStep *step,
                           const struct pairList *list) {
  const struct lrmoeSegment *segment =
      &step->segments[(int64_t)list->source * step->numInstances +
                      list->instance];
  const int64_t *moved =
      &step->movedOffsets[(int64_t)list->instance * step->plan->numRanks +
                          list->source];
  if (list->isMoved) return moved[1] - moved[0];
  if (isMasked(step) && step->layer->savedState == lrmoeSavedNone) return 0;
  int64_t count = 0;
  for (int64_t i = 0; i < segment->count; i++)
    count += isListed(step, segment->local + i);
  return count;
}

static lrmoeResult_t layOutHandoff(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numLists = (int64_t)step->numInstances * 2 * numRanks;
  int64_t *lengths = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayLengths, numLists, &lengths));
  for (int64_t i = 0; i < numLists; i++)
    lengths[i] =
        countListed(step, &(struct pairList){(int32_t)(i / numRanks / 2),
                                             (int32_t)(i % numRanks),
                                             (int)(i / numRanks % 2)});
  return lrmoeHandoffLayOut(step, lengths);
}

static lrmoeResult_t reserveHandoff(struct lrmoeStep *step) {
  int64_t numKept = step->handoff.numPairs;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayHandoffRows, 4 * numKept, &step->fwdRow));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayHandoffWeights, numKept,
                            &step->backWeights));
  step->gRow = step->fwdRow + numKept;
  step->backXRow = step->fwdRow + 2 * numKept;
  step->dxRow = step->gRow;
  return lrmoeSuccess;
}

/* Fills fwdRow and weights of one list, and leaves the token of each row in
 * gRow; alphas of moved pairs come later. */
static void fillList(struct lrmoeStep *step, const struct pairList *list) {
  int64_t numRanks = step->plan->numRanks;
  int64_t row =
      step->keptSegments[((int64_t)list->instance * 2 + list->isMoved) *
                             numRanks +
                         list->source];
  int64_t end = row + countListed(step, list);
  if (list->isMoved) {
    int64_t moved =
        step->movedOffsets[list->instance * numRanks + list->source];
    for (; row < end; row++) {
      step->fwdRow[row] = -1;
      step->backWeights[row] = 0;
      step->gRow[row] = step->movedTokens[moved++];
    }
    return;
  }
  int64_t p = step->segments[(int64_t)list->source * step->numInstances +
                             list->instance]
                  .local;
  for (; row < end; p++) {
    if (!isListed(step, p)) continue;
    step->fwdRow[row] = p;
    step->backWeights[row] = step->alpha[p];
    step->backXRow[row] = step->xRow[p];
    step->gRow[row++] = step->pairToken[p];
  }
}

/* Numbers the distinct tokens that are marked (0) from `row` on, ascending. */
static int64_t numberTokens(int64_t maxTokens, int64_t *marks, int64_t row) {
  for (int64_t t = 0; t < maxTokens; t++)
    if (marks[t] == 0) marks[t] = row++;
  return row;
}

/* Rows [first, last) of one list of source s. */
static void listRange(const struct lrmoeStep *step, int64_t list,
                      int64_t *first, int64_t *last) {
  *first = step->keptSegments[list];
  *last = step->keptSegments[list + 1];
}

/* Router gradient executor: every pair of the source needs its row of g. */
static void markAll(const struct lrmoeStep *step, int32_t s, int64_t *marks) {
  if (step->layer->routerGrad != lrmoeRouterGradExecutor) return;
  for (int32_t j = 0; j < step->numInstances; j++) {
    const struct lrmoeSegment *segment =
        &step->segments[(int64_t)s * step->numInstances + j];
    for (int64_t i = 0; i < segment->count; i++)
      marks[step->pairToken[segment->local + i]] = 0;
  }
}

static void rowsOfAll(struct lrmoeStep *step, int32_t s, const int64_t *marks) {
  if (step->layer->routerGrad != lrmoeRouterGradExecutor) return;
  for (int32_t j = 0; j < step->numInstances; j++) {
    const struct lrmoeSegment *segment =
        &step->segments[(int64_t)s * step->numInstances + j];
    for (int64_t p = segment->local; p < segment->local + segment->count; p++)
      step->allRows[p] = marks[step->pairToken[p]];
  }
}

/* From tokens to rows of g and of x for the lists of one source; marks has
 * room for two times maxTokens. */
static void numberSource(struct lrmoeStep *step, int32_t s, int64_t *marks) {
  int64_t numRanks = step->plan->numRanks;
  int64_t maxTokens = step->layer->maxTokens;
  int isDedup = lrmoeWireIsDedup(step);
  int64_t *xMarks = marks + maxTokens;
  int64_t wireRow = step->backRecvOffsets[s];
  int64_t first;
  int64_t last;
  for (int64_t t = 0; t < 2 * maxTokens; t++)
    marks[t] = -1;
  for (int64_t l = s; l < 2 * numRanks * step->numInstances; l += numRanks) {
    listRange(step, l, &first, &last);
    for (int64_t i = first; i < last; i++) {
      marks[step->gRow[i]] = 0;
      if (step->fwdRow[i] < 0) xMarks[step->gRow[i]] = 0;
    }
  }
  markAll(step, s, marks);
  step->backRecvOffsets[s + 1] =
      isDedup ? numberTokens(maxTokens, marks, wireRow) : wireRow;
  step->xRecvOffsets[s + 1] =
      numberTokens(maxTokens, xMarks, step->xRecvOffsets[s]);
  for (int64_t l = s; l < 2 * numRanks * step->numInstances; l += numRanks) {
    listRange(step, l, &first, &last);
    for (int64_t i = first; i < last; i++) {
      int64_t token = step->gRow[i];
      if (step->fwdRow[i] < 0) step->backXRow[i] = xMarks[token];
      step->gRow[i] = isDedup ? marks[token] : wireRow++;
    }
  }
  if (!isDedup) step->backRecvOffsets[s + 1] = wireRow;
  rowsOfAll(step, s, marks);
}

static lrmoeResult_t routeExecutor(struct lrmoeStep *step) {
  int32_t numRanks = step->plan->numRanks;
  int64_t *marks = NULL;
  LRMOE_CHECK(layOutHandoff(step));
  if (step->layer->routerGrad == lrmoeRouterGradExecutor)
    LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayAllRows,
                              step->instanceOffsets[step->numInstances],
                              &step->allRows));
  LRMOE_CHECK(reserveHandoff(step));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch, 2 * step->layer->maxTokens,
                            &marks));
  lrmoeMeterAdd(&step->meter,
                2 * step->layer->maxTokens * (int64_t)sizeof *marks);
  step->backRecvOffsets[0] = 0;
  step->xRecvOffsets[0] = 0;
  for (int32_t s = 0; s < numRanks; s++) {
    for (int32_t j = 0; j < step->numInstances; j++) {
      fillList(step, &(struct pairList){j, s, 0});
      fillList(step, &(struct pairList){j, s, 1});
    }
    numberSource(step, s, marks);
  }
  step->handoff.numRows = step->backRecvOffsets[numRanks];
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCompactRoute(struct lrmoeStep *step) {
  step->handoff = (lrmoeHandoff_t)LRMOE_HANDOFF_INITIALIZER;
  if (step->route.flags) return lrmoeDeviceRouteLists(step);
  LRMOE_CHECK(routeSource(step));
  return routeExecutor(step);
}
