/* The layer: see layer.h. */
#include "collectives/layer.h"

#include "base/config.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/param.h"
#include "collectives/fused.h"
#include "collectives/gradients.h"
#include "collectives/node_gin.h"
#include "collectives/replica.h"
#include "collectives/step.h"

#include <stdatomic.h>

static lrmoeResult_t checkConfig(const lrmoeLayerConfig_t *config) {
  LRMOE_REQUIRE(config->hidden > 0 && config->hidden % 8 == 0,
                "hidden is %lld: a positive multiple of 8 is needed",
                (long long)config->hidden);
  LRMOE_REQUIRE(config->ffn > 0 && config->ffn % 8 == 0,
                "ffn is %lld: a positive multiple of 8 is needed",
                (long long)config->ffn);
  LRMOE_REQUIRE(config->hidden <= 1 << 20 && config->ffn <= 1 << 20,
                "hidden %lld or ffn %lld is over %d", (long long)config->hidden,
                (long long)config->ffn, 1 << 20);
  LRMOE_REQUIRE(config->maxTokens > 0 && config->maxTokens <= INT32_MAX,
                "maxTokens is %lld", (long long)config->maxTokens);
  LRMOE_REQUIRE(config->topk >= 1 && config->topk <= 64,
                "topk is %d: 1..64 is needed", config->topk);
  LRMOE_REQUIRE(config->maxSteps >= 1, "maxSteps is %d", config->maxSteps);
  LRMOE_REQUIRE(
      config->dtype == lrmoeBfloat16 || config->dtype == lrmoeFloat16 ||
          config->dtype == lrmoeFloat32,
      "dtype is %d: bf16, fp16 or fp32 is needed", (int)config->dtype);
  LRMOE_REQUIRE(config->activation == lrmoeSwiglu ||
                    config->activation == lrmoeGelu,
                "unknown activation %d", (int)config->activation);
  LRMOE_REQUIRE(config->convention == lrmoeWeightPost ||
                    config->convention == lrmoeWeightPre,
                "unknown weight convention %d", (int)config->convention);
  LRMOE_REQUIRE(config->savedState == lrmoeSavedFull ||
                    config->savedState == lrmoeSavedNone,
                "unknown saved state %d", (int)config->savedState);
  LRMOE_REQUIRE(config->routerGrad >= lrmoeRouterGradKept &&
                    config->routerGrad <= lrmoeRouterGradExecutor,
                "unknown router gradient %d", (int)config->routerGrad);
  LRMOE_REQUIRE(config->overlapsReturn == 0 || config->overlapsReturn == 1,
                "overlapsReturn is %d: 0 or 1 is needed",
                config->overlapsReturn);
  LRMOE_REQUIRE(config->packsX == 0 || config->packsX == 1,
                "packsX is %d: 0 or 1 is needed", config->packsX);
  LRMOE_REQUIRE(config->forwardWire == lrmoeWireDedup ||
                    config->forwardWire == lrmoeWireNode,
                "forwardWire is %d: lrmoeWireDedup or lrmoeWireNode is needed",
                (int)config->forwardWire);
  if (config->tensorShards != 0 && config->tensorShards != 1)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "tensorShards is %d: experts that are split over ranks "
                      "are not supported",
                      config->tensorShards);
  if (config->routerGrad == lrmoeRouterGradExecutor &&
      config->savedState == lrmoeSavedNone)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "router gradient executor needs the saved state of all "
                      "pairs: use saved state full, or owner");
  return lrmoeSuccess;
}

/* Copies what the layer needs of its config and hashes what ranks must agree
 * on (the GEMM module may differ: it changes rounding only). */
