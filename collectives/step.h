/* The step: one invocation of the layer, and all its state.
 *
 * Orders that both ends of a message know without talking:
 *   sorted  this rank's pairs by (expert, token, slot); the place of a pair
 *           among those of its expert is its ordinal
 *   wire    as source: by (executor, expert, ordinal);
 *           as executor: by (source, instance, ordinal) - the same sequence
 *   local   as executor: by (instance, source, ordinal), which is ascending
 *           pair id within an instance
 * A pair id is (token * k + slot) on its source. */
#ifndef LRMOE_COLLECTIVES_STEP_H
#define LRMOE_COLLECTIVES_STEP_H

#include "collectives/layer.h"
#include "planner/plan.h"

enum lrmoeStepState {
  lrmoeStepCreated,
  lrmoeStepPrepared,
  lrmoeStepDispatched,
  lrmoeStepComputed,
  lrmoeStepCombined, /* ready for backward */
  lrmoeStepSelected,
  lrmoeStepSent,
  lrmoeStepExecuted,
};

/* Grow-only arrays of a step; they survive in the layer's pool. */
enum lrmoeStepArray {
  lrmoeArrayTopk,
  lrmoeArrayWeights,
  lrmoeArrayDemand,
  lrmoeArraySourceBase,
  lrmoeArraySorted,
  lrmoeArraySortedWeights,
  lrmoeArraySortedTokens,
  lrmoeArrayExpertOffsets,
  lrmoeArrayDest,
  lrmoeArrayWire,
  lrmoeArrayRanks, /* all arrays of length G + 1, in one */
  lrmoeArrayRowTokens,
  lrmoeArrayInstances,
  lrmoeArrayInstanceOffsets,
  lrmoeArraySegments,
  lrmoeArrayXRow,
  lrmoeArrayPairToken,
  lrmoeArrayAlpha,
  lrmoeArrayXRows,
  lrmoeArraySaved,
  lrmoeArrayPhiLocal,
  lrmoeArrayPhiSorted,
  lrmoeArrayKept,
  lrmoeArrayKeptLocal,
  lrmoeArrayKeys,
  lrmoeArrayBackDest,
  lrmoeArrayXDest,
  lrmoeArrayKeptWire,
  lrmoeArrayBackTokens,
  lrmoeArrayPackTokens,
  lrmoeArrayXTokens,
  lrmoeArrayMovedOffsets,
  lrmoeArrayMovedTokens,
  lrmoeArrayMovedAlpha,
  lrmoeArrayReplicaSlots,
  lrmoeArrayOwnerRows,
  lrmoeArrayExactAlpha,
  lrmoeArrayAllRows,
  lrmoeArrayHandoffOffsets,
  lrmoeArrayHandoffStayed,
  lrmoeArrayHandoffExperts,
  lrmoeArrayHandoffRows, /* fwdRow, gRow, xRow, dxRow in one */
  lrmoeArrayHandoffWeights,
  lrmoeArrayKeptSegments,
  lrmoeArrayDAlpha,
  lrmoeArrayScratch,  /* of one phase */
  lrmoeArrayScratch2, /* of one phase */
  lrmoeNumStepArrays
};

/* Pairs of one (source, instance): consecutive in wire and in local order. */
struct lrmoeSegment {
  int64_t wire;
  int64_t local;
  int64_t count;
};

/* Most bytes in use at once, by what the buffers hold (not their room). */
struct lrmoeMeter {
  int64_t now;
  int64_t peak;
};

struct lrmoeStep {
  struct lrmoeLayer *layer;
  struct lrmoeStep *next; /* in the layer's pool */
  const struct lrmoePlan *plan;
  enum lrmoeStepState state;
  uint64_t version; /* of the weights that forward used */
  int64_t number;   /* of the step within the layer; the same on all ranks */
  struct lrmoeBuffer arrays[lrmoeNumStepArrays];
  int32_t *replicaSlots; /* [plan instances] slot on its rank, -1 at home */
  int holdsReplicas;

  /* Routing of this rank's tokens. */
  int64_t numTokens;
  int64_t numPairs;
  int64_t *topkIdx;    /* [T, k] */
  float *weights;      /* [T, k] */
  int64_t *demand;     /* [G, E] */
  int64_t *sourceBase; /* [G, E] pairs of the expert from lower ranks */

  /* As source. */
  int64_t *sorted;        /* [numPairs] pair ids */
  float *sortedWeights;   /* [numPairs] */
  int64_t *sortedTokens;  /* [numPairs] */
  float *phiSorted;       /* [numPairs] |phi|, from combine */
  int64_t *expertOffsets; /* [E + 1] into sorted */
  int32_t *dest;          /* [T, k] executor, -1: none */
  int64_t *wire;          /* [numPairs] index into sorted, in wire order */
  int64_t *sendOffsets;   /* [G + 1] into wire */
  int64_t *rowOffsets;    /* [G + 1] rows to each executor */
  int64_t *rowTokens;     /* [rows] */

