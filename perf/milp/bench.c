/* What both questions share: see bench.h. */
#include "perf/milp/bench.h"

static const struct toolColumn placementColumns[] = {
    {"routing", "", 14},        {"seed", "", 5},
    {"peak", "pairs", 9},       {"bound", "pairs", 9},
    {"milp", "pairs", 11},      {"milp_bound", "pairs", 11},
    {"above_percent", "%", 13}, {"proven", "", 6},
    {"solver_s", "s", 8}};

static const struct toolColumn retentionColumns[] = {{"routing", "", 14},
                                                     {"seed", "", 5},
                                                     {"limit", "", 6},
                                                     {"policy", "", 6},
                                                     {"quota", "", 8},
                                                     {"kept", "", 8},
                                                     {"milp", "", 8},
                                                     {"milp_bound", "", 10},
                                                     {"short_percent", "%", 13},
                                                     {"gap_percent", "%", 11},
                                                     {"proven", "", 6},
                                                     {"solver_s", "s", 8}};

enum toolExit milpBenchOpen(struct milpBench *bench, struct toolError *error) {
  lrmoeResult_t result =
      lrmoeTopologyCreate((int)milpSettings.numRanks, &bench->topology);
  return result == lrmoeSuccess ? toolGood
                                : toolCallFailed(result, "topology", error);
}

void milpBenchClose(struct milpBench *bench) {
  lrmoeTopologyDestroy(bench->topology);
  milpSolverClose(&bench->solver);
}

void milpTableBegin(struct milpBench *bench, struct toolJson *json) {
  bench->table = (struct toolTable){.out = stdout,
                                    .json = json,
                                    .columns = placementColumns,
                                    .numColumns = sizeof placementColumns /
                                                  sizeof *placementColumns};
  if (milpSettings.problem) {
    bench->table.columns = retentionColumns;
    bench->table.numColumns =
        sizeof retentionColumns / sizeof *retentionColumns;
    toolTableNote(stdout, "kept, milp: rate in millionths of quota uniform, "
                          "pairs of overload; gap: what the planner "
                          "leaves open, in pairs");
  }
  toolTableBegin(&bench->table);
}

void milpTableEnd(const struct milpBench *bench) {
  toolTableNote(stdout,
                "%lld loads, %lld with a proven optimum; %lld %s; farthest "
                "%.4f %%",
                (long long)bench->numAsked, (long long)bench->numProven,
                (long long)bench->numNear,
                milpSettings.problem ? "keep exactly the most that fits"
                                     : "peaks within 0.1 % of the proven bound",
                bench->worst);
}

enum toolExit milpPlanMake(const struct milpBench *bench,
                           const lrmoePlannerConfig_t *config,
                           const struct toolTraceSection *section,
                           struct toolPlan *plan, struct toolError *error) {
  struct toolPlanner planner;
  enum toolExit code = toolPlannerMake(
      bench->topology, (int)milpSettings.numRanks, config, &planner, error);
  if (code) return code;
  code = toolPlanMake(&planner, section->demand, NULL, 1, plan, error);
  toolPlannerFree(&planner);
  return code;
}

void milpCount(struct milpBench *bench, const struct milpAnswer *answer,
               double offPercent, int isNear) {
  bench->numAsked++;
  bench->numProven += answer->isProven;
  bench->numNear += isNear;
  if (offPercent > bench->worst) bench->worst = offPercent;
}
