/* topo_perf's ranks: calibrate, predict, measure.
 *
 * Measured is a group of lrmoeSend and lrmoeRecv, repeated for some ms, on the
 * slowest rank.  The messages walk through 64 MiB at least, so that they come
 * out of memory and not out of the cache. */
#include "perf/topo_matrix.h"
#include "perf/topo_perf.h"
#include "tools/common/stats.h"

#include <stdlib.h>
#include <string.h>

enum {
  walkBytes = 1 << 26,
  targetNs = 5000000 /* a measurement is repeated for so long */
};

struct bench {
  const struct toolRank *self;
  const struct topoOptions *options;
  struct topoOutcome *outcome; /* rank 0's */
  lrmoeTopology_t topology;
  lrmoeComm_t comm;
  char *send;
  char *recv;
  int64_t most;     /* bytes that a rank sends or receives */
  int64_t room;     /* of send and recv */
  int64_t cursor;   /* where in them the next exchange begins */
  int64_t *traffic; /* [G, G] */
  int64_t *repeats; /* [topoNumSets, numMatrices] */
};

static int64_t numMatrices(const struct bench *bench) {
  return topoNumSets * bench->options->numMatrices;
}

/* Matrix i of the first seed, or i - numMatrices of the one held out. */
static void makeMatrix(const struct bench *bench, int64_t matrix) {
  const struct topoOptions *options = bench->options;
  const struct topoMatrixConfig config = {
      (int)options->numRanks, options->minBytes, options->maxBytes,
      (uint64_t)options->seeds[matrix / options->numMatrices]};
  topoMatrixMake(&config, matrix % options->numMatrices, bench->traffic);
}

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
static enum toolExit measure(struct bench *bench, int64_t matrix,
                             int64_t round) {
  const struct toolRank *self = bench->self;
  struct topoOutcome *outcome = bench->outcome;
  int64_t ns = 0, *repeats = &bench->repeats[matrix];
  makeMatrix(bench, matrix);
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

static enum toolExit predict(struct bench *bench, int64_t matrix,
                             int64_t round) {
  const struct toolRank *self = bench->self;
  int64_t ns = 0, total = 0;
  makeMatrix(bench, matrix);
  TOOL_RANK_OK(self,
               lrmoeTopologyTrafficNs(bench->topology, bench->traffic, &ns));
  int64_t most = topoMatrixMost(bench->traffic, self->numRanks);
  for (int rank = 0; rank < self->numRanks; rank++)
    total += topoMatrixSum(bench->traffic, self->numRanks, rank, 0);
  if (self->rank) return toolGood;
  struct topoMatrixTimes *times = &bench->outcome->matrices[matrix];
  times->bytes = total;
  times->imbalance =
      total ? (double)(most * self->numRanks) / (double)total : 1;
  times->predictedNs[round] = (double)ns;
  return toolGood;
}

/* The two sets in turn: what changes on the machine meanwhile, both see. */
static enum toolExit runRound(struct bench *bench, int64_t round) {
  const struct toolRank *self = bench->self;
  lrmoeCalibrationConfig_t config = LRMOE_CALIBRATION_CONFIG_INITIALIZER;
  config.budgetMs = bench->options->budgetMs;
  TOOL_RANK_OK(self, lrmoeTopologyCalibrate(bench->topology, bench->comm,
                                            &config, NULL));
  for (int64_t i = 0; i < numMatrices(bench); i++) {
    int64_t m = i / topoNumSets + i % topoNumSets * bench->options->numMatrices;
    enum toolExit code = predict(bench, m, round);
    if (code == toolGood) code = measure(bench, m, round);
    if (code != toolGood) return code;
  }
  return toolGood;
}

/* Memory for the largest of the matrices. */
static enum toolExit reserve(struct bench *bench) {
  const struct toolRank *self = bench->self;
  size_t numPeers = (size_t)self->numRanks;
  bench->traffic = calloc(numPeers * numPeers, sizeof *bench->traffic);
  bench->repeats = calloc((size_t)numMatrices(bench), sizeof *bench->repeats);
  if (!bench->traffic || !bench->repeats)
    return toolRankFail(self, lrmoeSuccess, "out of memory");
  bench->room = walkBytes;
  for (int64_t m = 0; m < numMatrices(bench); m++) {
    makeMatrix(bench, m);
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
  for (int64_t i = 0; i < bench->options->numRounds && code == toolGood; i++)
    code = runRound(bench, i);
  return code;
}

/* The fits of the last round, and the cores that there are. */
static enum toolExit tellCalibration(const struct bench *bench) {
  const struct toolRank *self = bench->self;
  struct topoOutcome *outcome = bench->outcome;
  int numNumaNodes = 0;
  while (outcome->numFits < topoMaxFits) {
    lrmoeTopologyFit_t fit = LRMOE_TOPOLOGY_FIT_INITIALIZER;
    if (lrmoeTopologyGetFit(bench->topology, (int)outcome->numFits, &fit))
      break;
    outcome->fits[outcome->numFits++] = fit;
  }
  TOOL_RANK_OK(self, lrmoeTopologyGetCores(bench->topology, &outcome->numCores,
                                           &numNumaNodes));
  return toolGood;
}

enum toolExit topoMeasure(const struct toolRank *self,
                          const struct topoOptions *options,
                          struct topoOutcome *outcome) {
  struct bench bench = {.self = self, .options = options, .outcome = outcome};
  enum toolExit code = runBench(&bench);
  if (code == toolGood && !self->rank) code = tellCalibration(&bench);
  lrmoeCommDestroy(bench.comm);
  lrmoeMemFree(bench.send);
  lrmoeMemFree(bench.recv);
  lrmoeTopologyDestroy(bench.topology);
  free(bench.traffic);
  free(bench.repeats);
  return code;
}
