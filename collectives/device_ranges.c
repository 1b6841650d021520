/* Ranges of flags, of a route on the device.
 *
 * Flags lie by (expert, source, ordinal), and so do the pairs of an instance;
 * hence ranges follow from demand and plan:
 *
 *   Source    two ranges per instance, executors ascending: this rank's pairs
 *             that forward ran there, for those that stayed; all of its pairs
 *             of the expert, for those that come there with x.  Items are
 *             sorted pairs; a list is a stretch of the wire order.
 *   Executor  two ranges per (instance, source), in the order of the handoff;
 *             items are local pairs, and behind them pairs of all ranks that
 *             may move here. */
#include "collectives/compact.h"
#include "collectives/device_layout.h"
#include "collectives/route.h"
#include "collectives/select.h"

/* Arrays of one side's ranges in a table. */
struct tables {
  int64_t *flagFirsts;
  int64_t *itemFirsts;
  int64_t *counts;
  int64_t *placeFirsts;
  int64_t *wanted;
  int64_t *marked;
};

enum {
  numTables = 6
};

static struct tables tablesAt(int64_t *at, int64_t numLists) {
  return (struct tables){at,
                         at + numLists,
                         at + 2 * numLists,
                         at + 3 * numLists,
                         at + 4 * numLists,
                         at + 5 * numLists};
}

/* A range, whose places begin at `placeFirst`. */
struct range {
  int64_t flagFirst;
  int64_t itemFirst;
  int64_t count;
  int64_t placeFirst;
  int64_t wanted;
};

static int64_t stayed(void) {
  return LRMOE_WANT(lrmoeLabelStayed, 1);
}

/* With router gradient executor every pair needs its row of g where forward ran
 * it. */
static int64_t markedOf(const struct lrmoeStep *step, int64_t wanted) {
  int marksAll = step->layer->routerGrad == lrmoeRouterGradExecutor;
  return marksAll && wanted == stayed() ? LRMOE_WANT(0, 256) : wanted;
}

static void addRange(const struct lrmoeStep *step, const struct tables *tables,
                     int64_t l, const struct range *range) {
  tables->flagFirsts[l] = range->flagFirst;
  tables->itemFirsts[l] = range->itemFirst;
  tables->counts[l] = range->count;
  tables->placeFirsts[l] = range->placeFirst;
  tables->wanted[l] = range->wanted;
  tables->marked[l] = markedOf(step, range->wanted);
}

/* Those that come with x to instance i of the plan, of expert e. */
static int64_t movedTo(const struct lrmoeStep *step, int32_t e, int32_t i) {
  return LRMOE_WANT(lrmoeLabelMoved + i - step->plan->instanceOffsets[e], 1);
}

/* Whether pairs of the expert may come with x. */
static int hasX(const struct lrmoeStep *step, int32_t e) {
  return step->layer->savedState == lrmoeSavedNone ||
         lrmoeSelectMayMove(step, e);
}

/* This rank's pairs of expert e with regard to instance i: two ranges, l and
 * l + 1. */
static void addOwn(const struct lrmoeStep *step, const struct tables *tables,
                   int64_t l, int32_t e, int32_t i) {
  const struct lrmoePlan *plan = step->plan;
  int32_t rank = step->layer->comm->rank;
  int64_t cell = (int64_t)rank * plan->numExperts + e;
  int64_t flagFirst = step->route.flagFirsts[e] + step->sourceBase[cell];
  int64_t place = plan->instanceRanks[i] * step->numTokens;
  struct lrmoeRange forward = lrmoeRouteRange(step, rank, e, i);
  const struct range stays = {flagFirst + forward.low,
                              step->expertOffsets[e] + forward.low,
                              forward.high - forward.low, place, stayed()};
  const struct range comes = {flagFirst, step->expertOffsets[e],
                              hasX(step, e) ? step->demand[cell] : 0, place,
                              movedTo(step, e, i)};
  addRange(step, tables, l, &stays);
  addRange(step, tables, l + 1, &comes);
}

