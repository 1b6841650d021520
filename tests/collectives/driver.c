/* One case as one rank: see driver.h. */
#include "driver.h"

#include "collectives/step.h"
#include "kernels/select.h"
#include "random_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *zeroed(int64_t count, size_t bytes) {
  void *block = calloc((size_t)(count > 0 ? count : 1), bytes);
  if (!block) abort();
  return block;
}

static int64_t slotsOf(const struct oracleCase *spec, int rank) {
  return spec->numTokens[rank] * spec->topk;
}

static int64_t mostTokens(const struct oracleCase *spec) {
  int64_t most = 1;
  for (int r = 0; r < spec->numRanks; r++)
    if (spec->numTokens[r] > most) most = spec->numTokens[r];
  return most;
}

static int64_t fc1Rows(const struct oracleCase *spec) {
  return lrmoeFc1Width(spec->activation, spec->ffn);
}

static int bindWeights(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  const void **w1 = zeroed(d->numLocal, sizeof *w1);
  const void **w2 = zeroed(d->numLocal, sizeof *w2);
  d->dw1 = zeroed(d->numLocal, sizeof *d->dw1);
  d->dw2 = zeroed(d->numLocal, sizeof *d->dw2);
  for (int i = 0; i < d->numLocal; i++) {
    w1[i] = d->oracle->experts[d->local[i]].w1;
    w2[i] = d->oracle->experts[d->local[i]].w2;
    d->dw1[i] = zeroed(fc1Rows(spec) * spec->hidden, sizeof(float));
    d->dw2[i] = zeroed(spec->hidden * spec->ffn, sizeof(float));
  }
  lrmoeLayerWeights_t weights = LRMOE_LAYER_WEIGHTS_INITIALIZER;
  weights.w1 = w1;
  weights.w2 = w2;
  weights.dw1 = d->dw1;
  weights.dw2 = d->dw2;
  lrmoeResult_t bound = lrmoeLayerBind(d->layer, &weights);
  free(w1);
  free(w2);
  RANK_OK(d->self, bound);
  return 0;
}

static int makeHandles(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  lrmoeCommConfig_t commConfig = LRMOE_COMM_CONFIG_INITIALIZER;
  RANK_OK(d->self, lrmoeCommInitRank(spec->numRanks, &d->self->id,
                                     d->self->rank, &commConfig, &d->comm));
  RANK_OK(d->self, lrmoeTopologyCreate(spec->numRanks, &d->topology));
  lrmoePlannerConfig_t planner = LRMOE_PLANNER_CONFIG_INITIALIZER;
  planner.numExperts = spec->numExperts;
  planner.retainPpm = spec->retainPpm;
  planner.homes = d->oracle->homes;
  planner.policy = spec->policy;
  if (spec->policy != lrmoePolicyFixed) planner.slots = spec->numSlots;
  RANK_OK(d->self, lrmoePlannerCreate(d->topology, &planner, &d->planner));
  d->planner->slots = spec->numSlots; /* plans with replicas: randomPlan */
  lrmoeLayerConfig_t layer = LRMOE_LAYER_CONFIG_INITIALIZER;
  layer.hidden = spec->hidden;
  layer.ffn = spec->ffn;
  layer.maxTokens = mostTokens(spec);
  layer.topk = spec->topk;
  layer.maxSteps = 2;
  layer.dtype = spec->type;
  layer.activation = spec->activation;
  layer.convention = spec->convention;
  layer.savedState = spec->savedState;
  layer.routerGrad = spec->routerGrad;
  layer.gemm = "reference";
  RANK_OK(d->self, lrmoeLayerCreate(d->comm, d->planner, &layer, &d->layer));
  RANK_OK(d->self,
          lrmoeLayerGetLocalExperts(d->layer, &d->numLocal, &d->local));
  return bindWeights(d);
}

int driverOpen(struct driver *d, const struct testRank *self,
               const struct oracleCase *spec) {
  *d = (struct driver){.self = self, .oracle = oracleMake(spec)};
  int64_t slots = slotsOf(spec, self->rank);
  int64_t count = spec->numTokens[self->rank] * spec->hidden;
  d->y = zeroed(count, sizeof(float));
  d->dx = zeroed(count, sizeof(float));
  d->dWeights = zeroed(slots, sizeof(float));
  d->kept = zeroed(slots, 1);
  d->allKept = zeroed(spec->numRanks, sizeof *d->allKept);
  for (int r = 0; r < spec->numRanks; r++)
    d->allKept[r] = zeroed(slotsOf(spec, r), 1);
  return makeHandles(d);
}

