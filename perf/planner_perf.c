/* planner_perf: how good plans are and how fast they are made.
 *
 * For every shape and routing, a number of loads (draws, made from consecutive
 * seeds), or the layers of a CSV.  Policies take turns on each load, so that
 * what slows the machine down slows all of them down.  A row is about all
 * loads: median time of one plan, peak / mean of kept pairs, how far the peak
 * is above the proven bound, replicas.  Every plan is verified; the exit code
 * is 7 if one breaks a rule.
 *
 * median_us is the time of lrmoePlanMake, one thread: reading the demand matrix
 * [G, E], the search, and a plan with a copy of the matrix.  borrow_us is
 * without the copy (borrowDemand), totals_us without the matrix (totals): the
 * search and the plan alone.  `read` is one pass over the matrix, no more. */
#include "perf/planner.h"
#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"
#include "tools/common/workload.h"

#include <stdio.h>
#include <string.h>

enum {
  maxDraws = 100000
};

/* The shapes that the planner is judged by. */
static const struct plannerShape known[] = {
    {128, 8, 1}, {256, 64, 1}, {2048, 1024, 1}};

static struct {
  struct toolIntList experts;
  struct toolIntList ranks;
  struct toolIntList slots;
  const char *routing;
  const char *load;
  const char *policy;
  int64_t numDraws;
  int64_t numTokens;
  int64_t topk;
  int64_t seed;
  double retain;
  double tolerance;
} settings = {.routing = "zipf:0.8,lognormal:1",
              .policy = "all",
              .numDraws = 100,
              .numTokens = 8192,
              .topk = 8,
              .seed = 1,
              .retain = 1};

static const struct toolArg args[] = {
    {.name = "experts",
     .kind = toolArgIntList,
     .value = &settings.experts,
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "Experts of each shape; with --ranks and --slots, which then have "
             "as many; unset: 128,256,2048."},
    {.name = "ranks",
     .letter = 'g',
     .kind = toolArgIntList,
     .value = &settings.ranks,
     .minimum = 1,
     .maximum = 1024,
     .help = "Ranks of each shape; unset: 8,64,1024."},
    {.name = "slots",
     .kind = toolArgIntList,
     .value = &settings.slots,
     .minimum = 0,
     .maximum = 1024,
     .help = "Spare slots per rank of each shape; unset: 1 each."},
    {.name = "routing",
     TOOL_TEXT(settings.routing),
     .meta = "KIND[,...]",
     .help = "balanced, lognormal:S, zipf:S."},
    {.name = "load",
     TOOL_TEXT(settings.load),
     .meta = "FILE",
     .help = "Loads of a CSV file instead, on --ranks and --slots."},
    {.name = "policy",
     TOOL_TEXT(settings.policy),
     .meta = "NAME[,...]",
     .help = "Policies, or all."},
    {.name = "iters",
     .letter = 'n',
     TOOL_INTEGER(settings.numDraws, 1, maxDraws),
     .help = "Loads to draw; of more than 256 ranks a tenth of them."},
    {.name = "tokens",
     .letter = 'b',
     TOOL_INTEGER(settings.numTokens, 1, 1 << 24),
     .help = "Tokens per rank."},
    {.name = "topk",
     .letter = 'k',
     TOOL_INTEGER(settings.topk, 1, 64),
     .help = "Routing slots per token."},
    {.name = "retain", TOOL_REAL(settings.retain, 0, 1), .help = "Retention."},
    {.name = "tolerance",
     TOOL_REAL(settings.tolerance, 0, 1),
     .help =
         "Of policy lrmoe: peaks up to 1 + this over the mean are as good."},
    {.name = "seed",
     TOOL_INTEGER(settings.seed, 0, 9e15),
     .help = "Of the first load."},
    {0}};

static const struct toolColumn columns[] = {{"routing", "", 14},
                                            {"experts", "", 7},
                                            {"ranks", "", 5},
                                            {"slots", "", 5},
                                            {"policy", "", 12},
                                            {"loads", "", 5},
                                            {"median_us", "us", 9},
                                            {"spread", "+- %", 6},
                                            {"imbalance", "mean", 9},
                                            {"imbalance_most", "", 14},
                                            {"gap_percent", "mean", 11},
                                            {"gap_most_percent", "", 16},
                                            {"replicas", "mean", 8},
                                            {"borrow_us", "us", 9},
                                            {"totals_us", "us", 9},
                                            {"read_us", "us", 8}};

static double meanOf(const double *values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += values[i];
  return sum / (double)count;
}

