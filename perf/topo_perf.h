/* topo_perf: what its parts share. */
#ifndef LRMOE_PERF_TOPO_PERF_H
#define LRMOE_PERF_TOPO_PERF_H

#include "tools/common/json.h"
#include "tools/common/ranks.h"

enum {
  topoMaxMatrices = 1000, /* of a seed */
  topoMaxRounds = 101,
  topoMaxFits = 16,
  topoNumSets = 2 /* matrices of the seed, and of the one held out */
};

struct topoOptions {
  int64_t numRanks;
  int64_t numMatrices;
  int64_t minBytes;
  int64_t maxBytes;
  int64_t numRounds;
  int64_t budgetMs;
  int64_t seeds[topoNumSets];
};

struct topoMatrixTimes {
  int64_t bytes;
  double imbalance;
  double predictedNs[topoMaxRounds];
  double measuredNs[topoMaxRounds];
};

/* What rank 0 gives back to the parent. */
struct topoOutcome {
  lrmoeTopologyFit_t fits[topoMaxFits];
  int64_t numFits;
  int64_t numWrong;
  int numCores;
  struct topoMatrixTimes matrices[]; /* [topoNumSets, numMatrices] */
};

/* A rank: calibrates, predicts and measures in every round. */
enum toolExit topoMeasure(const struct toolRank *self,
                          const struct topoOptions *options,
                          struct topoOutcome *outcome);

/* The table and what it comes to. */
enum toolExit topoReport(const struct topoOptions *options,
                         struct topoOutcome *outcome, struct toolJson *json,
                         struct toolError *error);

#endif
