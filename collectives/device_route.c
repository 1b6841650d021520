/* The route of a backward on the device: see device_route.h.
 *
 * Flags lie by (expert, source, ordinal), and so do the pairs of an instance;
 * hence whatever this rank keeps, as source or as executor, is ranges of flags
 * that follow from demand and plan, and lists are the flagged items of ranges:
 *
 *   Source    a range per instance, executors ascending: its items are this
 *             rank's sorted pairs, its list a stretch of the wire order.
 *   Executor  a range per (instance, source): its items are local pairs, its
 *             list a stretch of the handoff.
 *
 * A row of g crosses once per (token, rank).  The source marks (executor,
 * token), the executor the forward's row of x, which is its (source, token);
 * numbers of the marks are the rows' numbers on both ends. */
#include "collectives/device_route.h"

#include "collectives/device_layout.h"
#include "collectives/route.h"
#include "collectives/select.h"

#include <string.h>

int lrmoeDeviceRouteIsPossible(const struct lrmoeStep *step) {
  const struct lrmoeLayer *layer = step->layer;
  return !layer->backend->isHost && step->config.metric != lrmoeMetricAll &&
         step->config.scope != lrmoeScopeLayer &&
         step->config.wire == lrmoeWireDedup &&
         layer->comm->numRanks <= layer->gatherRanks &&
         layer->savedState == lrmoeSavedFull &&
         layer->routerGrad != lrmoeRouterGradExecutor &&
         !lrmoeStepMayMove(step);
}

/* ---- Ranges ---- */

/* Arrays of one side's ranges in a table. */
struct tables {
  int64_t *flagFirsts;
  int64_t *itemFirsts;
  int64_t *counts;
  int64_t *placeFirsts;
};

enum {
  numTables = 4
};

static struct tables tablesAt(int64_t *at, int64_t numLists) {
  return (struct tables){at, at + numLists, at + 2 * numLists,
                         at + 3 * numLists};
}

static void addRange(const struct tables *tables, int64_t l, int64_t flagFirst,
                     int64_t itemFirst, int64_t count) {
  tables->flagFirsts[l] = flagFirst;
  tables->itemFirsts[l] = itemFirst;
  tables->counts[l] = count;
}

/* This rank's pairs that instance i of expert e executed; flags of the expert
 * begin at `first`. */
static int64_t addOwn(const struct lrmoeStep *step, const struct tables *tables,
                      int64_t l, int32_t e, int32_t i) {
  int32_t rank = step->layer->comm->rank;
  int64_t cell = (int64_t)rank * step->plan->numExperts + e;
  struct lrmoeRange range = lrmoeRouteRange(step, rank, e, i);
  addRange(tables, l, step->sourceBase[cell] + range.low,
           step->expertOffsets[e] + range.low, range.high - range.low);
  return range.high - range.low;
}

/* Ranges of the source; rankLists [G + 1]: of each executor. */
static int64_t tabulateSource(const struct lrmoeStep *step,
                              const int64_t *flagFirsts,
                              const struct tables *tables, int64_t *rankLists) {
  const struct lrmoePlan *plan = step->plan;
  int64_t l = 0;
  int64_t most = 0;
  for (int32_t d = 0; d < plan->numRanks; d++) {
    rankLists[d] = l;
    for (int32_t e = 0; e < plan->numExperts; e++)
      for (int32_t i = plan->instanceOffsets[e];
           i < plan->instanceOffsets[e + 1]; i++) {
        if (plan->instanceRanks[i] != d) continue;
        int64_t count = addOwn(step, tables, l, e, i);
        tables->flagFirsts[l] += flagFirsts[e];
        tables->placeFirsts[l++] = d * step->numTokens;
        if (count > most) most = count;
      }
  }
  rankLists[plan->numRanks] = l;
  return most;
}

