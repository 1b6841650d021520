/* train_moe: trains a small Mixture-of-Experts language model on real text, on
 * ranks that are processes of this machine (config.h says how it is made). */
#include "perf/train/checkpoint.h"
#include "perf/train/trainer.h"
#include "tools/common/args.h"
#include "tools/common/planning.h"
#include "tools/common/workload.h"

#include <stdio.h>

static const char *const metricNames[] = {"lrm",    "grad2", "grad1",
                                          "random", "all",   NULL};
static const char *const scopeNames[] = {"expert", "layer", "instance", NULL};
static const char *const gradNames[] = {"kept", "owner", "executor", NULL};

static int64_t numRanks = 2;
static const char *textPath = TRAIN_DEFAULT_TEXT;
static int metric, scope, policy, quota = lrmoeQuotaUniform;
static int routerGrad = lrmoeRouterGradOwner;

/* A model of this size comes below the 5-gram model in 4.5 MB of text. */
static struct trainRun run = {.config = {.shape = {.dim = 64,
                                                   .numLayers = 2,
                                                   .numHeads = 4,
                                                   .numExperts = 16,
                                                   .topk = 4,
                                                   .ffn = 64,
                                                   .context = 64,
                                                   .numGrams = 4,
                                                   .gramRows = 16384},
                                         .batch = 32,
                                         .numSteps = 2200,
                                         .seed = 1,
                                         .learningRate = 5e-3,
                                         .warmup = 60,
                                         .clip = 1,
                                         .auxiliary = 0.01,
                                         .retain = 0.8,
                                         .exactSteps = 1500,
                                         .numSlots = 1,
                                         .checkpointEvery = 100,
                                         .reportEvery = 20,
                                         .heldOutEvery = 200,
                                         .heldOutWindows = 512,
                                         .recordEvery = 100}};

static const struct toolArg args[] = {
    {"ranks", 'g', TOOL_INTEGER(numRanks, 1, toolMaxRanks),
     .help = "Ranks: processes of this machine."},
    {"steps", 'n', TOOL_INTEGER(run.config.numSteps, 1, 1e9),
     .help = "Updates."},
    {"last", 0, TOOL_INTEGER(run.config.lastStep, 0, 1e9),
     .help =
         "End after this update, to go on with --resume; 0: with the last."},
    {"batch", 0, TOOL_INTEGER(run.config.batch, 1, 1 << 20),
     .help = "Windows of a step, of all ranks together."},
    {"text", 0, TOOL_TEXT(textPath), .meta = "PATH",
     .help = "A UTF-8 file, or a folder of them."},
    {"dim", 0, TOOL_INTEGER(run.config.shape.dim, 8, 1 << 16),
     .help = "Width, a multiple of 8 and of twice the heads."},
    {"layers", 0, TOOL_INTEGER(run.config.shape.numLayers, 1, 1024),
     .help = "Layers, each attention and MoE."},
    {"heads", 0, TOOL_INTEGER(run.config.shape.numHeads, 1, 1024),
     .help = "Attention heads."},
    {"experts", 0, TOOL_INTEGER(run.config.shape.numExperts, 1, 1 << 16),
     .help = "Experts of a layer, at least one a rank."},
    {"topk", 0, TOOL_INTEGER(run.config.shape.topk, 1, toolMaxTopk),
     .help = "Experts that a token goes to."},
    {"ffn", 0, TOOL_INTEGER(run.config.shape.ffn, 8, 1 << 16),
     .help = "Width of an expert, a multiple of 8."},
    {"context", 0, TOOL_INTEGER(run.config.shape.context, 1, 1 << 16),
     .help = "Bytes of a window."},
    {"grams", 0, TOOL_INTEGER(run.config.shape.numGrams, 0, 6),
     .help = "Embeddings of the last 2, 3, ... bytes together, beside the "
             "byte's."},
    {"gram-rows", 0, TOOL_INTEGER(run.config.shape.gramRows, 1, 1 << 24),
     .help = "Rows of each of their tables."},
    {"seed", 0, TOOL_INTEGER(run.config.seed, 0, 9e15),
     .help = "Of the starting weights and of the windows' order."},
    {"lr", 0, TOOL_REAL(run.config.learningRate, 0, 10),
     .help = "Learning rate after the warm-up; it falls to a tenth."},
    {"warmup", 0, TOOL_INTEGER(run.config.warmup, 0, 1e9),
     .help = "Steps of the warm-up."},
    {"clip", 0, TOOL_REAL(run.config.clip, 0, 1e9),
     .help = "Largest norm of the gradient; 0: any."},
    {"auxiliary", 0, TOOL_REAL(run.config.auxiliary, 0, 1e9),
     .help = "Weight of the router's load-balancing loss."},
    {"retain", 0, TOOL_REAL(run.config.retain, 0, 1),
     .help = "Share of the pairs that the MoE backwards keep."},
    {"select", 0, TOOL_ENUM(metric, metricNames),
     .help = "What ranks the pairs; all keeps all, without scores."},
    {"exact", 0, TOOL_INTEGER(run.config.exactSteps, 0, 1e9),
     .help = "Updates at the beginning that keep all pairs."},
    {"scope", 0, TOOL_ENUM(scope, scopeNames),
     .help = "Among which pairs the best are kept."},
    {"policy", 0, TOOL_ENUM(policy, toolPolicyNames),
     .help = "Where instances of experts stand; plans that move homes or "
             "change forward are refused."},
    {"slots", 0, TOOL_INTEGER(run.config.numSlots, 0, 1024),
     .help = "Replicas a rank has room for, where the policy has any."},
    {"past", 0, .kind = toolArgFlag, .value = &run.config.placesByPast,
     .help = "Tell the planner the load of the step before, for policies that "
             "place by it."},
    {"quota", 0, TOOL_ENUM(quota, toolQuotaNames),
     .help = "How many pairs of each expert are kept."},
    {"router-grad", 0, TOOL_ENUM(routerGrad, gradNames),
     .help = "Router gradient: kept (of kept pairs), owner or executor "
             "(both exact)."},
    {"gemm", 0, TOOL_TEXT(run.config.gemm), .meta = "NAME",
     .help = "openblas, onednn or reference; unset: LRMOE_GEMM."},
    {"checkpoint", 0, TOOL_TEXT(run.config.checkpoint), .meta = "DIR",
     .help = "Folder for checkpoints, made where it is missing."},
    {"checkpoint-every", 0, TOOL_INTEGER(run.config.checkpointEvery, 1, 1e9),
     .help = "Steps between two; one is made at the end too."},
    {"resume", 0, .kind = toolArgFlag, .value = &run.config.resumes,
     .help = "Go on after the newest whole checkpoint in DIR, if any."},
    {"report-every", 0, TOOL_INTEGER(run.config.reportEvery, 0, 1e9),
     .help = "Steps between two lines; 0: only with held-out losses."},
    {"held-out-every", 0, TOOL_INTEGER(run.config.heldOutEvery, 0, 1e9),
     .help = "Steps between two held-out losses; 0: only at the end."},
    {"held-out-windows", 0, TOOL_INTEGER(run.config.heldOutWindows, 0, 1e9),
     .help = "Held-out windows, evenly spread; 0: all."},
    {"record", 0, TOOL_TEXT(run.config.record), .meta = "FILE",
     .help = "Write the loads of the experts as CSV."},
    {"record-every", 0, TOOL_INTEGER(run.config.recordEvery, 1, 1e9),
     .help = "Steps between two records."},
    {"probe", 0, TOOL_INTEGER(run.config.probeBatches, 0, 1e6),
     .help = "Batches at the end over which the gradients of each way to "
             "select are compared with those of all pairs."},
    {0}};

