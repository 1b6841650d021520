/* Benchmarks of one stage of a backward: options, runs and rows.  See
 * stage.h. */
#include "perf/stage.h"

#include "perf/launch_mpi.h"
#include "tools/common/planning.h"

#include <math.h>
#include <string.h>

static const char *const typeNames[] = {"bf16", "fp16", "fp32", NULL};
static const char *const wireNames[] = {"dedup", "node", NULL};
static const lrmoeWire_t wires[] = {lrmoeWireDedup, lrmoeWireNode};
static const lrmoeDataType_t types[] = {lrmoeBfloat16, lrmoeFloat16,
                                        lrmoeFloat32};

static struct stageOptions options = {.numRounds = 9,
                                      .topk = 4,
                                      .hidden = 512,
                                      .ffn = 256,
                                      .numSlots = 1,
                                      .copies = 1};

/* What the command line sets beside them. */
static struct {
  int64_t minTokens;
  int64_t maxTokens;
  int64_t factor;
  struct toolRealList retains;
  const char *routing;
  const char *load;
  int64_t csvStep;
  int64_t csvLayer;
  int64_t seed;
  int type;
  int policy;
  int forwardWire;
} settings = {.minTokens = 1024,
              .maxTokens = 1024,
              .factor = 2,
              .retains = {{0.7}, 1},
              .routing = "lognormal:1",
              .csvStep = -1,
              .csvLayer = -1,
              .seed = 1,
              .policy = lrmoePolicyLrmoe};

static const struct toolArg args[] = {
    {"ranks", 'g', TOOL_INTEGER(options.numRanks, 1, toolMaxRanks),
     .help = "Ranks: 4 processes of this machine, or those of a launcher."},
    {"minbytes", 'b', TOOL_INTEGER(settings.minTokens, 1, 1 << 24),
     .meta = "TOKENS", .help = "Tokens per rank to begin with."},
    {"maxbytes", 'e', TOOL_INTEGER(settings.maxTokens, 1, 1 << 24),
     .meta = "TOKENS", .help = "Tokens per rank to end with."},
    {"stepfactor", 'f', TOOL_INTEGER(settings.factor, 2, 1024),
     .help = "Factor between numbers of tokens."},
    {"iters", 'n', TOOL_INTEGER(options.numRounds, 1, stageMaxRounds),
     .help = "Timed rounds; every way runs once a round."},
    {"experts", 0, TOOL_INTEGER(options.numExperts, 0, 1 << 16),
     .help = "Experts; 0: 32, or as many as --load has."},
    {"topk", 0, TOOL_INTEGER(options.topk, 1, toolMaxTopk),
     .help = "Routing slots per token."},
    {"hidden", 0, TOOL_INTEGER(options.hidden, 8, 1 << 20),
     .help = "Hidden size, a multiple of 8."},
    {"ffn", 0, TOOL_INTEGER(options.ffn, 8, 1 << 20),
     .help = "Expert intermediate size, a multiple of 8."},
    {"dtype", 'd', TOOL_ENUM(settings.type, typeNames),
     .help = "Type of rows and weights."},
    {"retain", 0, .kind = toolArgRealList, .value = &settings.retains,
     .minimum = 0, .maximum = 1, .meta = "RHO[,RHO...]",
     .help = "Retention: the share of pairs that backward keeps."},
    {"policy", 0, TOOL_ENUM(settings.policy, toolPolicyNames),
     .help = "Where instances of experts stand; plans that move homes or "
             "change forward are refused."},
    {"slots", 0, TOOL_INTEGER(options.numSlots, 0, 64),
     .help = "Spare slots per rank for replicas, where the policy has any."},
    {"routing", 0, TOOL_TEXT(settings.routing), .meta = "KIND",
     .help = "balanced, lognormal:S or zipf:S."},
    {"load", 0, TOOL_TEXT(settings.load), .meta = "FILE",
     .help = "Routing with the expert loads of a CSV file."},
    {"step", 0, TOOL_INTEGER(settings.csvStep, -1, 9e15),
     .help = "Step of the CSV; -1: the first."},
    {"layer", 0, TOOL_INTEGER(settings.csvLayer, -1, 9e15),
     .help = "Layer of the CSV; -1: the first."},
    {"seed", 0, TOOL_INTEGER(settings.seed, 0, 9e15),
     .help = "Of routing, tensors and a random selection."},
    {"topology", 0, TOOL_TEXT(options.topology), .meta = "FILE",
     .help =
         "A machine, of hwloc's or NCCL's XML, whose GPUs or NUMA nodes the "
         "ranks are taken for."},
    {"copies", 0, TOOL_INTEGER(options.copies, 1, 1 << 16),
     .help = "So many hosts like the topology's."},
    {"forward-wire", 0, TOOL_ENUM(settings.forwardWire, wireNames),
     .help = "How rows of forward cross: once per (token, rank) or (token, "
             "node)."},
    {"gemm", 0, TOOL_TEXT(options.gemm), .meta = "NAME",
     .help = "openblas, onednn or reference; unset: LRMOE_GEMM."},
    {0}};

