/* How much of what fits is kept: see bench.h.
 *
 * The limit is a part of what a plan that keeps all pairs needs, so that it
 * binds; then the retention that the planner finds is compared with the
 * solver's on the same instances and forward pairs. */
#include "perf/milp/bench.h"

#include <math.h>
#include <string.h>

struct question {
  const char *limit;
  lrmoePolicy_t policy;
  lrmoeQuota_t quota;
  lrmoeSavedState_t saved;
  lrmoeRouterGrad_t router;
  int isWindow;
  int isExact; /* lrmoe.h promises the largest; else a bound of it */
};

static const struct question questions[] = {
    {"memory", lrmoePolicyLrmoe, lrmoeQuotaUniform, lrmoeSavedNone,
     lrmoeRouterGradKept, 0, 1},
    {"memory", lrmoePolicyLrmoe, lrmoeQuotaOverload, lrmoeSavedNone,
     lrmoeRouterGradOwner, 0, 1},
    {"memory", lrmoePolicyFixed, lrmoeQuotaUniform, lrmoeSavedFull,
     lrmoeRouterGradExecutor, 0, 1},
    {"memory", lrmoePolicyFixed, lrmoeQuotaOverload, lrmoeSavedFull,
     lrmoeRouterGradKept, 0, 1},
    {"window", lrmoePolicyFixed, lrmoeQuotaUniform, lrmoeSavedNone,
     lrmoeRouterGradKept, 1, 1},
    {"window", lrmoePolicyLrmoe, lrmoeQuotaUniform, lrmoeSavedNone,
     lrmoeRouterGradKept, 1, 0},
    {"window", lrmoePolicyFixed, lrmoeQuotaOverload, lrmoeSavedNone,
     lrmoeRouterGradKept, 1, 0},
    {"window", lrmoePolicyLrmoe, lrmoeQuotaOverload, lrmoeSavedNone,
     lrmoeRouterGradKept, 1, 0},
    {"moves", lrmoePolicyLrmoe, lrmoeQuotaUniform, lrmoeSavedFull,
     lrmoeRouterGradKept, 0, 0},
    {"moves", lrmoePolicyLrmoe, lrmoeQuotaOverload, lrmoeSavedFull,
     lrmoeRouterGradKept, 0, 0},
};

/* A row of 238 B takes a whole number of ns at the rates of ranks that share
 * memory, so that the model of the window has whole numbers. */
enum {
  hidden = 119,
  ffn = 32
};

static void fillConfig(const struct question *question, int32_t numExperts,
                       lrmoePlannerConfig_t *config) {
  config->numExperts = numExperts;
  config->policy = question->policy;
  config->slots =
      toolPolicySlots(question->policy, (int32_t)milpSettings.numSlots);
  config->hidden = hidden;
  config->ffn = ffn;
  config->quota = question->quota;
  config->savedState = question->saved;
  config->routerGrad = question->router;
}

/* What rank g needs whatever backward keeps. */
static int64_t forwardBytes(const lrmoePlannerConfig_t *config,
                            const lrmoeRankMemory_t *memory) {
  int64_t saved = memory->forwardBytes / (hidden + ffn) * (hidden + 2 * ffn);
  int64_t bytes = memory->replicaBytes + memory->forwardBytes + saved;
  if (config->routerGrad == lrmoeRouterGradOwner) bytes += memory->routerBytes;
  return bytes;
}

static enum toolExit fillRates(const struct milpBench *bench,
                               struct milpRetention *retention,
                               struct toolError *error) {
  const int64_t rowBytes = (int64_t)hidden * 2, second = 1000000000;
  lrmoeLink_t other, self;
  lrmoeResult_t result = lrmoeTopologyGetLink(bench->topology, 0, 0, &self);
  if (result == lrmoeSuccess)
    result = lrmoeTopologyGetLink(bench->topology, 0, milpSettings.numRanks > 1,
                                  &other);
  if (result != lrmoeSuccess) return toolCallFailed(result, "link", error);
  if (rowBytes * second % self.bytesPerSecond ||
      rowBytes * second % other.bytesPerSecond)
    return toolFail(error, toolRunFailed, "rows of %lld B take parts of a ns",
                    (long long)rowBytes);
  retention->selfRowNs = rowBytes * second / self.bytesPerSecond;
  retention->rowNs = rowBytes * second / other.bytesPerSecond;
  retention->latencyNs = other.latencyNs;
  return toolGood;
}

/* Limits that bind: 1/4, 1/2 or 3/4 of the way from nothing to everything. */
static void setLimit(const struct question *question,
                     const lrmoePlanView_t *view, int64_t quarters,
                     struct milpRetention *retention,
                     lrmoePlannerConfig_t *config) {
  int64_t least = 0, most = 0, latencyNs = 2 * retention->latencyNs;
  for (int32_t g = 0; g < view->numRanks; g++) {
    int64_t forward = forwardBytes(config, &view->memory[g]);
    if (forward > least) least = forward;
    if (view->memory[g].peakBytes > most) most = view->memory[g].peakBytes;
  }
  config->retain = lrmoeRetainLargest;
  config->windowWork = (int64_t)1 << 40; /* as much as it wants */
  if (question->isWindow)
    config->windowNs = latencyNs + (view->commNs - latencyNs) * quarters / 4;
  else
    config->memoryBytes = least + (most - least) * quarters / 4;
}

/* What is compared: the rate that quotas have in common, or kept pairs. */
static int64_t keptOf(const lrmoePlanView_t *view,
                      const lrmoePlannerConfig_t *config) {
  int64_t least = config->retainPpm;
  if (config->quota != lrmoeQuotaUniform) return view->kept;
  for (int32_t e = 0; e < view->numExperts; e++) {
    int64_t pairs = toolPairsOf(view, e);
    if (pairs && view->quotas[e] * 1000000 / pairs < least)
      least = view->quotas[e] * 1000000 / pairs;
  }
  return least;
}