static int64_t largest(const int64_t *counts, int64_t numLists) {
  int64_t most = 0;
  for (int64_t l = 0; l < numLists; l++)
    if (counts[l] > most) most = counts[l];
  return most;
}

/* Ranges of the source; rankLists [G + 1]: of each executor. */
static void tabulateSource(struct lrmoeStep *step, const struct tables *tables,
                           int64_t *rankLists) {
  const struct lrmoePlan *plan = step->plan;
  int64_t l = 0;
  for (int32_t d = 0; d < plan->numRanks; d++) {
    rankLists[d] = l;
    for (int32_t e = 0; e < plan->numExperts; e++)
      for (int32_t i = plan->instanceOffsets[e];
           i < plan->instanceOffsets[e + 1]; i++) {
        if (plan->instanceRanks[i] != d) continue;
        addOwn(step, tables, l, e, i);
        l += 2;
      }
  }
  rankLists[plan->numRanks] = l;
  step->route.ownMost = largest(tables->counts, l);
}

/* What stayed of a segment, whose flags begin at `first` for local pair 0. */
static struct range stayedRange(const struct lrmoeSegment *segment,
                                int64_t first, int64_t place) {
  return (struct range){first + segment->local, segment->local, segment->count,
                        place, stayed()};
}

/* What comes with x from source s to instance j: of all the source's pairs of
 * the expert, or of those that forward ran here. */
static struct range movedRange(const struct lrmoeStep *step, int32_t j,
                               int32_t s, const struct range *forward) {
  int32_t e = lrmoeStepExpert(step, j);
  int64_t cell = (int64_t)s * step->plan->numExperts + e;
  struct range range = *forward;
  range.wanted = movedTo(step, e, step->instances[j]);
  if (!hasX(step, e)) range.count = 0;
  if (!lrmoeSelectMayMove(step, e)) return range;
  range.flagFirst = step->route.flagFirsts[e] + step->sourceBase[cell];
  range.itemFirst =
      step->instanceOffsets[step->numInstances] + step->route.tokenFirsts[cell];
  range.count = step->demand[cell];
  return range;
}

static void tabulateExecutor(struct lrmoeStep *step,
                             const struct tables *tables) {
  const struct lrmoePlan *plan = step->plan;
  int32_t numRanks = plan->numRanks;
  for (int32_t j = 0; j < step->numInstances; j++) {
    int32_t e = lrmoeStepExpert(step, j);
    int64_t first = step->route.flagFirsts[e] - step->instanceOffsets[j];
    for (int32_t i = plan->instanceOffsets[e]; i < step->instances[j]; i++)
      first += plan->forwardPairs[i];
    for (int32_t s = 0; s < numRanks; s++) {
      int64_t l = 2 * (int64_t)j * numRanks + s;
      struct range forward =
          stayedRange(&step->segments[(int64_t)s * step->numInstances + j],
                      first, s * step->layer->maxTokens);
      struct range moved = movedRange(step, j, s, &forward);
      addRange(step, tables, l, &forward);
      addRange(step, tables, l + numRanks, &moved);
    }
  }
  step->route.localMost =
      largest(tables->counts, 2 * (int64_t)step->numInstances * numRanks);
}

/* Where the flags of each expert begin. */
static void sumExperts(const struct lrmoeStep *step, int64_t *flagFirsts) {
  int64_t first = 0;
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    flagFirsts[e] = first;
    first += lrmoeSelectNumPairs(step, e);
  }
}

/* Ranges of both sides, uploaded; behind them the marks at which each rank's
 * rows begin, of the source and of the executor. */
lrmoeResult_t lrmoeDeviceTabulate(struct lrmoeStep *step,
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
  sumExperts(step, flagFirsts);
  route->flagFirsts = flagFirsts;
  int64_t *local = table + numTables * at->numOwn;
  int64_t *marks = local + numTables * at->numLocal;
  struct tables own = tablesAt(table, at->numOwn);
  struct tables other = tablesAt(local, at->numLocal);
  tabulateSource(step, &own, route->rankLists);
  tabulateExecutor(step, &other);
  for (int64_t r = 0; r <= numRanks; r++) {
    marks[r] = r * step->numTokens;
    marks[numRanks + 1 + r] = r * step->layer->maxTokens;
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
      .wanted = tables.wanted,
      .flags = route->flags,
      .places = isOwn ? step->device.tokens : route->tokens,
      .placeFirsts = tables.placeFirsts,
      .offsets = isOwn ? at->ownOffsets : at->localOffsets,
  };
}