static void takeConfig(const lrmoeLayerConfig_t *config,
                       struct lrmoeLayer *layer) {
  layer->hidden = config->hidden;
  layer->ffn = config->ffn;
  layer->maxTokens = config->maxTokens;
  layer->topk = config->topk;
  layer->maxSteps = config->maxSteps;
  layer->type = config->dtype;
  layer->activation = config->activation;
  layer->convention = config->convention;
  layer->savedState = config->savedState;
  layer->routerGrad = config->routerGrad;
  layer->overlapsReturn = config->overlapsReturn;
  layer->packsX = config->packsX;
  layer->forwardWire = config->forwardWire;
  layer->gatherRanks = lrmoeParamGet(lrmoeParamGatherRanks);
  if (!layer->gatherRanks) layer->gatherRanks = layer->backend->isHost ? 4 : 16;
  layer->rowBytes = config->hidden * (int64_t)lrmoeTypeBytes(config->dtype);
  const int64_t agreed[] = {config->hidden,
                            config->ffn,
                            config->maxTokens,
                            config->topk,
                            config->maxSteps,
                            layer->gatherRanks,
                            (int64_t)config->dtype,
                            (int64_t)config->activation,
                            (int64_t)config->convention,
                            (int64_t)config->routerGrad,
                            (int64_t)config->savedState,
                            config->overlapsReturn,
                            (int64_t)config->forwardWire};
  layer->hash = lrmoeHash(layer->planner->hash, agreed, sizeof agreed);
}

static lrmoeResult_t findLocalExperts(struct lrmoeLayer *layer,
                                      int32_t *maxLocal) {
  const struct lrmoePlanner *planner = layer->planner;
  LRMOE_CHECK(LRMOE_ALLOCATE(planner->numExperts, &layer->localExperts));
  LRMOE_CHECK(LRMOE_ALLOCATE(planner->numExperts, &layer->weights));
  int32_t *counts = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(planner->numRanks, &counts));
  for (int32_t e = 0; e < planner->numExperts; e++) {
    int32_t home = planner->homes[e];
    if (++counts[home] > *maxLocal) *maxLocal = counts[home];
    if (home == layer->comm->rank) layer->localExperts[layer->numLocal++] = e;
  }
  lrmoeFree(counts);
  return lrmoeSuccess;
}

int64_t lrmoeLayerSavedBytes(const struct lrmoeLayer *layer) {
  return lrmoeFc1Width(layer->activation, layer->ffn) *
         (int64_t)lrmoeTypeBytes(layer->type);
}

int32_t lrmoeLayerLocalIndex(const struct lrmoeLayer *layer, int32_t expert) {
  int32_t low = 0;
  int32_t high = layer->numLocal - 1;
  while (low <= high) {
    int32_t middle = low + (high - low) / 2;
    if (layer->localExperts[middle] == expert) return middle;
    if (layer->localExperts[middle] < expert)
      low = middle + 1;
    else
      high = middle - 1;
  }
  return -1;
}

static lrmoeResult_t makeRegion(struct lrmoeLayer *layer, int64_t numRows,
                                int isShared, struct lrmoeRegion *region) {
  struct lrmoeComm *comm = layer->comm;
  region->numRows = numRows;
  size_t bytes = (size_t)numRows * (size_t)layer->rowBytes;
  LRMOE_CHECK(comm->transport->memAlloc(&region->data, bytes));
  /* A device's peers are reached by its own kernels (fused.h). */
  if (!isShared || !comm->transport->getPeerPointer || !comm->backend->isHost)
    return lrmoeSuccess;
  LRMOE_CHECK(
      lrmoeCommWindowRegister(comm, region->data, bytes, &region->window));
  void **peers = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(comm->numRanks, &peers));
  lrmoeResult_t result = lrmoeSuccess;
  for (int i = 0; i < comm->numRanks && result == lrmoeSuccess; i++)
    result = lrmoeWindowPeerPointer(region->window, i, &peers[i]);
  if (result == lrmoeSuccess)
    region->peers = peers;
  else
    lrmoeFree(peers);
  return result;
}

static void freeRegion(struct lrmoeLayer *layer, struct lrmoeRegion *region) {
  if (region->window) lrmoeCommWindowDeregister(layer->comm, region->window);
  lrmoeFree(region->peers);
  if (region->data) layer->comm->transport->memFree(region->data);
}