int driverForward(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  RANK_OK(d->self,
          lrmoeStepCreate(d->layer, spec->numTokens[d->self->rank],
                          data->topkIdx, data->weights, NULL, &d->step));
  const int64_t *demand = NULL;
  RANK_OK(d->self, lrmoeStepGetDemand(d->step, &demand));
  if (spec->numSlots && spec->policy == lrmoePolicyFixed)
    RANK_OK(d->self,
            randomPlan(d->planner, demand, spec->seed + (uint64_t)d->numPlans++,
                       &d->plan));
  else
    RANK_OK(d->self, lrmoePlanMake(d->planner, demand, &d->plan));
  RANK_OK(d->self, lrmoeStepPrepare(d->step, d->plan, NULL));
  RANK_OK(d->self, lrmoeDispatch(d->step, data->x, NULL));
  RANK_OK(d->self, lrmoeExpertForward(d->step, NULL));
  RANK_OK(d->self, lrmoeCombine(d->step, d->y, NULL));
  return 0;
}

/* Every rank's kept flags, through the communicator. */
static int gatherKept(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t most = mostTokens(spec) * spec->topk;
  uint8_t *all = zeroed(most * spec->numRanks, 1);
  uint8_t *mine = zeroed(most, 1);
  memcpy(mine, d->kept, (size_t)slotsOf(spec, d->self->rank));
  lrmoeResult_t result =
      lrmoeAllGather(mine, all, (size_t)most, lrmoeUint8, d->comm, NULL);
  for (int r = 0; r < spec->numRanks; r++)
    memcpy(d->allKept[r], all + r * most, (size_t)slotsOf(spec, r));
  free(all);
  free(mine);
  RANK_OK(d->self, result);
  return 0;
}

int driverBackward(struct driver *d, const lrmoeBackwardConfig_t *config,
                   int isFused) {
  const struct oracleCase *spec = &d->oracle->spec;
  const void *g = d->oracle->ranks[d->self->rank].g;
  const void *x = d->oracle->ranks[d->self->rank].x;
  for (int i = 0; i < d->numLocal && !d->isAccumulating; i++) {
    memset(d->dw1[i], 0,
           (size_t)(fc1Rows(spec) * spec->hidden) * sizeof(float));
    memset(d->dw2[i], 0, (size_t)(spec->hidden * spec->ffn) * sizeof(float));
  }
  /* Results must be written, not left: begin with what is not zero. */
  memset(d->dx, 0x55,
         (size_t)(spec->numTokens[d->self->rank] * spec->hidden) *
             lrmoeTypeBytes(spec->type));
  memset(d->dWeights, 0x55,
         (size_t)slotsOf(spec, d->self->rank) * sizeof(float));
  if (isFused) {
    RANK_OK(d->self, lrmoeSelectPackSend(d->step, x, g, config, NULL));
  } else {
    RANK_OK(d->self, lrmoeSelect(d->step, g, config, NULL));
    RANK_OK(d->self, lrmoeAllToAllCompact(d->step, x, g, NULL));
  }
  RANK_OK(d->self, lrmoeStepGetKept(d->step, d->kept));
  RANK_OK(d->self, lrmoeExpertBackward(d->step, NULL));
  RANK_OK(d->self, lrmoeReturn(d->step, d->dx, d->dWeights, NULL));
  if (!d->isAccumulating) RANK_OK(d->self, lrmoeReplicaReduce(d->layer, NULL));
  return gatherKept(d);
}

/* Keys of all ranks by pair id; slots without an expert stay 0. */
static int gatherKeys(struct driver *d, uint32_t **all) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t most = mostTokens(spec) * spec->topk;
  *all = zeroed(most * spec->numRanks, sizeof **all);
  uint32_t *mine = zeroed(most, sizeof *mine);
  for (int64_t i = 0; i < d->step->numPairs; i++)
    mine[d->step->sorted[i]] = d->step->keys[i];
  lrmoeResult_t result =
      lrmoeAllGather(mine, *all, (size_t)most, lrmoeUint32, d->comm, NULL);
  free(mine);
  RANK_OK(d->self, result);
  return 0;
}

/* Pairs of expert e (of all experts for -1), in ascending pair id. */
static int checkOneSelection(struct driver *d, const uint32_t *all,
                             int64_t expert) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t most = mostTokens(spec) * spec->topk;
  uint32_t *keys = zeroed(most * spec->numRanks, sizeof *keys);
  uint8_t *want = zeroed(most * spec->numRanks, 1);
  uint8_t *got = zeroed(most * spec->numRanks, 1);
  int64_t numPairs = 0;
  for (int r = 0; r < spec->numRanks; r++) {
    for (int64_t p = 0; p < slotsOf(spec, r); p++) {
      int64_t e = d->oracle->ranks[r].topkIdx[p];
      if (e < 0 || (expert >= 0 && e != expert)) continue;
      keys[numPairs] = all[r * most + p];
      got[numPairs++] = d->allKept[r][p];
    }
  }
  int64_t quota = expert >= 0 ? d->plan->quotas[expert] : d->plan->kept;
  oracleSelect(numPairs, keys, quota, want);
  int differs = numPairs && memcmp(want, got, (size_t)numPairs) != 0;
  free(keys);
  free(want);
  free(got);
  RANK_TRUE(d->self, !differs);
  return 0;
}

