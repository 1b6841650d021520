/* The model of a layer: memory of a rank, item by item, and which limit a plan
 * comes closest to (Algorithm 1, lines 2 to 8).
 *
 * Sums stay at INT64_MAX once they are there, so that any counts are safe; a
 * plan that large breaks every limit that can be set.  Departure from the
 * paper, which sums one buffer: forward and backward are different times, and
 * the worst case of moves is charged. */
#include "planner/model.h"

#include "planner/scale.h"

struct lrmoeUnitBytes lrmoeUnitBytesOf(const lrmoePlannerConfig_t *config) {
  int64_t h = config->hidden, f = config->ffn, b = config->elementBytes;
  int64_t width = config->activation == lrmoeSwiglu ? 2 : 1;
  int64_t params = (width + 1) * h * f;
  int64_t saved = (h + width * f) * b;
  int isFull = config->savedState == lrmoeSavedFull;
  struct lrmoeUnitBytes unit = {
      .row = h * b,
      .forward = (h + f) * b,
      .saved = saved,
      .backward = (2 * h + 2 * f + width * f) * b + (isFull ? 0 : saved),
      .move = isFull ? saved : 0,
      .relay = 2 * h * b,
      .replica = (config->weightBytes ? config->weightBytes : params * b) +
                 (config->gradBytes ? config->gradBytes : params * 4),
  };
  if (config->routerGrad == lrmoeRouterGradExecutor) unit.dropped = (h + f) * b;
  return unit;
}

/* Pairs of the tokens of rank s. */
static int64_t ownPairs(const struct lrmoePlan *plan, int32_t s) {
  int64_t sum = 0;
  for (int32_t e = 0; e < plan->numExperts; e++)
    sum += plan->demand[(int64_t)s * plan->numExperts + e];
  return sum;
}

/* Forward and backward of one rank, each with what stands throughout. */
struct times {
  int64_t forward;
  int64_t backward;
};

static struct times timesOf(const struct lrmoePlanner *planner,
                            const struct lrmoePlan *plan, int32_t g) {
  const lrmoeRankMemory_t *m = &plan->memory[g];
  struct lrmoeUnitBytes unit = lrmoeUnitBytesOf(&planner->config);
  int64_t saved = lrmoeTimesBytes(plan->rankForward[g], unit.saved);
  int64_t always = lrmoeAddBytes(m->replicaBytes, m->relayBytes);
  struct times times = {lrmoeAddBytes(m->forwardBytes, saved),
                        lrmoeAddBytes(m->backwardBytes, m->moveBytes)};
  times.backward = lrmoeAddBytes(times.backward, m->savedBytes);
  if (planner->config.routerGrad == lrmoeRouterGradOwner)
    always = lrmoeAddBytes(always, m->routerBytes);
  else
    times.backward = lrmoeAddBytes(times.backward, m->routerBytes);
  times.forward = lrmoeAddBytes(times.forward, always);
  times.backward = lrmoeAddBytes(times.backward, always);
  return times;
}

static void fillRank(const struct lrmoePlanner *planner,
                     const struct lrmoeUnitBytes *unit, struct lrmoePlan *plan,
                     int32_t g) {
  lrmoeRankMemory_t *m = &plan->memory[g];
  int64_t forward = plan->rankForward[g], kept = plan->rankKept[g];
  m->forwardBytes = lrmoeTimesBytes(forward, unit->forward);
  m->savedBytes = planner->config.savedState == lrmoeSavedFull
                      ? lrmoeTimesBytes(forward, unit->saved)
                      : 0;
  m->backwardBytes = lrmoeTimesBytes(kept, unit->backward);
  m->moveBytes = lrmoeTimesBytes(plan->rankMovesIn[g], unit->move);
  m->routerBytes =
      lrmoeTimesBytes(forward > kept ? forward - kept : 0, unit->dropped);
  if (planner->config.routerGrad == lrmoeRouterGradOwner)
    m->routerBytes = lrmoeTimesBytes(ownPairs(plan, g), unit->row);
}

static void fillMemory(const struct lrmoePlanner *planner,
                       struct lrmoePlan *plan) {
  struct lrmoeUnitBytes unit = lrmoeUnitBytesOf(&planner->config);
  int64_t *passing = planner->passing;
  if (passing && plan->demand)
    lrmoeNodesPassing(planner->nodes, plan, passing + plan->numRanks, passing);
  for (int32_t g = 0; g < plan->numRanks; g++) {
    lrmoeRankMemory_t *m = &plan->memory[g];
    m->replicaBytes = 0;
    m->relayBytes =
        passing && plan->demand ? lrmoeTimesBytes(passing[g], unit.relay) : 0;
  }
  for (int32_t e = 0; e < plan->numExperts; e++)
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++) {
      lrmoeRankMemory_t *m = &plan->memory[plan->instanceRanks[i]];
      if (plan->instanceRanks[i] != plan->homes[e])
        m->replicaBytes = lrmoeAddBytes(m->replicaBytes, unit.replica);
    }
  for (int32_t g = 0; g < plan->numRanks; g++) {
    fillRank(planner, &unit, plan, g);
    struct times times = timesOf(planner, plan, g);
    plan->memory[g].peakBytes =
        times.forward > times.backward ? times.forward : times.backward;
  }
}

