/* Rows of a plan on the wire: T_comm and what crosses between hosts.
 *
 * Which pairs backward keeps is known only after forward, so the kept pairs of
 * an expert are taken evenly from its sources, and, as dispatch does, the
 * pairs of a source go to instances by ordinal prefix.  Each is a row: rows of
 * one token that go to one rank together are charged apart.
 *
 * Backward has two rounds: out go the gradient row of a kept pair, its input
 * row where backward needs it again (savedState none; else of worst-case
 * moves, evenly over the instance's pairs) and, with routerGrad executor, the
 * gradient rows of dropped pairs; home comes a row per kept pair.  A replica's
 * weights go out once and its gradient comes back. */
#include "planner/forward.h"
#include "planner/model.h"
#include "planner/scale.h"
#include "topo/topology.h"

#include <string.h>

/* Kept pairs of the first `before` of an expert's n pairs. */
static int64_t keptBefore(int64_t before, int64_t kept, int64_t pairs) {
  int64_t rest;
  return pairs ? lrmoeScale(before, kept, pairs, &rest) : 0;
}

/* What one pass over (source, instance) does with the pairs between them. */
struct walk {
  const struct lrmoePlanner *planner;
  const struct lrmoePlan *plan;
  struct lrmoeUnitBytes unit;
  int isForward; /* shares are F, else X */
  int64_t crossBytes;
  lrmoeRowsVisit *visit; /* of lrmoePlanRows */
  void *context;
};

typedef void lrmoeFlowVisit(struct walk *walk, int32_t source, int32_t instance,
                            int32_t expert, int64_t pairs);

static int64_t demandOf(const struct lrmoePlan *plan, int32_t e) {
  int64_t pairs = 0;
  for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
       i++)
    pairs += plan->forwardPairs[i];
  return pairs;
}

/* Sources and instances are both runs of one line of ordinals. */
static void walkExpert(struct walk *walk, int32_t e, lrmoeFlowVisit *visit) {
  const struct lrmoePlan *plan = walk->plan;
  const int64_t *shares =
      walk->isForward ? plan->forwardPairs : plan->keptPairs;
  int64_t pairs = demandOf(plan, e), before = 0, from = 0;
  int64_t total = walk->isForward ? pairs : plan->quotas[e];
  int32_t i = plan->instanceOffsets[e];
  int64_t left = shares[i];
  for (int32_t s = 0; s < plan->numRanks; s++) {
    before += plan->demand[(int64_t)s * plan->numExperts + e];
    int64_t to = keptBefore(before, total, pairs);
    while (from < to) {
      while (!left)
        left = shares[++i];
      int64_t run = to - from < left ? to - from : left;
      visit(walk, s, i, e, run);
      from += run;
      left -= run;
    }
  }
}

static void walkAll(struct walk *walk, lrmoeFlowVisit *visit) {
  for (int32_t e = 0; e < walk->plan->numExperts; e++)
    walkExpert(walk, e, visit);
}

/* Input rows that go along with `pairs` of an instance's kept pairs. */
static int64_t movedRows(const struct walk *walk, int32_t i, int32_t e,
                         int64_t pairs) {
  const struct lrmoePlan *plan = walk->plan;
  if (walk->planner->config.savedState == lrmoeSavedNone) return pairs;
  int64_t rest;
  int64_t moves = lrmoeMovesIn(plan->forwardPairs[i], plan->keptPairs[i],
                               demandOf(plan, e) - plan->quotas[e]);
  if (!moves) return 0;
  int64_t rows = lrmoeScale(pairs, moves, plan->keptPairs[i], &rest);
  return rows + (rest > 0);
}

static int64_t outBytes(const struct walk *walk, int32_t i, int32_t e,
                        int64_t pairs) {
  return lrmoeAddBytes(
      lrmoeTimesBytes(pairs, walk->unit.row),
      lrmoeTimesBytes(movedRows(walk, i, e, pairs), walk->unit.row));
}

static void addTraffic(struct walk *walk, int32_t source, int32_t instance,
                       int32_t expert, int64_t pairs) {
  int64_t ranks = walk->plan->numRanks;
  int64_t executor = walk->plan->instanceRanks[instance];
  int64_t *out = &walk->planner->traffic[source * ranks + executor];
  int64_t *home = &walk->planner->traffic[(ranks + executor) * ranks + source];
  *out = lrmoeAddBytes(*out, outBytes(walk, instance, expert, pairs));
  *home = lrmoeAddBytes(*home, lrmoeTimesBytes(pairs, walk->unit.row));
}

