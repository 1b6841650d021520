/* moe_backward_perf: what calibration is worth in an MoE layer's backward.
 *
 * Runs one layer on `-g` ranks (processes of this machine) and times several
 * ways of the same backward against each other (perf/backward.h).  Every result
 * is checked before anything is timed. */
#include "perf/backward.h"
#include "perf/launch_mpi.h"
#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const typeNames[] = {"bf16", "fp16", "fp32", NULL};
static const lrmoeDataType_t types[] = {lrmoeBfloat16, lrmoeFloat16,
                                        lrmoeFloat32};
static const char *const savedNames[] = {"full", "none", NULL};
static const char *const activationNames[] = {"swiglu", "gelu", NULL};
static const char *const metricNames[] = {"lrm", "grad2", "grad1", "random",
                                          NULL};
/* In the order of lrmoePolicy_t. */
static const char *const policyNames[] = {
    "fixed", "lrmoe",   "proportional", "eplb", "quota", "shadow",
    "flex",  "permute", "relayout",     "topo", NULL};

/* What the command line sets. */
struct settings {
  struct backwardOptions options;
  int64_t minTokens;
  int64_t maxTokens;
  int64_t factor;
  struct toolRealList retains;
  struct toolWorkloadConfig load;
  int64_t seed;
  int64_t csvStep;
  int64_t csvLayer;
  int type;
  int activation;
  int saved;
  int metric;
  int policy;
};

static struct settings settings = {
    .options = {.numRounds = 9,
                .numWarmups = 1,
                .numExperts = 0,
                .topk = 4,
                .hidden = 512,
                .ffn = 256,
                .numSlots = 1,
                .numChecked = 2},
    .minTokens = 1024,
    .maxTokens = 1024,
    .factor = 2,
    .retains = {{0.7}, 1},
    .load = {.routing = "lognormal:1"},
    .seed = 1,
    .csvStep = -1,
    .csvLayer = -1,
};

#define INTEGER(field, low, high)                                 \
  .kind = toolArgInt, .value = &settings.field, .minimum = (low), \
  .maximum = (high)

