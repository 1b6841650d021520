/* Routes: see route.h. */
#include "collectives/route.h"

#include <string.h>

/* Arrays of length G + 1 live in one block. */
enum {
  offsetsSend,
  offsetsRow,
  offsetsOut,
  offsetsRecv,
  offsetsRecvRow,
  offsetsBack,
  offsetsKept,
  offsetsBackRecv,
  offsetsKeptRecv,
  offsetsX,
  offsetsXRecv,
  offsetsAlpha,
  offsetsAlphaRecv,
  numOffsets
};

static lrmoeResult_t reserveOffsets(struct lrmoeStep *step) {
  int64_t length = step->layer->comm->numRanks + 1;
  int64_t *block = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayRanks, numOffsets * length, &block));
  memset(block, 0, (size_t)(numOffsets * length) * sizeof *block);
  step->sendOffsets = block + offsetsSend * length;
  step->rowOffsets = block + offsetsRow * length;
  step->outOffsets = block + offsetsOut * length;
  step->recvOffsets = block + offsetsRecv * length;
  step->recvRowOffsets = block + offsetsRecvRow * length;
  step->backOffsets = block + offsetsBack * length;
  step->keptOffsets = block + offsetsKept * length;
  step->backRecvOffsets = block + offsetsBackRecv * length;
  step->keptRecvOffsets = block + offsetsKeptRecv * length;
  step->xOffsets = block + offsetsX * length;
  step->xRecvOffsets = block + offsetsXRecv * length;
  step->alphaOffsets = block + offsetsAlpha * length;
  step->alphaRecvOffsets = block + offsetsAlphaRecv * length;
  return lrmoeSuccess;
}

static lrmoeResult_t reserveSource(struct lrmoeStep *step) {
  const struct lrmoeLayer *layer = step->layer;
  int64_t numRanks = layer->comm->numRanks;
  int64_t numExperts = layer->planner->numExperts;
  int64_t numSlots = step->numTokens * layer->topk;
  int64_t numPairs = step->numPairs;
  int64_t rowsPerToken = layer->topk < numRanks ? layer->topk : numRanks;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArraySourceBase, numRanks * numExperts,
                            &step->sourceBase));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArraySorted, numPairs, &step->sorted));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArraySortedWeights, numPairs,
                            &step->sortedWeights));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArraySortedTokens, numPairs,
                            &step->sortedTokens));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayNarrowTokens, numPairs, &step->tokens));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayExpertOffsets, numExperts + 1,
                            &step->expertOffsets));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayDest, numSlots, &step->dest));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWire, numPairs, &step->wire));
  return LRMOE_RESERVE(step, lrmoeArrayRowTokens,
                       step->numTokens * rowsPerToken, &step->rowTokens);
}

/* sorted: a counting sort by expert; stable, hence by (expert, token, slot). */
static void sortPairs(struct lrmoeStep *step) {
  int32_t numExperts = step->layer->planner->numExperts;
  int32_t k = step->layer->topk;
  int64_t numSlots = step->numTokens * k;
  int64_t *offsets = step->expertOffsets;
  const int64_t *mine =
      step->demand + (int64_t)step->layer->comm->rank * numExperts;
  /* offsets[e + 1] is the cursor of expert e, and ends where e + 1 begins. */
  offsets[0] = 0;
  int64_t sum = 0;
  for (int32_t e = 0; e < numExperts; e++) {
    offsets[e + 1] = sum;
    sum += mine[e];
  }
  for (int64_t pair = 0; pair < numSlots; pair++) {
    int64_t e = step->topkIdx[pair];
    if (e < 0) continue;
    int64_t i = offsets[e + 1]++;
    step->sorted[i] = pair;
    step->sortedWeights[i] = step->weights[pair];
    step->sortedTokens[i] = pair / k;
    step->tokens[i] = (int32_t)(pair / k);
  }
}

static void sumSources(struct lrmoeStep *step) {
  int32_t numExperts = step->layer->planner->numExperts;
  memset(step->sourceBase, 0, (size_t)numExperts * sizeof *step->sourceBase);
  for (int32_t s = 1; s < step->layer->comm->numRanks; s++) {
    const int64_t *before = step->sourceBase + (int64_t)(s - 1) * numExperts;
    const int64_t *demand = step->demand + (int64_t)(s - 1) * numExperts;
    int64_t *here = step->sourceBase + (int64_t)s * numExperts;
    for (int32_t e = 0; e < numExperts; e++)
      here[e] = before[e] + demand[e];
  }
}

static int64_t clamp(int64_t value, int64_t most) {
  return value < 0 ? 0 : value > most ? most : value;
}

