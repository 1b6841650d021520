/* replica_perf: what a replica costs.
 *
 * Two steps with different hot experts take turns, so that their replicas push
 * each other out of the slots.  Timed on the slowest rank, medians:
 *   materialise  weights to a slot: lrmoeStepPrepare when the replicas have to
 *                come, less the same call when they stand
 *   reduce       gradients home: lrmoeReplicaReduce
 *   move         a kept pair that runs elsewhere than its forward: CPU time of
 *                all ranks in backward with moves, less the same with
 *                selection per instance (no moves), per moved pair
 * A planner's break-even sets these against the pairs that a replica takes off
 * the busiest rank. */
#include "perf/launch_mpi.h"
#include "perf/replica.h"
#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"
#include "tools/common/tensor.h"

#include <math.h>
#include <string.h>

static struct replicaOptions options = {.numTokens = 512,
                                        .numRounds = 9,
                                        .numExperts = 32,
                                        .topk = 4,
                                        .hidden = 512,
                                        .ffn = 256,
                                        .numSlots = 1,
                                        .seed = 1,
                                        .retain = 0.7};

static int typeIndex;

static const char *const typeNames[] = {"bf16", "fp16", "fp32", NULL};
static const lrmoeDataType_t types[] = {lrmoeBfloat16, lrmoeFloat16,
                                        lrmoeFloat32};

#define INTEGER(field, low, high)                                \
  .kind = toolArgInt, .value = &options.field, .minimum = (low), \
  .maximum = (high)

static const struct toolArg args[] = {
    {.name = "ranks",
     .letter = 'g',
     INTEGER(numRanks, 2, 1024),
     .help = "Ranks: 4 processes of this machine, or those of a launcher."},
    {.name = "tokens",
     .letter = 'b',
     INTEGER(numTokens, 1, 1 << 24),
     .help = "Tokens per rank."},
    {.name = "iters",
     .letter = 'n',
     INTEGER(numRounds, 1, replicaMaxRounds),
     .help = "Timed rounds."},
    {.name = "experts", INTEGER(numExperts, 2, 1 << 16), .help = "Experts."},
    {.name = "topk",
     INTEGER(topk, 1, toolMaxTopk),
     .help = "Routing slots per token."},
    {.name = "hidden",
     INTEGER(hidden, 8, 1 << 20),
     .help = "Hidden size, a multiple of 8."},
    {.name = "ffn",
     INTEGER(ffn, 8, 1 << 20),
     .help = "Expert intermediate size, a multiple of 8."},
    {.name = "slots",
     INTEGER(numSlots, 1, 64),
     .help = "Spare slots per rank."},
    {.name = "retain",
     .kind = toolArgReal,
     .value = &options.retain,
     .minimum = 0,
     .maximum = 1,
     .help = "Retention."},
    {.name = "dtype",
     .letter = 'd',
     .kind = toolArgEnum,
     .value = &typeIndex,
     .names = typeNames,
     .help = "Type of rows and weights."},
    {.name = "seed", INTEGER(seed, 0, 9e15), .help = "Of routing and tensors."},
    {0}};

static const struct toolColumn columns[] = {
    {"replicas", "per round", 9},   {"bytes", "per replica", 11},
    {"materialise_ms", "each", 14}, {"reduce_ms", "each", 10},
    {"moved", "pairs", 7},          {"move_us", "each", 8},
    {"prepare_ms", "standing", 10}};

/* Median over rounds of the slowest rank, or of the sum over ranks; offset is
 * of an array of rounds in struct replicaResult. */
static double overRounds(const struct replicaRun *run, size_t offset,
                         int isSum) {
  double values[replicaMaxRounds];
  for (int64_t i = 0; i < options.numRounds; i++) {
    values[i] = 0;
    for (int64_t r = 0; r < options.numRanks; r++) {
      double got;
      memcpy(&got, (const char *)&run->results[r] + offset + (size_t)i * 8, 8);
      values[i] = isSum ? values[i] + got : fmax(values[i], got);
    }
  }
  return toolStatsMake(values, options.numRounds).median;
}

