/* One step as one rank: see driver.h. */
#include "driver.h"

#include "collectives/step.h"
#include "guarded.h"
#include "random_plan.h"

#include <stdlib.h>
#include <string.h>

int64_t driverSlots(const struct oracleCase *spec, int rank) {
  return spec->numTokens[rank] * spec->topk;
}

static int64_t w1Count(const struct driver *d) {
  return oracleFc1Rows(&d->oracle->spec) * d->oracle->spec.hidden;
}

static int64_t w2Count(const struct driver *d) {
  return d->oracle->spec.hidden * d->oracle->spec.ffn;
}

static int bindWeights(struct driver *d) {
  const void **w1 = oracleZeroed(d->numLocal, sizeof *w1);
  const void **w2 = oracleZeroed(d->numLocal, sizeof *w2);
  float **dw1 = oracleZeroed(d->numLocal, sizeof *dw1);
  float **dw2 = oracleZeroed(d->numLocal, sizeof *dw2);
  d->dw1 = oracleZeroed(d->numLocal, sizeof *d->dw1);
  d->dw2 = oracleZeroed(d->numLocal, sizeof *d->dw2);
  for (int i = 0; i < d->numLocal; i++) {
    const struct oracleWeights *own = &d->oracle->experts[d->local[i]];
    int64_t element = (int64_t)lrmoeTypeBytes(d->oracle->spec.type);
    d->dw1[i] = oracleZeroed(w1Count(d), sizeof(float));
    d->dw2[i] = oracleZeroed(w2Count(d), sizeof(float));
    mirrorAdd(&d->mirrors, own->w1, w1Count(d) * element);
    mirrorAdd(&d->mirrors, own->w2, w2Count(d) * element);
    mirrorAdd(&d->mirrors, d->dw1[i], w1Count(d) * (int64_t)sizeof(float));
    mirrorAdd(&d->mirrors, d->dw2[i], w2Count(d) * (int64_t)sizeof(float));
    w1[i] = mirrorOf(&d->mirrors, own->w1);
    w2[i] = mirrorOf(&d->mirrors, own->w2);
    dw1[i] = mirrorOf(&d->mirrors, d->dw1[i]);
    dw2[i] = mirrorOf(&d->mirrors, d->dw2[i]);
  }
  lrmoeLayerWeights_t weights = LRMOE_LAYER_WEIGHTS_INITIALIZER;
  weights.w1 = w1;
  weights.w2 = w2;
  weights.dw1 = dw1;
  weights.dw2 = dw2;
  lrmoeResult_t bound = lrmoeLayerBind(d->layer, &weights);
  free(w1);
  free(w2);
  free(dw1);
  free(dw2);
  RANK_OK(d->self, bound);
  return 0;
}

static int makePlanner(struct driver *d, int slotsPerRank) {
  const struct oracleCase *spec = &d->oracle->spec;
  lrmoePlannerConfig_t planner = LRMOE_PLANNER_CONFIG_INITIALIZER;
  planner.numExperts = spec->numExperts;
  planner.retainPpm = spec->retainPpm;
  planner.homes = d->oracle->homes;
  RANK_OK(d->self, lrmoeTopologyCreate(spec->numRanks, &d->topology));
  planner.policy = spec->policy;
  if (spec->policy != lrmoePolicyFixed) planner.slots = spec->numSlots;
  RANK_OK(d->self, lrmoePlannerCreate(d->topology, &planner, &d->planner));
  d->planner->config.slots = slotsPerRank; /* plans with replicas: randomPlan */
  for (int r = 0; r < spec->numRanks && spec->ranksPerNode; r++) {
    d->planner->hosts[r] = r / spec->ranksPerNode;
    d->planner->domains[r] = r;
  }
  return 0;
}

const char *driverGemm(const struct driver *d) {
  return d->comm->transport->hasStreams ? NULL : "reference";
}

