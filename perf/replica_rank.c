/* replica_perf: one rank. */
#include "perf/replica.h"
#include "tools/common/stats.h"
#include "tools/common/tensor.h"
#include "tools/common/verify.h"

#include <math.h>
#include <stdlib.h>

struct rank {
  const struct toolRank *self;
  const struct replicaOptions *options;
  lrmoeComm_t comm;
  lrmoeTopology_t topology;
  lrmoePlanner_t planner;
  lrmoeLayer_t layer;
  lrmoeStep_t steps[replicaNumSteps];
  lrmoePlan_t plans[replicaNumSteps];
  char *rows; /* x, g, y, dx: [T, H] each */
  char *weights;
  float *gradients;
};

static int64_t rowBytes(const struct rank *r) {
  return r->options->hidden * (int64_t)toolTypeBytes(r->options->type);
}

static char *rowsOf(const struct rank *r, int which) {
  return r->rows + which * r->options->numTokens * rowBytes(r);
}

/* One block of weights, and one of gradients, serve all experts: only their
 * size counts here. */
static enum toolExit bind(struct rank *r) {
  int numLocal = 0;
  const int32_t *local = NULL;
  int64_t count = 3 * r->options->ffn * r->options->hidden;
  TOOL_RANK_OK(r->self, lrmoeLayerGetLocalExperts(r->layer, &numLocal, &local));
  r->weights = toolRankRoom(count, toolTypeBytes(r->options->type));
  r->gradients = toolRankRoom(count, sizeof(float));
  const void **w = toolRankRoom(numLocal, 2 * sizeof *w);
  float **dw = toolRankRoom(numLocal, 2 * sizeof *dw);
  for (int i = 0; i < numLocal; i++) {
    w[i] = r->weights;
    w[numLocal + i] = r->weights + 2 * r->options->ffn * rowBytes(r);
    dw[i] = r->gradients;
    dw[numLocal + i] = r->gradients + 2 * r->options->ffn * r->options->hidden;
  }
  lrmoeLayerWeights_t weights = LRMOE_LAYER_WEIGHTS_INITIALIZER;
  weights.w1 = w;
  weights.w2 = w + numLocal;
  weights.dw1 = dw;
  weights.dw2 = dw + numLocal;
  lrmoeResult_t result = lrmoeLayerBind(r->layer, &weights);
  free(w);
  free(dw);
  TOOL_RANK_OK(r->self, result);
  return toolGood;
}

static lrmoePlannerConfig_t plannerOf(const struct replicaOptions *o) {
  lrmoePlannerConfig_t planner = LRMOE_PLANNER_CONFIG_INITIALIZER;
  planner.numExperts = (int32_t)o->numExperts;
  planner.retainPpm = llround(o->retain * 1e6);
  planner.policy = lrmoePolicyLrmoe;
  planner.slots = (int32_t)o->numSlots;
  return planner;
}

static enum toolExit makeHandles(struct rank *r) {
  int numRanks = r->self->numRanks;
  TOOL_RANK_OK(r->self, lrmoeCommInitRank(numRanks, &r->self->id, r->self->rank,
                                          NULL, &r->comm));
  TOOL_RANK_OK(r->self, lrmoeTopologyCreate(numRanks, &r->topology));
  const lrmoePlannerConfig_t planner = plannerOf(r->options);
  TOOL_RANK_OK(r->self, lrmoePlannerCreate(r->topology, &planner, &r->planner));
  lrmoeLayerConfig_t layer = LRMOE_LAYER_CONFIG_INITIALIZER;
  layer.hidden = r->options->hidden;
  layer.ffn = r->options->ffn;
  layer.maxTokens = r->options->numTokens;
  layer.topk = (int32_t)r->options->topk;
  layer.maxSteps = replicaNumSteps;
  layer.dtype = r->options->type;
  TOOL_RANK_OK(r->self,
               lrmoeLayerCreate(r->comm, r->planner, &layer, &r->layer));
  return bind(r);
}

static enum toolExit makeStep(struct rank *r, const struct toolWorkload *load,
                              int i) {
  int64_t slots = r->options->numTokens * r->options->topk;
  int64_t *idx = toolRankRoom(slots, sizeof *idx);
  float *weights = toolRankRoom(slots, sizeof *weights);
  const int64_t *demand = NULL;
  toolWorkloadRoute(load, r->self->rank, 0, r->options->numTokens, idx,
                    weights);
  lrmoeResult_t result = lrmoeStepCreate(r->layer, r->options->numTokens, idx,
                                         weights, NULL, &r->steps[i]);
  free(idx);
  free(weights);
  TOOL_RANK_OK(r->self, result);
  TOOL_RANK_OK(r->self, lrmoeStepGetDemand(r->steps[i], &demand));
  TOOL_RANK_OK(r->self, lrmoePlanMake(r->planner, demand, &r->plans[i]));
  const lrmoePlannerConfig_t planner = plannerOf(r->options);
  const struct toolPlanOrigin origin = {&planner, demand, r->self->numRanks, 0};
  return toolRankVerify(r->self, r->plans[i], &origin);
}

