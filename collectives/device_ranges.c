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
};

enum {
  numTables = 5
};

static struct tables tablesAt(int64_t *at, int64_t numLists) {
  return (struct tables){at, at + numLists, at + 2 * numLists,
                         at + 3 * numLists, at + 4 * numLists};
}

/* A range, whose places begin at `placeFirst`. */
struct range {
  int64_t flagFirst;
  int64_t itemFirst;
  int64_t count;
  int64_t placeFirst;
  int64_t wanted;
};

static void addRange(const struct tables *tables, int64_t l,
                     const struct range *range, int64_t *most) {
  tables->flagFirsts[l] = range->flagFirst;
  tables->itemFirsts[l] = range->itemFirst;
  tables->counts[l] = range->count;
  tables->placeFirsts[l] = range->placeFirst;
  tables->wanted[l] = range->wanted;
  if (range->count > *most) *most = range->count;
}

static int64_t stayed(void) {
  return LRMOE_WANT(lrmoeLabelStayed, 1);
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

/* This rank's pairs of expert e, whose flags begin at `first`, with regard to
 * instance i: two ranges, l and l + 1. */
static void addOwn(struct lrmoeStep *step, const struct tables *tables,
                   int64_t l, int32_t e, int32_t i) {
  const struct lrmoePlan *plan = step->plan;
  int32_t rank = step->layer->comm->rank;
  int64_t cell = (int64_t)rank * plan->numExperts + e;
  int64_t flagFirst = step->route.flagFirsts[e] + step->sourceBase[cell];
  int64_t place = plan->instanceRanks[i] * step->numTokens;
  int64_t *most = &step->route.ownMost;
  struct lrmoeRange forward = lrmoeRouteRange(step, rank, e, i);
  addRange(tables, l,
           &(struct range){flagFirst + forward.low,
                           step->expertOffsets[e] + forward.low,
                           forward.high - forward.low, place, stayed()},
           most);
  addRange(tables, l + 1,
           &(struct range){flagFirst, step->expertOffsets[e],
                           hasX(step, e) ? step->demand[cell] : 0, place,
                           movedTo(step, e, i)},
           most);
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
      addRange(tables, l, &forward, &step->route.localMost);
      addRange(tables, l + numRanks, &moved, &step->route.localMost);
    }
  }
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