static int64_t tabulateExecutor(const struct lrmoeStep *step,
                                const int64_t *flagFirsts,
                                const struct tables *tables) {
  const struct lrmoePlan *plan = step->plan;
  int64_t most = 0;
  for (int32_t j = 0; j < step->numInstances; j++) {
    int32_t e = lrmoeStepExpert(step, j);
    int64_t first = flagFirsts[e] - step->instanceOffsets[j];
    for (int32_t i = plan->instanceOffsets[e]; i < step->instances[j]; i++)
      first += plan->forwardPairs[i];
    for (int32_t s = 0; s < plan->numRanks; s++) {
      const struct lrmoeSegment *segment =
          &step->segments[(int64_t)s * step->numInstances + j];
      int64_t l = (int64_t)j * plan->numRanks + s;
      addRange(tables, l, first + segment->local, segment->local,
               segment->count);
      tables->placeFirsts[l] = 0;
      if (segment->count > most) most = segment->count;
    }
  }
  return most;
}

/* ---- Counting ---- */

static int64_t roundUp(int64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/* Words that the host reads. */
static int64_t readWords(const struct lrmoeStep *step,
                         const struct lrmoeDeviceLayout *at) {
  return 2 * at->numOwn + at->numLocal + 2 +
         2 * ((int64_t)step->plan->numRanks + 1);
}

static struct lrmoeDeviceLayout sizesOf(const struct lrmoeStep *step) {
  const struct lrmoePlan *plan = step->plan;
  return (struct lrmoeDeviceLayout){
      .numOwn = plan->numInstances,
      .numLocal = (int64_t)step->numInstances * plan->numRanks,
      .ownMarks = plan->numRanks * step->numTokens,
      .localMarks = step->recvRowOffsets[plan->numRanks],
  };
}

static void pointTo(const struct lrmoeStep *step, int64_t *block,
                    struct lrmoeDeviceLayout *at) {
  int64_t numRanks = step->plan->numRanks;
  at->ownOffsets = block;
  at->localOffsets = at->ownOffsets + at->numOwn + 1;
  at->dropped = at->localOffsets + at->numLocal + 1;
  at->ownRows = at->dropped + at->numOwn;
  at->localRows = at->ownRows + numRanks + 1;
  at->ownNumbers = at->localRows + numRanks + 1;
  at->localNumbers = at->ownNumbers + at->ownMarks + 1;
  at->marks = (uint8_t *)(at->localNumbers + at->localMarks + 1);
}

static lrmoeResult_t openLayout(struct lrmoeStep *step,
                                struct lrmoeDeviceLayout *at) {
  int64_t *block = NULL;
  *at = sizesOf(step);
  int64_t words = readWords(step, at) + at->ownMarks + at->localMarks + 2;
  int64_t bytes = words * (int64_t)sizeof *block + roundUp(at->ownMarks) +
                  roundUp(at->localMarks);
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

/* Ranges of both sides, uploaded; behind them the marks at which each rank's
 * rows begin. */
static lrmoeResult_t tabulate(struct lrmoeStep *step,
                              const struct lrmoeDeviceLayout *at,
                              int64_t **boundaries) {
  const struct lrmoePlan *plan = step->plan;
  struct lrmoeDeviceRoute *route = &step->route;
  int64_t numRanks = plan->numRanks;
  int64_t words = numTables * (at->numOwn + at->numLocal) + 2 * (numRanks + 1);
  int64_t *table = NULL; /* then rankLists [G + 1], flagFirsts [E] */
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayRouteTable,
                            words + numRanks + 1 + plan->numExperts, &table));
  route->rankLists = table + words;
  int64_t *flagFirsts = route->rankLists + numRanks + 1;
  int64_t first = 0;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    flagFirsts[e] = first;
    first += lrmoeSelectNumPairs(step, e);
  }
  int64_t *local = table + numTables * at->numOwn;
  int64_t *marks = local + numTables * at->numLocal;
  struct tables own = tablesAt(table, at->numOwn);
  struct tables other = tablesAt(local, at->numLocal);
  route->ownMost = tabulateSource(step, flagFirsts, &own, route->rankLists);
  route->localMost = tabulateExecutor(step, flagFirsts, &other);
  for (int64_t r = 0; r <= numRanks; r++) {
    marks[r] = r * step->numTokens;
    marks[numRanks + 1 + r] = step->recvRowOffsets[r];
  }
  LRMOE_CHECK(
      LRMOE_UPLOAD(step, lrmoeArrayRouteTable, words, table, &route->table));
  *boundaries = route->table + (marks - table);
  return lrmoeSuccess;
}