struct lrmoeRange lrmoeRouteRange(const struct lrmoeStep *step, int32_t source,
                                  int32_t expert, int32_t instance) {
  const struct lrmoePlan *plan = step->plan;
  int64_t cell = (int64_t)source * plan->numExperts + expert;
  int64_t base = step->sourceBase[cell];
  int64_t count = step->demand[cell];
  int64_t first = -base;
  for (int32_t i = plan->instanceOffsets[expert]; i < instance; i++)
    first += plan->forwardPairs[i];
  int64_t last = first + plan->forwardPairs[instance];
  struct lrmoeRange range = {clamp(first, count), clamp(last, count)};
  return range;
}

/* Pairs of this rank per executor, as offsets. */
static void countDests(struct lrmoeStep *step) {
  const struct lrmoePlan *plan = step->plan;
  int64_t *offsets = step->sendOffsets;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++) {
      struct lrmoeRange range =
          lrmoeRouteRange(step, step->layer->comm->rank, e, i);
      offsets[plan->instanceRanks[i] + 1] += range.high - range.low;
    }
  }
  for (int32_t r = 0; r < plan->numRanks; r++)
    offsets[r + 1] += offsets[r];
}

/* Places the pairs of one expert that instance `i` executes. */
static void placePairs(struct lrmoeStep *step, int32_t e, int32_t i,
                       int64_t *cursors) {
  int32_t to = step->plan->instanceRanks[i];
  struct lrmoeRange range =
      lrmoeRouteRange(step, step->layer->comm->rank, e, i);
  for (int64_t o = range.low; o < range.high; o++) {
    int64_t at = step->expertOffsets[e] + o;
    step->dest[step->sorted[at]] = to;
    step->wire[cursors[to]++] = at;
  }
}

/* dest and wire order of this rank's pairs. */
static lrmoeResult_t routeSource(struct lrmoeStep *step) {
  const struct lrmoePlan *plan = step->plan;
  int64_t *cursors = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch, plan->numRanks, &cursors));
  countDests(step);
  memcpy(cursors, step->sendOffsets, (size_t)plan->numRanks * sizeof *cursors);
  for (int64_t i = 0; i < step->numTokens * step->layer->topk; i++)
    step->dest[i] = -1;
  for (int32_t e = 0; e < plan->numExperts; e++)
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++)
      placePairs(step, e, i, cursors);
  return lrmoeSuccess;
}

static lrmoeResult_t findInstances(struct lrmoeStep *step) {
  const struct lrmoePlan *plan = step->plan;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayInstances, plan->numInstances,
                            &step->instances));
  step->numInstances = 0;
  for (int32_t i = 0; i < plan->numInstances; i++)
    if (plan->instanceRanks[i] == step->layer->comm->rank)
      step->instances[step->numInstances++] = i;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayInstanceOffsets,
                            step->numInstances + 1, &step->instanceOffsets));
  return LRMOE_RESERVE(step, lrmoeArraySegments,
                       (int64_t)plan->numRanks * step->numInstances,
                       &step->segments);
}

/* Segments of (source, instance), in wire and in local order. */
static lrmoeResult_t routeExecutor(struct lrmoeStep *step) {
  LRMOE_CHECK(findInstances(step));
  int32_t numRanks = step->plan->numRanks;
  int32_t numInstances = step->numInstances;
  int64_t wire = 0;
  for (int32_t s = 0; s < numRanks; s++) {
    step->recvOffsets[s] = wire;
    for (int32_t j = 0; j < numInstances; j++) {
      struct lrmoeRange range = lrmoeRouteRange(
          step, s, lrmoeStepExpert(step, j), step->instances[j]);
      struct lrmoeSegment *segment = &step->segments[s * numInstances + j];
      segment->wire = wire;
      segment->count = range.high - range.low;
      wire += segment->count;
    }
  }
  step->recvOffsets[numRanks] = wire;
  int64_t local = 0;
  for (int32_t j = 0; j < numInstances; j++) {
    step->instanceOffsets[j] = local;
    for (int32_t s = 0; s < numRanks; s++) {
      struct lrmoeSegment *segment = &step->segments[s * numInstances + j];
      segment->local = local;
      local += segment->count;
    }
  }
  step->instanceOffsets[numInstances] = local;
  return lrmoeSuccess;
}

