/* moe_backward_perf: what its files share.
 *
 * One MoE layer, one routing, and several ways to run its backward:
 *   full_pairwise  every pair, a row per pair: the plain MoE backward
 *   full_dedup     every pair, a row per (token, rank)
 *   masked         selected, then full-sized rows with zeros
 *   pairwise       selected, compact, a row per kept pair
 *   dedup          selected, compact, a row per (token, rank)
 *   rho1           as dedup, with quotas that keep everything
 * The full ways run with experts at their homes, the others with the policy.
 * They share step, transport, GEMM and kernels, and run interleaved. */
#ifndef LRMOE_PERF_BACKWARD_H
#define LRMOE_PERF_BACKWARD_H

#include "lrmoe.h"
#include "tools/common/mirror.h"
#include "tools/common/ranks.h"
#include "tools/common/workload.h"

enum backwardWay {
  wayFullPairwise,
  wayFullDedup,
  wayMasked,
  wayPairwise,
  wayDedup,
  wayRho1,
  numWays
};

enum {
  backwardMaxRounds = 200
};

struct backwardOptions {
  int64_t numRanks;
  int64_t numTokens;
  int64_t numRounds;
  int64_t numWarmups;
  int64_t numExperts;
  int64_t topk;
  int64_t hidden;
  int64_t ffn;
  int64_t numSlots;   /* per rank */
  int64_t numChecked; /* tokens per rank that are computed again in double */
  double retain;
  lrmoeDataType_t type;
  lrmoeActivation_t activation;
  lrmoeSavedState_t savedState;
  lrmoeMetric_t metric;
  lrmoePolicy_t policy;
  const char *gemm;
  int isStaged;
  int isOverlapped;
  int isXPacked;
  int isDevice; /* calls return before their work is done */
  uint64_t seed;
};

/* Of one rank, one way. */
struct backwardWayResult {
  double wallMs[backwardMaxRounds];
  double cpuMs[backwardMaxRounds];
  double selectMs[backwardMaxRounds];
  double sendMs[backwardMaxRounds];
  double gemmMs[backwardMaxRounds];
  double returnMs[backwardMaxRounds];
  int64_t bytes; /* sent to other ranks, all rounds of messages */
  int64_t workspace;
  int64_t saved; /* held between combine and select */
  int64_t kept;  /* executed here in backward */
  int64_t moved; /* of them moved here */
};

struct backwardRankResult {
  struct backwardWayResult ways[numWays];
  int64_t pairs;       /* executed here in forward, with the plain plan */
  int64_t numReplicas; /* of the asked plan, on all ranks */
  double maxError;
  int64_t numWrong;
};

/* What ranks get, and where they write: shared memory. */
struct backwardRun {
  struct backwardOptions options;
  struct toolWorkload workload;
  struct backwardRankResult *results; /* [numRanks] */
};

/* The plans that ways run on. */
enum {
  planAsked, /* the policy, with the asked retention */
  planWhole, /* the policy, with retention 1 */
  planPlain, /* fixed, with retention 1 */
  numPlans
};

/* The state of one rank. */
struct backwardRank {
  const struct toolRank *self;
  const struct backwardOptions *options;
  lrmoeComm_t comm;
  lrmoeTopology_t topology;
  lrmoePlanner_t planners[numPlans];
  lrmoeLayer_t layer;
  lrmoeStep_t steps[numPlans];
  lrmoePlan_t plans[numPlans];
  struct toolMirror topkIdx; /* int64 [T, k] */
  struct toolMirror weights; /* float [T, k] */
  struct toolMirror x;
  struct toolMirror g;
  struct toolMirror y;
  struct toolMirror dx;
  struct toolMirror dWeights; /* float [T, k] */
  struct toolMirror word;     /* of a barrier */
  uint8_t *kept;
  int numLocal;
  const int32_t *local;
  struct toolMirror *tensors; /* [numLocal, numTensors] */
};

/* The tensors of an expert; gradients are float. */
enum {
  tensorW1,
  tensorW2,
  tensorDw1,
  tensorDw2,
  numTensors
};

/* Rows of FC1's weight. */
int64_t backwardFc1Rows(const struct backwardOptions *options);

/* Weights of any expert, from the seed. */
void backwardMakeWeights(const struct backwardOptions *options, int32_t expert,
                         void *w1, void *w2);

/* One backward of one way, done when it returns; dw1 and dw2 are added to. */
lrmoeResult_t backwardRunWay(struct backwardRank *rank, enum backwardWay way,
                             lrmoeStepStats_t *stats);

/* Runs every way once and compares: the full ways and rho1 with each other, the
 * selected ones with masked, and some tokens with a computation in double. */
enum toolExit backwardCheck(struct backwardRank *rank,
                            struct backwardRankResult *result);

/* toolRankBody: the whole of one rank; user is struct backwardRun. */
enum toolExit backwardRankMain(const struct toolRank *self);

/* The figures of one run: medians over rounds of what the slowest rank took,
 * sums or maxima over ranks of what was counted. */
struct backwardFigures {
  double wayMs[numWays];
  double waySpread[numWays];     /* half the quartile distance / median */
  double wayCpuMs[numWays];      /* of the rank with most CPU time */
  int64_t wayBytes[numWays];     /* sum over ranks */
  int64_t wayWorkspace[numWays]; /* most of a rank */
  int64_t saved;                 /* most of a rank, of wayDedup */
  double selectMs;               /* phases of wayDedup */
  double sendMs;
  double gemmMs;
  double returnMs;
  double speedupFull;   /* best full over best compact, ratio per round */
  double speedupMasked; /* masked over best compact */
  double overheadRho1;  /* rho1 over full_dedup: the same wire */
  int64_t pairs;
  int64_t kept;
  int64_t numReplicas;
  int64_t moved;
  double imbalanceBefore; /* most pairs of a rank over the mean, forward */
  double imbalanceAfter;  /* the same of kept pairs */
  double maxError;
  int64_t numWrong;
};

extern const char *const backwardWayNames[numWays];

void backwardSummarise(const struct backwardRun *run,
                       struct backwardFigures *figures);

#endif