static int makeLayer(struct driver *d, int maxSteps) {
  const struct oracleCase *spec = &d->oracle->spec;
  lrmoeLayerConfig_t layer = LRMOE_LAYER_CONFIG_INITIALIZER;
  layer.hidden = spec->hidden;
  layer.ffn = spec->ffn;
  layer.maxTokens = oracleMostTokens(spec);
  layer.topk = spec->topk;
  layer.maxSteps = maxSteps;
  layer.dtype = spec->type;
  layer.activation = spec->activation;
  layer.convention = spec->convention;
  layer.savedState = spec->savedState;
  layer.routerGrad = spec->routerGrad;
  layer.overlapsReturn = spec->overlapsReturn;
  layer.packsX = spec->packsX;
  layer.forwardWire = spec->forwardWire;
  layer.gemm = driverGemm(d);
  RANK_OK(d->self, lrmoeLayerCreate(d->comm, d->planner, &layer, &d->layer));
  if (spec->gatherRanks) d->layer->gatherRanks = spec->gatherRanks;
  RANK_OK(d->self,
          lrmoeLayerGetLocalExperts(d->layer, &d->numLocal, &d->local));
  return bindWeights(d);
}

static void makeBuffers(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t slots = driverSlots(spec, d->self->rank);
  int64_t count = spec->numTokens[d->self->rank] * spec->hidden;
  d->y = oracleZeroed(count, sizeof(float));
  d->dx = oracleZeroed(count, sizeof(float));
  d->dWeights = oracleZeroed(slots, sizeof(float));
  d->kept = oracleZeroed(slots, 1);
  d->allKept = oracleZeroed(spec->numRanks, sizeof *d->allKept);
  for (int r = 0; r < spec->numRanks; r++)
    d->allKept[r] = oracleZeroed(driverSlots(spec, r), 1);
}

/* What the library reads and writes, once there is a communicator. */
static void makeMirrors(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  int64_t slots = driverSlots(spec, d->self->rank);
  int64_t rows = spec->numTokens[d->self->rank] * spec->hidden *
                 (int64_t)lrmoeTypeBytes(spec->type);
  struct mirrors *mirrors = &d->mirrors;
  mirrorAdd(mirrors, data->topkIdx, slots * (int64_t)sizeof(int64_t));
  mirrorAdd(mirrors, data->weights, slots * (int64_t)sizeof(float));
  mirrorAdd(mirrors, data->x, rows);
  mirrorAdd(mirrors, data->g, rows);
  mirrorAdd(mirrors, d->y, rows);
  mirrorAdd(mirrors, d->dx, rows);
  mirrorAdd(mirrors, d->dWeights, slots * (int64_t)sizeof(float));
}

int driverOpenLayer(struct driver *d, const struct testRank *self,
                    const struct oracleCase *spec,
                    const struct driverLayer *options) {
  *d = (struct driver){.self = self,
                       .oracle = oracleMake(spec),
                       .comm = options->comm,
                       .ownsComm = !options->comm,
                       .ownsLayer = 1};
  makeBuffers(d);
  lrmoeCommConfig_t config = LRMOE_COMM_CONFIG_INITIALIZER;
  if (!d->comm)
    RANK_OK(self, lrmoeCommInitRank(spec->numRanks, &self->id, self->rank,
                                    &config, &d->comm));
  if (d->ownsComm && guardedIsWanted()) guardedAttach(d->comm);
  RANK_OK(self, lrmoeCommNeedBackend(d->comm));
  d->mirrors.backend = d->comm->backend;
  makeMirrors(d);
  return makePlanner(d, options->slotsPerRank) ||
         makeLayer(d, options->maxSteps);
}

int driverOpen(struct driver *d, const struct testRank *self,
               const struct oracleCase *spec) {
  const struct driverLayer options = {NULL, 2, spec->numSlots};
  return driverOpenLayer(d, self, spec, &options);
}

void driverJoin(struct driver *d, const struct driver *base,
                const struct oracleCase *spec) {
  *d = *base;
  d->oracle = oracleMake(spec);
  d->step = NULL;
  d->plan = NULL;
  d->ownsComm = 0;
  d->ownsLayer = 0;
  d->mirrors.inherited = d->mirrors.first;
  makeBuffers(d);
  makeMirrors(d);
}

/* The step then runs on what comes back. */
static int replayPlan(struct driver *d) {
  size_t bytes = 0;
  RANK_OK(d->self, lrmoePlanSave(d->plan, NULL, &bytes));
  void *saved = oracleZeroed((int64_t)bytes, 1);
  lrmoePlan_t loaded = NULL;
  lrmoeResult_t result = lrmoePlanSave(d->plan, saved, &bytes);
  if (result == lrmoeSuccess) result = lrmoePlanLoad(saved, bytes, &loaded);
  free(saved);
  RANK_OK(d->self, result);
  RANK_OK(d->self, lrmoePlanDestroy(d->plan));
  d->plan = loaded;
  return 0;
}

