/* Steps: creation with the demand exchange (round F0), preparation, getters.
 *
 * F0 is one all-gather of a fixed header and n[e] per rank.  The header carries
 * what ranks must agree on, and whether a rank refused its routing, so that
 * all ranks fail together and the communicator stays whole. */
#include "collectives/step.h"

#include "base/config.h"
#include "collectives/device_route.h"
#include "collectives/gradients.h"
#include "collectives/replica.h"
#include "collectives/route.h"

#include <stdlib.h>
#include <string.h>

void lrmoeMeterAdd(struct lrmoeMeter *meter, int64_t bytes) {
  meter->now += bytes;
  if (meter->now > meter->peak) meter->peak = meter->now;
}

lrmoeResult_t lrmoeStepReserve(struct lrmoeStep *step,
                               enum lrmoeStepArray array, int64_t count,
                               size_t elementBytes, void *pointer) {
  struct lrmoeBuffer *buffer = &step->arrays[array];
  size_t bytes = (size_t)(count > 0 ? count : 1) * elementBytes;
  LRMOE_CHECK(lrmoeBufferReserve(buffer, bytes));
  memcpy(pointer, &buffer->data, sizeof buffer->data);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeStepReserveBlock(struct lrmoeStep *step,
                                    enum lrmoeStepBlock block, int64_t bytes,
                                    void *pointer) {
  struct lrmoeBlock *reserved = &step->blocks[block];
  LRMOE_CHECK(lrmoeBlockReserve(step->layer->backend, (size_t)bytes,
                                step->stream, reserved));
  memcpy(pointer, &reserved->data, sizeof reserved->data);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeStepUpload(struct lrmoeStep *step, enum lrmoeStepArray array,
                              const void *host, int64_t bytes, void *device) {
  void *uploaded = NULL;
  LRMOE_CHECK(lrmoeTwinUpload(step->layer->backend, &step->twins[array], host,
                              (size_t)bytes, step->stream, &uploaded));
  memcpy(device, &uploaded, sizeof uploaded);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeStepDownload(struct lrmoeStep *step,
                                enum lrmoeStepArray array, const void *device,
                                int64_t bytes, void *host) {
  void *downloaded = NULL;
  LRMOE_CHECK(lrmoeTwinDownload(step->layer->backend, &step->twins[array],
                                device, (size_t)bytes, step->stream,
                                &downloaded));
  memcpy(host, &downloaded, sizeof downloaded);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeStepSynchronize(const struct lrmoeStep *step) {
  return lrmoeCommSynchronize(step->layer->comm, step->stream);
}

void lrmoeStepFree(struct lrmoeStep *step) {
  if (!step) return;
  const struct lrmoeBackend *backend = step->layer->backend;
  for (int i = 0; i < lrmoeNumStepArrays; i++) {
    lrmoeBufferFree(&step->arrays[i]);
    lrmoeTwinFree(backend, &step->twins[i]);
  }
  for (int i = 0; i < lrmoeNumStepBlocks; i++)
    lrmoeBlockFree(backend, &step->blocks[i]);
  lrmoeFree(step);
}

lrmoeResult_t lrmoeStepExpect(struct lrmoeStep *step, const char *call,
                              enum lrmoeStepState low, enum lrmoeStepState high,
                              lrmoeStream_t stream) {
  static const char *const after[] = {
      "lrmoeStepCreate",      "lrmoeStepPrepare",   "lrmoeDispatch",
      "lrmoeExpertForward",   "lrmoeCombine",       "lrmoeSelect",
      "lrmoeAllToAllCompact", "lrmoeExpertBackward"};
  LRMOE_REQUIRE(step, "%s: step is NULL", call);
  LRMOE_REQUIRE(!stream || !step->layer->backend->isHost,
                "%s: a CPU communicator has no streams: pass NULL", call);
  if (step->state < low || step->state > high)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "%s: the step has got as far as %s; %s must come before",
                      call, after[step->state], after[low]);
  step->stream = stream;
  if (step->layer->active == step) return lrmoeSuccess;
  return lrmoeGradientsJoin(step->layer, stream);
}

int32_t lrmoeStepExpert(const struct lrmoeStep *step, int32_t i) {
  const int32_t *offsets = step->plan->instanceOffsets;
  int32_t low = 0;
  int32_t high = step->plan->numExperts - 1;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (offsets[middle + 1] <= step->instances[i])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* One token's experts: in range, none twice. */
static lrmoeResult_t checkRow(const struct lrmoeLayer *layer, int64_t token,
                              const int64_t *row) {
  int64_t numExperts = layer->planner->numExperts;
  for (int32_t slot = 0; slot < layer->topk; slot++) {
    int64_t e = row[slot];
    LRMOE_REQUIRE(e >= -1 && e < numExperts,
                  "rank %d, token %lld, slot %d: expert %lld, of %lld",
                  layer->comm->rank, (long long)token, slot, (long long)e,
                  (long long)numExperts);
    for (int32_t other = 0; other < slot && e >= 0; other++)
      LRMOE_REQUIRE(row[other] != e,
                    "rank %d, token %lld: expert %lld is in slots %d and %d",
                    layer->comm->rank, (long long)token, (long long)e, other,
                    slot);
  }
  return lrmoeSuccess;
}

/* Copies the routing and counts n[e] into `counts`. */
static lrmoeResult_t takeRouting(struct lrmoeStep *step, const int64_t *topkIdx,
                                 const float *topkWeights, int64_t *counts) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int32_t k = step->layer->topk;
  int64_t numSlots = step->numTokens * k;
  if (!numSlots) return lrmoeSuccess;
  LRMOE_RUN(backend, copy, step->topkIdx, topkIdx,
            (size_t)numSlots * sizeof *topkIdx, lrmoeCopyToHost, step->stream);
  LRMOE_RUN(backend, copy, step->weights, topkWeights,
            (size_t)numSlots * sizeof *topkWeights, lrmoeCopyToHost,
            step->stream);
  LRMOE_CHECK(lrmoeStepSynchronize(step));
  for (int64_t t = 0; t < step->numTokens; t++)
    LRMOE_CHECK(checkRow(step->layer, t, step->topkIdx + t * k));
  for (int64_t pair = 0; pair < numSlots; pair++) {
    if (step->topkIdx[pair] < 0) continue;
    counts[step->topkIdx[pair]]++;
    step->numPairs++;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t checkRouting(const struct lrmoeLayer *layer,
                                  int64_t numTokens, const int64_t *topkIdx,
                                  const float *topkWeights) {
  LRMOE_REQUIRE(numTokens >= 0 && numTokens <= layer->maxTokens,
                "rank %d: numTokens is %lld, the layer's maxTokens %lld",
                layer->comm->rank, (long long)numTokens,
                (long long)layer->maxTokens);
  LRMOE_REQUIRE(!numTokens || (topkIdx && topkWeights),
                "rank %d: topkIdx or topkWeights is NULL", layer->comm->rank);
  return lrmoeSuccess;
}

/* What a rank tells the others in F0, before its n[e]. */
enum {
  f0Hash,
  f0Status,
  f0Number,
  f0Header
};

static lrmoeResult_t compareHeaders(const struct lrmoeStep *step,
                                    const int64_t *all, int64_t stride) {
  int rank = step->layer->comm->rank;
  int64_t mine = all[rank * stride + f0Status];
  if (mine != lrmoeSuccess) return (lrmoeResult_t)mine; /* already recorded */
  for (int r = 0; r < step->layer->comm->numRanks; r++) {
    const int64_t *header = all + r * stride;
    if (header[f0Status] != lrmoeSuccess)
      return LRMOE_FAIL((lrmoeResult_t)header[f0Status],
                        "rank %d refused its routing (its own error says why)",
                        r);
    if (header[f0Hash] != all[f0Hash])
      return LRMOE_FAIL(lrmoeInvalidUsage,
                        "rank %d has another layer or planner config than "
                        "rank 0",
                        r);
    if (header[f0Number] != all[f0Number])
      return LRMOE_FAIL(lrmoeInvalidUsage,
                        "rank %d begins step %lld of the layer, rank 0 step "
                        "%lld",
                        r, (long long)header[f0Number],
                        (long long)all[f0Number]);
  }
  return lrmoeSuccess;
}

/* Round F0. */
static lrmoeResult_t exchangeDemand(struct lrmoeStep *step,
                                    const int64_t *topkIdx,
                                    const float *topkWeights) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeComm *comm = layer->comm;
  int64_t numExperts = layer->planner->numExperts;
  int64_t stride = f0Header + numExperts;
  int64_t *all = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch, stride * comm->numRanks, &all));
  int64_t *mine = all + comm->rank * stride;
  memset(mine, 0, (size_t)stride * sizeof *mine);
  lrmoeResult_t status =
      checkRouting(layer, step->numTokens, topkIdx, topkWeights);
  if (status == lrmoeSuccess)
    status = takeRouting(step, topkIdx, topkWeights, mine + f0Header);
  mine[f0Hash] = (int64_t)layer->hash;
  mine[f0Status] = status;
  mine[f0Number] = step->number;
  LRMOE_CHECK(lrmoeCommSettle(
      comm, lrmoeAllGatherHost(comm, mine, all, stride * (int64_t)sizeof *mine,
                               step->stream)));
  LRMOE_CHECK(compareHeaders(step, all, stride));
  for (int r = 0; r < comm->numRanks; r++)
    memcpy(step->demand + r * numExperts, all + r * stride + f0Header,
           (size_t)numExperts * sizeof *all);
  return lrmoeSuccess;
}

static lrmoeResult_t reserveRouting(struct lrmoeStep *step, int64_t numTokens) {
  const struct lrmoeLayer *layer = step->layer;
  int64_t numSlots = numTokens > 0 && numTokens <= layer->maxTokens
                         ? numTokens * layer->topk
                         : 0;
  int64_t cells = (int64_t)layer->comm->numRanks * layer->planner->numExperts;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayTopk, numSlots, &step->topkIdx));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWeights, numSlots, &step->weights));
  return LRMOE_RESERVE(step, lrmoeArrayDemand, cells, &step->demand);
}

