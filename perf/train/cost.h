/* What the MoE blocks of an update cost: CPU time of the critical rank, and
 * bytes that a wire between the ranks would carry.
 *
 * A block's exchanges make its ranks wait for each other, in forward and in
 * backward.  So the critical rank is found for each block and pass: the one
 * whose CPU time in the pass is the largest, and the parts are that rank's.
 *
 * Of a round of messages the longest count: the most that one rank has to send,
 * or to receive, to and from others.  In forward they follow from routing and
 * plan; in backward the library counts what each rank sends.  What a rank
 * receives there is taken to be what it sends home, plus a row of x for each
 * pair that moved to it, and on the way home what it had sent: too much by the
 * rows of x where pairs move, and exact up to 4 bytes a pair where none
 * does. */
#ifndef LRMOE_PERF_TRAIN_COST_H
#define LRMOE_PERF_TRAIN_COST_H

#include "tools/common/fail.h"

#include <stdint.h>

/* Calls of a block in an update, in their order. */
enum trainPhase {
  trainPhasePrepare, /* demand, plan, route, weights of replicas */
  trainPhaseDispatch,
  trainPhaseCompute,
  trainPhaseCombine,
  trainPhaseBackDispatch, /* scores, selection, packing, rows out */
  trainPhaseBackCompute,
  trainPhaseBackCombine, /* rows home */
  trainPhaseReduce,      /* gradients of replicas home */
  trainNumPhases
};

enum trainRound {
  trainRoundDispatch,
  trainRoundCombine,
  trainRoundSelect,
  trainRoundBackDispatch,
  trainRoundBackCombine,
  trainRoundWeights,   /* of replicas: those of the plan, each update */
  trainRoundGradients, /* of replicas */
  trainNumRounds
};

/* One rank's part in one block. */
struct trainMoeCost {
  int64_t cpuNs[trainNumPhases];
  int64_t *pairsTo; /* [G] pairs of this rank's tokens by executor in forward */
  int64_t *rowsTo;  /* [G] tokens that have one there */
  int64_t selectBytes; /* sent to other ranks: lrmoeStepStats_t */
  int64_t rowBytes;
  int64_t returnBytes;
  int64_t movedIn;
  int64_t replicaBytes; /* weights of the plan's replicas on the rank that sends
                           or receives most; the same on all */
};

/* An update, all its blocks added up. */
struct trainCost {
  double cpuMs[trainNumPhases];
  double bytes[trainNumRounds];
};

/* Their names in JSON. */
extern const char *const trainPhaseNames[trainNumPhases];
extern const char *const trainRoundNames[trainNumRounds];

struct trainMoe;
struct trainModel;
struct trainRouting;

void trainCostOpen(int numRanks, struct trainMoeCost *cost);
void trainCostFree(struct trainMoeCost *cost);

/* All zero, as an update begins. */
void trainCostClear(int numRanks, struct trainMoeCost *cost);

/* Adds the CPU time since *startNs, which becomes now. */
void trainCostLap(struct trainMoeCost *cost, enum trainPhase phase,
                  int64_t *startNs);

/* Where the pairs of this rank's tokens go by the block's plan. */
enum toolExit trainCostRoute(struct trainMoe *moe,
                             const struct trainRouting *routing);

/* After the update; the same on all ranks.  Collective. */
enum toolExit trainCostGather(const struct trainModel *model,
                              struct trainCost *cost);

#endif
