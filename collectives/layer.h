/* The layer: shapes, homes, weights, and the buffers that its steps share. */
#ifndef LRMOE_COLLECTIVES_LAYER_H
#define LRMOE_COLLECTIVES_LAYER_H

#include "base/alloc.h"
#include "collectives/comm.h"
#include "kernels/backend.h"
#include "planner/planner.h"

struct lrmoeStep;

/* A block of shared memory, registered where peers write into it. */
struct lrmoeRegion {
  void *data;
  int64_t numRows;
  lrmoeWindow_t window;
  void **peers; /* [G] the same block of each rank; NULL: not reachable */
};

/* An instance away from home stands in a slot (replica.h). */
struct lrmoeSlot {
  int32_t expert; /* -1: empty */
  int32_t numHolders;
  uint64_t version; /* of the weights in it */
  int64_t lastUse;
  int isDirty;
};

struct lrmoeReplicas {
  int32_t slotsPerRank;
  struct lrmoeSlot *table;   /* [G, slotsPerRank] */
  char *block;               /* this rank's slots: w1, w2, dw1, dw2 of each */
  struct lrmoeBlock staging; /* gradients on their way home */
  int64_t clock;
};

struct lrmoeNodes; /* node.h */

struct lrmoeLayer {
  struct lrmoeComm *comm;
  const struct lrmoeBackend *backend; /* the communicator's */
  const struct lrmoePlanner *planner;
  struct lrmoeNodes *nodes;
  int64_t hidden;
  int64_t ffn;
  int64_t maxTokens;
  int64_t rowBytes; /* H elements */
  int32_t topk;
  int32_t maxSteps;
  lrmoeDataType_t type;
  lrmoeActivation_t activation;
  lrmoeWeightConvention_t convention;
  lrmoeSavedState_t savedState;
  lrmoeRouterGrad_t routerGrad;
  lrmoeWire_t forwardWire;
  int64_t gatherRanks; /* LRMOE_GATHER_RANKS when the layer was made */
  uint64_t hash;       /* of config and planner: ranks compare it in round F0 */

  int32_t *localExperts; /* [numLocal] home is here, ascending */
  int32_t numLocal;
  struct lrmoeExpertWeights *weights; /* [numLocal] */
  int isBound;
  uint64_t version;
  struct lrmoeExpertContext *experts;
  int packsX;
  int overlapsReturn;
  int hasOpenGradients; /* weight gradients that are still added to ... */
  void *gradients;      /* ... until this event (gradients.h) */

  /* Rows that this rank packs; rows of g that it receives as executor; rows
   * that come back to it as source.  Sized once for the worst step, so that
   * windows are registered once; pages that no step touches take no memory. */
  struct lrmoeRegion send;
  struct lrmoeRegion recv;
  struct lrmoeRegion back;
  struct lrmoeBlock pairRows;    /* [pairs, H] y or dx of the experts' pairs */
  struct lrmoeBlock movedX;      /* rows of x that came again in backward */
  struct lrmoeBlock packedX;     /* [handoff, H] all that kept pairs need */
  struct lrmoeBlock forwardRows; /* rows of x in forward, state none */
  struct lrmoeBlock relayRows;   /* of one call: rows in and out of a relay */
  struct lrmoeStep *active;      /* whose backward uses the regions now */

  struct lrmoeFused *fused; /* windows on a device (fused.h), or NULL */
  struct lrmoeNodeGin *gin; /* and between nodes (node_gin.h), or NULL */

  struct lrmoeReplicas replicas;

  struct lrmoeStep *idle; /* destroyed steps, kept for their buffers */
  int32_t numSteps;
  int64_t numStepsMade;
};

/* Bytes of FC1's output of one pair, which state `full` saves. */
int64_t lrmoeLayerSavedBytes(const struct lrmoeLayer *layer);

/* Index of a local expert, -1 if its home is elsewhere. */
int32_t lrmoeLayerLocalIndex(const struct lrmoeLayer *layer, int32_t expert);

#endif
