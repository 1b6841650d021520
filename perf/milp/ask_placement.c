/* How far peaks are above the optimum, and bounds below it: see bench.h. */
#include "perf/milp/bench.h"

#include <math.h>

/* Half a thousandth of a pair is more than the solver's rounding. */
static const double rounding = 0.0005;

static void report(struct milpBench *bench, const lrmoePlanView_t *view,
                   const struct milpAnswer *answer) {
  struct toolTable *table = &bench->table;
  double bound = ceil(answer->bound - rounding);
  double above = 100 * ((double)view->peakKept / bound - 1);
  if (view->peakKept == 0) above = 0;
  toolTableText(table, bench->routing);
  toolTableInt(table, bench->seed);
  toolTableInt(table, view->peakKept);
  toolTableInt(table, view->boundKept);
  toolTableReal(table, answer->value, 2);
  toolTableReal(table, answer->bound, 2);
  toolTableReal(table, above, 4);
  toolTableInt(table, answer->isProven);
  toolTableReal(table, answer->seconds, 2);
  milpCount(bench, answer, above, above <= 0.1);
}

/* Nothing that is proven may contradict the planner. */
static enum toolExit judge(const struct milpBench *bench,
                           const lrmoePlanView_t *view,
                           const struct milpAnswer *answer,
                           struct toolError *error) {
  double optimum = ceil(answer->value - rounding);
  if ((double)view->boundKept > optimum)
    return toolFail(error, toolWrongData,
                    "%s, seed %lld: the bound is %lld and a placement has peak "
                    "%.0f",
                    bench->routing, (long long)bench->seed,
                    (long long)view->boundKept, optimum);
  if ((double)view->peakKept < answer->bound - rounding)
    return toolFail(error, toolWrongData,
                    "%s, seed %lld: the peak is %lld and none is below %.2f",
                    bench->routing, (long long)bench->seed,
                    (long long)view->peakKept, answer->bound);
  return toolGood;
}

enum toolExit milpAskPlacement(struct milpBench *bench,
                               const struct toolTraceSection *section,
                               struct toolError *error) {
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = section->numExperts;
  config.policy = lrmoePolicyLrmoe;
  config.slots = (int32_t)milpSettings.numSlots;
  struct toolPlan plan;
  struct milpAnswer answer;
  enum toolExit code = milpPlanMake(bench, &config, section, &plan, error);
  if (code) return code;
  code = milpModelBegin(&bench->solver, error);
  if (code == toolGood) {
    milpPlacementWrite(bench->solver.model, &plan.view, config.slots);
    code = milpModelSolve(&bench->solver, &answer, error);
  }
  if (code == toolGood && answer.isInfeasible)
    code = toolFail(error, toolRunFailed, "the model has no solution");
  if (code == toolGood) {
    report(bench, &plan.view, &answer);
    code = judge(bench, &plan.view, &answer, error);
  }
  toolPlanFree(&plan);
  return code;
}