static const struct toolArg args[] = {
    {.name = "ranks",
     .letter = 'g',
     INTEGER(options.numRanks, 1, 1024),
     .help = "Ranks: 4 processes of this machine, or those of a launcher."},
    {.name = "minbytes",
     .letter = 'b',
     INTEGER(minTokens, 0, 1 << 24),
     .meta = "TOKENS",
     .help = "Tokens per rank to begin with."},
    {.name = "maxbytes",
     .letter = 'e',
     INTEGER(maxTokens, 0, 1 << 24),
     .meta = "TOKENS",
     .help = "Tokens per rank to end with."},
    {.name = "stepfactor",
     .letter = 'f',
     INTEGER(factor, 2, 1024),
     .help = "Factor between numbers of tokens."},
    {.name = "iters",
     .letter = 'n',
     INTEGER(options.numRounds, 1, backwardMaxRounds),
     .help = "Timed rounds; every way runs once a round."},
    {.name = "warmup_iters",
     .letter = 'w',
     INTEGER(options.numWarmups, 0, 1000),
     .help = "Rounds before them."},
    {.name = "check",
     .letter = 'c',
     INTEGER(options.numChecked, 0, 1 << 20),
     .help = "Tokens per rank whose dX is computed again in double."},
    {.name = "experts",
     INTEGER(options.numExperts, 0, 1 << 20),
     .help = "Experts; 0: 32, or as many as --load has."},
    {.name = "topk",
     INTEGER(options.topk, 1, toolMaxTopk),
     .help = "Routing slots per token."},
    {.name = "hidden",
     INTEGER(options.hidden, 8, 1 << 20),
     .help = "Hidden size, a multiple of 8."},
    {.name = "ffn",
     INTEGER(options.ffn, 8, 1 << 20),
     .help = "Expert intermediate size, a multiple of 8."},
    {.name = "dtype",
     .letter = 'd',
     .kind = toolArgEnum,
     .value = &settings.type,
     .names = typeNames,
     .help = "Type of rows and weights."},
    {.name = "activation",
     .kind = toolArgEnum,
     .value = &settings.activation,
     .names = activationNames,
     .help = "Activation of the experts."},
    {.name = "saved",
     .kind = toolArgEnum,
     .value = &settings.saved,
     .names = savedNames,
     .help = "What executors keep from forward: full, or none: backward then "
             "brings the rows of kept pairs again and computes FC1 again."},
    {.name = "retain",
     .kind = toolArgRealList,
     .value = &settings.retains,
     .minimum = 0,
     .maximum = 1,
     .meta = "RHO[,RHO...]",
     .help = "Retention: the share of pairs that backward keeps."},
    {.name = "metric",
     .kind = toolArgEnum,
     .value = &settings.metric,
     .names = metricNames,
     .help = "What ranks the pairs of an expert."},
    {.name = "policy",
     .kind = toolArgEnum,
     .value = &settings.policy,
     .names = policyNames,
     .help = "Placement: fixed, experts at their homes only; lrmoe, replicas "
             "that level the ranks; or a rival's, which is refused if homes "
             "have moved. The full ways always run fixed."},
    {.name = "slots",
     INTEGER(options.numSlots, 0, 64),
     .help = "Spare slots per rank for replicas, where the policy has any."},
    {.name = "routing",
     .kind = toolArgText,
     .value = &settings.load.routing,
     .meta = "KIND",
     .help = "balanced, lognormal:S or zipf:S."},
    {.name = "load",
     .kind = toolArgText,
     .value = &settings.load.load,
     .meta = "FILE",
     .help = "Routing with the expert loads of a CSV file."},
    {.name = "step",
     INTEGER(csvStep, -1, 9e15),
     .help = "Step of the CSV; -1: the first."},
    {.name = "layer",
     INTEGER(csvLayer, -1, 9e15),
     .help = "Layer of the CSV; -1: the first."},
    {.name = "seed",
     INTEGER(seed, 0, 9e15),
     .help = "Of routing, tensors and lrmoeMetricRandom."},
    {.name = "gemm",
     .kind = toolArgText,
     .value = &settings.options.gemm,
     .meta = "NAME",
     .help = "openblas, onednn or reference; unset: LRMOE_GEMM."},
    {.name = "staged",
     .kind = toolArgFlag,
     .value = &settings.options.isStaged,
     .help = "Pack and send apart, not fused."},
    {.name = "overlap",
     .kind = toolArgFlag,
     .value = &settings.options.isOverlapped,
     .help = "Weight gradients beside the return, on GPUs."},
    {.name = "pack-x",
     .kind = toolArgFlag,
     .value = &settings.options.isXPacked,
     .help = "x into the GEMMs' order while rows are put, on GPUs."},
    {0}};

static const struct toolColumn columns[] = {{"tokens", "per rank", 8},
                                            {"retain", "", 6},
                                            {"kept", "pairs", 9},
                                            {"imbal", "max/mean", 8},
                                            {"full", "ms", 8},
                                            {"masked", "ms", 8},
                                            {"pairwise", "ms", 8},
                                            {"dedup", "ms", 8},
                                            {"+-", "%", 5},
                                            {"speedup", "full", 7},
                                            {"speedup", "masked", 7},
                                            {"rho1", "x full", 6},
                                            {"wire", "% of full", 9},
                                            {"memory", "% of full", 9},
                                            {"#wrong", "", 6}};

static void printRow(struct toolTable *table, const struct backwardRun *run,
                     const struct backwardFigures *f) {
  double full = fmin(f->wayMs[wayFullPairwise], f->wayMs[wayFullDedup]);
  double wire = (double)f->wayBytes[wayFullDedup];
  toolTableInt(table, run->options.numTokens);
  toolTableReal(table, run->options.retain, 3);
  toolTableInt(table, f->kept);
  toolTableReal(table, f->imbalanceAfter, 2);
  toolTableReal(table, full, 2);
  toolTableReal(table, f->wayMs[wayMasked], 2);
  toolTableReal(table, f->wayMs[wayPairwise], 2);
  toolTableReal(table, f->wayMs[wayDedup], 2);
  toolTableReal(table, 100 * f->waySpread[wayDedup], 1);
  toolTableReal(table, f->speedupFull, 2);
  toolTableReal(table, f->speedupMasked, 2);
  toolTableReal(table, f->overheadRho1, 3);
  toolTableReal(table, 100 * (double)f->wayBytes[wayDedup] / wire, 1);
  toolTableReal(table,
                100 * (double)f->wayWorkspace[wayDedup] /
                    (double)f->wayWorkspace[wayFullPairwise],
                1);
  toolTableInt(table, f->numWrong);
}