/* routerGrad executor: gradient rows of all pairs; those of kept ones are
 * counted apart, which at worst counts them twice. */
static int64_t droppedRows(const struct lrmoePlan *plan, int32_t e,
                           int64_t pairs) {
  int64_t rest, all = demandOf(plan, e);
  return lrmoeScale(all - plan->quotas[e], pairs, all, &rest);
}

static void addDropped(struct walk *walk, int32_t source, int32_t instance,
                       int32_t expert, int64_t pairs) {
  const struct lrmoePlan *plan = walk->plan;
  int64_t dropped = droppedRows(plan, expert, pairs);
  int64_t *out = &walk->planner->traffic[(int64_t)source * plan->numRanks +
                                         plan->instanceRanks[instance]];
  *out = lrmoeAddBytes(*out, lrmoeTimesBytes(dropped, walk->unit.row));
}

static void visitKept(struct walk *walk, int32_t source, int32_t instance,
                      int32_t expert, int64_t pairs) {
  int64_t moved = movedRows(walk, instance, expert, pairs);
  walk->visit(walk->context,
              &(struct lrmoeRows){source, instance, pairs, moved, 0});
}

static void visitDropped(struct walk *walk, int32_t source, int32_t instance,
                         int32_t expert, int64_t pairs) {
  int64_t dropped = droppedRows(walk->plan, expert, pairs);
  walk->visit(walk->context,
              &(struct lrmoeRows){source, instance, 0, 0, dropped});
}

void lrmoePlanRows(const struct lrmoePlanner *planner,
                   const struct lrmoePlan *plan, int32_t expert,
                   lrmoeRowsVisit *visit, void *context) {
  struct walk walk = {
      .planner = planner, .plan = plan, .visit = visit, .context = context};
  walkExpert(&walk, expert, visitKept);
  walk.isForward = 1;
  if (planner->config.routerGrad == lrmoeRouterGradExecutor)
    walkExpert(&walk, expert, visitDropped);
}

lrmoeResult_t lrmoePlanCommNs(const struct lrmoePlanner *planner,
                              const struct lrmoePlan *plan, int64_t *commNs) {
  int64_t cells = (int64_t)plan->numRanks * plan->numRanks, out, home;
  struct walk walk = {.planner = planner,
                      .plan = plan,
                      .unit = lrmoeUnitBytesOf(&planner->config)};
  memset(planner->traffic, 0, 2 * (size_t)cells * sizeof(int64_t));
  walkAll(&walk, addTraffic);
  walk.isForward = 1;
  if (planner->config.routerGrad == lrmoeRouterGradExecutor)
    walkAll(&walk, addDropped);
  LRMOE_CHECK(lrmoeTopologyTrafficIn(planner->topology, planner->traffic,
                                     planner->trafficRoom, &out));
  LRMOE_CHECK(lrmoeTopologyTrafficIn(planner->topology,
                                     planner->traffic + cells,
                                     planner->trafficRoom, &home));
  *commNs = lrmoeAddBytes(out, home);
  return lrmoeSuccess;
}

static void addCross(struct walk *walk, int32_t source, int32_t instance,
                     int32_t expert, int64_t pairs) {
  const int32_t *hosts = walk->planner->hosts;
  int64_t row = lrmoeTimesBytes(pairs, walk->unit.row);
  if (hosts[source] == hosts[walk->plan->instanceRanks[instance]]) return;
  int64_t out = walk->isForward ? row : outBytes(walk, instance, expert, pairs);
  walk->crossBytes = lrmoeAddBytes(walk->crossBytes, lrmoeAddBytes(out, row));
}

int64_t lrmoePlanCrossNodeBytes(const struct lrmoePlanner *planner,
                                const struct lrmoePlan *plan) {
  struct walk walk = {.planner = planner,
                      .plan = plan,
                      .unit = lrmoeUnitBytesOf(&planner->config),
                      .isForward = 1};
  walkAll(&walk, addCross);
  walk.isForward = 0;
  walkAll(&walk, addCross);
  for (int32_t e = 0; e < plan->numExperts; e++)
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++)
      if (planner->hosts[plan->instanceRanks[i]] !=
          planner->hosts[plan->homes[e]])
        walk.crossBytes = lrmoeAddBytes(walk.crossBytes, walk.unit.replica);
  return walk.crossBytes;
}