/* Within a hundredth of a millionth: the solver's rounding. */
static int64_t wholeOf(double cost) {
  return isfinite(cost) ? (int64_t)floor(0.01 - cost) : -1;
}

/* Pairs that the solver keeps. */
static int64_t solverPairs(const lrmoePlanView_t *view,
                           const lrmoePlannerConfig_t *config, int64_t answer) {
  int64_t sum = 0;
  if (config->quota != lrmoeQuotaUniform) return answer;
  for (int32_t e = 0; e < view->numExperts; e++)
    sum += (toolPairsOf(view, e) * answer + 999999) / 1000000;
  return sum;
}

static void report(struct milpBench *bench, const struct question *question,
                   const lrmoePlanView_t *view,
                   const lrmoePlannerConfig_t *config,
                   const struct milpAnswer *answer) {
  struct toolTable *table = &bench->table;
  int64_t kept = keptOf(view, config), most = wholeOf(answer->bound);
  double missing = most > 0 ? 100 * (1 - (double)kept / (double)most) : 0;
  toolTableText(table, bench->routing);
  toolTableInt(table, bench->seed);
  toolTableText(table, question->limit);
  toolTableText(table, toolPolicyNames[question->policy]);
  toolTableText(table, toolQuotaNames[question->quota]);
  toolTableInt(table, kept);
  toolTableInt(table, wholeOf(answer->value));
  toolTableInt(table, most);
  toolTableReal(table, missing, 4);
  toolTableReal(table, (double)view->gapRetainedPpm / 1e4, 4);
  toolTableInt(table, answer->isProven);
  toolTableReal(table, answer->seconds, 2);
  milpCount(bench, answer, missing, kept == most);
}

/* Nothing that is proven may contradict the planner. */
static enum toolExit
judge(const struct milpBench *bench, const struct question *question,
      const lrmoePlanView_t *view, const lrmoePlannerConfig_t *config,
      const struct milpAnswer *answer, struct toolError *error) {
  int64_t kept = keptOf(view, config), found = wholeOf(answer->value);
  int64_t most = wholeOf(answer->bound);
  if (kept > most || (question->isExact && kept < found))
    return toolFail(error, toolWrongData,
                    "%s, seed %lld, %s, %s: %lld are kept and the most is "
                    "%lld",
                    bench->routing, (long long)bench->seed, question->limit,
                    toolQuotaNames[question->quota], (long long)kept,
                    (long long)most);
  if (found < 0 || solverPairs(view, config, found) <= view->boundRetained)
    return toolGood;
  return toolFail(error, toolWrongData,
                  "%s, seed %lld, %s, %s: the bound is %lld pairs and %lld "
                  "can be kept",
                  bench->routing, (long long)bench->seed, question->limit,
                  toolQuotaNames[question->quota],
                  (long long)view->boundRetained,
                  (long long)solverPairs(view, config, found));
}

static enum toolExit solve(struct milpBench *bench,
                           const struct milpRetention *retention,
                           struct milpAnswer *answer, struct toolError *error) {
  enum toolExit code = milpModelBegin(&bench->solver, error);
  if (code) return code;
  milpRetentionWrite(bench->solver.model, retention);
  code = milpModelSolve(&bench->solver, answer, error);
  if (code == toolGood && answer->isInfeasible)
    code = toolFail(error, toolWrongData,
                    "a plan fits limits that the solver finds too tight");
  return code;
}

/* The plan that keeps all pairs says which limits bind. */
static enum toolExit limitConfig(struct milpBench *bench,
                                 const struct question *question,
                                 const struct toolTraceSection *section,
                                 struct milpRetention *retention,
                                 lrmoePlannerConfig_t *config,
                                 struct toolError *error) {
  struct toolPlan all;
  fillConfig(question, section->numExperts, config);
  enum toolExit code = milpPlanMake(bench, config, section, &all, error);
  if (code) return code;
  code = fillRates(bench, retention, error);
  if (code == toolGood)
    setLimit(question, &all.view, bench->seed % 3 + 1, retention, config);
  toolPlanFree(&all);
  return code;
}

static enum toolExit ask(struct milpBench *bench,
                         const struct question *question,
                         const struct toolTraceSection *section,
                         struct toolError *error) {
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  struct toolPlan plan;
  struct milpAnswer answer;
  struct milpRetention retention = {.view = &plan.view, .config = &config};
  enum toolExit code =
      limitConfig(bench, question, section, &retention, &config, error);
  if (code == toolGood)
    code = milpPlanMake(bench, &config, section, &plan, error);
  if (code) return code;
  code = solve(bench, &retention, &answer, error);
  if (code == toolGood) {
    report(bench, question, &plan.view, &config, &answer);
    code = judge(bench, question, &plan.view, &config, &answer, error);
  }
  toolPlanFree(&plan);
  return code;
}

static int isAsked(const struct question *question) {
  const char *limit = milpLimitNames[milpSettings.limit];
  const char *quota = milpQuotaNames[milpSettings.quota];
  return (!milpSettings.limit || !strcmp(limit, question->limit)) &&
         (!milpSettings.quota ||
          !strcmp(quota, toolQuotaNames[question->quota]));
}

enum toolExit milpAskRetention(struct milpBench *bench,
                               const struct toolTraceSection *section,
                               struct toolError *error) {
  enum toolExit code = toolGood;
  for (size_t i = 0; i < sizeof questions / sizeof *questions && !code; i++)
    if (isAsked(&questions[i]))
      code = ask(bench, &questions[i], section, error);
  return code;
}