static void jsonTimes(struct toolJson *json, const struct backwardFigures *f) {
  char key[64];
  for (int way = 0; way < numWays; way++) {
    snprintf(key, sizeof key, "%s_ms", backwardWayNames[way]);
    toolJsonReal(json, key, f->wayMs[way]);
    snprintf(key, sizeof key, "%s_spread", backwardWayNames[way]);
    toolJsonReal(json, key, f->waySpread[way]);
  }
  double full = fmin(f->wayMs[wayFullPairwise], f->wayMs[wayFullDedup]);
  toolJsonReal(json, "full_ms", full);
  toolJsonReal(json, "critical_cpu_ms_full",
               fmin(f->wayCpuMs[wayFullPairwise], f->wayCpuMs[wayFullDedup]));
  toolJsonReal(json, "critical_cpu_ms_dedup", f->wayCpuMs[wayDedup]);
  toolJsonReal(json, "select_ms", f->selectMs);
  toolJsonReal(json, "send_ms", f->sendMs);
  toolJsonReal(json, "gemm_ms", f->gemmMs);
  toolJsonReal(json, "return_ms", f->returnMs);
  toolJsonReal(json, "speedup_full", f->speedupFull);
  toolJsonReal(json, "speedup_masked", f->speedupMasked);
  toolJsonReal(json, "overhead_rho1", f->overheadRho1);
}

static void jsonRow(struct toolJson *json, const struct backwardRun *run,
                    const struct backwardFigures *f) {
  toolJsonRow(json);
  toolJsonText(json, "policy", policyNames[settings.policy]);
  toolJsonInt(json, "ranks", run->options.numRanks);
  toolJsonInt(json, "tokens", run->options.numTokens);
  toolJsonInt(json, "pairs", f->pairs);
  toolJsonInt(json, "kept", f->kept);
  toolJsonReal(json, "retention",
               f->pairs ? (double)f->kept / (double)f->pairs : 1);
  toolJsonInt(json, "replicas", f->numReplicas);
  toolJsonInt(json, "moved", f->moved);
  toolJsonReal(json, "imbalance_before", f->imbalanceBefore);
  toolJsonReal(json, "imbalance_after", f->imbalanceAfter);
  toolJsonInt(json, "bytes_full_pairwise", f->wayBytes[wayFullPairwise]);
  toolJsonInt(json, "bytes_full_dedup", f->wayBytes[wayFullDedup]);
  toolJsonInt(json, "bytes_pairwise", f->wayBytes[wayPairwise]);
  toolJsonInt(json, "bytes_dedup", f->wayBytes[wayDedup]);
  toolJsonInt(json, "workspace_full", f->wayWorkspace[wayFullPairwise]);
  toolJsonInt(json, "workspace_full_dedup", f->wayWorkspace[wayFullDedup]);
  toolJsonInt(json, "workspace_dedup", f->wayWorkspace[wayDedup]);
  toolJsonInt(json, "saved_bytes", f->saved);
  jsonTimes(json, f);
  toolJsonReal(json, "max_error", f->maxError);
  toolJsonInt(json, "wrong", f->numWrong);
}

/* One row: forks the ranks and gathers what they measured. */
static enum toolExit runOnce(struct backwardRun *run, struct toolTable *table,
                             struct toolJson *json, struct toolError *error) {
  size_t bytes = (size_t)run->options.numRanks * sizeof *run->results;
  run->results = toolSharedAlloc(bytes);
  if (!run->results)
    return toolFail(error, toolRunFailed, "no shared memory of %zu B", bytes);
  enum toolExit code =
      toolRanksRun((int)run->options.numRanks, backwardRankMain, run,
                   &(struct toolResults){run->results, bytes, 0}, error);
  if (code == toolGood) {
    struct backwardFigures figures;
    backwardSummarise(run, &figures);
    printRow(table, run, &figures);
    jsonRow(json, run, &figures);
    if (figures.numWrong)
      code = toolFail(error, toolWrongData, "%lld values are wrong",
                      (long long)figures.numWrong);
  }
  toolSharedFree(run->results, bytes);
  return code;
}