/* Every instance selects among a stretch of its expert's pairs. */
static int checkInstances(struct driver *d, const uint32_t *all, int32_t e) {
  const struct oracleCase *spec = &d->oracle->spec;
  const struct lrmoePlan *plan = d->plan;
  int64_t most = mostTokens(spec) * spec->topk;
  uint32_t *keys = zeroed(most * spec->numRanks, sizeof *keys);
  uint8_t *want = zeroed(most * spec->numRanks, 1);
  uint8_t *got = zeroed(most * spec->numRanks, 1);
  int64_t numPairs = 0;
  for (int r = 0; r < spec->numRanks; r++)
    for (int64_t p = 0; p < slotsOf(spec, r); p++)
      if (d->oracle->ranks[r].topkIdx[p] == e) {
        keys[numPairs] = all[r * most + p];
        got[numPairs++] = d->allKept[r][p];
      }
  int64_t first = 0;
  for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
       i++) {
    oracleSelect(plan->forwardPairs[i], keys + first, plan->keptPairs[i],
                 want + first);
    first += plan->forwardPairs[i];
  }
  int differs = numPairs && memcmp(want, got, (size_t)numPairs) != 0;
  free(keys);
  free(want);
  free(got);
  RANK_TRUE(d->self, !differs);
  return 0;
}

/* Each instance executes its share exactly, and no more pairs moved to it than
 * the plan charges for the worst case. */
static int checkShares(struct driver *d) {
  const struct lrmoeStep *step = d->step;
  const struct lrmoePlan *plan = d->plan;
  if (!lrmoeStepMayMove(step) || step->layer->savedState != lrmoeSavedFull)
    return 0;
  for (int32_t j = 0; j < step->numInstances; j++) {
    int32_t i = step->instances[j];
    int32_t e = lrmoeStepExpert(step, j);
    int64_t kept = plan->keptPairs[i];
    int64_t moved = step->handoff.offsets[j + 1] - step->handoff.offsets[j] -
                    step->handoff.stayed[j];
    int64_t numPairs = 0;
    for (int32_t k = plan->instanceOffsets[e]; k < plan->instanceOffsets[e + 1];
         k++)
      numPairs += plan->forwardPairs[k];
    int64_t sure = plan->quotas[e] - (numPairs - plan->forwardPairs[i]);
    int64_t bound = kept - (sure > 0 ? sure : 0);
    RANK_TRUE(d->self,
              step->handoff.offsets[j + 1] - step->handoff.offsets[j] == kept);
    RANK_TRUE(d->self, moved <= (bound > 0 ? bound : 0));
  }
  return 0;
}

/* The keys are those of the scores, but for rounding of phi. */
static int checkScores(struct driver *d) {
  const struct lrmoeStep *step = d->step;
  if (step->config.metric == lrmoeMetricRandom) return 0;
  double tolerance = d->oracle->spec.type == lrmoeFloat32 ? 1e-4 : 0.05;
  struct oracle *oracle = d->oracle;
  oracle->spec.backward = step->config;
  for (int64_t i = 0; i < step->numPairs; i++) {
    double want = oracleScore(oracle, d->self->rank, step->sorted[i]);
    if (!isfinite(want)) {
      RANK_TRUE(d->self, step->keys[i] == LRMOE_KEY_NON_FINITE);
      continue;
    }
    float got;
    memcpy(&got, &step->keys[i], sizeof got);
    RANK_TRUE(d->self, fabs(got - want) <= tolerance * want + 1e-3);
  }
  return 0;
}

int driverCheckSelection(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  if (d->step->config.metric == lrmoeMetricAll) {
    for (int64_t p = 0; p < slotsOf(spec, d->self->rank); p++)
      RANK_TRUE(d->self, d->kept[p] ==
                             (d->oracle->ranks[d->self->rank].topkIdx[p] >= 0));
    return 0;
  }
  uint32_t *all = NULL;
  int failed = gatherKeys(d, &all);
  if (!failed && d->step->config.scope == lrmoeScopeLayer)
    failed = checkOneSelection(d, all, -1);
  for (int32_t e = 0; e < spec->numExperts && !failed &&
                      d->step->config.scope == lrmoeScopeExpert;
       e++)
    failed = checkOneSelection(d, all, e);
  for (int32_t e = 0; e < spec->numExperts && !failed &&
                      d->step->config.scope == lrmoeScopeInstance;
       e++)
    failed = checkInstances(d, all, e);
  free(all);
  return failed || checkScores(d) || checkShares(d);
}

