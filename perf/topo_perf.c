/* topo_perf: how well a calibrated topology predicts an all-to-allv.
 *
 * In each round the ranks calibrate the topology, predict random traffic
 * matrices (lrmoeTopologyTrafficNs) and measure them, so that both see the
 * machine in one state; medians over rounds are compared.  The matrices are
 * what a skewed gate makes (topo_matrix.h); none is a pattern that calibration
 * has probed.  Measured is a group of lrmoeSend and lrmoeRecv, repeated for
 * some ms, on the slowest rank.  The messages walk through 64 MiB at least, so
 * that they come out of memory and not out of the cache. */
#include "perf/topo_matrix.h"
#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/ranks.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxMatrices = 1000,
  maxRounds = 101,
  walkBytes = 1 << 26,
  targetNs = 5000000 /* a measurement is repeated for so long */
};

static struct {
  int64_t numRanks;
  int64_t numMatrices;
  int64_t minBytes;
  int64_t maxBytes;
  int64_t numRounds;
  int64_t budgetMs;
  int64_t seed;
} options = {4, 20, 65536, 33554432, 5, 4000, 1};

#define INTEGER(field, low, high)                                \
  .kind = toolArgInt, .value = &options.field, .minimum = (low), \
  .maximum = (high)

static const struct toolArg args[] = {
    {.name = "ranks",
     .letter = 'g',
     INTEGER(numRanks, 1, toolMaxRanks),
     .help = "Ranks: processes of this machine."},
    {.name = "matrices",
     INTEGER(numMatrices, 1, maxMatrices),
     .help = "Random traffic matrices."},
    {.name = "minbytes",
     .letter = 'b',
     INTEGER(minBytes, topoUnitBytes, 1 << 30),
     .help = "Least bytes that a rank sends."},
    {.name = "maxbytes",
     .letter = 'e',
     INTEGER(maxBytes, topoUnitBytes, 1 << 30),
     .help = "Most bytes that a rank sends."},
    {.name = "rounds",
     .letter = 'r',
     INTEGER(numRounds, 1, maxRounds),
     .help = "Rounds that are counted."},
    {.name = "budget",
     INTEGER(budgetMs, 1, 3600000),
     .help = "Time for the calibration of a round, in ms."},
    {.name = "seed", INTEGER(seed, 0, 9e15), .help = "Of the matrices."},
    {0}};

static const struct toolColumn columns[] = {
    {"matrix", "", 8},        {"bytes", "all ranks", 12},
    {"imbal", "max/mean", 9}, {"predicted", "us", 11},
    {"measured", "us", 11},   {"spread", "%", 7},
    {"error", "%", 7}};

static struct toolProgram program = {
    "topo_perf", "Compares predicted with measured times of all-to-allv.", args,
    NULL};

/* What rank 0 gives back to the parent. */
struct outcome {
  lrmoeTopologyFit_t fits[16];
  int64_t numFits;
  int64_t numWrong;
  struct {
    int64_t bytes;
    double imbalance;
    double predictedNs[maxRounds];
    double measuredNs[maxRounds];
  } matrices[];
};

struct bench {
  const struct toolRank *self;
  struct topoMatrixConfig matrices;
  lrmoeTopology_t topology;
  lrmoeComm_t comm;
  char *send;
  char *recv;
  int64_t most;     /* bytes that a rank sends or receives */
  int64_t room;     /* of send and recv */
  int64_t cursor;   /* where in them the next exchange begins */
  int64_t *traffic; /* [G, G] */
  int64_t *repeats; /* [numMatrices] */
};

/* ---- Measuring ---------------------------------------------------------- */

/* A message begins and ends with a word that no other message has. */
static uint64_t markOf(int from, int to, int64_t bytes, int64_t serial) {
  return ((uint64_t)from << 48 | (uint64_t)to << 32 | (uint64_t)serial) *
             0x9e3779b97f4a7c15u +
         (uint64_t)bytes;
}

static void mark(const struct bench *bench, int64_t serial) {
  int numRanks = bench->self->numRanks, rank = bench->self->rank;
  char *at = bench->send + bench->cursor;
  for (int to = 0; to < numRanks; to++) {
    int64_t bytes = bench->traffic[rank * numRanks + to];
    uint64_t word = markOf(rank, to, bytes, serial);
    if (bytes) memcpy(at, &word, sizeof word);
    if (bytes) memcpy(at + bytes - sizeof word, &word, sizeof word);
    at += bytes;
  }
}