static const struct stageProgram *stage;

/* ---- Rows ---------------------------------------------------------------- */

/* Pairs that the way's experts multiply. */
static int64_t executedBy(const struct stageWay *way,
                          const struct stageFigures *figures) {
  int isAll = way->metric == lrmoeMetricAll || way->wire == lrmoeWireMasked;
  return isAll ? figures->executed : figures->executedKept;
}

static struct stageSum summarise(const struct stageRun *run, int way) {
  struct stageSum sum = {0};
  double wall[stageMaxRounds] = {0}, cpu[stageMaxRounds] = {0};
  for (int64_t rank = 0; rank < run->options.numRanks; rank++) {
    const struct stageFigures *figures = &run->results[rank].ways[way];
    int64_t executed = executedBy(&run->ways[way], figures);
    sum.pairs += figures->pairs;
    sum.kept += figures->kept;
    if (executed > sum.mostExecuted) sum.mostExecuted = executed;
    sum.selectBytes += figures->selectBytes;
    sum.rowBytes += figures->rowBytes;
    sum.nodeBytes += figures->nodeBytes;
    sum.xNodeBytes += figures->xNodeBytes;
    sum.forwardNodeBytes += figures->forwardNodeBytes;
    sum.numWrong += figures->numWrong;
    for (int64_t i = 0; i < run->options.numRounds; i++) {
      wall[i] = fmax(wall[i], figures->wallMs[i]);
      cpu[i] = fmax(cpu[i], figures->cpuMs[i]);
    }
  }
  sum.wallMs = toolStatsMake(wall, run->options.numRounds);
  sum.cpuMs = toolStatsMake(cpu, run->options.numRounds);
  return sum;
}

static int64_t report(const struct stageRun *run, struct toolTable *table) {
  const struct stageSum first = summarise(run, 0);
  int64_t numWrong = 0;
  for (int i = 0; i < run->numWays; i++) {
    const struct stageSum sum = summarise(run, i);
    toolTableInt(table, run->options.numTokens);
    toolTableReal(table, run->options.retain, 2);
    toolTableText(table, run->ways[i].name);
    toolTableReal(table, sum.wallMs.median, 3);
    toolTableReal(table, 100 * toolStatsSpread(&sum.wallMs), 1);
    toolTableReal(table, sum.cpuMs.median, 3);
    toolTableInt(table, sum.numWrong);
    stage->cells(&run->options, &run->ways[i], &sum, &first, table);
    numWrong += sum.numWrong;
  }
  return numWrong;
}

/* ---- Runs ---------------------------------------------------------------- */

static enum toolExit runOnce(struct stageRun *run, struct toolTable *table,
                             struct toolError *error) {
  size_t bytes = (size_t)run->options.numRanks * sizeof *run->results;
  run->results = toolSharedAlloc(bytes);
  if (!run->results)
    return toolFail(error, toolRunFailed, "no shared memory of %zu B", bytes);
  enum toolExit code =
      toolRanksRun((int)run->options.numRanks, stageRankMain, run,
                   &(struct toolResults){run->results, bytes, 0}, error);
  int64_t numWrong = code == toolGood ? report(run, table) : 0;
  if (numWrong)
    code = toolFail(error, toolWrongData, "%lld quotas or rows are wrong",
                    (long long)numWrong);
  toolSharedFree(run->results, bytes);
  return code;
}