static enum toolExit finishSettings(struct backwardRun *run,
                                    struct toolError *error) {
  struct backwardOptions *options = &settings.options;
  const char *backend = getenv("LRMOE_BACKEND");
  options->isDevice = backend && strcmp(backend, "cuda") == 0;
  if (options->hidden % 8 || options->ffn % 8)
    return toolFail(error, toolBadInput,
                    "--hidden %lld and --ffn %lld must be multiples of 8",
                    (long long)options->hidden, (long long)options->ffn);
  if (settings.minTokens > settings.maxTokens)
    return toolFail(error, toolBadInput, "-b %lld is over -e %lld",
                    (long long)settings.minTokens,
                    (long long)settings.maxTokens);
  options->type = types[settings.type];
  options->activation = (lrmoeActivation_t)settings.activation;
  options->savedState = (lrmoeSavedState_t)settings.saved;
  options->metric = (lrmoeMetric_t)settings.metric;
  options->policy = (lrmoePolicy_t)settings.policy;
  if (options->policy == lrmoePolicyFixed ||
      options->policy == lrmoePolicyPermute)
    options->numSlots = 0;
  options->seed = (uint64_t)settings.seed;
  if (!options->numExperts && !settings.load.load) options->numExperts = 32;
  settings.load.seed = options->seed;
  settings.load.step = settings.csvStep;
  settings.load.layer = settings.csvLayer;
  settings.load.numExperts = (int32_t)options->numExperts;
  settings.load.topk = (int32_t)options->topk;
  enum toolExit code = toolRanksCount(&options->numRanks, error);
  if (code == toolGood)
    code = toolWorkloadCreate(&settings.load, &run->workload, error);
  options->numExperts = run->workload.numExperts;
  return code;
}

static enum toolExit runAll(const struct toolProgram *program,
                            struct toolError *error) {
  struct backwardRun run = {0};
  struct toolJson *json = NULL;
  enum toolExit code = finishSettings(&run, error);
  if (code == toolGood) code = toolJsonBegin(program, &json, error);
  if (code != toolGood) return code;
  const struct backwardOptions *o = &settings.options;
  toolTableNote(stdout,
                "%s %d.%d.%d: %lld ranks, %lld experts, top-%lld, H %lld, "
                "F %lld, %s, seed %lld",
                program->name, LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                (long long)o->numRanks, (long long)o->numExperts,
                (long long)o->topk, (long long)o->hidden, (long long)o->ffn,
                typeNames[settings.type], (long long)o->seed);
  struct toolTable table = {.out = stdout,
                            .columns = columns,
                            .numColumns = sizeof columns / sizeof *columns};
  toolTableBegin(&table);
  for (int64_t t = settings.minTokens; code == toolGood;
       t = t ? t * settings.factor : 1) {
    if (t > settings.maxTokens) break;
    for (int i = 0; i < settings.retains.count && code == toolGood; i++) {
      run.options = settings.options;
      run.options.numTokens = t;
      run.options.retain = settings.retains.values[i];
      code = runOnce(&run, &table, json, error);
      fflush(stdout);
    }
  }
  toolTableNote(stdout, "full: the plain backward, the better of a row per "
                        "pair and a row per (token, rank); wire: against the "
                        "latter; memory: against the former");
  toolWorkloadFree(&run.workload);
  if (code != toolGood && code != toolWrongData) {
    toolJsonDrop(json);
    return code;
  }
  enum toolExit written = toolJsonEnd(json, error);
  return code != toolGood ? code : written;
}

int main(int argc, char **argv) {
  struct toolProgram program = {
      "moe_backward_perf",
      "Times ways to run the backward of an MoE layer against each other.",
      args, NULL};
  struct toolError error = {{0}};
  toolArgsStart(&program, argc, argv);
  toolLaunchOffer(perfMpi());
  enum toolExit code = runAll(&program, &error);
  if (code != toolGood) return toolComplain(program.name, code, &error);
  return toolGood;
}