static int64_t countWrong(const struct bench *bench, int64_t serial) {
  int numRanks = bench->self->numRanks, rank = bench->self->rank;
  int64_t numWrong = 0;
  const char *at = bench->recv + bench->cursor;
  for (int from = 0; from < numRanks; from++) {
    int64_t bytes = bench->traffic[from * numRanks + rank];
    uint64_t word = markOf(from, rank, bytes, serial);
    if (bytes) numWrong += memcmp(at, &word, sizeof word) != 0;
    if (bytes)
      numWrong += memcmp(at + bytes - sizeof word, &word, sizeof word) != 0;
    at += bytes;
  }
  return numWrong;
}

static lrmoeResult_t exchange(const struct bench *bench) {
  int numRanks = bench->self->numRanks, rank = bench->self->rank;
  lrmoeResult_t result = lrmoeGroupStart();
  int64_t sendOffset = bench->cursor, recvOffset = bench->cursor;
  for (int peer = 0; peer < numRanks && result == lrmoeSuccess; peer++) {
    int64_t bytes = bench->traffic[rank * numRanks + peer];
    result = lrmoeSend(bench->send + sendOffset, (size_t)bytes, lrmoeUint8,
                       peer, bench->comm, NULL);
    sendOffset += bytes;
    bytes = bench->traffic[peer * numRanks + rank];
    if (result == lrmoeSuccess)
      result = lrmoeRecv(bench->recv + recvOffset, (size_t)bytes, lrmoeUint8,
                         peer, bench->comm, NULL);
    recvOffset += bytes;
  }
  lrmoeResult_t ended = lrmoeGroupEnd();
  return result == lrmoeSuccess ? ended : result;
}

static lrmoeResult_t largest(const struct bench *bench, int64_t *value) {
  return lrmoeAllReduce(value, value, 1, lrmoeInt64, lrmoeMax, bench->comm,
                        NULL);
}

/* From a barrier on; ns of the slowest rank, on every rank. */
static lrmoeResult_t timeExchange(struct bench *bench, int64_t repeats,
                                  int64_t *ns) {
  int64_t word = 0;
  lrmoeResult_t result = largest(bench, &word);
  int64_t start = toolWallNs();
  for (int64_t i = 0; i < repeats && result == lrmoeSuccess; i++) {
    bench->cursor += bench->most;
    if (bench->cursor + bench->most > bench->room) bench->cursor = 0;
    result = exchange(bench);
  }
  *ns = (toolWallNs() - start) / repeats;
  return result == lrmoeSuccess ? largest(bench, ns) : result;
}

static int64_t repeatsFor(int64_t ns) {
  int64_t repeats = targetNs / (ns > 0 ? ns : 1);
  return repeats < 1 ? 1 : repeats > 1000 ? 1000 : repeats;
}

/* The first two runs warm up and give the number of repetitions. */
static enum toolExit measure(struct bench *bench, int64_t matrix, int64_t round,
                             struct outcome *outcome) {
  const struct toolRank *self = bench->self;
  int64_t ns = 0, *repeats = &bench->repeats[matrix];
  topoMatrixMake(&bench->matrices, matrix, bench->traffic);
  bench->most = topoMatrixMost(bench->traffic, self->numRanks);
  for (int i = 0; i < 2 && !round; i++)
    TOOL_RANK_OK(self, timeExchange(bench, 1, &ns));
  if (!round) *repeats = repeatsFor(ns);
  TOOL_RANK_OK(self, timeExchange(bench, *repeats, &ns));
  mark(bench, round);
  TOOL_RANK_OK(self, exchange(bench));
  int64_t numWrong = countWrong(bench, round);
  TOOL_RANK_OK(self, lrmoeAllReduce(&numWrong, &numWrong, 1, lrmoeInt64,
                                    lrmoeSum, bench->comm, NULL));
  if (self->rank) return toolGood;
  outcome->numWrong += numWrong;
  outcome->matrices[matrix].measuredNs[round] = (double)ns;
  return toolGood;
}

