/* topo_perf's table: a row per matrix, and how far predictions are off. */
#include "perf/topo_perf.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"

#include <math.h>
#include <stdlib.h>

/* What the median of |error| may be, in percent. */
static const double askedError = 25;

static const struct toolColumn columns[] = {{"seed", "", 5},
                                            {"matrix", "", 7},
                                            {"bytes", "all ranks", 12},
                                            {"imbal", "max/mean", 9},
                                            {"predicted", "us", 11},
                                            {"measured", "us", 11},
                                            {"spread", "%", 7},
                                            {"error", "%", 7}};

/* What is said about the matrices of one seed. */
struct set {
  double errors[topoMaxMatrices]; /* |error|, percent */
  double spreads[topoMaxMatrices];
  struct toolStats error;
  double spread; /* median */
};

/* A row, and its part in what is said about the set. */
static void showMatrix(const struct topoOptions *options,
                       struct toolTable *table, int64_t matrix,
                       struct topoMatrixTimes *times, struct set *sets) {
  int64_t numRounds = options->numRounds, numMatrices = options->numMatrices;
  struct set *set = &sets[matrix / numMatrices];
  struct toolStats stats = toolStatsMake(times->measuredNs, numRounds);
  double predicted = toolStatsMake(times->predictedNs, numRounds).median;
  double error = stats.median > 0 ? 100 * (predicted / stats.median - 1) : 0;
  double spread = 100 * toolStatsSpread(&stats);
  toolTableInt(table, options->seeds[matrix / numMatrices]);
  toolTableInt(table, matrix % numMatrices);
  toolTableInt(table, times->bytes);
  toolTableReal(table, times->imbalance, 2);
  toolTableReal(table, predicted * 1e-3, 1);
  toolTableReal(table, stats.median * 1e-3, 1);
  toolTableReal(table, spread, 0);
  toolTableReal(table, error, 1);
  set->errors[matrix % numMatrices] = fabs(error);
  set->spreads[matrix % numMatrices] = spread;
}

static void showFits(const struct topoOutcome *outcome) {
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

static void showSet(int64_t seed, const char *what, const struct set *set) {
  toolTableNote(stdout,
                "|error|, seed %lld%s: median %.1f %%, quartiles %.1f and %.1f "
                "%%, worst %.1f %%",
                (long long)seed, what, set->error.median, set->error.lower,
                set->error.upper, set->error.maximum);
}

/* With more ranks than cores a rank waits for a core, for as long as the system
 * likes: calibration sees the mean of that and no more. */
static void judge(const struct topoOptions *options,
                  const struct topoOutcome *outcome, const struct set *held) {
  int isCrowded = options->numRanks > outcome->numCores;
  double load = NAN;
  if (getloadavg(&load, 1) != 1) load = NAN;
  if (isCrowded)
    toolTableNote(
        stdout,
        "%lld ranks share %d cores: who runs when is the system's "
        "choice; the time of one matrix spreads by %.0f %% from round "
        "to round (median)",
        (long long)options->numRanks, outcome->numCores, held->spread);
  if (held->error.median <= askedError) return;
  toolTableNote(stdout,
                "not predictable here: %.0f %% were asked for; load average "
                "%.1f on %d cores%s",
                askedError, load, outcome->numCores,
                isCrowded ? ", fewer than ranks" : "");
}

static void putResult(const struct topoOptions *options,
                      const struct topoOutcome *outcome, const struct set *sets,
                      struct toolJson *json) {
  toolJsonRow(json);
  toolJsonReal(json, "median_error", sets[0].error.median);
  toolJsonReal(json, "worst_error", sets[0].error.maximum);
  toolJsonReal(json, "held_out_median_error", sets[1].error.median);
  toolJsonReal(json, "held_out_worst_error", sets[1].error.maximum);
  toolJsonReal(json, "held_out_spread", sets[1].spread);
  toolJsonInt(json, "cores", outcome->numCores);
  toolJsonInt(json, "ranks", options->numRanks);
  toolJsonInt(json, "wrong", outcome->numWrong);
}

enum toolExit topoReport(const struct topoOptions *options,
                         struct topoOutcome *outcome, struct toolJson *json,
                         struct toolError *error) {
  struct toolTable table = {stdout, json, columns,
                            sizeof columns / sizeof *columns, 0};
  static struct set sets[topoNumSets];
  showFits(outcome);
  toolTableBegin(&table);
  for (int64_t m = 0; m < topoNumSets * options->numMatrices; m++)
    showMatrix(options, &table, m, &outcome->matrices[m], sets);
  for (int i = 0; i < topoNumSets; i++) {
    sets[i].error = toolStatsMake(sets[i].errors, options->numMatrices);
    sets[i].spread =
        toolStatsMake(sets[i].spreads, options->numMatrices).median;
    showSet(options->seeds[i], i ? ", held out" : "", &sets[i]);
  }
  judge(options, outcome, &sets[1]);
  putResult(options, outcome, sets, json);
  if (!outcome->numWrong) return toolGood;
  return toolFail(error, toolWrongData, "%lld words are wrong",
                  (long long)outcome->numWrong);
}
