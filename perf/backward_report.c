/* moe_backward_perf: from the ranks' measurements to the figures of a row. */
#include "perf/backward.h"
#include "tools/common/stats.h"

const char *const backwardWayNames[numWays] = {[wayFullPairwise] =
                                                   "full_pairwise",
                                               [wayFullDedup] = "full_dedup",
                                               [wayMasked] = "masked",
                                               [wayPairwise] = "pairwise",
                                               [wayDedup] = "dedup",
                                               [wayRho1] = "rho1"};

/* Which array of a way's results; all have one value a round. */
typedef double (*roundValue)(const struct backwardWayResult *way,
                             int64_t round);

static double wallOf(const struct backwardWayResult *way, int64_t round) {
  return way->wallMs[round];
}
static double cpuOf(const struct backwardWayResult *way, int64_t round) {
  return way->cpuMs[round];
}
static double selectOf(const struct backwardWayResult *way, int64_t round) {
  return way->selectMs[round];
}
static double sendOf(const struct backwardWayResult *way, int64_t round) {
  return way->sendMs[round];
}
static double gemmOf(const struct backwardWayResult *way, int64_t round) {
  return way->gemmMs[round];
}
static double returnOf(const struct backwardWayResult *way, int64_t round) {
  return way->returnMs[round];
}

/* The largest over ranks. */
static double slowest(const struct backwardRun *run, enum backwardWay way,
                      roundValue value, int64_t round) {
  double most = 0;
  for (int64_t r = 0; r < run->options.numRanks; r++) {
    double got = value(&run->results[r].ways[way], round);
    if (got > most) most = got;
  }
  return most;
}

static struct toolStats overRounds(const struct backwardRun *run,
                                   enum backwardWay way, roundValue value) {
  double values[backwardMaxRounds];
  for (int64_t i = 0; i < run->options.numRounds; i++)
    values[i] = slowest(run, way, value, i);
  return toolStatsMake(values, run->options.numRounds);
}

/* Median of the ratio within a round: what disturbs the machine for a while
 * disturbs both. */
static double medianRatio(const struct backwardRun *run, enum backwardWay over,
                          enum backwardWay under) {
  double ratios[backwardMaxRounds];
  for (int64_t i = 0; i < run->options.numRounds; i++)
    ratios[i] = slowest(run, over, wallOf, i) / slowest(run, under, wallOf, i);
  return toolStatsMake(ratios, run->options.numRounds).median;
}

static void summariseWay(const struct backwardRun *run, enum backwardWay way,
                         struct backwardFigures *figures) {
  struct toolStats wall = overRounds(run, way, wallOf);
  figures->wayMs[way] = wall.median;
  figures->waySpread[way] = toolStatsSpread(&wall);
  figures->wayCpuMs[way] = overRounds(run, way, cpuOf).median;
  for (int64_t r = 0; r < run->options.numRanks; r++) {
    const struct backwardWayResult *result = &run->results[r].ways[way];
    figures->wayBytes[way] += result->bytes;
    if (way == wayDedup && result->saved > figures->saved)
      figures->saved = result->saved;
    if (result->workspace > figures->wayWorkspace[way])
      figures->wayWorkspace[way] = result->workspace;
  }
}

static void summariseLoad(const struct backwardRun *run,
                          struct backwardFigures *figures) {
  int64_t mostPairs = 0;
  int64_t mostKept = 0;
  for (int64_t r = 0; r < run->options.numRanks; r++) {
    const struct backwardRankResult *result = &run->results[r];
    int64_t kept = result->ways[wayDedup].kept;
    figures->pairs += result->pairs;
    figures->kept += kept;
    figures->moved += result->ways[wayDedup].moved;
    figures->numReplicas = result->numReplicas;
    if (result->pairs > mostPairs) mostPairs = result->pairs;
    if (kept > mostKept) mostKept = kept;
    figures->numWrong += result->numWrong;
    if (!(result->maxError <= figures->maxError))
      figures->maxError = result->maxError;
  }
  double ranks = (double)run->options.numRanks;
  figures->imbalanceBefore =
      figures->pairs ? (double)mostPairs * ranks / (double)figures->pairs : 1;
  figures->imbalanceAfter =
      figures->kept ? (double)mostKept * ranks / (double)figures->kept : 1;
}

void backwardSummarise(const struct backwardRun *run,
                       struct backwardFigures *figures) {
  *figures = (struct backwardFigures){0};
  for (int way = 0; way < numWays; way++)
    summariseWay(run, (enum backwardWay)way, figures);
  summariseLoad(run, figures);
  figures->selectMs = overRounds(run, wayDedup, selectOf).median;
  figures->sendMs = overRounds(run, wayDedup, sendOf).median;
  figures->gemmMs = overRounds(run, wayDedup, gemmOf).median;
  figures->returnMs = overRounds(run, wayDedup, returnOf).median;
  const double *ms = figures->wayMs;
  enum backwardWay full =
      ms[wayFullDedup] <= ms[wayFullPairwise] ? wayFullDedup : wayFullPairwise;
  enum backwardWay compact =
      ms[wayDedup] <= ms[wayPairwise] ? wayDedup : wayPairwise;
  figures->speedupFull = medianRatio(run, full, compact);
  figures->speedupMasked = medianRatio(run, wayMasked, compact);
  figures->overheadRho1 = medianRatio(run, wayRho1, wayFullDedup);
}
