/* A backward of which the host reads no count: see device_route.h.
 *
 * Where rows go by windows and no pair moves, nothing that the host does needs
 * to know which pairs were kept: the plan says how many each instance has,
 * hence what the GEMMs work on, and rows that cross are some of those that
 * crossed in forward, which is room and grids enough.  Words of d(alpha) go as
 * messages, of all forward pairs, so that their number is known too.  Counts
 * come to page-locked memory all the same, for whoever asks later; ranks that
 * disagree close the gate of the puts (kernels/fused.h).
 *
 * Departure from the paper, which leaves open where its host waits. */
#include "collectives/device_route.h"
#include "collectives/fused.h"
#include "collectives/handoff.h"
#include "collectives/select.h"
#include "collectives/span.h"

#include <string.h>

int lrmoeDeviceRouteMayDefer(const struct lrmoeStep *step) {
  return step->mayDefer && lrmoeFusedIsPossible(step) &&
         !lrmoeDeviceRouteHasX(step) &&
         step->layer->routerGrad != lrmoeRouterGradExecutor;
}

/* Offsets are what they can be at most until counts are known. */
void lrmoeDeviceRouteDefer(struct lrmoeStep *step, const uint64_t *tags) {
  size_t bytes = (size_t)(step->plan->numRanks + 1) * sizeof(int64_t);
  memcpy(step->backOffsets, step->rowOffsets, bytes);
  memcpy(step->backRecvOffsets, step->recvRowOffsets, bytes);
  memset(step->xOffsets, 0, bytes);
  memset(step->xRecvOffsets, 0, bytes);
  memset(step->alphaOffsets, 0, bytes);
  memset(step->alphaRecvOffsets, 0, bytes);
  step->route.tags = tags;
  step->route.isDeferred = 1;
}

/* The meeting after which counts are on the host may have failed. */
lrmoeResult_t lrmoeDeviceRouteSettle(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  if (!step->route.isPending) return lrmoeSuccess;
  LRMOE_SPAN(layer->comm, "wait");
  LRMOE_RUN(layer->backend, eventWait, layer->fused->watched.event);
  LRMOE_CHECK(lrmoeCommSettle(layer->comm, lrmoeWatchCheck(layer->comm)));
  LRMOE_CHECK(lrmoeDeviceRouteTake(step));
  step->route.isPending = 0;
  step->stats.rowBytes += lrmoeFusedBytes(step, step->backOffsets);
  if (step->route.isReturned)
    step->stats.returnBytes += lrmoeFusedBytes(step, step->backRecvOffsets);
  return lrmoeSuccess;
}

/* Pairs that selection keeps at a local instance. */
static int64_t keptOf(const struct lrmoeStep *step, int32_t j) {
  int32_t instance = step->instances[j];
  int32_t e = lrmoeStepExpert(step, j);
  int32_t first = step->plan->instanceOffsets[e];
  if (step->config.metric == lrmoeMetricAll)
    return step->plan->forwardPairs[instance];
  return lrmoeSelectStretch(step, e, instance - first).quota;
}

lrmoeResult_t lrmoeDeviceRouteLayOut(struct lrmoeStep *step) {
  int64_t *kept = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayLengths, step->numInstances, &kept));
  for (int32_t j = 0; j < step->numInstances; j++)
    kept[j] = keptOf(step, j);
  return lrmoeHandoffSegments(step, kept, kept);
}

lrmoeResult_t lrmoeDeviceRouteDAlpha(struct lrmoeStep *step, float **send,
                                     float **recv) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  int64_t numWords = 2 * numLocal + step->numPairs;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockWords,
                                    numWords * (int64_t)sizeof **send, send));
  *recv = *send + numLocal;
  float *local = *recv + step->numPairs;
  LRMOE_RUN(backend, clear, local, (size_t)numLocal * sizeof *local,
            step->stream);
  LRMOE_RUN(backend, scatterWords, step->handoff.numPairs, step->handoff.fwdRow,
            step->dAlpha, local, step->stream);
  LRMOE_RUN(backend, gatherWords, numLocal, step->device.wirePlaces, local,
            *send, step->stream);
  return lrmoeSuccess;
}
