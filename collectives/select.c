/* Select (round B1): which pairs of the whole step stay (Algorithm 1, 14).
 *
 * Two ways with the same result.  `gather`: every rank gets all keys and
 * selects for itself; one round, nothing more to be said.  `home`: keys go to
 * the experts' homes, which select and answer a bit a pair; two rounds, fewer
 * bytes and no repeated work.  Both list the pairs of an expert in ascending
 * pair id, which is (source, ordinal), so that ties fall the same way.
 *
 * Departure from the paper, which leaves the search for the K[e] best open:
 * the selection is exact over all ranks, not per rank. */
#include "collectives/select.h"

#include "base/config.h"
#include "base/hash.h"
#include "collectives/alpha.h"
#include "collectives/device_route.h"
#include "collectives/node.h"
#include "collectives/replica.h"
#include "collectives/reroute.h"
#include "collectives/score.h"
#include "collectives/span.h"

#include <string.h>

/* Everything that ranks must agree on before keys mean the same. */
uint64_t lrmoeSelectTag(const struct lrmoeStep *step) {
  const int64_t agreed[] = {
      (int64_t)step->plan->hash,    step->number,
      (int64_t)step->config.metric, (int64_t)step->config.scope,
      (int64_t)step->config.wire,   (int64_t)step->config.seed};
  return lrmoeHash(0, agreed, sizeof agreed);
}

static lrmoeResult_t reserveKept(struct lrmoeStep *step) {
  int64_t numSlots = step->numTokens * step->layer->topk;
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayKept, numSlots, &step->kept));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayKeptLocal, numLocal, &step->keptLocal));
  if (numSlots) memset(step->kept, 0, (size_t)numSlots);
  if (numLocal) memset(step->keptLocal, 0, (size_t)numLocal);
  lrmoeMeterAdd(&step->meter, numSlots + numLocal);
  return lrmoeSuccess;
}

/* lrmoeMetricAll: no score and no message. */
static void keepAll(struct lrmoeStep *step) {
  for (int64_t i = 0; i < step->numPairs; i++)
    step->kept[step->sorted[i]] = 1;
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  if (numLocal) memset(step->keptLocal, 1, (size_t)numLocal);
  lrmoeRerouteOwn(step);
  for (int32_t j = 0; j < step->numInstances; j++)
    lrmoeRerouteLocal(step, j);
}

static lrmoeResult_t checkBackward(const struct lrmoeLayer *layer,
                                   const lrmoeBackwardConfig_t *config) {
  LRMOE_REQUIRE(config->metric >= lrmoeMetricLrm &&
                    config->metric <= lrmoeMetricAll,
                "unknown metric %d", (int)config->metric);
  LRMOE_REQUIRE(config->scope >= lrmoeScopeExpert &&
                    config->scope <= lrmoeScopeInstance,
                "unknown scope %d", (int)config->scope);
  LRMOE_REQUIRE(config->wire >= lrmoeWireDedup && config->wire <= lrmoeWireNode,
                "unknown wire %d", (int)config->wire);
  LRMOE_CHECK(lrmoeNodeCheck(layer, config->wire));
  LRMOE_REQUIRE(layer->routerGrad != lrmoeRouterGradExecutor ||
                    config->wire == lrmoeWireDedup ||
                    config->wire == lrmoeWireNode,
                "router gradient executor needs lrmoeWireDedup or Node");
  return lrmoeSuccess;
}

/* Checks that a backward may begin, and clears what the last one left. */
static lrmoeResult_t begin(struct lrmoeStep *step, const void *g,
                           const lrmoeBackwardConfig_t *config) {
  struct lrmoeLayer *layer = step->layer;
  lrmoeBackwardConfig_t known = LRMOE_BACKWARD_CONFIG_INITIALIZER;
  if (config)
    LRMOE_CHECK(
        lrmoeConfigRead("lrmoeBackwardConfig_t", config, sizeof known, &known));
  LRMOE_CHECK(checkBackward(layer, &known));
  LRMOE_REQUIRE(g || !step->numTokens, "g is NULL");
  if (step->version != layer->version)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "forward ran with weights of version %llu, the layer is "
                      "at %llu",
                      (unsigned long long)step->version,
                      (unsigned long long)layer->version);
  if (layer->active)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "another step of the layer is between lrmoeSelect and "
                      "lrmoeReturn, or between lrmoeExpertForward and "
                      "lrmoeCombine");
  layer->active = step;
  step->config = known;
  step->meter = (struct lrmoeMeter){0};
  int64_t forwardNodeBytes = step->stats.forwardNodeBytes;
  step->stats = (lrmoeStepStats_t)LRMOE_STEP_STATS_INITIALIZER;
  step->stats.forwardNodeBytes = forwardNodeBytes;
  step->isFused = 0;
  step->isXPacked = 0;
  step->tokenLists = NULL;
  step->route = (struct lrmoeDeviceRoute){0};
  step->kept = NULL;
  step->numPut = 0;
  return lrmoeSuccess;
}

