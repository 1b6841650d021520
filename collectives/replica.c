/* Replicas: see replica.h. */
#include "collectives/replica.h"

#include "collectives/gradients.h"
#include "collectives/span.h"

static const int64_t slotAlignment = 64;

static int64_t aligned(int64_t bytes) {
  return (bytes + slotAlignment - 1) / slotAlignment * slotAlignment;
}

static int64_t w1Count(const struct lrmoeLayer *layer) {
  return lrmoeFc1Width(layer->activation, layer->ffn) * layer->hidden;
}

static int64_t w2Count(const struct lrmoeLayer *layer) {
  return layer->ffn * layer->hidden;
}

/* A slot: w1, w2, then dw1, dw2, each part aligned. */
static int64_t weightBytes(const struct lrmoeLayer *layer) {
  int64_t element = (int64_t)lrmoeTypeBytes(layer->type);
  return aligned(w1Count(layer) * element) + aligned(w2Count(layer) * element);
}

static int64_t gradientBytes(const struct lrmoeLayer *layer) {
  int64_t element = (int64_t)sizeof(float);
  return aligned(w1Count(layer) * element) + aligned(w2Count(layer) * element);
}

static char *slotWeights(const struct lrmoeLayer *layer, int32_t slot) {
  return layer->replicas.block +
         slot * (weightBytes(layer) + gradientBytes(layer));
}

static struct lrmoeExpertWeights viewSlot(const struct lrmoeLayer *layer,
                                          int32_t slot) {
  char *weights = slotWeights(layer, slot);
  char *gradients = weights + weightBytes(layer);
  int64_t element = (int64_t)lrmoeTypeBytes(layer->type);
  int hasGradients = layer->numLocal == 0 || layer->weights[0].dw1;
  return (struct lrmoeExpertWeights){
      weights, weights + aligned(w1Count(layer) * element),
      hasGradients ? (float *)gradients : NULL,
      hasGradients ? (float *)(gradients +
                               aligned(w1Count(layer) * (int64_t)sizeof(float)))
                   : NULL};
}

lrmoeResult_t lrmoeReplicasInit(struct lrmoeLayer *layer,
                                int32_t slotsPerRank) {
  struct lrmoeReplicas *replicas = &layer->replicas;
  if (!slotsPerRank) return lrmoeSuccess;
  int64_t numSlots = (int64_t)layer->comm->numRanks * slotsPerRank;
  LRMOE_CHECK(LRMOE_ALLOCATE(numSlots, &replicas->table));
  for (int64_t i = 0; i < numSlots; i++)
    replicas->table[i].expert = -1;
  void *block = NULL;
  LRMOE_CHECK(layer->comm->transport->memAlloc(
      &block,
      (size_t)(slotsPerRank * (weightBytes(layer) + gradientBytes(layer)))));
  replicas->block = block;
  replicas->slotsPerRank = slotsPerRank;
  return lrmoeSuccess;
}

void lrmoeReplicasFree(struct lrmoeLayer *layer) {
  struct lrmoeReplicas *replicas = &layer->replicas;
  lrmoeFree(replicas->table);
  if (replicas->block) layer->comm->transport->memFree(replicas->block);
  lrmoeBlockFree(layer->backend, &replicas->staging);
  *replicas = (struct lrmoeReplicas){0};
}

struct lrmoeExpertWeights lrmoeStepWeights(const struct lrmoeStep *step,
                                           int32_t j) {
  const struct lrmoeLayer *layer = step->layer;
  int32_t expert = lrmoeStepExpert(step, j);
  if (step->plan->homes[expert] == layer->comm->rank)
    return layer->weights[lrmoeLayerLocalIndex(layer, expert)];
  return viewSlot(layer, step->replicaSlots[step->instances[j]]);
}

static struct lrmoeSlot *slotsOf(const struct lrmoeLayer *layer, int32_t rank) {
  return layer->replicas.table + (int64_t)rank * layer->replicas.slotsPerRank;
}

/* The slot of a rank where the expert stands, -1: none. */
static int32_t findSlot(const struct lrmoeLayer *layer, int32_t rank,
                        int32_t expert) {
  const struct lrmoeSlot *slots = slotsOf(layer, rank);
  for (int32_t i = 0; i < layer->replicas.slotsPerRank; i++)
    if (slots[i].expert == expert) return i;
  return -1;
}