/* Tests change weights, inputs and alphas between steps. */
static void pushWeights(const struct driver *d) {
  for (int i = 0; i < d->numLocal; i++) {
    mirrorPush(&d->mirrors, d->oracle->experts[d->local[i]].w1);
    mirrorPush(&d->mirrors, d->oracle->experts[d->local[i]].w2);
  }
}

int driverBegin(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  mirrorPush(&d->mirrors, data->weights);
  if (d->ownsLayer) pushWeights(d);
  RANK_OK(d->self, lrmoeStepCreate(d->layer, spec->numTokens[d->self->rank],
                                   mirrorOf(&d->mirrors, data->topkIdx),
                                   mirrorOf(&d->mirrors, data->weights), NULL,
                                   &d->step));
  const int64_t *demand = NULL;
  RANK_OK(d->self, lrmoeStepGetDemand(d->step, &demand));
  uint64_t seed =
      (spec->dataSeed ? spec->dataSeed : spec->seed) + (uint64_t)d->numPlans++;
  if (spec->numSlots && spec->policy == lrmoePolicyFixed)
    RANK_OK(d->self,
            randomPlan(d->planner, demand, spec->numSlots, seed, &d->plan));
  else
    RANK_OK(d->self, lrmoePlanMake(d->planner, demand, &d->plan));
  if (d->isReplayed && replayPlan(d)) return 1;
  RANK_OK(d->self, lrmoeStepPrepare(d->step, d->plan, NULL));
  return 0;
}

int driverDispatch(struct driver *d) {
  mirrorPush(&d->mirrors, d->oracle->ranks[d->self->rank].x);
  RANK_OK(d->self,
          lrmoeDispatch(
              d->step, mirrorOf(&d->mirrors, d->oracle->ranks[d->self->rank].x),
              NULL));
  return 0;
}

int driverExperts(struct driver *d) {
  RANK_OK(d->self, lrmoeExpertForward(d->step, NULL));
  return 0;
}

int driverCombine(struct driver *d) {
  RANK_OK(d->self, lrmoeCombine(d->step, mirrorOf(&d->mirrors, d->y), NULL));
  mirrorPull(&d->mirrors, d->y);
  return 0;
}

int driverForward(struct driver *d) {
  return driverBegin(d) || driverDispatch(d) || driverExperts(d) ||
         driverCombine(d);
}

/* Every rank's kept flags, through the communicator. */
static int gatherKept(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t most = oracleMostTokens(spec) * spec->topk;
  uint8_t *all = oracleZeroed(most * spec->numRanks, 1);
  uint8_t *mine = oracleZeroed(most, 1);
  memcpy(mine, d->kept, (size_t)driverSlots(spec, d->self->rank));
  lrmoeResult_t result = lrmoeAllGatherHost(d->comm, mine, all, most, NULL);
  for (int r = 0; r < spec->numRanks; r++)
    memcpy(d->allKept[r], all + r * most, (size_t)driverSlots(spec, r));
  free(all);
  free(mine);
  RANK_OK(d->self, result);
  return 0;
}

/* Results must be written, not left: begin with what is not zero. */
static void spoilResults(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t numTokens = spec->numTokens[d->self->rank];
  memset(d->dx, 0x55,
         (size_t)(numTokens * spec->hidden) * lrmoeTypeBytes(spec->type));
  memset(d->dWeights, 0x55, (size_t)(numTokens * spec->topk) * sizeof(float));
  mirrorPush(&d->mirrors, d->dx);
  mirrorPush(&d->mirrors, d->dWeights);
}

void driverClearGradients(struct driver *d) {
  for (int i = 0; i < d->numLocal; i++) {
    memset(d->dw1[i], 0, (size_t)w1Count(d) * sizeof(float));
    memset(d->dw2[i], 0, (size_t)w2Count(d) * sizeof(float));
    mirrorPush(&d->mirrors, d->dw1[i]);
    mirrorPush(&d->mirrors, d->dw2[i]);
  }
}

void driverPullGradients(const struct driver *d) {
  for (int i = 0; i < d->numLocal; i++) {
    mirrorPull(&d->mirrors, d->dw1[i]);
    mirrorPull(&d->mirrors, d->dw2[i]);
  }
}

