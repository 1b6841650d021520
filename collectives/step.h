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

#include "base/clock.h"
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

/* Routes by relays that a step has at once (node.h): of rows that come home
 * too, and of x in backward. */
enum {
  lrmoeRelayRows,
  lrmoeRelayX,
  lrmoeNumRelays
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
  lrmoeArrayNarrowTokens,
  lrmoeArrayExpertOffsets,
  lrmoeArrayDest,
  lrmoeArrayWire,
  lrmoeArrayRanks, /* all arrays of length G + 1, in one */
  lrmoeArrayRowTokens,
  lrmoeArrayMetaOffsets, /* of dispatch's first message */
  lrmoeArrayInstances,
  lrmoeArrayInstanceOffsets,
  lrmoeArraySegments,
  lrmoeArrayXRow,
  lrmoeArrayPairToken,
  lrmoeArrayAlpha,
  lrmoeArrayKept,
  lrmoeArrayKeptLocal,
  lrmoeArrayBackDest,
  lrmoeArrayXDest,
  lrmoeArrayKeptWire,
  lrmoeArrayBackTokens,
  lrmoeArrayPackTokens,
  lrmoeArrayXTokens,
  lrmoeArrayMovedOffsets,
  lrmoeArrayMovedTokens,
  lrmoeArrayReplicaSlots,
  lrmoeArrayAllRows,
  lrmoeArrayWirePlaces,
  lrmoeArrayWordsOut,   /* places of words to be packed ... */
  lrmoeArrayWordPieces, /* words of lists as pieces, and ... */
  lrmoeArrayMovedWords, /* ... of those that come with x */
  lrmoeArrayWordsIn,    /* ... and where those that come go */
  lrmoeArrayKeys,
  lrmoeArrayAllKeys,
  lrmoeArrayFlags,
  lrmoeArrayHeads,
  lrmoeArraySelection, /* pieces of keys, and what is selected from them */
  lrmoeArrayRuns,      /* arguments of experts */
  lrmoeArrayHandoffOffsets,
  lrmoeArrayHandoffStayed,
  lrmoeArrayHandoffExperts,
  lrmoeArrayHandoffRows, /* fwdRow, gRow, xRow, dxRow in one */
  lrmoeArrayHandoffWeights,
  lrmoeArrayKeptSegments,
  lrmoeArrayLengths,     /* of the handoff's lists */
  lrmoeArrayRouteTable,  /* ranges of flags */
  lrmoeArrayRestTable,   /* of those that were not kept here */
  lrmoeArrayLabels,      /* cells of the pairs that are labelled */
  lrmoeArrayHomes,       /* what homes are told, and tell */
  lrmoeArrayTokenPieces, /* tokens that go out */
  lrmoeArrayTokenFirsts, /* and where those that come lie */
  lrmoeArrayRouteCounts, /* what is in them */
  lrmoeArrayMeetRows,    /* offsets of rows put and expected */
  lrmoeArrayNodeNotice,  /* offsets and counts for relays */
  lrmoeArrayNodeLists,   /* and which rows */
  lrmoeArrayNodeCounts,  /* told by sources */
  lrmoeArrayNodeTokens,  /* of the rows that leave this rank */
  lrmoeArrayNodeTokensX,
  lrmoeArrayRelay, /* offsets */
  lrmoeArrayRelayX,
  lrmoeArrayRelayRows, /* rows that go on */
  lrmoeArrayRelayRowsX,
  lrmoeArrayGinOut,   /* who takes part in rows by NICs: out, */
  lrmoeArrayGinOutX,  /* of x that comes again, */
  lrmoeArrayGinHome,  /* and home */
  lrmoeArrayScratch,  /* of one phase */
  lrmoeArrayScratch2, /* of one phase */
  lrmoeNumStepArrays
};