/* The best slot to give to another expert, -1: all are held. */
static int32_t chooseSlot(const struct lrmoeLayer *layer, int32_t rank) {
  const struct lrmoeSlot *slots = slotsOf(layer, rank);
  int32_t best = -1;
  for (int32_t i = 0; i < layer->replicas.slotsPerRank; i++) {
    if (slots[i].numHolders) continue;
    if (best < 0 || slots[i].isDirty < slots[best].isDirty ||
        (slots[i].isDirty == slots[best].isDirty &&
         slots[i].lastUse < slots[best].lastUse))
      best = i;
  }
  return best;
}

/* ---- Gradients home ---- */

/* Sends this rank's dirty slots that `isLeaving` says, and receives those of
 * others whose home is here into staging, all in one group. */
static lrmoeResult_t exchangeGradients(struct lrmoeLayer *layer,
                                       const uint8_t *isLeaving, char *staging,
                                       lrmoeStream_t stream) {
  struct lrmoeComm *comm = layer->comm;
  int32_t perRank = layer->replicas.slotsPerRank;
  size_t bytes = (size_t)gradientBytes(layer);
  LRMOE_CHECK(comm->transport->groupStart());
  lrmoeResult_t result = lrmoeSuccess;
  for (int32_t i = 0; i < comm->numRanks * perRank; i++) {
    if (result != lrmoeSuccess || !isLeaving[i]) continue;
    int32_t rank = i / perRank;
    int32_t home = layer->planner->homes[layer->replicas.table[i].expert];
    if (rank == comm->rank)
      result = comm->transport->send(
          slotWeights(layer, i % perRank) + weightBytes(layer), bytes,
          lrmoeUint8, home, comm->nccl, stream);
    if (home == comm->rank && result == lrmoeSuccess) {
      result = comm->transport->recv(staging, bytes, lrmoeUint8, rank,
                                     comm->nccl, stream);
      staging += bytes;
    }
  }
  lrmoeResult_t ended = comm->transport->groupEnd();
  return result != lrmoeSuccess ? result : ended;
}

/* What came from one slot, to local expert `local`. */
static lrmoeResult_t addSlot(struct lrmoeLayer *layer, int32_t local,
                             const char *staging, lrmoeStream_t stream) {
  const struct lrmoeExpertWeights *home = &layer->weights[local];
  const float *dw1 = (const float *)staging;
  const float *dw2 =
      (const float *)(staging + aligned(w1Count(layer) * (int64_t)sizeof *dw2));
  if (!home->dw1) return lrmoeSuccess;
  LRMOE_RUN(layer->backend, addFloats, w1Count(layer), dw1, home->dw1, stream);
  LRMOE_RUN(layer->backend, addFloats, w2Count(layer), dw2, home->dw2, stream);
  return lrmoeSuccess;
}

/* Adds what came, in rank order, and cleans the slots. */
static lrmoeResult_t addGradients(struct lrmoeLayer *layer,
                                  const uint8_t *isLeaving, const char *staging,
                                  lrmoeStream_t stream) {
  int32_t numSlots = layer->comm->numRanks * layer->replicas.slotsPerRank;
  for (int32_t i = 0; i < numSlots; i++) {
    struct lrmoeSlot *slot = &layer->replicas.table[i];
    if (!isLeaving[i]) continue;
    slot->isDirty = 0;
    int32_t local = lrmoeLayerLocalIndex(layer, slot->expert);
    if (local < 0) continue;
    LRMOE_CHECK(addSlot(layer, local, staging, stream));
    staging += gradientBytes(layer);
  }
  return lrmoeSuccess;
}

static lrmoeResult_t bringHome(struct lrmoeLayer *layer,
                               const uint8_t *isLeaving, lrmoeStream_t stream) {
  int32_t numSlots = layer->comm->numRanks * layer->replicas.slotsPerRank;
  int64_t numLeaving = 0;
  int64_t numComing = 0;
  for (int32_t i = 0; i < numSlots; i++) {
    if (!isLeaving[i]) continue;
    numLeaving++;
    numComing +=
        lrmoeLayerLocalIndex(layer, layer->replicas.table[i].expert) >= 0;
  }
  if (!numLeaving) return lrmoeSuccess;
  struct lrmoeBlock *staging = &layer->replicas.staging;
  LRMOE_CHECK(lrmoeBlockReserve(layer->backend,
                                (size_t)(numComing * gradientBytes(layer)),
                                stream, staging));
  LRMOE_CHECK(exchangeGradients(layer, isLeaving, staging->data, stream));
  return addGradients(layer, isLeaving, staging->data, stream);
}

int lrmoeReplicasAreDirty(const struct lrmoeLayer *layer) {
  int32_t numSlots = layer->comm->numRanks * layer->replicas.slotsPerRank;
  for (int32_t i = 0; i < numSlots; i++)
    if (layer->replicas.table[i].isDirty) return 1;
  return 0;
}

