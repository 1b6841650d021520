/* alltoallv_perf: LRMoE's CPU transport against MPI_Alltoallv and memcpy.
 *
 * Every rank sends rows to every rank, mildly uneven.  The three ways are
 * timed in turn in the same rounds of the same processes (perf/alltoallv.h),
 * all data is checked, and ratios are medians over rounds. */
#include "perf/alltoallv.h"
#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/planning.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct settings {
  struct alltoallvOptions options;
  int64_t numRanks;
  int withoutMpi;
} settings = {{.minBytes = 8,
               .maxBytes = 256 << 20,
               .factor = 4,
               .numWarmups = 1,
               .numRounds = 9,
               .copies = 1},
              4,
              0};

#define INTEGER(field, low, high)                                 \
  .kind = toolArgInt, .value = &settings.field, .minimum = (low), \
  .maximum = (high)

static const struct toolArg args[] = {
    {.name = "ranks",
     .letter = 'g',
     INTEGER(numRanks, 1, 256),
     .help = "Ranks: processes of this machine."},
    {.name = "minbytes",
     .letter = 'b',
     INTEGER(options.minBytes, 8, 1 << 30),
     .help = "Bytes that a rank sends in all, to begin with."},
    {.name = "maxbytes",
     .letter = 'e',
     INTEGER(options.maxBytes, 8, 1 << 30),
     .help = "Bytes to end with."},
    {.name = "stepfactor",
     .letter = 'f',
     INTEGER(options.factor, 2, 1 << 20),
     .help = "Factor from one size to the next."},
    {.name = "iters",
     .letter = 'n',
     INTEGER(options.numIterations, 0, 1000000),
     .help = "Calls per timing; 0: as many as take about 5 ms."},
    {.name = "warmup_iters",
     .letter = 'w',
     INTEGER(options.numWarmups, 0, 1000),
     .help = "Rounds that are not counted."},
    {.name = "rounds",
     .letter = 'r',
     INTEGER(options.numRounds, 1, maxRounds),
     .help = "Rounds that are counted."},
    {.name = "topology",
     .kind = toolArgText,
     .value = &settings.options.topology,
     .meta = "FILE",
     .help = "Also in the order of peers that suits a machine: hwloc's or "
             "NCCL's XML, whose GPUs or NUMA nodes the ranks are taken for."},
    {.name = "copies",
     INTEGER(options.copies, 1, 1 << 16),
     .help = "So many hosts like the topology's."},
    {.name = "no-mpi",
     .kind = toolArgFlag,
     .value = &settings.withoutMpi,
     .help = "Leave MPI out: no mpirun is started."},
    {0}};

static const struct toolColumn columns[] = {
    {"size", "B", 12},      {"ours_us", "us", 10},
    {"ours", "GB/s", 8},    {"ours_spread", "%", 5},
    {"mpi_us", "us", 10},   {"mpi", "GB/s", 8},
    {"mpi_spread", "%", 5}, {"memcpy", "GB/s", 8},
    {"vs_mpi", "x", 7},     {"vs_memcpy", "x", 9},
    {"wrong", "words", 6},  {"ordered_us", "us", 10},
    {"ordered", "GB/s", 8}, {"ordered_spread", "%", 5},
    {"vs_ordered", "x", 10}};

enum {
  numOrderedColumns = 4 /* the last, with --topology */
};

static void show(struct toolTable *table, const struct timing *timing,
                 enum way way) {
  double seconds[maxRounds];
  int64_t numRounds = settings.options.numRounds;
  memcpy(seconds, timing->seconds[way], sizeof seconds);
  struct toolStats stats = toolStatsMake(seconds, numRounds);
  int isThere = stats.median > 0;
  double total = (double)timing->bytes * (double)settings.numRanks;
  double rate = isThere ? total / stats.median * 1e-9 : NAN;
  if (way != wayLimit)
    toolTableReal(table, isThere ? stats.median * 1e6 : NAN, 1);
  toolTableReal(table, rate, 2);
  if (way != wayLimit)
    toolTableReal(table, isThere ? 100 * toolStatsSpread(&stats) : NAN, 0);
}