static enum toolExit predict(struct bench *bench, int64_t matrix, int64_t round,
                             struct outcome *outcome) {
  const struct toolRank *self = bench->self;
  int64_t ns = 0, total = 0;
  topoMatrixMake(&bench->matrices, matrix, bench->traffic);
  TOOL_RANK_OK(self,
               lrmoeTopologyTrafficNs(bench->topology, bench->traffic, &ns));
  int64_t most = topoMatrixMost(bench->traffic, self->numRanks);
  for (int rank = 0; rank < self->numRanks; rank++)
    total += topoMatrixSum(bench->traffic, self->numRanks, rank, 0);
  if (self->rank) return toolGood;
  outcome->matrices[matrix].bytes = total;
  outcome->matrices[matrix].imbalance =
      total ? (double)(most * self->numRanks) / (double)total : 1;
  outcome->matrices[matrix].predictedNs[round] = (double)ns;
  return toolGood;
}

static enum toolExit runRound(struct bench *bench, int64_t round) {
  const struct toolRank *self = bench->self;
  lrmoeCalibrationConfig_t config = LRMOE_CALIBRATION_CONFIG_INITIALIZER;
  config.budgetMs = options.budgetMs;
  TOOL_RANK_OK(self, lrmoeTopologyCalibrate(bench->topology, bench->comm,
                                            &config, NULL));
  for (int64_t m = 0; m < options.numMatrices; m++) {
    enum toolExit code = predict(bench, m, round, self->user);
    if (code == toolGood) code = measure(bench, m, round, self->user);
    if (code != toolGood) return code;
  }
  return toolGood;
}

/* Memory for the largest of the matrices. */
static enum toolExit reserve(struct bench *bench) {
  const struct toolRank *self = bench->self;
  size_t numPeers = (size_t)self->numRanks;
  bench->traffic = calloc(numPeers * numPeers, sizeof *bench->traffic);
  bench->repeats = calloc((size_t)options.numMatrices, sizeof *bench->repeats);
  if (!bench->traffic || !bench->repeats)
    return toolRankFail(self, lrmoeSuccess, "out of memory");
  bench->room = walkBytes;
  for (int64_t m = 0; m < options.numMatrices; m++) {
    topoMatrixMake(&bench->matrices, m, bench->traffic);
    int64_t most = topoMatrixMost(bench->traffic, self->numRanks);
    if (most > bench->room) bench->room = most;
  }
  TOOL_RANK_OK(self, lrmoeMemAlloc((size_t)bench->room, (void **)&bench->send));
  TOOL_RANK_OK(self, lrmoeMemAlloc((size_t)bench->room, (void **)&bench->recv));
  memset(bench->send, 1, (size_t)bench->room);
  memset(bench->recv, 1, (size_t)bench->room);
  return toolGood;
}

static enum toolExit runBench(struct bench *bench) {
  const struct toolRank *self = bench->self;
  TOOL_RANK_OK(self, lrmoeTopologyCreate(self->numRanks, &bench->topology));
  TOOL_RANK_OK(self, lrmoeCommInitRank(self->numRanks, &self->id, self->rank,
                                       NULL, &bench->comm));
  enum toolExit code = reserve(bench);
  for (int64_t i = 0; i < options.numRounds && code == toolGood; i++)
    code = runRound(bench, i);
  return code;
}

static enum toolExit runRank(const struct toolRank *self) {
  struct bench bench = {.self = self,
                        .matrices = {self->numRanks, options.minBytes,
                                     options.maxBytes, (uint64_t)options.seed}};
  enum toolExit code = runBench(&bench);
  struct outcome *outcome = self->user;
  while (code == toolGood && !self->rank && outcome->numFits < 16) {
    lrmoeTopologyFit_t fit = LRMOE_TOPOLOGY_FIT_INITIALIZER;
    if (lrmoeTopologyGetFit(bench.topology, (int)outcome->numFits, &fit)) break;
    outcome->fits[outcome->numFits++] = fit;
  }
  lrmoeCommDestroy(bench.comm);
  lrmoeMemFree(bench.send);
  lrmoeMemFree(bench.recv);
  lrmoeTopologyDestroy(bench.topology);
  free(bench.traffic);
  free(bench.repeats);
  return code;
}

/* ---- Report ------------------------------------------------------------- */