lrmoeResult_t lrmoeReplicasReduce(struct lrmoeLayer *layer,
                                  lrmoeStream_t stream) {
  int32_t numSlots = layer->comm->numRanks * layer->replicas.slotsPerRank;
  if (!numSlots) return lrmoeSuccess;
  uint8_t *isLeaving = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(numSlots, &isLeaving));
  for (int32_t i = 0; i < numSlots; i++)
    isLeaving[i] = (uint8_t)layer->replicas.table[i].isDirty;
  lrmoeResult_t result = bringHome(layer, isLeaving, stream);
  lrmoeFree(isLeaving);
  return result;
}

/* ---- Weights out ---- */

/* A replica of the step's plan. */
struct replica {
  int32_t expert;
  int32_t rank;
  int32_t slot;
};

static lrmoeResult_t exchangeWeights(struct lrmoeLayer *layer,
                                     const struct replica *list, int32_t count,
                                     lrmoeStream_t stream) {
  struct lrmoeComm *comm = layer->comm;
  int64_t element = (int64_t)lrmoeTypeBytes(layer->type);
  size_t bytes1 = (size_t)(w1Count(layer) * element);
  size_t bytes2 = (size_t)(w2Count(layer) * element);
  LRMOE_CHECK(comm->transport->groupStart());
  lrmoeResult_t result = lrmoeSuccess;
  for (int32_t i = 0; i < count && result == lrmoeSuccess; i++) {
    int32_t home = layer->planner->homes[list[i].expert];
    if (home == comm->rank) {
      const struct lrmoeExpertWeights *w =
          &layer->weights[lrmoeLayerLocalIndex(layer, list[i].expert)];
      result = comm->transport->send(w->w1, bytes1, lrmoeUint8, list[i].rank,
                                     comm->nccl, stream);
      if (result == lrmoeSuccess)
        result = comm->transport->send(w->w2, bytes2, lrmoeUint8, list[i].rank,
                                       comm->nccl, stream);
    }
    if (list[i].rank == comm->rank && result == lrmoeSuccess) {
      char *w1 = slotWeights(layer, list[i].slot);
      result = comm->transport->recv(w1, bytes1, lrmoeUint8, home, comm->nccl,
                                     stream);
      if (result == lrmoeSuccess)
        result = comm->transport->recv(w1 + aligned((int64_t)bytes1), bytes2,
                                       lrmoeUint8, home, comm->nccl, stream);
    }
  }
  lrmoeResult_t ended = comm->transport->groupEnd();
  return result != lrmoeSuccess ? result : ended;
}

static void hold(struct lrmoeStep *step, int32_t instance, int32_t at) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeSlot *slot =
      slotsOf(layer, step->plan->instanceRanks[instance]) + at;
  step->replicaSlots[instance] = at;
  slot->numHolders++;
  slot->lastUse = layer->replicas.clock;
}

/* Holds the slots where the plan's replicas stand already, so that none of
 * them is given away for another. */
static lrmoeResult_t holdStanding(struct lrmoeStep *step) {
  const struct lrmoeLayer *layer = step->layer;
  const struct lrmoePlan *plan = step->plan;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++) {
      int32_t rank = plan->instanceRanks[i];
      int32_t at = rank == plan->homes[e] ? -1 : findSlot(layer, rank, e);
      if (at < 0) continue;
      const struct lrmoeSlot *slot = slotsOf(layer, rank) + at;
      if (slot->version != layer->version && slot->numHolders)
        return LRMOE_FAIL(lrmoeInvalidUsage,
                          "the weights changed while a step in flight holds "
                          "the replica of expert %d on rank %d",
                          e, rank);
      hold(step, i, at);
    }
  }
  return lrmoeSuccess;
}

/* What an acquire has to move. */
struct moving {
  uint8_t *isLeaving;     /* [G, slots] gradients to bring home */
  struct replica *coming; /* weights to bring */
  int32_t numComing;
};

/* Takes a slot for plan instance `i` of expert e if it has none, and lists what
 * has to move: its weights, if they do not stand there or in another version,
 * and before them the gradients of what stands there now. */