static enum toolExit runSizes(struct stageRun *run, struct toolTable *table,
                              struct toolError *error) {
  enum toolExit code = toolGood;
  for (int64_t tokens = settings.minTokens;
       tokens <= settings.maxTokens && code == toolGood;
       tokens *= settings.factor)
    for (int i = 0; i < settings.retains.count && code == toolGood; i++) {
      run->options.numTokens = tokens;
      run->options.retain = settings.retains.values[i];
      code = runOnce(run, table, error);
      fflush(stdout);
    }
  return code;
}

static enum toolExit prepare(struct stageRun *run, struct toolError *error) {
  if (options.hidden % 8 || options.ffn % 8)
    return toolFail(error, toolBadInput,
                    "--hidden %lld and --ffn %lld must be multiples of 8",
                    (long long)options.hidden, (long long)options.ffn);
  if (settings.minTokens > settings.maxTokens)
    return toolFail(error, toolBadInput, "-b %lld is over -e %lld",
                    (long long)settings.minTokens,
                    (long long)settings.maxTokens);
  options.type = types[settings.type];
  options.forwardWire = wires[settings.forwardWire];
  options.policy = (lrmoePolicy_t)settings.policy;
  options.numSlots = toolPolicySlots(options.policy, (int32_t)options.numSlots);
  options.seed = (uint64_t)settings.seed;
  if (!options.numExperts && !settings.load) options.numExperts = 32;
  const struct toolWorkloadConfig config = {.routing = settings.routing,
                                            .load = settings.load,
                                            .step = settings.csvStep,
                                            .layer = settings.csvLayer,
                                            .seed = options.seed,
                                            .numExperts =
                                                (int32_t)options.numExperts,
                                            .topk = (int32_t)options.topk};
  enum toolExit code = toolRanksCount(&options.numRanks, error);
  if (code == toolGood)
    code = toolTopologyCheck(options.topology, options.copies,
                             (int)options.numRanks, error);
  if (code == toolGood)
    code = toolWorkloadCreate(&config, &run->workload, error);
  if (code == toolGood) options.numExperts = run->workload.numExperts;
  run->options = options;
  return code;
}

static enum toolExit runAll(const struct toolProgram *program,
                            struct toolError *error) {
  struct stageRun run = {
      .kind = stage->kind, .ways = stage->ways, .numWays = stage->numWays};
  struct toolJson *json = NULL;
  enum toolExit code = prepare(&run, error);
  if (code) return code;
  code = toolJsonBegin(program, &json, error);
  if (code == toolGood) {
    toolTableNote(stdout,
                  "%s %d.%d.%d: %lld ranks, %lld experts, top-%lld, H %lld, "
                  "F %lld, %s, seed %lld",
                  program->name, LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                  (long long)options.numRanks, (long long)options.numExperts,
                  (long long)options.topk, (long long)options.hidden,
                  (long long)options.ffn, typeNames[settings.type],
                  (long long)settings.seed);
    struct toolTable table = {.out = stdout,
                              .json = json,
                              .columns = stage->columns,
                              .numColumns = stage->numColumns};
    toolTableBegin(&table);
    code = runSizes(&run, &table, error);
  }
  toolWorkloadFree(&run.workload);
  if (code != toolGood && code != toolWrongData) {
    toolJsonDrop(json);
    return code;
  }
  enum toolExit written = toolJsonEnd(json, error);
  return code != toolGood ? code : written;
}

int stageMain(const struct stageProgram *program, int argc, char **argv) {
  struct toolProgram tool = {
      .name = program->name, .summary = program->summary, .args = args};
  toolLaunchOffer(perfMpi());
  stage = program;
  return toolMain(&tool, argc, argv, runAll);
}