static enum toolExit checkShape(struct toolError *error) {
  const struct trainShape *s = &run.config.shape;
  if (s->dim % 8 || s->ffn % 8 || s->dim % (2 * s->numHeads))
    return toolFail(error, toolBadInput,
                    "--dim %lld and --ffn %lld must be multiples of 8, and "
                    "--dim of twice the --heads %lld",
                    (long long)s->dim, (long long)s->ffn,
                    (long long)s->numHeads);
  if (s->topk > s->numExperts || numRanks > s->numExperts)
    return toolFail(error, toolBadInput,
                    "--experts %lld are fewer than --topk %lld or --ranks %lld",
                    (long long)s->numExperts, (long long)s->topk,
                    (long long)numRanks);
  return toolGood;
}

static enum toolExit checkCheckpoint(struct toolError *error) {
  const char *folder = run.config.checkpoint;
  if (run.config.resumes && !folder)
    return toolFail(error, toolBadInput, "--resume needs --checkpoint DIR");
  if (!folder) return toolGood;
  enum toolExit code = trainCheckpointHold(folder, error);
  if (code == toolGood && !run.config.resumes && trainCheckpointIsThere(folder))
    code = toolFail(error, toolBadInput,
                    "--checkpoint %.200s has checkpoints: go on with "
                    "--resume, or name another folder",
                    folder);
  return code;
}

static enum toolExit runAll(const struct toolProgram *program,
                            struct toolError *error) {
  run.config.metric = (lrmoeMetric_t)metric;
  run.config.scope = (lrmoeScope_t)scope;
  run.config.policy = (lrmoePolicy_t)policy;
  run.config.quota = (lrmoeQuota_t)quota;
  run.config.routerGrad = (lrmoeRouterGrad_t)routerGrad;
  if (!run.config.lastStep || run.config.lastStep > run.config.numSteps)
    run.config.lastStep = run.config.numSteps;
  run.config.numSlots =
      toolPolicySlots(run.config.policy, (int32_t)run.config.numSlots);
  const struct trainShape *shape = &run.config.shape;
  enum toolExit code = checkShape(error);
  if (code == toolGood)
    code = trainTextRead(textPath, shape->context + 1, &run.text, error);
  if (code == toolGood) code = checkCheckpoint(error);
  if (code == toolGood) code = toolJsonBegin(program, &run.json, error);
  if (code == toolGood) {
    toolTableNote(stdout,
                  "%s: %lld ranks, %lld layers of %lld experts, top-%lld, dim "
                  "%lld, ffn %lld; %lld + %lld bytes of text; seed %lld",
                  program->name, (long long)numRanks,
                  (long long)shape->numLayers, (long long)shape->numExperts,
                  (long long)shape->topk, (long long)shape->dim,
                  (long long)shape->ffn, (long long)run.text.numTrain,
                  (long long)run.text.numHeldOut, (long long)run.config.seed);
    code = toolRanksRun((int)numRanks, trainRankMain, &run, NULL, error);
  }
  toolJsonDrop(run.json);
  trainTextFree(&run.text);
  return code;
}

int main(int argc, char **argv) {
  static struct toolProgram program = {
      .name = "train_moe",
      .summary = "Trains a small Mixture-of-Experts language model whose "
                 "backward keeps the pairs that matter most.",
      .args = args};
  return toolMain(&program, argc, argv, runAll);
}
