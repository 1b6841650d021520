/* One MoE block on the public API: lrmoe.h in the order of README's example. */
#ifndef LRMOE_PERF_TRAIN_MOE_H
#define LRMOE_PERF_TRAIN_MOE_H

#include "perf/train/config.h"
#include "perf/train/cost.h"
#include "perf/train/router.h"

/* What the blocks of a rank share. */
struct trainTeam {
  const struct toolRank *self;
  const struct trainConfig *config;
  lrmoeComm_t comm;
  lrmoeTopology_t topology;
  lrmoePlanner_t planner;
  int64_t maxTokens; /* of a step on this rank */
  int keepsAll;      /* the backward keeps all pairs, whatever the config */
};

/* Of the backwards of this rank's blocks in a step, all added up. */
struct trainMoeFigures {
  int64_t pairs;        /* of this rank's tokens */
  int64_t kept;         /* of them */
  int64_t executed;     /* by this rank's experts in forward */
  int64_t executedKept; /* and in backward */
  int64_t moved;
  int64_t bytes;    /* sent to other ranks */
  int64_t cpuNs;    /* of this process in backward */
  int64_t wallNs;   /* the same by the clock, waiting included */
  int64_t selectNs; /* parts of wallNs, see lrmoeStepStats_t */
  int64_t sendNs;
  int64_t gemmNs;
  int64_t returnNs;
  int64_t numBlocks;
  double imbalance; /* sum over blocks of max / mean kept pairs of ranks */
  double forwardImbalance; /* the same of forward */
};

struct trainMoe {
  const struct trainTeam *team;
  lrmoeLayer_t layer;
  lrmoeStep_t step;
  lrmoePlan_t plan;
  int numLocal;
  const int32_t *local; /* [numLocal] experts whose home is here */
  float *weights;       /* [numLocal] w1 and w2, one after the other */
  float *gradients;
  float **parts;            /* [4, numLocal] w1, w2, dw1, dw2 */
  int64_t *demand;          /* [G, E] of the last forward */
  int64_t *past;            /* [E] load of the training step before */
  struct trainMoeCost cost; /* of the last forward and what follows it */
};

enum toolExit trainTeamOpen(const struct toolRank *self,
                            const struct trainConfig *config,
                            struct trainTeam *team);
void trainTeamClose(struct trainTeam *team);

/* Numbers of an expert's w1 and of its w2. */
int64_t trainExpertCount(const struct trainShape *shape, int tensor);

/* Both are collective, as all below. */
enum toolExit trainMoeOpen(const struct trainTeam *team, struct trainMoe *moe);
void trainMoeClose(struct trainMoe *moe);

/* y [T, dim] = the experts' outputs for rows x [T, dim], weighted. */
enum toolExit trainMoeForward(struct trainMoe *moe,
                              const struct trainRouting *routing,
                              const float *x, float *y);

/* Rows of a backward. */
struct trainMoeRows {
  const float *x;  /* [T, dim] as in forward */
  const float *dy; /* [T, dim] */
  float *dx;       /* [T, dim] gets the gradient of x */
  float *dweights; /* [T, k] gets d(alpha) */
};

/* Weight gradients are added to moe->gradients, and what it took to figures.
 * seed is that of a random selection. */
enum toolExit trainMoeBackward(struct trainMoe *moe, uint64_t seed,
                               const struct trainMoeRows *rows,
                               struct trainMoeFigures *figures);

/* Brings the gradients of replicas home. */
enum toolExit trainMoeReduce(struct trainMoe *moe);

/* After forward, or backward: the step is over. */
void trainMoeEnd(struct trainMoe *moe);

/* Pairs of an expert in the last forward, of all ranks together. */
int64_t trainMoeLoad(const struct trainMoe *moe, int64_t expert);

#endif