/* The same in the backend's memory. */
enum lrmoeStepBlock {
  lrmoeBlockXRows,
  lrmoeBlockSaved,
  lrmoeBlockPhiLocal,
  lrmoeBlockPhiSorted,
  lrmoeBlockOwnerRows,
  lrmoeBlockExactAlpha,
  lrmoeBlockNorms,
  lrmoeBlockKeys,
  lrmoeBlockAllKeys, /* of all ranks, as they came and by expert */
  lrmoeBlockFlags,
  lrmoeBlockSelection, /* work of its kernels */
  lrmoeBlockHeads,
  lrmoeBlockTokens,    /* of local pairs, then of those that may move here */
  lrmoeBlockTokensOut, /* of this rank's pairs that may move */
  lrmoeBlockBits,      /* answers of homes */
  lrmoeBlockLabels,
  lrmoeBlockDAlpha,
  lrmoeBlockWords,      /* of one phase: words on their way */
  lrmoeBlockKeptWords,  /* alphas of all kept pairs */
  lrmoeBlockIndices,    /* of one phase: indices in another order */
  lrmoeBlockRoute,      /* marks, their numbers, and counts */
  lrmoeBlockHandoff,    /* fwdRow, gRow, xRow, dxRow, weights */
  lrmoeBlockRowLists,   /* pairs of each row that this rank sends */
  lrmoeBlockRelayLists, /* rows out of a relay of each row in */
  lrmoeBlockTokenLists, /* rows of each token that come home */
  lrmoeNumStepBlocks
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

/* Arrays that the host filled in for the forward pass, as kernels see them. */
struct lrmoeStepDevice {
  int64_t *sorted;       /* [numPairs] */
  int64_t *sortedTokens; /* [numPairs] */
  int32_t *tokens;       /* [numPairs] the same */
  float *sortedWeights;  /* [numPairs] */
  int64_t *wire;         /* [numPairs] */
  int64_t *wirePlaces;   /* [local] */
  int64_t *rowTokens;    /* [rows] outTokens */
  int64_t *xRow;         /* [local] */
  int32_t *pairToken;    /* [local] */
  float *alpha;          /* [local] */
};

/* A backward's route on the device (device_route.h). */
struct lrmoeDeviceRoute {
  uint8_t *flags;  /* device: of all pairs, then labels; NULL: the host has the
                      route */
  int32_t *tokens; /* device: of local pairs, then of those that may move
                      here */
  const int64_t *tokenFirsts; /* [G, E] where the latter begin, by cell */
  const int64_t *flagFirsts;  /* [E] where an expert's flags begin */
  int64_t *table;             /* device: ranges of flags */
  int64_t *rankLists;         /* [G + 1] lists of each executor */
  int64_t *counts;            /* what the host reads */
  int64_t ownMost;            /* pairs of a range of the source */
  int64_t localMost;          /* and of the executor */
  float *weights;             /* device: of the handoff */
  /* Of a route that the host goes on with though it has not read counts
   * (device_defer.c). */
  const uint64_t *tags; /* device: [G] of the ranks, to be compared; or NULL */
  int isDeferred;       /* the same on every rank */
  int isPending;        /* counts are still to be read */
  int isReturned;       /* rows of dx have been put meanwhile */
};

/* Rows that this rank hands on between other nodes' ranks and its own
 * (node.h). */
struct lrmoeRelay {
  int64_t *rowOffsets; /* [G + 1] rows of each source, whose node's ranks share
                          them */
  int64_t *outOffsets; /* [node's ranks, G] + 1 rows of each to each */
  int64_t numOut;
  int64_t *rowOf; /* device: [numOut] the row that goes on */
};

/* "Device" marks what lies in the backend's memory; all else is the host's. */
struct lrmoeStep {
  struct lrmoeLayer *layer;
  struct lrmoeStep *next; /* in the layer's pool */
  lrmoeStream_t stream;   /* of the call that runs */
  const struct lrmoePlan *plan;
  enum lrmoeStepState state;
  uint64_t version; /* of the weights that forward used */
  int64_t number;   /* of the step within the layer; the same on all ranks */
  struct lrmoeBuffer arrays[lrmoeNumStepArrays];
  struct lrmoeTwin twins[lrmoeNumStepArrays];
  struct lrmoeBlock blocks[lrmoeNumStepBlocks];
  struct lrmoeStepDevice device;
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
  int32_t *tokens;        /* [numPairs] the same */
  float *phiSorted;       /* device [numPairs] |phi|, from combine */
  int64_t *expertOffsets; /* [E + 1] into sorted */
  int32_t *dest;          /* [T, k] executor, -1: none */
  int64_t *wire;          /* [numPairs] index into sorted, in wire order */
  int64_t *sendOffsets;   /* [G + 1] into wire */
  int64_t *rowOffsets;    /* [G + 1] rows to each executor */
  int64_t *rowTokens;     /* [rows] */
  int64_t *outOffsets;    /* [G + 1] the same, or rows to relays (node.h) */
  int64_t *outTokens;     /* [rows] */

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
  int64_t *wirePlaces;           /* [local] local place of each in wire order */
  void *xRows;     /* device [rows, H]; with state none until combine */
  void *saved;     /* device [local, 2F or F] FC1 output, or NULL */
  float *phiLocal; /* device [local] |phi|; until combine */