static double showMatrix(struct toolTable *table, int64_t matrix,
                         struct outcome *outcome) {
  struct toolStats stats =
      toolStatsMake(outcome->matrices[matrix].measuredNs, options.numRounds);
  double predicted =
      toolStatsMake(outcome->matrices[matrix].predictedNs, options.numRounds)
          .median;
  double error = stats.median > 0 ? predicted / stats.median - 1 : 0;
  toolTableInt(table, matrix);
  toolTableInt(table, outcome->matrices[matrix].bytes);
  toolTableReal(table, outcome->matrices[matrix].imbalance, 2);
  toolTableReal(table, predicted * 1e-3, 1);
  toolTableReal(table, stats.median * 1e-3, 1);
  toolTableReal(table, 100 * toolStatsSpread(&stats), 0);
  toolTableReal(table, 100 * error, 1);
  return fabs(error);
}

static void showFits(const struct outcome *outcome) {
  static const char *const patterns[] = {"message", "gather", "scatter", "all"};
  for (int64_t i = 0; i < outcome->numFits; i++) {
    const lrmoeTopologyFit_t *fit = &outcome->fits[i];
    toolTableNote(
        stdout,
        "%-7s %-6s %6.2f us a message, %6.2f GB/s; off by %.0f %% "
        "(median), %.0f %% (worst)",
        patterns[fit->pattern],
        fit->linkClass == lrmoeLinkSelf ? "self" : "memory",
        (double)fit->latencyNs * 1e-3, (double)fit->bytesPerSecond * 1e-9,
        (double)fit->medianErrorPpm * 1e-4, (double)fit->worstErrorPpm * 1e-4);
  }
}

static enum toolExit report(struct toolJson *json, struct outcome *outcome,
                            struct toolError *error) {
  struct toolTable table = {stdout, json, columns,
                            sizeof columns / sizeof *columns, 0};
  double errors[maxMatrices];
  showFits(outcome);
  toolTableBegin(&table);
  for (int64_t m = 0; m < options.numMatrices; m++)
    errors[m] = showMatrix(&table, m, outcome);
  struct toolStats stats = toolStatsMake(errors, options.numMatrices);
  toolTableNote(stdout,
                "|error|: median %.1f %%, quartiles %.1f and %.1f %%, "
                "worst %.1f %%",
                100 * stats.median, 100 * stats.lower, 100 * stats.upper,
                100 * stats.maximum);
  toolJsonRow(json);
  toolJsonReal(json, "median_error", 100 * stats.median);
  toolJsonReal(json, "worst_error", 100 * stats.maximum);
  toolJsonInt(json, "wrong", outcome->numWrong);
  if (!outcome->numWrong) return toolGood;
  return toolFail(error, toolWrongData, "%lld words are wrong",
                  (long long)outcome->numWrong);
}

static enum toolExit run(struct toolError *error) {
  struct toolJson *json = NULL;
  if (options.minBytes > options.maxBytes)
    return toolFail(error, toolBadInput,
                    "option --minbytes is above --maxbytes");
  enum toolExit code = toolJsonBegin(&program, &json, error);
  if (code != toolGood) return code;
  struct outcome *outcome = NULL;
  size_t bytes = sizeof *outcome +
                 (size_t)options.numMatrices * sizeof outcome->matrices[0];
  outcome = toolSharedAlloc(bytes);
  if (!outcome) code = toolFail(error, toolRunFailed, "out of memory");
  if (code == toolGood)
    code = toolRanksRun((int)options.numRanks, runRank, outcome, error);
  if (outcome && code == toolGood) {
    toolTableNote(stdout, "topo_perf %d.%d.%d: %lld ranks, seed %lld",
                  LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                  (long long)options.numRanks, (long long)options.seed);
    code = report(json, outcome, error);
  }
  toolSharedFree(outcome, bytes);
  if (code != toolGood && code != toolWrongData) {
    toolJsonDrop(json);
    return code;
  }
  enum toolExit written = toolJsonEnd(json, error);
  return written == toolGood ? code : written;
}

int main(int argc, char **argv) {
  struct toolError error = {""};
  toolArgsStart(&program, argc, argv);
  enum toolExit code = run(&error);
  return code == toolGood ? 0 : (int)toolComplain(program.name, code, &error);
}