#define SLOWEST(run, field) \
  overRounds(run, offsetof(struct replicaResult, field), 0)
#define SUM(run, field) \
  overRounds(run, offsetof(struct replicaResult, field), 1)

static void report(const struct replicaRun *run, struct toolTable *table,
                   struct toolJson *json) {
  double replicas =
      (double)run->results[0].numReplicas / (double)options.numRounds;
  double moved = 0;
  for (int64_t r = 0; r < options.numRanks; r++)
    moved += (double)run->results[r].numMoved / (double)options.numRounds;
  double stand = SLOWEST(run, standMs);
  double come = SLOWEST(run, comeMs) - stand;
  double move = SUM(run, moveMs) - SUM(run, stayMs);
  table->json = json;
  toolJsonRow(json);
  toolTableReal(table, replicas, 1);
  toolTableInt(table, 3 * options.ffn * options.hidden *
                          (int64_t)toolTypeBytes(options.type));
  toolTableReal(table, replicas > 0 ? come / replicas : NAN, 4);
  /* Half of the replicas, those of one step, have gradients. */
  toolTableReal(
      table, replicas > 0 ? SLOWEST(run, reduceMs) / (replicas / 2) : NAN, 4);
  toolTableReal(table, moved, 0);
  toolTableReal(table, moved > 0 ? 1e3 * move / moved : NAN, 2);
  toolTableReal(table, stand / replicaNumSteps, 4);
}

static enum toolExit runAll(const struct toolProgram *program,
                            struct toolError *error) {
  enum toolExit code = toolRanksCount(&options.numRanks, error);
  if (code == toolGood && options.numRanks < 2)
    code = toolFail(error, toolBadInput, "one rank has no replicas");
  options.type = types[typeIndex];
  struct replicaRun run = {.options = options};
  struct toolJson *json = NULL;
  if (code == toolGood) code = toolJsonBegin(program, &json, error);
  for (int i = 0; i < replicaNumSteps && code == toolGood; i++) {
    const struct toolWorkloadConfig config = {
        .routing = "zipf:1",
        .seed = (uint64_t)(options.seed + i),
        .numExperts = (int32_t)options.numExperts,
        .topk = (int32_t)options.topk};
    code = toolWorkloadCreate(&config, &run.loads[i], error);
  }
  size_t bytes = (size_t)options.numRanks * sizeof *run.results;
  run.results = code == toolGood ? toolSharedAlloc(bytes) : NULL;
  if (code == toolGood && !run.results)
    code = toolFail(error, toolRunFailed, "no shared memory of %zu B", bytes);
  if (code == toolGood)
    code = toolRanksRun((int)options.numRanks, replicaRankMain, &run,
                        &(struct toolResults){run.results, bytes, 0}, error);
  if (code == toolGood) {
    toolTableNote(stdout, "%s %d.%d.%d: H %lld, F %lld, %s, seed %lld",
                  program->name, LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                  (long long)options.hidden, (long long)options.ffn,
                  typeNames[typeIndex], (long long)options.seed);
    struct toolTable table = {.out = stdout,
                              .columns = columns,
                              .numColumns = sizeof columns / sizeof *columns};
    toolTableBegin(&table);
    report(&run, &table, json);
    code = toolJsonEnd(json, error);
  } else {
    toolJsonDrop(json);
  }
  if (run.results) toolSharedFree(run.results, bytes);
  for (int i = 0; i < replicaNumSteps; i++)
    toolWorkloadFree(&run.loads[i]);
  return code;
}

int main(int argc, char **argv) {
  struct toolProgram program = {
      "replica_perf",
      "Times what replicas cost: weights out, gradients home, moved pairs.",
      args, NULL};
  struct toolError error = {{0}};
  toolArgsStart(&program, argc, argv);
  toolLaunchOffer(perfMpi());
  enum toolExit code = runAll(&program, &error);
  if (code != toolGood) return toolComplain(program.name, code, &error);
  return toolGood;
}