  /* Exact router gradients. */
  void *ownerRows;   /* device [numPairs, H] in wire order: experts' outputs */
  float *exactAlpha; /* device; owner: [T, k]; executor: [local] */
  int64_t *allRows;  /* executor: [local] row of g of every pair */

  /* Backward, as source. */
  lrmoeBackwardConfig_t config;
  uint32_t *keys;        /* [numPairs] in sorted order, once selected */
  uint32_t *deviceKeys;  /* device, the same */
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
  /* Device: rows of g of each token, offsets [T + 1] and list, in the order of
   * the send region; NULL where they went elsewhere. */
  int64_t *tokenLists;

  struct lrmoeRelay relays[lrmoeNumRelays];
  int64_t *devicePackTokens; /* device: packTokens of a route on the device */
  struct lrmoeDeviceRoute route;
  const int64_t *meetRows; /* device: offsets of rows of g put [G + 1], then of
                              those expected */
  int mayDefer;            /* rows follow at once */

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
  int64_t *fwdRow;       /* [handoff], as gRow and xRow what `handoff` shows */
  int64_t *gRow;         /* [handoff] */
  int64_t *backXRow;     /* [handoff] */
  int64_t *dxRow;        /* [handoff] place of its dx, without gaps: gRow, or
                           behind backXRow */
  int64_t *deviceDxRow;  /* device, the same */
  float *backWeights;    /* [handoff] */
  float *dAlpha;         /* device [handoff] */
  lrmoeHandoff_t handoff;
  int isFused;
  int isXPacked;  /* rows of x lie in the layer's packedX */
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

/* The same in the backend's memory. */
lrmoeResult_t lrmoeStepReserveBlock(struct lrmoeStep *step,
                                    enum lrmoeStepBlock block, int64_t bytes,
                                    void *pointer);

/* *device = `count` elements of a host array for the kernels; `array` names its
 * twin, which one upload of a phase may use. */
lrmoeResult_t lrmoeStepUpload(struct lrmoeStep *step, enum lrmoeStepArray array,
                              const void *host, int64_t bytes, void *device);

#define LRMOE_UPLOAD(step, array, count, host, device)                  \
  lrmoeStepUpload(step, array, host, (count) * (int64_t)sizeof *(host), \
                  (device))

/* *host = bytes of backend memory, to be read after lrmoeStepSynchronize. */
lrmoeResult_t lrmoeStepDownload(struct lrmoeStep *step,
                                enum lrmoeStepArray array, const void *device,
                                int64_t bytes, void *host);
lrmoeResult_t lrmoeStepSynchronize(const struct lrmoeStep *step);

void lrmoeStepFree(struct lrmoeStep *step);

/* lrmoeInvalidUsage, in the caller's name, unless the step's state is within
 * [low, high]. */
lrmoeResult_t lrmoeStepExpect(struct lrmoeStep *step, const char *call,
                              enum lrmoeStepState low, enum lrmoeStepState high,
                              lrmoeStream_t stream);

void lrmoeMeterAdd(struct lrmoeMeter *meter, int64_t bytes);

/* Kept pairs may move: quotas per expert bind, and rows that cross are those of
 * kept pairs. */
int lrmoeStepMayMove(const struct lrmoeStep *step);

/* Global number of this rank's expert that local instance i runs. */
int32_t lrmoeStepExpert(const struct lrmoeStep *step, int32_t i);

/* The halves of a backward that the staged and the fused calls share. */
lrmoeResult_t lrmoeSelectBegin(struct lrmoeStep *step, const void *g,
                               const lrmoeBackwardConfig_t *config);

#endif
