/* What a step did: figures of all ranks, the progress table, JSON, and the
 * loads as CSV. */
#ifndef LRMOE_PERF_TRAIN_REPORT_H
#define LRMOE_PERF_TRAIN_REPORT_H

#include "perf/train/model.h"
#include "tools/common/json.h"
#include "tools/common/table.h"

/* One step, all ranks together.  Times are those of the critical rank: the one
 * that takes longest. */
struct trainStepFigures {
  int64_t step;
  double loss; /* nats a byte */
  double auxiliary;
  double gradientNorm;
  double learningRate;
  double heldOut; /* nats a byte; NaN where it was not asked */
  double tokensPerSecond;
  int64_t pairs;
  int64_t kept;
  int64_t moved;
  int64_t bytes;           /* sent between ranks by the MoE backwards */
  double imbalance;        /* max / mean kept pairs of ranks, mean of blocks */
  double forwardImbalance; /* the same of forward's pairs */
  double cpuMs;            /* the MoE backwards */
  double wallMs;
  double gemmMs;
  struct trainCost cost;
};

/* From what each rank has; the same on all.  Collective. */
enum toolExit trainFiguresGather(const struct trainTeam *team,
                                 const struct trainModelLoss *loss,
                                 const struct trainMoeFigures *mine,
                                 struct trainStepFigures *figures);

/* Rank 0's output. */
struct trainReport {
  const struct trainConfig *config;
  struct toolJson *json;
  struct toolTable table;
  double totalCpuMs; /* of all steps, for the end */
  double totalWallMs;
  int64_t totalTokens;
  int64_t totalKept;
  int64_t totalPairs;
  int64_t firstStep;
  int64_t startNs;
  char *loads; /* CSV so far */
  size_t loadsUsed;
  size_t loadsRoom;
};

void trainReportOpen(const struct trainConfig *config, struct toolJson *json,
                     struct trainReport *report);
void trainReportFree(struct trainReport *report);

/* Counts a step; prints a row where isShown. */
void trainReportStep(struct trainReport *report,
                     const struct trainStepFigures *figures, int isShown);

/* Adds the loads of the model's last forward. */
void trainReportLoads(struct trainReport *report,
                      const struct trainModel *model, int64_t step);

/* The last figures: losses a byte of the model and of the n-gram model on the
 * same held-out bytes; writes JSON and CSV. */
enum toolExit trainReportEnd(struct trainReport *report, double heldOut,
                             double ngram, struct toolError *error);

#endif