/* Slack in millionths of the limit, within int64. */
static int64_t relative(int64_t slack, int64_t limit) {
  int64_t size = slack < 0 ? (slack < -INT64_MAX ? INT64_MAX : -slack) : slack;
  int64_t rest, part = lrmoeScale(size % limit, 1000000, limit, &rest);
  int64_t ppm = lrmoeAddBytes(lrmoeTimesBytes(size / limit, 1000000), part);
  return slack < 0 ? -ppm - (ppm < INT64_MAX) : ppm;
}

struct limit {
  lrmoeConstraint_t constraint;
  int32_t rank;
  int64_t most;
  int64_t used;
};

static void consider(struct lrmoePlan *plan, int64_t *least,
                     struct limit limit) {
  if (!limit.most) return;
  int64_t slack = limit.most - limit.used;
  int64_t ppm = relative(slack, limit.most);
  if (plan->constraint != lrmoeConstraintNone && ppm >= *least) return;
  *least = ppm;
  plan->constraint = limit.constraint;
  plan->constraintRank = limit.rank;
  plan->constraintSlack = slack;
}

static void findConstraint(const struct lrmoePlanner *planner,
                           struct lrmoePlan *plan) {
  const lrmoePlannerConfig_t *config = &planner->config;
  int64_t least = 0;
  plan->constraint = lrmoeConstraintNone;
  plan->constraintRank = -1;
  plan->constraintSlack = 0;
  for (int32_t g = 0; g < plan->numRanks; g++) {
    int64_t pairs = plan->rankForward[g];
    if (plan->rankKept[g] > pairs) pairs = plan->rankKept[g];
    consider(plan, &least,
             (struct limit){lrmoeConstraintPairs, g, config->maxPairs, pairs});
    if (!config->memoryBytes) continue;
    struct times times = timesOf(planner, plan, g);
    consider(plan, &least,
             (struct limit){lrmoeConstraintForwardMemory, g,
                            config->memoryBytes, times.forward});
    consider(plan, &least,
             (struct limit){lrmoeConstraintBackwardMemory, g,
                            config->memoryBytes, times.backward});
  }
  consider(plan, &least,
           (struct limit){lrmoeConstraintWindow, -1, config->windowNs,
                          plan->commNs});
}

int lrmoePlanMemoryFits(const struct lrmoePlanner *planner,
                        const struct lrmoePlan *plan) {
  int64_t most = planner->config.memoryBytes;
  for (int32_t g = 0; most && g < plan->numRanks; g++)
    if (timesOf(planner, plan, g).backward > most) return 0;
  return 1;
}

int lrmoePlanBackwardFits(const struct lrmoePlanner *planner,
                          const struct lrmoePlan *plan) {
  int64_t window = planner->config.windowNs;
  return (!window || plan->commNs <= window) &&
         lrmoePlanMemoryFits(planner, plan);
}

lrmoeResult_t lrmoePlanMeasure(const struct lrmoePlanner *planner,
                               struct lrmoePlan *plan) {
  if (planner->config.hidden) {
    plan->hasModel = 1;
    fillMemory(planner, plan);
  }
  if (plan->hasModel && plan->demand) { /* totals do not say the sources */
    plan->crossNodeBytes = lrmoePlanCrossNodeBytes(planner, plan);
    LRMOE_CHECK(lrmoePlanCommNs(planner, plan, &plan->commNs));
  }
  findConstraint(planner, plan);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePlanCheckLimits(const struct lrmoePlanner *planner,
                                   const struct lrmoePlan *plan) {
  const lrmoePlannerConfig_t *config = &planner->config;
  int32_t rank = plan->constraintRank;
  long long over = -(long long)plan->constraintSlack;
  if (over <= 0) return lrmoeSuccess;
  switch (plan->constraint) {
  case lrmoeConstraintPairs:
    return LRMOE_FAIL(
        lrmoeInfeasible,
        "%s does not fit: rank %d would execute %lld pairs and maxPairs is "
        "%lld, %lld too many",
        plan->rankForward[rank] >= plan->rankKept[rank] ? "forward"
                                                        : "backward",
        rank, (long long)config->maxPairs + over, (long long)config->maxPairs,
        over);
  case lrmoeConstraintWindow:
    return LRMOE_FAIL(lrmoeInfeasible,
                      "backward's rows do not fit the window: they take %lld "
                      "ns and windowNs is %lld, %lld too many, with %lld of "
                      "%lld pairs kept",
                      (long long)plan->commNs, (long long)config->windowNs,
                      over, (long long)plan->kept, (long long)plan->pairs);
  default:
    return LRMOE_FAIL(
        lrmoeInfeasible,
        "%s memory does not fit: rank %d would need %lld B and memoryBytes is "
        "%lld, %lld too many, with %lld forward and %lld kept pairs there",
        plan->constraint == lrmoeConstraintForwardMemory ? "forward"
                                                         : "backward",
        rank, (long long)config->memoryBytes + over,
        (long long)config->memoryBytes, over,
        (long long)plan->rankForward[rank], (long long)plan->rankKept[rank]);
  }
}