static lrmoeResult_t holdOne(struct lrmoeStep *step, int32_t e, int32_t i,
                             struct moving *moving) {
  const struct lrmoeLayer *layer = step->layer;
  int32_t rank = step->plan->instanceRanks[i];
  int32_t at = step->replicaSlots[i];
  if (at < 0) at = chooseSlot(layer, rank);
  if (at < 0)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "all %d slots of rank %d are held by steps in flight: no "
                      "place for expert %d",
                      layer->replicas.slotsPerRank, rank, e);
  const struct lrmoeSlot *slot = slotsOf(layer, rank) + at;
  if (step->replicaSlots[i] < 0) hold(step, i, at);
  if (slot->expert == e && slot->version == layer->version) return lrmoeSuccess;
  if (slot->isDirty) moving->isLeaving[slot - layer->replicas.table] = 1;
  moving->coming[moving->numComing++] = (struct replica){e, rank, at};
  return lrmoeSuccess;
}

static lrmoeResult_t holdOthers(struct lrmoeStep *step, struct moving *moving) {
  const struct lrmoePlan *plan = step->plan;
  for (int32_t e = 0; e < plan->numExperts; e++)
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++)
      if (plan->instanceRanks[i] != plan->homes[e])
        LRMOE_CHECK(holdOne(step, e, i, moving));
  return lrmoeSuccess;
}

static lrmoeResult_t fillSlots(struct lrmoeStep *step, struct moving *moving) {
  struct lrmoeLayer *layer = step->layer;
  LRMOE_CHECK(holdStanding(step));
  LRMOE_CHECK(holdOthers(step, moving));
  LRMOE_CHECK(bringHome(layer, moving->isLeaving, step->stream));
  for (int32_t i = 0; i < moving->numComing; i++) {
    const struct replica *replica = &moving->coming[i];
    struct lrmoeSlot *slot = slotsOf(layer, replica->rank) + replica->slot;
    slot->expert = replica->expert;
    slot->version = layer->version;
  }
  if (!moving->numComing) return lrmoeSuccess;
  return exchangeWeights(layer, moving->coming, moving->numComing,
                         step->stream);
}

lrmoeResult_t lrmoeReplicasAcquire(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoePlan *plan = step->plan;
  if (plan->numInstances == plan->numExperts || step->holdsReplicas)
    return lrmoeSuccess;
  int64_t numSlots =
      (int64_t)layer->comm->numRanks * layer->replicas.slotsPerRank;
  struct moving moving = {NULL, NULL, 0};
  layer->replicas.clock++;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayReplicaSlots, plan->numInstances,
                            &step->replicaSlots));
  LRMOE_CHECK(LRMOE_ALLOCATE(numSlots, &moving.isLeaving));
  for (int32_t i = 0; i < plan->numInstances; i++)
    step->replicaSlots[i] = -1;
  step->holdsReplicas = 1;
  lrmoeResult_t result = LRMOE_ALLOCATE(plan->numInstances, &moving.coming);
  if (result == lrmoeSuccess) result = fillSlots(step, &moving);
  if (result != lrmoeSuccess) lrmoeReplicasRelease(step);
  lrmoeFree(moving.coming);
  lrmoeFree(moving.isLeaving);
  return result;
}

void lrmoeReplicasRelease(struct lrmoeStep *step) {
  const struct lrmoePlan *plan = step->plan;
  if (!step->holdsReplicas) return;
  step->holdsReplicas = 0;
  for (int32_t i = 0; i < plan->numInstances; i++)
    if (step->replicaSlots[i] >= 0)
      slotsOf(step->layer, plan->instanceRanks[i])[step->replicaSlots[i]]
          .numHolders--;
}

lrmoeResult_t lrmoeReplicasMarkDirty(struct lrmoeStep *step) {
  struct lrmoeLayer *layer = step->layer;
  const struct lrmoePlan *plan = step->plan;
  for (int32_t i = 0; i < plan->numInstances && step->holdsReplicas; i++) {
    int32_t at = step->replicaSlots[i];
    if (at < 0) continue;
    struct lrmoeSlot *slot = slotsOf(layer, plan->instanceRanks[i]) + at;
    if (!slot->isDirty && plan->instanceRanks[i] == layer->comm->rank)
      LRMOE_RUN(layer->backend, clear,
                slotWeights(layer, at) + weightBytes(layer),
                (size_t)gradientBytes(layer), step->stream);
    slot->isDirty = 1;
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeReplicaReduce(lrmoeLayer_t layer, lrmoeStream_t stream) {
  LRMOE_REQUIRE(layer, "layer is NULL");
  LRMOE_REQUIRE(!stream || !layer->backend->isHost,
                "a CPU communicator has no streams: pass NULL");
  LRMOE_SPAN_ON(layer->comm, "lrmoeReplicaReduce", stream);
  lrmoeResult_t joined = lrmoeGradientsJoin(layer, stream);
  if (joined == lrmoeSuccess) joined = lrmoeReplicasReduce(layer, stream);
  return lrmoeCommSettle(layer->comm, joined);
}