static double toleranceOf(lrmoeDataType_t type) {
  return type == lrmoeFloat32 ? 2e-5 : type == lrmoeFloat16 ? 4e-3 : 3e-2;
}

/* |got - want| within the tolerance of the largest value; what is not finite
 * must not be finite on both sides. */
static int compare(struct driver *d, const char *what, int64_t count,
                   const float *got, const double *want) {
  double most = 1e-3;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(want[i]) && fabs(want[i]) > most) most = fabs(want[i]);
  double limit = most * toleranceOf(d->oracle->spec.type);
  for (int64_t i = 0; i < count; i++) {
    int isFine =
        isfinite(want[i]) ? fabs(got[i] - want[i]) <= limit : !isfinite(got[i]);
    if (isFine) continue;
    fprintf(stderr, "seed %llu, rank %d: %s[%lld] is %g, %g expected\n",
            (unsigned long long)d->oracle->spec.seed, d->self->rank, what,
            (long long)i, (double)got[i], want[i]);
    return 1;
  }
  return 0;
}

static int compareRows(struct driver *d, const char *what, const void *rows,
                       const double *want) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t count = spec->numTokens[d->self->rank] * spec->hidden;
  float *got = zeroed(count, sizeof *got);
  const struct lrmoeRows all = {rows, NULL, spec->type, count};
  if (count) d->layer->experts.kernels->gather(&all, 1, lrmoeFloat32, got);
  int failed = compare(d, what, count, got, want);
  free(got);
  return failed;
}

/* Exact zeros where nothing was kept; NaN where an overflow was dropped. */
static void expectDropped(struct driver *d, struct oracleResult *want) {
  const struct lrmoeStep *step = d->step;
  if (step->config.metric == lrmoeMetricAll) return;
  for (int64_t i = 0; i < step->numPairs; i++) {
    int64_t pair = step->sorted[i];
    if (step->keys[i] != LRMOE_KEY_NON_FINITE || d->kept[pair]) continue;
    for (int64_t h = 0; h < d->oracle->spec.hidden; h++)
      want->dx[step->sortedTokens[i] * d->oracle->spec.hidden + h] = NAN;
  }
}

static int checkZeros(struct driver *d, const struct oracleResult *want) {
  const struct oracleCase *spec = &d->oracle->spec;
  size_t rowBytes = (size_t)spec->hidden * lrmoeTypeBytes(spec->type);
  unsigned char *zero = zeroed((int64_t)rowBytes, 1);
  int failed = 0;
  for (int64_t t = 0; t < spec->numTokens[d->self->rank] && !failed; t++) {
    int numKept = 0;
    for (int32_t slot = 0; slot < spec->topk; slot++) {
      int64_t pair = t * spec->topk + slot;
      numKept += d->kept[pair];
      if (!d->kept[pair] && d->dWeights[pair] != 0 &&
          spec->routerGrad == lrmoeRouterGradKept)
        failed = 1;
    }
    const char *row = (const char *)d->dx + (size_t)t * rowBytes;
    if (!numKept && isfinite(want->dx[t * spec->hidden]) &&
        memcmp(row, zero, rowBytes))
      failed = 1;
  }
  free(zero);
  RANK_TRUE(d->self, !failed);
  return 0;
}

int driverCheckResults(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  struct oracleResult *want =
      oracleCompute(d->oracle, d->self->rank, d->allKept);
  expectDropped(d, want);
  int failed = compareRows(d, "y", d->y, want->y) ||
               compareRows(d, "dx", d->dx, want->dx) ||
               compare(d, "dWeights", slotsOf(spec, d->self->rank), d->dWeights,
                       want->dWeights) ||
               checkZeros(d, want);
  for (int i = 0; i < d->numLocal && !failed; i++)
    failed = compare(d, "dw1", fc1Rows(spec) * spec->hidden, d->dw1[i],
                     want->dw1[d->local[i]]) ||
             compare(d, "dw2", spec->hidden * spec->ffn, d->dw2[i],
                     want->dw2[d->local[i]]);
  oracleResultFree(d->oracle, want);
  return failed;
}

void driverClose(struct driver *d) {
  lrmoeStepDestroy(d->step);
  lrmoePlanDestroy(d->plan);
  lrmoeLayerDestroy(d->layer);
  lrmoePlannerDestroy(d->planner);
  lrmoeTopologyDestroy(d->topology);
  lrmoeCommDestroy(d->comm);
  for (int i = 0; i < d->numLocal && d->dw1; i++) {
    free(d->dw1[i]);
    free(d->dw2[i]);
  }
  for (int r = 0; r < d->oracle->spec.numRanks; r++)
    free(d->allKept[r]);
  free(d->allKept);
  free(d->dw1);
  free(d->dw2);
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