/* Rows that one source can send to one executor, and what follows from it. */
static lrmoeResult_t makeRegions(struct lrmoeLayer *layer, int32_t maxLocal) {
  int64_t numRanks = layer->comm->numRanks;
  int64_t perPeer =
      layer->maxTokens * (maxLocal < layer->topk ? maxLocal : layer->topk);
  int64_t perSource = layer->maxTokens * layer->topk;
  int64_t received = numRanks * perPeer;
  int64_t returned = numRanks * layer->maxTokens;
  LRMOE_CHECK(makeRegion(layer,
                         received > 2 * perSource ? received : 2 * perSource, 0,
                         &layer->send));
  LRMOE_CHECK(makeRegion(layer, received, 1, &layer->recv));
  LRMOE_CHECK(makeRegion(layer, returned > perSource ? returned : perSource, 1,
                         &layer->back));
  LRMOE_CHECK(lrmoeFusedOpen(layer));
  LRMOE_CHECK(lrmoeNodeGinOpen(layer));
  if (layer->recv.window) return lrmoeSuccess;
  /* No window was registered: ranks wait for each other here. */
  int64_t *seen = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(numRanks, &seen));
  lrmoeResult_t result = lrmoeAllGatherHost(layer->comm, &layer->hash, seen,
                                            (int64_t)sizeof *seen, NULL);
  lrmoeFree(seen);
  return result;
}

static void freeLayer(struct lrmoeLayer *layer) {
  while (layer->idle) {
    struct lrmoeStep *step = layer->idle;
    layer->idle = step->next;
    lrmoeStepFree(step);
  }
  lrmoeGradientsFree(layer);
  lrmoeNodeGinClose(layer);
  lrmoeFusedClose(layer);
  freeRegion(layer, &layer->back);
  freeRegion(layer, &layer->recv);
  freeRegion(layer, &layer->send);
  lrmoeReplicasFree(layer);
  lrmoeBlockFree(layer->backend, &layer->pairRows);
  lrmoeBlockFree(layer->backend, &layer->movedX);
  lrmoeBlockFree(layer->backend, &layer->packedX);
  lrmoeBlockFree(layer->backend, &layer->forwardRows);
  lrmoeBlockFree(layer->backend, &layer->relayRows);
  layer->backend->expertClose(layer->experts);
  lrmoeNodesFree(layer->nodes);
  lrmoeFree(layer->weights);
  lrmoeFree(layer->localExperts);
  lrmoeFree(layer);
}

/* NULL is the backend's usual one. */
static const char *gemmOf(const lrmoeLayerConfig_t *config) {
  const char *wanted = lrmoeParamGetText(lrmoeParamGemm);
  if (config->gemm) return config->gemm;
  return *wanted ? wanted : NULL;
}

static lrmoeResult_t makeNodes(struct lrmoeLayer *layer) {
  const struct lrmoePlanner *planner = layer->planner;
  return lrmoeNodesMake(planner->numRanks, planner->hosts, planner->domains,
                        &layer->nodes);
}

/* The part that may fail on one rank alone. */
static lrmoeResult_t buildLayer(const lrmoeLayerConfig_t *config,
                                struct lrmoeLayer *layer) {
  int32_t maxLocal = 0;
  LRMOE_CHECK(findLocalExperts(layer, &maxLocal));
  const struct lrmoeExpertShape shape = {config->hidden, config->ffn,
                                         config->dtype, config->activation,
                                         config->convention};
  LRMOE_RUN(layer->backend, expertOpen, &shape, gemmOf(config),
            &layer->experts);
  LRMOE_CHECK(lrmoeGradientsInit(layer));
  LRMOE_CHECK(lrmoeReplicasInit(layer, layer->planner->config.slots));
  return makeRegions(layer, maxLocal + layer->planner->config.slots);
}

/* The approximation is never silent: once a process. */
static void sayRouterGradient(void) {
  static atomic_flag isSaid = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&isSaid))
    lrmoeLog(lrmoeLogWarn,
             "router gradient `kept`: d(alpha) of dropped pairs is zero");
}

