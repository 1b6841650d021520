/* One shape with one routing: see planner.h. */
#include "perf/planner.h"
#include "tools/common/stats.h"

#include <math.h>
#include <stdlib.h>

/* ---- Planners ----------------------------------------------------------- */

static enum toolExit openRival(struct plannerBench *bench,
                               lrmoeTopology_t topology,
                               struct plannerRival *rival,
                               struct toolError *error) {
  size_t count = (size_t)bench->numLoads;
  int hasRoom = 1;
  for (int way = 0; way < plannerNumWays; way++) {
    rival->us[way] = calloc(count, sizeof(double));
    hasRoom &= rival->us[way] != NULL;
  }
  rival->imbalance = calloc(count, sizeof(double));
  rival->gap = calloc(count, sizeof(double));
  if (!hasRoom || !rival->imbalance || !rival->gap)
    return toolFail(error, toolRunFailed, "no memory for %zu loads", count);
  rival->slots = toolPolicySlots(rival->policy, (int32_t)bench->shape.slots);
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = toolTraceExperts(bench->trace);
  config.policy = rival->policy;
  config.slots = rival->slots;
  config.retainPpm = (int64_t)(bench->retain * 1e6 + 0.5);
  if (rival->policy == lrmoePolicyLrmoe)
    config.tolerancePpm = (int64_t)(bench->tolerance * 1e6 + 0.5);
  return toolPlannerMake(topology, (int)bench->shape.ranks, &config,
                         &rival->planner, error);
}

enum toolExit plannerRivalsOpen(struct plannerBench *bench,
                                struct toolError *error) {
  lrmoeTopology_t topology = NULL;
  bench->readUs = calloc((size_t)bench->numLoads, sizeof(double));
  if (!bench->readUs) return toolFail(error, toolRunFailed, "no memory");
  lrmoeResult_t result =
      lrmoeTopologyCreate((int)bench->shape.ranks, &topology);
  if (result != lrmoeSuccess) return toolCallFailed(result, "topology", error);
  enum toolExit code = toolGood;
  for (int i = 0; i < bench->numPolicies && code == toolGood; i++) {
    bench->rivals[i].policy = bench->policies[i];
    code = openRival(bench, topology, &bench->rivals[i], error);
  }
  lrmoeTopologyDestroy(topology);
  return code;
}

void plannerBenchClose(struct plannerBench *bench) {
  for (int i = 0; i < toolNumPolicies; i++) {
    struct plannerRival *rival = &bench->rivals[i];
    toolPlannerFree(&rival->planner);
    for (int way = 0; way < plannerNumWays; way++)
      free(rival->us[way]);
    free(rival->imbalance);
    free(rival->gap);
    *rival = (struct plannerRival){0};
  }
  free(bench->readUs);
  bench->readUs = NULL;
  toolTraceClose(bench->trace);
  bench->trace = NULL;
}

/* ---- Measuring ---------------------------------------------------------- */

/* Time of one pass over the demand, which every planner has to make. */
static double timeRead(const struct toolTraceSection *section, int64_t ranks) {
  int64_t start = toolWallNs(), sum = 0;
  for (int64_t i = 0; i < ranks * section->numExperts; i++)
    sum += section->demand[i];
  volatile int64_t seen = sum;
  (void)seen;
  return (double)(toolWallNs() - start) / 1e3;
}

/* Whether a policy asks where pairs come from. */
static int needsSources(lrmoePolicy_t policy) {
  return policy == lrmoePolicyShadow || policy == lrmoePolicyRelayout ||
         policy == lrmoePolicyBalanced || policy == lrmoePolicyLocal;
}

/* One way; the plan is the same however its demand came. */
static enum toolExit measureWay(int64_t load, enum plannerWay way,
                                const struct toolTraceSection *section,
                                struct plannerRival *rival,
                                struct toolError *error) {
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  struct toolPlan plan;
  input.borrowDemand = way == plannerBorrows;
  if (way == plannerTotals) input.totals = section->counts;
  rival->us[way][load] = NAN;
  if (way == plannerTotals && needsSources(rival->policy)) return toolGood;
  enum toolExit code = toolPlanMake(
      &rival->planner, way == plannerTotals ? NULL : section->demand, &input, 1,
      &plan, error);
  if (code) return code;
  rival->us[way][load] = plan.medianUs;
  rival->imbalance[load] = plan.figures.imbalance;
  rival->gap[load] = (double)plan.view.gapKeptPpm / 1e4;
  if (way == plannerCopies) rival->replicas += (double)plan.view.numReplicas;
  toolPlanFree(&plan);
  return toolGood;
}

static enum toolExit measure(int64_t load,
                             const struct toolTraceSection *section,
                             struct plannerRival *rival,
                             struct toolError *error) {
  enum toolExit code = toolGood;
  for (int way = 0; way < plannerNumWays && code == toolGood; way++)
    code = measureWay(load, (enum plannerWay)way, section, rival, error);
  return code;
}

enum toolExit plannerMeasure(struct plannerBench *bench,
                             struct toolError *error) {
  enum toolExit code = toolGood;
  for (int64_t i = 0; i < bench->numLoads && code == toolGood; i++) {
    struct toolTraceSection section;
    code = toolTraceRead(bench->trace, i, &section, error);
    if (code) return code;
    bench->readUs[i] = timeRead(&section, bench->shape.ranks);
    for (int r = 0; r < bench->numPolicies && code == toolGood; r++)
      code = measure(i, &section, &bench->rivals[r], error);
  }
  return code;
}