  /* As executor. */
  int32_t numInstances;
  int32_t *instances;            /* [numInstances] index in the plan */
  int64_t *instanceOffsets;      /* [numInstances + 1] into local order */
  struct lrmoeSegment *segments; /* [G, numInstances] */
  int64_t *recvOffsets;          /* [G + 1] into wire order */
  int64_t *recvRowOffsets;       /* [G + 1] rows from each source */
  int64_t *xRow;                 /* [local] row of x */
  int32_t *pairToken;            /* [local] token on its source */
  float *alpha;                  /* [local] */
  void *xRows;                   /* [rows, H]; with state none until combine */
  void *saved;                   /* [local, 2F or F] FC1 output, or NULL */
  float *phiLocal;               /* [local] |phi|; until combine */

  /* Exact router gradients. */
  void *ownerRows;   /* [numPairs, H] in wire order: experts' outputs */
  float *exactAlpha; /* owner: [T, k]; executor: [local] */
  int64_t *allRows;  /* executor: [local] row of g of every pair */

  /* Backward, as source. */
  lrmoeBackwardConfig_t config;
  uint32_t *keys;        /* [numPairs] in sorted order */
  uint8_t *kept;         /* [T, k] */
  int32_t *backDest;     /* [T, k] executor in backward, -1: dropped */
  int64_t *keptWire;     /* [kept] index into sorted, by (executor, expert,
                           stayed before moved, ordinal) */
  int64_t *keptOffsets;  /* [G + 1] into keptWire */
  int64_t *backOffsets;  /* [G + 1] rows of g to each executor */
  int64_t *backTokens;   /* [rows] token of each */
  int64_t *packTokens;   /* [rows] the same, or -1: send zeros */
  int64_t *xOffsets;     /* [G + 1] rows of x to each executor */
  int64_t *xTokens;      /* [rows] */
  int64_t *alphaOffsets; /* [G + 1] moved pairs to each executor */

  /* Backward, as executor. */
  uint8_t *keptLocal;    /* [local] kept, executed here, state at hand */
  int64_t *movedOffsets; /* [numInstances, G] + 1: pairs that come with x, of
                            each (instance, source), by ordinal */
  int32_t *movedTokens;  /* [moved] token on its source */
  int64_t numMoved;
  int64_t *keptRecvOffsets;  /* [G + 1] pairs kept of each source */
  int64_t *backRecvOffsets;  /* [G + 1] rows of g from each source */
  int64_t *xRecvOffsets;     /* [G + 1] rows of x from each source */
  int64_t *alphaRecvOffsets; /* [G + 1] moved pairs of each source */
  int64_t *keptSegments; /* [numInstances, 2, G] + 1: first handoff row of each
                            (instance, stayed or moved, source) */
  int64_t *dxRow;        /* [handoff] place of its dx, without gaps */
  float *dAlpha;         /* [handoff] */
  lrmoeHandoff_t handoff;
  int isFused;
  int64_t numPut; /* handoff rows whose dx has been given */
  struct lrmoeMeter meter;
  lrmoeStepStats_t stats;
};

/* Makes room for count elements and gives the array; contents are lost. */
lrmoeResult_t lrmoeStepReserve(struct lrmoeStep *step,
                               enum lrmoeStepArray array, int64_t count,
                               size_t elementBytes, void *pointer);

#define LRMOE_RESERVE(step, array, count, pointer) \
  lrmoeStepReserve(step, array, count, sizeof **(pointer), pointer)

void lrmoeStepFree(struct lrmoeStep *step);

/* lrmoeInvalidUsage, in the caller's name, unless the step's state is within
 * [low, high]. */
lrmoeResult_t lrmoeStepExpect(const struct lrmoeStep *step, const char *call,
                              enum lrmoeStepState low, enum lrmoeStepState high,
                              lrmoeStream_t stream);

void lrmoeMeterAdd(struct lrmoeMeter *meter, int64_t bytes);

/* Nanoseconds since some fixed point. */
int64_t lrmoeNow(void);

/* Kept pairs may move: quotas per expert bind, and rows that cross are those of
 * kept pairs. */
int lrmoeStepMayMove(const struct lrmoeStep *step);

/* Global number of this rank's expert that local instance i runs. */
int32_t lrmoeStepExpert(const struct lrmoeStep *step, int32_t i);

/* The halves of a backward that the staged and the fused calls share. */
lrmoeResult_t lrmoeSelectBegin(struct lrmoeStep *step, const void *g,
                               const lrmoeBackwardConfig_t *config);

#endif
