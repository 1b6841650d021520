/* milp_perf: the planner against a MILP solver (CBC), which proves its answers.
 *
 * --problem placement: the peak of policy lrmoe against the least that any
 * placement in the same slots has.  Where the solver runs out of time, its
 * proven lower bound stands for the optimum, which is harder for the planner.
 * --problem retention: the largest retention on the instances of the plan, for
 * layers whose memory or window is too small for all pairs.
 *
 * Every plan is verified.  The exit code is 7 if the solver proves the planner
 * wrong: a bound above the optimum, a peak below it, or more kept than fits. */
#include "perf/milp/bench.h"

#include <stdio.h>

static const char *const problemNames[] = {"placement", "retention", NULL};
const char *const milpLimitNames[] = {"all", "memory", "window", "moves", NULL};
const char *const milpQuotaNames[] = {"all", "uniform", "overload", NULL};

struct milpSettings milpSettings = {
    .routing = "zipf:0.8,lognormal:1,lognormal:0.5",
    .numExperts = 128,
    .numRanks = 8,
    .numSlots = 1,
    .numDraws = 10,
    .numTokens = 8192,
    .topk = 8,
    .seed = 1,
    .maxSeconds = 60,
};

static const struct toolArg args[] = {
    {.name = "problem",
     TOOL_ENUM(milpSettings.problem, problemNames),
     .help = "What is asked."},
    {.name = "limit",
     TOOL_ENUM(milpSettings.limit, milpLimitNames),
     .help = "Of retention: what is too small."},
    {.name = "quota",
     TOOL_ENUM(milpSettings.quota, milpQuotaNames),
     .help = "Of retention: rule of the quotas."},
    {.name = "routing",
     TOOL_TEXT(milpSettings.routing),
     .meta = "KIND[,...]",
     .help = "balanced, lognormal:S, zipf:S."},
    {.name = "experts",
     TOOL_INTEGER(milpSettings.numExperts, 1, 1024),
     .help = "Experts."},
    {.name = "ranks",
     .letter = 'g',
     TOOL_INTEGER(milpSettings.numRanks, 1, 64),
     .help = "Ranks."},
    {.name = "slots",
     TOOL_INTEGER(milpSettings.numSlots, 0, 64),
     .help = "Spare slots per rank."},
    {.name = "iters",
     .letter = 'n',
     TOOL_INTEGER(milpSettings.numDraws, 1, 10000),
     .help = "Loads of each routing, from consecutive seeds."},
    {.name = "tokens",
     .letter = 'b',
     TOOL_INTEGER(milpSettings.numTokens, 1, 1 << 20),
     .help = "Tokens per rank."},
    {.name = "topk",
     .letter = 'k',
     TOOL_INTEGER(milpSettings.topk, 1, 64),
     .help = "Routing slots per token."},
    {.name = "seconds",
     TOOL_INTEGER(milpSettings.maxSeconds, 1, 86400),
     .help = "Most that the solver may take for one load."},
    {.name = "seed",
     TOOL_INTEGER(milpSettings.seed, 0, 9e15),
     .help = "Of the first load."},
    {0}};

/* Opens the loads of one routing and asks about each. */
static enum toolExit runRouting(struct milpBench *bench,
                                struct toolError *error) {
  const struct milpSettings *s = &milpSettings;
  const struct toolTraceConfig config = {.routing = bench->routing,
                                         .step = -1,
                                         .layer = -1,
                                         .numLayers = s->numDraws,
                                         .numTokens =
                                             s->numTokens * s->numRanks,
                                         .seed = (uint64_t)s->seed,
                                         .numRanks = (int32_t)s->numRanks,
                                         .numExperts = (int32_t)s->numExperts,
                                         .topk = (int32_t)s->topk};
  struct toolTrace *trace = NULL;
  enum toolExit code = toolTraceOpen(&config, &trace, error);
  for (int64_t i = 0; i < s->numDraws && code == toolGood; i++) {
    struct toolTraceSection section;
    bench->seed = s->seed + i;
    code = toolTraceRead(trace, i, &section, error);
    if (code == toolGood)
      code = s->problem ? milpAskRetention(bench, &section, error)
                        : milpAskPlacement(bench, &section, error);
  }
  toolTraceClose(trace);
  return code;
}

static enum toolExit runRoutings(struct milpBench *bench,
                                 struct toolError *error) {
  enum toolExit code = toolGood;
  const char *list = milpSettings.routing;
  while (code == toolGood && toolRoutingNext(&list, bench->routing))
    code = runRouting(bench, error);
  return code;
}

static enum toolExit runAll(const struct toolProgram *program,
                            struct toolError *error) {
  const struct milpSettings *s = &milpSettings;
  struct milpBench bench = {0};
  struct toolJson *json = NULL;
  enum toolExit code = milpSolverOpen(s->maxSeconds, &bench.solver, error);
  if (code == toolGood) code = milpBenchOpen(&bench, error);
  if (code == toolGood) code = toolJsonBegin(program, &json, error);
  if (code == toolGood) {
    toolTableNote(stdout,
                  "%s %d.%d.%d: %lld experts, %lld ranks, %lld spare slots, "
                  "%lld tokens a rank, top-%lld",
                  program->name, LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                  (long long)s->numExperts, (long long)s->numRanks,
                  (long long)s->numSlots, (long long)s->numTokens,
                  (long long)s->topk);
    milpTableBegin(&bench, json);
    code = runRoutings(&bench, error);
  }
  if (code == toolGood) {
    milpTableEnd(&bench);
    code = toolJsonEnd(json, error);
    json = NULL;
  }
  toolJsonDrop(json);
  milpBenchClose(&bench);
  return code;
}

int main(int argc, char **argv) {
  struct toolProgram program = {
      .name = "milp_perf",
      .summary = "Compares plans with proven optima of a MILP solver.",
      .args = args};
  return toolMain(&program, argc, argv, runAll);
}