int driverSelect(struct driver *d, const lrmoeBackwardConfig_t *config,
                 int isFused) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  const void *x = mirrorOf(&d->mirrors, data->x);
  const void *g = mirrorOf(&d->mirrors, data->g);
  if (!d->isAccumulating) driverClearGradients(d);
  spoilResults(d);
  if (isFused)
    RANK_OK(d->self, lrmoeSelectPackSend(d->step, x, g, config, NULL));
  else
    RANK_OK(d->self, lrmoeSelect(d->step, g, config, NULL));
  return 0;
}

int driverSend(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  RANK_OK(d->self, lrmoeAllToAllCompact(d->step, mirrorOf(&d->mirrors, data->x),
                                        mirrorOf(&d->mirrors, data->g), NULL));
  return 0;
}

int driverExpertBackward(struct driver *d) {
  RANK_OK(d->self, lrmoeStepGetKept(d->step, d->kept));
  RANK_OK(d->self, lrmoeExpertBackward(d->step, NULL));
  return 0;
}

int driverReturn(struct driver *d) {
  RANK_OK(d->self, lrmoeReturn(d->step, mirrorOf(&d->mirrors, d->dx),
                               mirrorOf(&d->mirrors, d->dWeights), NULL));
  mirrorPull(&d->mirrors, d->dx);
  mirrorPull(&d->mirrors, d->dWeights);
  if (!d->isAccumulating) {
    RANK_OK(d->self, lrmoeReplicaReduce(d->layer, NULL));
    driverPullGradients(d);
  }
  return gatherKept(d);
}

int driverBackward(struct driver *d, const lrmoeBackwardConfig_t *config,
                   int isFused) {
  return driverSelect(d, config, isFused) || (!isFused && driverSend(d)) ||
         driverExpertBackward(d) || driverReturn(d);
}

void driverAccumulate(struct driver *d) {
  d->isAccumulating = 1;
  d->sums1 = oracleZeroed(d->numLocal, sizeof *d->sums1);
  d->sums2 = oracleZeroed(d->numLocal, sizeof *d->sums2);
  for (int i = 0; i < d->numLocal; i++) {
    d->sums1[i] = oracleZeroed(w1Count(d), sizeof(double));
    d->sums2[i] = oracleZeroed(w2Count(d), sizeof(double));
  }
}

int driverCheckSums(struct driver *d) {
  RANK_OK(d->self, lrmoeReplicaReduce(d->layer, NULL));
  driverPullGradients(d);
  int failed = 0;
  for (int i = 0; i < d->numLocal && !failed; i++)
    failed =
        driverCompare(d, "sum of dw1", w1Count(d), d->dw1[i], d->sums1[i]) ||
        driverCompare(d, "sum of dw2", w2Count(d), d->dw2[i], d->sums2[i]);
  return failed;
}

static void closeLayer(struct driver *d) {
  lrmoeLayerDestroy(d->layer);
  lrmoePlannerDestroy(d->planner);
  lrmoeTopologyDestroy(d->topology);
  for (int i = 0; i < d->numLocal && d->dw1; i++) {
    free(d->dw1[i]);
    free(d->dw2[i]);
    if (d->sums1) free(d->sums1[i]);
    if (d->sums2) free(d->sums2[i]);
  }
  free(d->dw1);
  free(d->dw2);
  free(d->sums1);
  free(d->sums2);
}

void driverClose(struct driver *d) {
  lrmoeStepDestroy(d->step);
  lrmoePlanDestroy(d->plan);
  if (d->ownsLayer) closeLayer(d);
  if (d->mirrors.backend) mirrorsFree(&d->mirrors);
  if (d->ownsComm) lrmoeCommDestroy(d->comm);
  for (int r = 0; r < d->oracle->spec.numRanks; r++)
    free(d->allKept[r]);
  free(d->allKept);
  free(d->y);
  free(d->dx);
  free(d->dWeights);
  free(d->kept);
  oracleFree(d->oracle);
}

int driverRunCase(const struct testRank *self) {
  const struct oracleCase *spec = self->user;
  struct driver d;
  int failed = driverOpen(&d, self, spec) || driverForward(&d) ||
               driverBackward(&d, &spec->backward, spec->isFused) ||
               driverCheckSelection(&d) || driverCheckResults(&d);
  driverClose(&d);
  return failed;
}
