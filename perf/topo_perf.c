/* topo_perf: how well a calibrated topology predicts an all-to-allv.
 *
 * In each round the ranks calibrate the topology, predict random traffic
 * matrices (lrmoeTopologyTrafficNs) and measure them, so that both see the
 * machine in one state; medians over rounds are compared.  The matrices are
 * what a skewed gate makes (topo_matrix.h).  Calibration probes patterns of its
 * own and sees none of them; but whoever works on the model looks at those of
 * the usual seed, so matrices of another are kept apart. */
#include "perf/topo_perf.h"

#include "perf/launch_mpi.h"
#include "perf/topo_matrix.h"
#include "tools/common/args.h"
#include "tools/common/table.h"

#include <stdio.h>

static struct topoOptions options = {.numMatrices = 20,
                                     .minBytes = 65536,
                                     .maxBytes = 33554432,
                                     .numRounds = 5,
                                     .budgetMs = 10000,
                                     .seeds = {1, 9001}};

#define INTEGER(field, low, high)                                \
  .kind = toolArgInt, .value = &options.field, .minimum = (low), \
  .maximum = (high)

static const struct toolArg args[] = {
    {.name = "ranks",
     .letter = 'g',
     INTEGER(numRanks, 1, toolMaxRanks),
     .help = "Ranks: 4 processes of this machine, or those of a launcher."},
    {.name = "matrices",
     INTEGER(numMatrices, 1, topoMaxMatrices),
     .help = "Random traffic matrices of each seed."},
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
     INTEGER(numRounds, 1, topoMaxRounds),
     .help = "Rounds that are counted."},
    {.name = "budget",
     INTEGER(budgetMs, 1, 3600000),
     .help = "Time for the calibration of a round, in ms."},
    {.name = "seed", INTEGER(seeds[0], 0, 9e15), .help = "Of the matrices."},
    {.name = "held-out",
     INTEGER(seeds[1], 0, 9e15),
     .help = "Seed of as many matrices that are reported apart."},
    {0}};

static struct toolProgram program = {
    "topo_perf", "Compares predicted with measured times of all-to-allv.", args,
    NULL};

static enum toolExit runRank(const struct toolRank *self) {
  return topoMeasure(self, &options, self->user);
}

static enum toolExit runAll(struct toolJson *json, struct toolError *error) {
  struct topoOutcome *outcome = NULL;
  size_t bytes = sizeof *outcome + topoNumSets * (size_t)options.numMatrices *
                                       sizeof outcome->matrices[0];
  outcome = toolSharedAlloc(bytes);
  if (!outcome) return toolFail(error, toolRunFailed, "out of memory");
  enum toolExit code =
      toolRanksRun((int)options.numRanks, runRank, outcome,
                   &(struct toolResults){outcome, bytes, 1}, error);
  if (code == toolGood) {
    toolTableNote(stdout, "topo_perf %d.%d.%d: %lld ranks, %d cores",
                  LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                  (long long)options.numRanks, outcome->numCores);
    code = topoReport(&options, outcome, json, error);
  }
  toolSharedFree(outcome, bytes);
  return code;
}

static enum toolExit run(struct toolError *error) {
  struct toolJson *json = NULL;
  if (options.minBytes > options.maxBytes)
    return toolFail(error, toolBadInput,
                    "option --minbytes is above --maxbytes");
  enum toolExit code = toolRanksCount(&options.numRanks, error);
  if (code == toolGood) code = toolJsonBegin(&program, &json, error);
  if (code == toolGood) code = runAll(json, error);
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
  toolLaunchOffer(perfMpi());
  enum toolExit code = run(&error);
  return code == toolGood ? 0 : (int)toolComplain(program.name, code, &error);
}