/* A step from the pool, or a new one, with its arrays kept. */
static lrmoeResult_t takeStep(struct lrmoeLayer *layer,
                              struct lrmoeStep **step) {
  struct lrmoeStep *taken = layer->idle;
  if (!taken) return LRMOE_ALLOCATE(1, step);
  layer->idle = taken->next;
  struct lrmoeStep fresh = {0};
  memcpy(fresh.arrays, taken->arrays, sizeof fresh.arrays);
  memcpy(fresh.twins, taken->twins, sizeof fresh.twins);
  memcpy(fresh.blocks, taken->blocks, sizeof fresh.blocks);
  *taken = fresh;
  *step = taken;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeStepCreate(lrmoeLayer_t layer, int64_t numTokens,
                              const int64_t *topkIdx, const float *topkWeights,
                              lrmoeStream_t stream, lrmoeStep_t *step) {
  LRMOE_REQUIRE(layer && step, "layer or step is NULL");
  LRMOE_REQUIRE(!stream || !layer->backend->isHost,
                "a CPU communicator has no streams: pass NULL");
  if (layer->numSteps >= layer->maxSteps)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "%d step(s) exist already: raise maxSteps of the layer",
                      layer->numSteps);
  struct lrmoeStep *made = NULL;
  LRMOE_CHECK(lrmoeCommSettle(layer->comm, takeStep(layer, &made)));
  made->layer = layer;
  made->stream = stream;
  made->number = layer->numStepsMade++;
  made->numTokens = numTokens;
  layer->numSteps++;
  lrmoeResult_t result =
      lrmoeCommSettle(layer->comm, reserveRouting(made, numTokens));
  if (result == lrmoeSuccess)
    result = exchangeDemand(made, topkIdx, topkWeights);
  if (result != lrmoeSuccess) {
    lrmoeStepDestroy(made);
    return result;
  }
  *step = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeStepDestroy(lrmoeStep_t step) {
  if (!step) return lrmoeSuccess;
  struct lrmoeLayer *layer = step->layer;
  lrmoeResult_t result = lrmoeSuccess;
  if (layer->active == step) {
    result = lrmoeGradientsFinish(layer);
    layer->active = NULL;
  }
  lrmoeReplicasRelease(step);
  layer->numSteps--;
  step->next = layer->idle;
  layer->idle = step;
  return result;
}

lrmoeResult_t lrmoeStepGetDemand(lrmoeStep_t step, const int64_t **demand) {
  LRMOE_REQUIRE(step && demand, "step or demand is NULL");
  *demand = step->demand;
  return lrmoeSuccess;
}

/* Rivals may move homes, whose parameters are elsewhere, or stand for another
 * routing: such plans are for comparison only. */
static lrmoeResult_t refuseOtherHomes(const struct lrmoeStep *step,
                                      const struct lrmoePlan *plan) {
  const int32_t *homes = step->layer->planner->homes;
  if (plan->changesForward)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "a plan of policy %s changes the forward pass and is for "
                      "comparison only",
                      lrmoePolicyName(plan->policy));
  for (int32_t e = 0; e < plan->numExperts; e++)
    if (plan->homes[e] != homes[e])
      return LRMOE_FAIL(lrmoeUnsupported,
                        "a plan of policy %s moves the home of expert %d from "
                        "rank %d to %d, which this release does not execute",
                        lrmoePolicyName(plan->policy), e, homes[e],
                        plan->homes[e]);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeStepPrepare(lrmoeStep_t step, lrmoePlan_t plan,
                               lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeStepPrepare", lrmoeStepCreated,
                              lrmoeStepPrepared, stream));
  LRMOE_REQUIRE(plan, "plan is NULL");
  int numRanks = step->layer->comm->numRanks;
  int32_t numExperts = step->layer->planner->numExperts;
  LRMOE_REQUIRE(plan->numRanks == numRanks && plan->numExperts == numExperts,
                "the plan is for %d ranks and %d experts, not %d and %d",
                plan->numRanks, plan->numExperts, numRanks, numExperts);
  LRMOE_CHECK(refuseOtherHomes(step, plan));
  size_t bytes = (size_t)numRanks * (size_t)numExperts * sizeof(int64_t);
  LRMOE_REQUIRE(plan->demand, "the plan was made from totals, not from demand");
  LRMOE_REQUIRE(!memcmp(plan->demand, step->demand, bytes),
                "the plan was made from another step's demand");
  step->plan = plan;
  LRMOE_REQUIRE(plan->numInstances == numExperts ||
                    step->layer->replicas.slotsPerRank > 0,
                "the plan has replicas, the layer's planner no slots");
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, lrmoeRoutePrepare(step)));
  lrmoeReplicasRelease(step);
  lrmoeResult_t result = lrmoeReplicasAcquire(step);
  if (result != lrmoeInvalidUsage)
    LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, result));
  LRMOE_CHECK(result);
  step->state = lrmoeStepPrepared;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeStepGetKept(lrmoeStep_t step, uint8_t *kept) {
  LRMOE_REQUIRE(step && kept, "step or kept is NULL");
  LRMOE_REQUIRE(step->kept || step->route.flags,
                "lrmoeSelect has not run on this step");
  LRMOE_CHECK(lrmoeSelectionFetch(step));
  memcpy(kept, step->kept,
         (size_t)(step->numTokens * step->layer->topk) * sizeof *kept);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeStepGetHandoff(lrmoeStep_t step, lrmoeHandoff_t *handoff) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeStepGetHandoff", lrmoeStepSent,
                              lrmoeStepExecuted, NULL));
  return lrmoeViewWrite("lrmoeHandoff_t", &step->handoff, sizeof step->handoff,
                        handoff);
}

lrmoeResult_t lrmoeStepGetStats(lrmoeStep_t step, lrmoeStepStats_t *stats) {
  LRMOE_REQUIRE(step, "step is NULL");
  LRMOE_CHECK(lrmoeDeviceRouteSettle(step));
  return lrmoeViewWrite("lrmoeStepStats_t", &step->stats, sizeof step->stats,
                        stats);
}
