/* lrmoe-calibrate: measures what messages between ranks of this machine cost,
 * prints the fitted figures with how far the samples are from them, and writes
 * a profile for lrmoe-topo --profile and lrmoeTopologyLoadProfile. */
#include "tools/common/args.h"
#include "tools/common/file.h"
#include "tools/common/json.h"
#include "tools/common/ranks.h"
#include "tools/common/table.h"

#include <stdio.h>
#include <unistd.h>

enum {
  maxFits = 64
};

static struct {
  int64_t numRanks;
  int64_t minBytes;
  int64_t maxBytes;
  int64_t numRounds;
  int64_t budgetMs;
  const char *output;
} options = {0, 4096, 67108864, 9, 10000, NULL};

#define INTEGER(field, low, high)                                \
  .kind = toolArgInt, .value = &options.field, .minimum = (low), \
  .maximum = (high)

static const struct toolArg args[] = {
    {.name = "ranks",
     .letter = 'g',
     INTEGER(numRanks, 1, toolMaxRanks),
     .help = "Ranks: 4 processes of this machine, or those of a launcher."},
    {.name = "minbytes",
     .letter = 'b',
     INTEGER(minBytes, 64, 1 << 30),
     .help = "Least bytes that a rank sends at once."},
    {.name = "maxbytes",
     .letter = 'e',
     INTEGER(maxBytes, 64, 1 << 30),
     .help = "Most bytes; each rank takes twice as much memory."},
    {.name = "rounds",
     .letter = 'r',
     INTEGER(numRounds, 1, 1000),
     .help = "Most times that each probe is repeated."},
    {.name = "budget",
     INTEGER(budgetMs, 1, 3600000),
     .help = "Stops after so many ms."},
    {.name = "output",
     .letter = 'o',
     .kind = toolArgText,
     .value = &options.output,
     .meta = "FILE",
     .help = "Writes the profile."},
    {0}};

static struct toolProgram program = {
    .name = "lrmoe-calibrate",
    .summary = "Measures the links between ranks and writes a profile.",
    .args = args};

static const struct toolColumn columns[] = {
    {"pattern", "", 9},  {"class", "", 12},         {"latency", "us", 9},
    {"rate", "GB/s", 9}, {"median_error", "%", 13}, {"worst_error", "%", 12},
    {"samples", "", 8}};

/* What rank 0 gives back. */
struct outcome {
  lrmoeTopologyFit_t fits[maxFits];
  int numFits;
};

/* A line on a terminal that is written over; nothing elsewhere. */
static void showProgress(void *user, int64_t donePpm) {
  int *lastPercent = user;
  int percent = (int)(donePpm / 10000);
  if (percent == *lastPercent) return;
  *lastPercent = percent;
  fprintf(stderr, "\rcalibrating: %3d %%%s", percent,
          donePpm == 1000000 ? "\r                     \r" : "");
  fflush(stderr);
}

static enum toolExit calibrate(const struct toolRank *self, lrmoeComm_t comm,
                               lrmoeTopology_t topology) {
  struct outcome *outcome = self->user;
  int lastPercent = -1;
  lrmoeCalibrationConfig_t config = LRMOE_CALIBRATION_CONFIG_INITIALIZER;
  config.minBytes = options.minBytes;
  config.maxBytes = options.maxBytes;
  config.numRounds = (int32_t)options.numRounds;
  config.budgetMs = options.budgetMs;
  config.user = &lastPercent;
  if (self->rank == 0 && isatty(STDERR_FILENO)) config.progress = showProgress;
  TOOL_RANK_OK(self, lrmoeTopologyCalibrate(topology, comm, &config, NULL));
  if (self->rank) return toolGood;
  if (options.output)
    TOOL_RANK_OK(self, lrmoeTopologySaveProfile(topology, options.output));
  while (outcome->numFits < maxFits) {
    lrmoeTopologyFit_t fit = LRMOE_TOPOLOGY_FIT_INITIALIZER;
    if (lrmoeTopologyGetFit(topology, outcome->numFits, &fit)) break;
    outcome->fits[outcome->numFits++] = fit;
  }
  return toolGood;
}