struct lrmoeFlagged lrmoeDeviceFlagged(const struct lrmoeStep *step,
                                       const struct lrmoeDeviceLayout *at,
                                       int isOwn) {
  const struct lrmoeDeviceRoute *route = &step->route;
  int64_t numLists = isOwn ? at->numOwn : at->numLocal;
  struct tables tables =
      tablesAt(route->table + (isOwn ? 0 : numTables * at->numOwn), numLists);
  return (struct lrmoeFlagged){
      .numLists = numLists,
      .maxItems = isOwn ? route->ownMost : route->localMost,
      .flagFirsts = tables.flagFirsts,
      .itemFirsts = tables.itemFirsts,
      .counts = tables.counts,
      .flags = route->flags,
      .offsets = isOwn ? at->ownOffsets : at->localOffsets,
  };
}

static lrmoeResult_t countSide(struct lrmoeStep *step,
                               const struct lrmoeDeviceLayout *at, int isOwn) {
  const struct lrmoeBackend *backend = step->layer->backend;
  struct lrmoeFlagCount count = {
      .lists = lrmoeDeviceFlagged(step, at, isOwn),
      .places = isOwn ? step->device.sortedTokens : step->device.xRow,
      .marks = at->marks + (isOwn ? 0 : roundUp(at->ownMarks)),
      .keys = isOwn ? step->deviceKeys : NULL,
      .dropped = at->dropped,
  };
  count.placeFirsts = count.lists.counts + count.lists.numLists;
  LRMOE_RUN(backend, countFlagged, &count, step->stream);
  LRMOE_RUN(backend, numberMarks, isOwn ? at->ownMarks : at->localMarks,
            count.marks, isOwn ? at->ownNumbers : at->localNumbers,
            step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceRouteCount(struct lrmoeStep *step,
                                    const uint8_t *flags) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t length = step->plan->numRanks + 1;
  int64_t *boundaries = NULL;
  struct lrmoeDeviceLayout at;
  step->route = (struct lrmoeDeviceRoute){.flags = flags};
  LRMOE_CHECK(openLayout(step, &at));
  LRMOE_CHECK(tabulate(step, &at, &boundaries));
  LRMOE_RUN(backend, clear, at.marks,
            (size_t)(roundUp(at.ownMarks) + roundUp(at.localMarks)),
            step->stream);
  LRMOE_CHECK(countSide(step, &at, 1));
  LRMOE_CHECK(countSide(step, &at, 0));
  LRMOE_RUN(backend, gatherIndices, length, boundaries, at.ownNumbers,
            at.ownRows, step->stream);
  LRMOE_RUN(backend, gatherIndices, length, boundaries + length,
            at.localNumbers, at.localRows, step->stream);
  return lrmoeStepDownload(step, lrmoeArrayRouteCounts, at.ownOffsets,
                           readWords(step, &at) *
                               (int64_t)sizeof *step->route.counts,
                           &step->route.counts);
}

/* ---- Counts on the host ---- */

void lrmoeDeviceRouteTake(struct lrmoeStep *step) {
  int64_t numRanks = step->plan->numRanks;
  size_t bytes = (size_t)(numRanks + 1) * sizeof(int64_t);
  const struct lrmoeDeviceLayout at =
      lrmoeDeviceLayoutAt(step, step->route.counts);
  for (int64_t r = 0; r <= numRanks; r++)
    step->keptOffsets[r] = at.ownOffsets[step->route.rankLists[r]];
  memcpy(step->backOffsets, at.ownRows, bytes);
  memcpy(step->backRecvOffsets, at.localRows, bytes);
  memset(step->alphaOffsets, 0, bytes);
  memset(step->xOffsets, 0, bytes);
  memset(step->xRecvOffsets, 0, bytes);
  step->stats.kept = at.ownOffsets[at.numOwn];
  step->stats.executedKept = at.localOffsets[at.numLocal];
  for (int64_t l = 0; l < at.numOwn; l++)
    step->stats.nonFiniteDropped += at.dropped[l];
}