static void report(const struct plannerBench *bench, struct toolTable *table) {
  int64_t count = bench->numLoads;
  double readUs = toolStatsMake(bench->readUs, count).median;
  for (int i = 0; i < bench->numPolicies; i++) {
    const struct plannerRival *rival = &bench->rivals[i];
    struct toolStats us = toolStatsMake(rival->us[plannerCopies], count);
    toolTableText(table, bench->routing);
    toolTableInt(table, toolTraceExperts(bench->trace));
    toolTableInt(table, bench->shape.ranks);
    toolTableInt(table, rival->slots);
    toolTableText(table, toolPolicyNames[rival->policy]);
    toolTableInt(table, count);
    toolTableReal(table, us.median, 2);
    toolTableReal(table, 100 * toolStatsSpread(&us), 1);
    toolTableReal(table, meanOf(rival->imbalance, count), 5);
    toolTableReal(table, toolStatsMake(rival->imbalance, count).maximum, 5);
    toolTableReal(table, meanOf(rival->gap, count), 4);
    toolTableReal(table, toolStatsMake(rival->gap, count).maximum, 4);
    toolTableReal(table, rival->replicas / (double)count, 2);
    toolTableReal(table, toolStatsMake(rival->us[plannerBorrows], count).median,
                  2);
    toolTableReal(table, toolStatsMake(rival->us[plannerTotals], count).median,
                  2);
    toolTableReal(table, readUs, 2);
  }
}

/* One shape with one routing, or with the CSV where routing is NULL. */
static enum toolExit runBench(struct plannerBench *bench, const char *routing,
                              struct toolTable *table,
                              struct toolError *error) {
  const struct plannerShape *shape = &bench->shape;
  int64_t draws =
      shape->ranks > 256 ? (settings.numDraws + 9) / 10 : settings.numDraws;
  const struct toolTraceConfig config = {
      .load = routing ? NULL : settings.load,
      .routing = routing,
      .step = -1,
      .layer = -1,
      .numLayers = draws,
      .numTokens = routing ? settings.numTokens * shape->ranks : 0,
      .seed = (uint64_t)settings.seed,
      .numRanks = (int32_t)shape->ranks,
      .numExperts = routing ? (int32_t)shape->experts : 0,
      .topk = (int32_t)settings.topk};
  bench->routing = routing ? routing : "csv";
  enum toolExit code = toolTraceOpen(&config, &bench->trace, error);
  if (code == toolGood) {
    bench->numLoads = toolTraceLength(bench->trace);
    code = plannerRivalsOpen(bench, error);
  }
  if (code == toolGood) code = plannerMeasure(bench, error);
  if (code == toolGood) report(bench, table);
  plannerBenchClose(bench);
  return code;
}

/* ---- All shapes and routings -------------------------------------------- */

static enum toolExit findShapes(struct plannerShape shapes[toolMaxList],
                                int *count, struct toolError *error) {
  int given = settings.ranks.count;
  if (!given && !settings.experts.count && !settings.slots.count) {
    *count = sizeof known / sizeof *known;
    memcpy(shapes, known, sizeof known);
    return toolGood;
  }
  int experts = settings.experts.count, slots = settings.slots.count;
  if (!given || (slots && slots != given) ||
      (settings.load ? experts != 0 : experts != given))
    return toolFail(error, toolBadInput,
                    "%d --ranks, %d --experts and %d --slots: a shape has one "
                    "of each%s",
                    given, experts, slots,
                    settings.load ? ", and --load gives the experts" : "");
  for (int i = 0; i < given; i++)
    shapes[i] = (struct plannerShape){experts ? settings.experts.values[i] : 0,
                                      settings.ranks.values[i],
                                      slots ? settings.slots.values[i] : 1};
  *count = given;
  return toolGood;
}

/* Calls runBench for each routing of the list. */
static enum toolExit runRoutings(struct plannerBench *bench,
                                 struct toolTable *table,
                                 struct toolError *error) {
  if (settings.load) return runBench(bench, NULL, table, error);
  enum toolExit code = toolGood;
  const char *list = settings.routing;
  char name[64];
  while (code == toolGood && toolRoutingNext(&list, name))
    code = runBench(bench, name, table, error);
  return code;
}

static enum toolExit runAll(const struct toolProgram *program,
                            struct toolError *error) {
  struct plannerBench bench = {.retain = settings.retain,
                               .tolerance = settings.tolerance};
  struct plannerShape shapes[toolMaxList];
  struct toolJson *json = NULL;
  int numShapes = 0;
  enum toolExit code = toolPoliciesRead(
      settings.policy, "policy", bench.policies, &bench.numPolicies, error);
  if (code == toolGood) code = findShapes(shapes, &numShapes, error);
  if (code == toolGood) code = toolJsonBegin(program, &json, error);
  if (code) return code;
  toolTableNote(stdout, "%s %d.%d.%d: top-%lld, %lld tokens a rank, seed %lld",
                program->name, LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                (long long)settings.topk, (long long)settings.numTokens,
                (long long)settings.seed);
  struct toolTable table = {.out = stdout,
                            .json = json,
                            .columns = columns,
                            .numColumns = sizeof columns / sizeof *columns};
  toolTableBegin(&table);
  for (int i = 0; i < numShapes && code == toolGood; i++) {
    bench.shape = shapes[i];
    code = runRoutings(&bench, &table, error);
  }
  if (code == toolGood) return toolJsonEnd(json, error);
  toolJsonDrop(json);
  return code;
}

int main(int argc, char **argv) {
  struct toolProgram program = {
      .name = "planner_perf",
      .summary = "Times plans and says how good they are, per policy.",
      .args = args};
  return toolMain(&program, argc, argv, runAll);
}