/* What this rank has kept as executor since combine: rows, FC1 outputs, and the
 * token, alpha, row and norm of every pair. */
static int64_t savedBytes(const struct lrmoeStep *step) {
  const struct lrmoeLayer *layer = step->layer;
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  int64_t bytes =
      numLocal * (int64_t)(sizeof *step->pairToken + sizeof *step->alpha +
                           sizeof *step->xRow + sizeof *step->phiLocal);
  if (layer->savedState == lrmoeSavedNone) return bytes;
  return bytes + step->recvRowOffsets[step->plan->numRanks] * layer->rowBytes +
         numLocal * lrmoeLayerSavedBytes(layer);
}

static void countKept(struct lrmoeStep *step) {
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  step->stats.pairs = step->numPairs;
  step->stats.executed = numLocal;
  step->stats.savedBytes = savedBytes(step);
  if (step->route.flags) return; /* lrmoeDeviceRouteTake has the rest */
  for (int64_t i = 0; i < step->numTokens * step->layer->topk; i++)
    step->stats.kept += step->kept[i];
  for (int64_t i = 0; i < numLocal; i++)
    step->stats.executedKept += step->keptLocal[i];
  step->stats.executedKept += step->numMoved;
  step->stats.movedIn = step->numMoved;
  if (step->config.metric == lrmoeMetricAll) return;
  for (int64_t i = 0; i < step->numPairs; i++)
    step->stats.nonFiniteDropped +=
        step->keys[i] == LRMOE_KEY_NON_FINITE && !step->kept[step->sorted[i]];
}

static lrmoeResult_t selectPairs(struct lrmoeStep *step, const void *g) {
  int isOnDevice = lrmoeDeviceRouteIsPossible(step);
  if (!isOnDevice) {
    LRMOE_CHECK(reserveKept(step));
    LRMOE_CHECK(lrmoeRerouteBegin(step));
  }
  if (step->config.metric == lrmoeMetricAll) {
    if (isOnDevice) return lrmoeDeviceKeepAll(step);
    keepAll(step);
    return lrmoeSuccess;
  }
  LRMOE_CHECK(lrmoeScorePairs(step, g));
  lrmoeMeterAdd(&step->meter, step->numPairs * (int64_t)sizeof(uint32_t));
  /* One ranking over the layer has no home. */
  if (step->layer->comm->numRanks > step->layer->gatherRanks &&
      step->config.scope != lrmoeScopeLayer)
    return lrmoeSelectHome(step);
  return lrmoeSelectGather(step);
}

lrmoeResult_t lrmoeSelectBegin(struct lrmoeStep *step, const void *g,
                               const lrmoeBackwardConfig_t *config) {
  int64_t start = lrmoeNowNs();
  LRMOE_CHECK(begin(step, g, config));
  lrmoeResult_t result = lrmoeReplicasAcquire(step);
  if (result != lrmoeInvalidUsage) lrmoeCommSettle(step->layer->comm, result);
  if (result == lrmoeSuccess)
    result = lrmoeCommSettle(step->layer->comm, selectPairs(step, g));
  if (result == lrmoeSuccess)
    result = lrmoeCommSettle(step->layer->comm, lrmoeAlphaOwner(step, g));
  if (result == lrmoeSuccess)
    result = lrmoeCommSettle(step->layer->comm, lrmoeReplicasMarkDirty(step));
  if (result != lrmoeSuccess) {
    lrmoeReplicasRelease(step);
    step->layer->active = NULL;
    return result;
  }
  countKept(step);
  step->stats.selectNs = lrmoeNowNs() - start;
  step->state = lrmoeStepSelected;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeSelect(lrmoeStep_t step, const void *g,
                          const lrmoeBackwardConfig_t *config,
                          lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeSelect", lrmoeStepCombined,
                              lrmoeStepCombined, stream));
  LRMOE_SPAN_ON(step->layer->comm, "lrmoeSelect", stream);
  return lrmoeSelectBegin(step, g, config);
}