static enum toolExit barrier(struct rank *r) {
  int32_t one = 1;
  TOOL_RANK_OK(r->self, lrmoeAllReduce(&one, &one, 1, lrmoeInt32, lrmoeSum,
                                       r->comm, NULL));
  return toolGood;
}

/* Prepares a step and says how long it took. */
static enum toolExit timePrepare(struct rank *r, int i, double *ms) {
  enum toolExit code = barrier(r);
  int64_t start = toolWallNs();
  TOOL_RANK_OK(r->self, lrmoeStepPrepare(r->steps[i], r->plans[i], NULL));
  *ms += (double)(toolWallNs() - start) * 1e-6;
  return code;
}

static enum toolExit forward(struct rank *r, int i) {
  TOOL_RANK_OK(r->self, lrmoeDispatch(r->steps[i], rowsOf(r, 0), NULL));
  TOOL_RANK_OK(r->self, lrmoeExpertForward(r->steps[i], NULL));
  TOOL_RANK_OK(r->self, lrmoeCombine(r->steps[i], rowsOf(r, 2), NULL));
  return toolGood;
}

static enum toolExit timeBackward(struct rank *r, lrmoeScope_t scope,
                                  double *ms) {
  lrmoeStep_t step = r->steps[0];
  lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
  config.scope = scope;
  enum toolExit code = barrier(r);
  int64_t start = toolCpuNs();
  TOOL_RANK_OK(r->self, lrmoeSelectPackSend(step, rowsOf(r, 0), rowsOf(r, 1),
                                            &config, NULL));
  TOOL_RANK_OK(r->self, lrmoeExpertBackward(step, NULL));
  TOOL_RANK_OK(r->self, lrmoeReturn(step, rowsOf(r, 3), NULL, NULL));
  *ms = (double)(toolCpuNs() - start) * 1e-6;
  return code;
}

static void freeSteps(struct rank *r) {
  for (int i = 0; i < replicaNumSteps; i++) {
    lrmoeStepDestroy(r->steps[i]);
    lrmoePlanDestroy(r->plans[i]);
    r->steps[i] = NULL;
    r->plans[i] = NULL;
  }
}

/* A step that is prepared cannot be prepared anew once its forward has run, so
 * each round has steps of its own. */
static enum toolExit runRound(struct rank *r, const struct replicaRun *run,
                              int64_t round, struct replicaResult *result) {
  enum toolExit code = toolGood;
  for (int i = 0; i < replicaNumSteps && code == toolGood; i++) {
    code = makeStep(r, &run->loads[i], i);
    if (code == toolGood) code = timePrepare(r, i, &result->comeMs[round]);
    if (code == toolGood) code = timePrepare(r, i, &result->standMs[round]);
    if (code == toolGood) code = forward(r, i);
    if (code != toolGood) return code;
    lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
    TOOL_RANK_OK(r->self, lrmoePlanGetView(r->plans[i], &view));
    result->numReplicas += view.numReplicas;
  }
  code = timeBackward(r, lrmoeScopeExpert, &result->moveMs[round]);
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  TOOL_RANK_OK(r->self, lrmoeStepGetStats(r->steps[0], &stats));
  result->numMoved += stats.movedIn;
  if (code == toolGood) code = barrier(r);
  int64_t start = toolWallNs();
  TOOL_RANK_OK(r->self, lrmoeReplicaReduce(r->layer, NULL));
  result->reduceMs[round] = (double)(toolWallNs() - start) * 1e-6;
  if (code == toolGood)
    code = timeBackward(r, lrmoeScopeInstance, &result->stayMs[round]);
  TOOL_RANK_OK(r->self, lrmoeReplicaReduce(r->layer, NULL));
  freeSteps(r);
  return code;
}

enum toolExit replicaRankMain(const struct toolRank *self) {
  struct replicaRun *run = self->user;
  struct rank rank = {.self = self, .options = &run->options};
  struct rank *r = &rank;
  int64_t count = 4 * r->options->numTokens * r->options->hidden;
  r->rows = toolRankRoom(count, toolTypeBytes(r->options->type));
  struct toolRandom random =
      toolRandomMake((uint64_t)r->options->seed, (uint64_t)self->rank);
  toolTensorRandom(r->options->type, count, 1, &random, r->rows);
  enum toolExit code = makeHandles(r);
  for (int64_t i = 0; i < r->options->numRounds && code == toolGood; i++)
    code = runRound(r, run, i, &run->results[self->rank]);
  freeSteps(r);
  lrmoeLayerDestroy(r->layer);
  lrmoePlannerDestroy(r->planner);
  lrmoeTopologyDestroy(r->topology);
  lrmoeCommDestroy(r->comm);
  free(r->rows);
  free(r->weights);
  free(r->gradients);
  return code;
}