lrmoeResult_t lrmoeLayerCreate(lrmoeComm_t comm, lrmoePlanner_t planner,
                               const lrmoeLayerConfig_t *config,
                               lrmoeLayer_t *layer) {
  lrmoeLayerConfig_t known = LRMOE_LAYER_CONFIG_INITIALIZER;
  LRMOE_CHECK(
      lrmoeConfigRead("lrmoeLayerConfig_t", config, sizeof known, &known));
  LRMOE_REQUIRE(comm && planner && layer, "comm, planner or layer is NULL");
  LRMOE_REQUIRE(planner->numRanks == comm->numRanks,
                "the planner is for %d ranks, the communicator has %d",
                planner->numRanks, comm->numRanks);
  LRMOE_CHECK(checkConfig(&known));
  LRMOE_CHECK(lrmoeCommSettle(comm, lrmoeCommNeedBackend(comm)));
  struct lrmoeLayer *made = NULL;
  LRMOE_CHECK(lrmoeCommSettle(comm, LRMOE_ALLOCATE(1, &made)));
  made->comm = comm;
  made->backend = comm->backend;
  made->planner = planner;
  takeConfig(&known, made);
  lrmoeResult_t result = lrmoeCommSettle(comm, makeNodes(made));
  if (result == lrmoeSuccess) result = lrmoeNodeCheck(made, made->forwardWire);
  if (result == lrmoeSuccess)
    result = lrmoeCommSettle(comm, buildLayer(&known, made));
  if (result != lrmoeSuccess) {
    freeLayer(made);
    return result;
  }
  if (comm->rank == 0 && made->routerGrad == lrmoeRouterGradKept)
    sayRouterGradient();
  comm->numLayers++;
  *layer = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeLayerDestroy(lrmoeLayer_t layer) {
  if (!layer) return lrmoeSuccess;
  if (layer->numSteps)
    return LRMOE_FAIL(lrmoeInvalidUsage, "the layer still has %d step(s)",
                      layer->numSteps);
  layer->comm->numLayers--;
  freeLayer(layer);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeLayerGetLocalExperts(lrmoeLayer_t layer, int *numLocal,
                                        const int32_t **experts) {
  LRMOE_REQUIRE(layer && numLocal && experts,
                "layer, numLocal or experts is NULL");
  *numLocal = layer->numLocal;
  *experts = layer->localExperts;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeLayerBind(lrmoeLayer_t layer,
                             const lrmoeLayerWeights_t *weights) {
  lrmoeLayerWeights_t known = LRMOE_LAYER_WEIGHTS_INITIALIZER;
  LRMOE_REQUIRE(layer, "layer is NULL");
  LRMOE_CHECK(
      lrmoeConfigRead("lrmoeLayerWeights_t", weights, sizeof known, &known));
  LRMOE_REQUIRE((known.w1 && known.w2) || !layer->numLocal,
                "w1 or w2 is NULL, but %d experts are here", layer->numLocal);
  LRMOE_REQUIRE(!known.dw1 == !known.dw2, "give both dw1 and dw2, or neither");
  for (int32_t i = 0; i < layer->numLocal; i++)
    LRMOE_REQUIRE(known.w1[i] && known.w2[i] &&
                      (!known.dw1 || (known.dw1[i] && known.dw2[i])),
                  "a weight of local expert %d is NULL", i);
  LRMOE_CHECK(lrmoeGradientsFinish(layer));
  for (int32_t i = 0; i < layer->numLocal; i++)
    layer->weights[i] = (struct lrmoeExpertWeights){
        known.w1[i], known.w2[i], known.dw1 ? known.dw1[i] : NULL,
        known.dw2 ? known.dw2[i] : NULL};
  layer->isBound = 1;
  layer->version++;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeLayerAdvanceVersion(lrmoeLayer_t layer) {
  LRMOE_REQUIRE(layer, "layer is NULL");
  if (lrmoeReplicasAreDirty(layer))
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "replicas hold weight gradients: lrmoeReplicaReduce "
                      "must come before the weights change");
  layer->version++;
  return lrmoeSuccess;
}