/* Ranks that cannot be placed count as processes of one machine. */
static enum toolExit describe(const struct toolRank *self, lrmoeComm_t comm,
                              lrmoeTopology_t *topology) {
  lrmoeResult_t found = lrmoeTopologyOfComm(comm, topology);
  if (found == lrmoeSuccess) return toolGood;
  if (found != lrmoeUnsupported)
    return toolRankFail(self, found, "lrmoeTopologyOfComm");
  if (self->rank == 0)
    fprintf(stderr, "%s: %s: links are not told apart\n", program.name,
            lrmoeGetLastError());
  TOOL_RANK_OK(self, lrmoeTopologyCreate(self->numRanks, topology));
  return toolGood;
}

static enum toolExit runRank(const struct toolRank *self) {
  lrmoeComm_t comm = NULL;
  lrmoeTopology_t topology = NULL;
  TOOL_RANK_OK(self, lrmoeCommInitRank(self->numRanks, &self->id, self->rank,
                                       NULL, &comm));
  if (describe(self, comm, &topology)) return toolRunFailed;
  enum toolExit code = calibrate(self, comm, topology);
  lrmoeCommDestroy(comm);
  lrmoeTopologyDestroy(topology);
  return code;
}

static void report(struct toolJson *json, const struct outcome *outcome) {
  static const char *const patterns[] = {"message", "gather", "scatter", "all"};
  static const char *const classes[] = {
      "self", "memory",      "device",  "direct", "switched",
      "PCI",  "host bridge", "sockets", "NIC",    "none"};
  struct toolTable table = {stdout, json, columns,
                            sizeof columns / sizeof *columns, 0};
  toolTableNote(stdout, "%s %d.%d.%d: %lld ranks", program.name, LRMOE_MAJOR,
                LRMOE_MINOR, LRMOE_PATCH, (long long)options.numRanks);
  toolTableNote(stdout, "time = latency x messages + bytes / rate; error: "
                        "|predicted / measured - 1|");
  toolTableBegin(&table);
  for (int i = 0; i < outcome->numFits; i++) {
    const lrmoeTopologyFit_t *fit = &outcome->fits[i];
    toolTableText(&table, patterns[fit->pattern]);
    toolTableText(&table, classes[fit->linkClass]);
    toolTableReal(&table, (double)fit->latencyNs * 1e-3, 2);
    toolTableReal(&table, (double)fit->bytesPerSecond * 1e-9, 2);
    toolTableReal(&table, (double)fit->medianErrorPpm * 1e-4, 1);
    toolTableReal(&table, (double)fit->worstErrorPpm * 1e-4, 1);
    toolTableInt(&table, fit->numSamples);
  }
  if (options.output)
    toolTableNote(stdout, "profile written to %s", options.output);
}

static enum toolExit run(struct toolError *error) {
  struct toolJson *json = NULL;
  if (options.minBytes > options.maxBytes)
    return toolFail(error, toolBadInput, "--minbytes is above --maxbytes");
  enum toolExit code = toolRanksCount(&options.numRanks, error);
  if (code == toolGood) code = toolJsonBegin(&program, &json, error);
  if (code == toolGood && options.output)
    code = toolFileProbe("output", options.output, error);
  struct outcome *outcome =
      code == toolGood ? toolSharedAlloc(sizeof *outcome) : NULL;
  if (code == toolGood && !outcome)
    code = toolFail(error, toolRunFailed, "out of memory");
  if (code == toolGood)
    code =
        toolRanksRun((int)options.numRanks, runRank, outcome,
                     &(struct toolResults){outcome, sizeof *outcome, 1}, error);
  if (code == toolGood && outcome) report(json, outcome);
  toolSharedFree(outcome, sizeof *outcome);
  if (code == toolGood) return toolJsonEnd(json, error);
  toolJsonDrop(json);
  return code;
}

int main(int argc, char **argv) {
  struct toolError error = {""};
  toolArgsStart(&program, argc, argv);
  enum toolExit code = run(&error);
  return code == toolGood ? 0 : (int)toolComplain(program.name, code, &error);
}