/* Median over rounds of another way's time over ours. */
static double ratioTo(const struct timing *timing, enum way way) {
  double ratios[maxRounds];
  int64_t numRounds = settings.options.numRounds;
  for (int64_t i = 0; i < numRounds; i++)
    ratios[i] = timing->seconds[way][i] / timing->seconds[wayOurs][i];
  double median = toolStatsMake(ratios, numRounds).median;
  return median > 0 ? median : NAN;
}

static void report(const struct toolRank *self, const struct timing *timing) {
  struct toolTable *table = self->user;
  toolTableInt(table, timing->bytes);
  show(table, timing, wayOurs);
  show(table, timing, wayRival);
  show(table, timing, wayLimit);
  toolTableReal(table, ratioTo(timing, wayRival), 2);
  toolTableReal(table, ratioTo(timing, wayLimit), 2);
  toolTableInt(table, timing->numWrong);
  if (settings.options.topology) {
    show(table, timing, wayOrdered);
    toolTableReal(table, ratioTo(timing, wayOrdered), 2);
  }
  fflush(stdout);
}

static struct toolProgram program = {
    "alltoallv_perf",
    "Times an all-to-allv between processes against MPI and memcpy.", args,
    NULL};

static enum toolExit begin(struct toolTable *table, struct toolError *error) {
  enum toolExit code = toolJsonBegin(&program, &table->json, error);
  if (code != toolGood) return code;
  toolTableNote(stdout, "%lld ranks; every rank sends `size` bytes in all",
                (long long)settings.numRanks);
  toolTableNote(stdout,
                "medians of %lld rounds; vs: time of the other over ours",
                (long long)settings.options.numRounds);
  if (!rivalIsInside())
    toolTableNote(stdout, "%s",
                  rivalIsBuilt() ? "MPI left out (--no-mpi)"
                                 : "built without MPI");
  toolTableBegin(table);
  return toolGood;
}

/* A rank, forked or of mpirun; rank 0 has the output. */
static enum toolExit runRank(const struct toolRank *self,
                             struct toolError *error) {
  struct toolTable *table = self->user;
  enum toolExit code = toolGood;
  if (self->rank == 0) code = begin(table, error);
  if (code == toolGood)
    code = alltoallvMeasure(self, &settings.options, report, error);
  if (code != toolGood && code != toolWrongData) {
    toolJsonDrop(table->json);
    return code;
  }
  enum toolExit written = toolJsonEnd(table->json, error);
  return written == toolGood ? code : written;
}

static enum toolExit runForked(const struct toolRank *self) {
  struct toolError error = {""};
  enum toolExit code = runRank(self, &error);
  if (code != toolGood) toolRankFail(self, lrmoeSuccess, "%s", error.text);
  return code;
}

/* One of mpirun's processes.  Nobody else would stop the others. */
static enum toolExit runInside(struct toolTable *table,
                               struct toolError *error) {
  struct toolRank self = {.user = table};
  enum toolExit code = rivalStart(&self, error);
  if (code != toolGood) return code;
  settings.numRanks = self.numRanks;
  code = runRank(&self, error);
  if (code == toolGood || code == toolWrongData) rivalStop();
  return code;
}

int main(int argc, char **argv) {
  struct toolTable table = {.out = stdout,
                            .columns = columns,
                            .numColumns = sizeof columns / sizeof *columns};
  struct toolError error = {""};
  toolArgsStart(&program, argc, argv);
  if (!settings.options.topology) table.numColumns -= numOrderedColumns;
  enum toolExit code = toolGood;
  if (!rivalIsInside())
    code = toolTopologyCheck(settings.options.topology, settings.options.copies,
                             (int)settings.numRanks, &error);
  if (code != toolGood) return (int)toolComplain(program.name, code, &error);
  if (rivalIsInside())
    code = runInside(&table, &error);
  else if (rivalIsBuilt() && !settings.withoutMpi)
    code = rivalLaunch((int)settings.numRanks, argv, &error);
  else
    code =
        toolRanksRun((int)settings.numRanks, runForked, &table, NULL, &error);
  if (code == toolGood) return 0;
  return (int)toolComplain(program.name, code, &error);
}