static lrmoeResult_t listWirePlaces(struct lrmoeStep *step) {
  int64_t numSegments = (int64_t)step->plan->numRanks * step->numInstances;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWirePlaces,
                            step->instanceOffsets[step->numInstances],
                            &step->wirePlaces));
  for (int64_t k = 0; k < numSegments; k++) {
    const struct lrmoeSegment *segment = &step->segments[k];
    for (int64_t i = 0; i < segment->count; i++)
      step->wirePlaces[segment->wire + i] = segment->local + i;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t uploadRoute(struct lrmoeStep *step) {
  struct lrmoeStepDevice *device = &step->device;
  int64_t numPairs = step->numPairs;
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArraySorted, numPairs, step->sorted,
                           &device->sorted));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArraySortedTokens, numPairs,
                           step->sortedTokens, &device->sortedTokens));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayNarrowTokens, numPairs, step->tokens,
                           &device->tokens));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArraySortedWeights, numPairs,
                           step->sortedWeights, &device->sortedWeights));
  LRMOE_CHECK(
      LRMOE_UPLOAD(step, lrmoeArrayWire, numPairs, step->wire, &device->wire));
  return LRMOE_UPLOAD(step, lrmoeArrayWirePlaces,
                      step->instanceOffsets[step->numInstances],
                      step->wirePlaces, &device->wirePlaces);
}

lrmoeResult_t lrmoeRoutePrepare(struct lrmoeStep *step) {
  LRMOE_CHECK(reserveOffsets(step));
  LRMOE_CHECK(reserveSource(step));
  sortPairs(step);
  sumSources(step);
  LRMOE_CHECK(routeSource(step));
  LRMOE_CHECK(routeExecutor(step));
  LRMOE_CHECK(listWirePlaces(step));
  return uploadRoute(step);
}

/* Goes over the pairs in order and gives each (token, executor) the next row
 * of the executor.  seen [G] is the last token with a row, cursors [G] the next
 * row; writes tokens when isPlacing. */
static void walkRows(const struct lrmoeStep *step,
                     const struct lrmoeRowRoute *route, int64_t *seen,
                     int64_t *cursors, int isPlacing) {
  int32_t k = route->perToken;
  for (int32_t r = 0; r < step->plan->numRanks; r++)
    seen[r] = -1;
  for (int64_t pair = 0; pair < step->numTokens * k; pair++) {
    int32_t to = route->dest[pair];
    if (to < 0 || seen[to] == pair / k) continue;
    seen[to] = pair / k;
    if (isPlacing) route->tokens[cursors[to]] = pair / k;
    cursors[to]++;
  }
}

lrmoeResult_t lrmoeRouteRows(struct lrmoeStep *step,
                             const struct lrmoeRowRoute *route) {
  int32_t numRanks = step->plan->numRanks;
  int64_t *seen = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch, 2 * (int64_t)numRanks, &seen));
  int64_t *cursors = seen + numRanks;
  memset(cursors, 0, (size_t)numRanks * sizeof *cursors);
  walkRows(step, route, seen, cursors, 0);
  route->offsets[0] = 0;
  for (int32_t r = 0; r < numRanks; r++)
    route->offsets[r + 1] = route->offsets[r] + cursors[r];
  memcpy(cursors, route->offsets, (size_t)numRanks * sizeof *cursors);
  walkRows(step, route, seen, cursors, 1);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeListsMake(struct lrmoeStep *step,
                             const struct lrmoeLists *lists,
                             int64_t **offsets) {
  int64_t length = 2 * lists->numOut + 1 + lists->numRows;
  int64_t *made = NULL; /* offsets, list, room for the backend */
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lists->block,
                                    length * (int64_t)sizeof *made, &made));
  const struct lrmoeInversion inversion = {
      .numItems = lists->numRows,
      .targets = lists->target,
      .numLists = lists->numOut,
      .offsets = made,
      .list = made + lists->numOut + 1,
      .work = made + lists->numOut + 1 + lists->numRows,
  };
  LRMOE_RUN(step->layer->backend, invert, &inversion, step->stream);
  *offsets = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeSumListed(struct lrmoeStep *step,
                             const struct lrmoeSums *sums, const void *rows,
                             const float *weights, void *out) {
  const struct lrmoeLayer *layer = step->layer;
  const struct lrmoeGatherSum sum = {{rows, NULL, layer->type, layer->hidden},
                                     sums->last - sums->first,
                                     sums->offsets + sums->first,
                                     sums->offsets + sums->numOut + 1,
                                     weights,
                                     out};
  LRMOE_RUN(layer->backend, gatherSum, &sum, step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeSumRows(struct lrmoeStep *step,
                           const struct lrmoeLists *lists, const void *rows,
                           const float *weights, void *out) {
  int64_t *offsets = NULL;
  LRMOE_CHECK(lrmoeListsMake(step, lists, &offsets));
  const struct lrmoeSums sums = {offsets, lists->numOut, 0, lists->numOut};
  return lrmoeSumListed(step, &sums, rows, weights, out);
}