/* Items that a range of forward's pairs has left once those that stayed are
 * gone. */
static int64_t restOf(int64_t count, const int64_t *list) {
  return count - (list[1] - list[0]);
}

/* Lists of the local pairs that did not stay, by (instance, source). */
static lrmoeResult_t tabulateRest(struct lrmoeStep *step,
                                  const int64_t *localOffsets,
                                  struct lrmoeFlagged *lists, int64_t *firsts) {
  int64_t numRanks = step->plan->numRanks;
  int64_t numLists = numRanks * step->numInstances;
  const int64_t *host = step->arrays[lrmoeArrayRouteTable].data;
  struct tables all = tablesAt((int64_t *)host + (int64_t)numTables * 2 *
                                                     step->plan->numInstances,
                               2 * numLists);
  int64_t words = numTables * numLists + 1;
  int64_t *table = NULL; /* tables, but for marked, offsets */
  int64_t *device = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayRestTable, words, &table));
  struct tables rest = tablesAt(table, numLists);
  int64_t *offsets = rest.marked;
  offsets[0] = 0;
  for (int64_t l = 0; l < numLists; l++) {
    int64_t from = l / numRanks * 2 * numRanks + l % numRanks;
    rest.flagFirsts[l] = all.flagFirsts[from];
    rest.itemFirsts[l] = all.itemFirsts[from];
    rest.counts[l] = all.counts[from];
    rest.placeFirsts[l] = all.placeFirsts[from];
    rest.wanted[l] = LRMOE_WANT(lrmoeLabelMoved, 255); /* and dropped */
    offsets[l + 1] = offsets[l] + restOf(all.counts[from], localOffsets + from);
  }
  for (int32_t j = 0; j <= step->numInstances; j++)
    firsts[j] = offsets[j * numRanks];
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayRestTable, words, table, &device));
  rest = tablesAt(device, numLists);
  *lists = (struct lrmoeFlagged){.numLists = numLists,
                                 .maxItems = step->route.localMost,
                                 .flagFirsts = rest.flagFirsts,
                                 .itemFirsts = rest.itemFirsts,
                                 .counts = rest.counts,
                                 .wanted = rest.wanted,
                                 .flags = step->route.flags,
                                 .places = step->route.tokens,
                                 .placeFirsts = rest.placeFirsts,
                                 .offsets = rest.marked};
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceRouteRest(struct lrmoeStep *step, int64_t *firsts,
                                   int64_t **rows) {
  const struct lrmoeBackend *backend = step->layer->backend;
  const struct lrmoeDeviceLayout at =
      lrmoeDeviceLayoutAt(step, step->blocks[lrmoeBlockRoute].data);
  const struct lrmoeDeviceLayout host =
      lrmoeDeviceLayoutAt(step, step->route.counts);
  struct lrmoeFlagged lists;
  LRMOE_CHECK(tabulateRest(step, host.localOffsets, &lists, firsts));
  int64_t count = firsts[step->numInstances];
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockIndices,
                                    2 * count * (int64_t)sizeof **rows, rows));
  lists.listPlaces = *rows;
  lists.list = *rows + count;
  LRMOE_RUN(backend, listFlagged, &lists, step->stream);
  LRMOE_RUN(backend, gatherIndices, count, *rows, at.localNumbers, *rows,
            step->stream);
  if (!step->isFused) return lrmoeSuccess;
  int numRanks = step->plan->numRanks;
  const struct lrmoeShifts spread = {
      lists.numLists,
      numRanks,
      lrmoeWindowStride(&step->layer->recv, numRanks),
      lists.offsets,
      lrmoeDeviceRouteRows(step) + numRanks + 1,
      *rows};
  LRMOE_RUN(backend, shiftLists, &spread, step->stream);
  return lrmoeSuccess;
}
