/* One MoE block: see moe.h. */
#include "perf/train/moe.h"

#include "tools/common/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Team ---------------------------------------------------------------- */

enum toolExit trainTeamOpen(const struct toolRank *self,
                            const struct trainConfig *config,
                            struct trainTeam *team) {
  team->self = self;
  team->config = config;
  int64_t windows = (config->batch + self->numRanks - 1) / self->numRanks;
  team->maxTokens = windows * config->shape.context;
  TOOL_RANK_OK(self, lrmoeCommInitRank(self->numRanks, &self->id, self->rank,
                                       NULL, &team->comm));
  TOOL_RANK_OK(self, lrmoeTopologyCreate(self->numRanks, &team->topology));
  lrmoePlannerConfig_t planner = LRMOE_PLANNER_CONFIG_INITIALIZER;
  planner.numExperts = (int32_t)config->shape.numExperts;
  planner.retainPpm = llround(config->retain * 1e6);
  planner.policy = config->policy;
  planner.quota = config->quota;
  planner.slots = (int32_t)config->numSlots;
  planner.routerGrad = config->routerGrad;
  TOOL_RANK_OK(self,
               lrmoePlannerCreate(team->topology, &planner, &team->planner));
  return toolGood;
}

void trainTeamClose(struct trainTeam *team) {
  lrmoePlannerDestroy(team->planner);
  lrmoeTopologyDestroy(team->topology);
  lrmoeCommDestroy(team->comm);
  *team = (struct trainTeam){0};
}

/* ---- A block ------------------------------------------------------------- */

int64_t trainExpertCount(const struct trainShape *shape, int tensor) {
  return (tensor ? 1 : 2) * shape->ffn * shape->dim;
}

static void placeParts(struct trainMoe *moe) {
  const struct trainShape *shape = &moe->team->config->shape;
  int64_t count1 = trainExpertCount(shape, 0);
  int64_t count = count1 + trainExpertCount(shape, 1);
  int64_t numLocal = moe->numLocal;
  moe->weights = trainRoom(numLocal * count, sizeof(float));
  moe->gradients = trainRoom(numLocal * count, sizeof(float));
  moe->parts = trainRoom(4 * numLocal, sizeof *moe->parts);
  for (int64_t i = 0; i < numLocal; i++) {
    moe->parts[i] = moe->weights + i * count;
    moe->parts[numLocal + i] = moe->weights + i * count + count1;
    moe->parts[2 * numLocal + i] = moe->gradients + i * count;
    moe->parts[3 * numLocal + i] = moe->gradients + i * count + count1;
  }
}

enum toolExit trainMoeOpen(const struct trainTeam *team, struct trainMoe *moe) {
  const struct trainConfig *config = team->config;
  const struct trainShape *shape = &config->shape;
  moe->team = team;
  lrmoeLayerConfig_t layer = LRMOE_LAYER_CONFIG_INITIALIZER;
  layer.hidden = shape->dim;
  layer.ffn = shape->ffn;
  layer.maxTokens = team->maxTokens;
  layer.topk = (int32_t)shape->topk;
  layer.dtype = lrmoeFloat32;
  layer.routerGrad = config->routerGrad;
  layer.gemm = config->gemm;
  TOOL_RANK_OK(team->self, lrmoeLayerCreate(team->comm, team->planner, &layer,
                                            &moe->layer));
  TOOL_RANK_OK(team->self, lrmoeLayerGetLocalExperts(moe->layer, &moe->numLocal,
                                                     &moe->local));
  placeParts(moe);
  moe->demand =
      trainRoom(team->self->numRanks * shape->numExperts, sizeof *moe->demand);
  moe->past = trainRoom(shape->numExperts, sizeof *moe->past);
  trainCostOpen(team->self->numRanks, &moe->cost);
  float **parts = moe->parts;
  lrmoeLayerWeights_t weights = LRMOE_LAYER_WEIGHTS_INITIALIZER;
  weights.w1 = (const void *const *)parts;
  weights.w2 = (const void *const *)(parts + moe->numLocal);
  weights.dw1 = parts + (ptrdiff_t)2 * moe->numLocal;
  weights.dw2 = parts + (ptrdiff_t)3 * moe->numLocal;
  TOOL_RANK_OK(team->self, lrmoeLayerBind(moe->layer, &weights));
  return toolGood;
}

void trainMoeClose(struct trainMoe *moe) {
  trainMoeEnd(moe);
  lrmoeLayerDestroy(moe->layer);
  free(moe->weights);
  free(moe->gradients);
  free(moe->parts);
  free(moe->demand);
  free(moe->past);
  trainCostFree(&moe->cost);
  *moe = (struct trainMoe){0};
}

/* ---- Forward ------------------------------------------------------------- */

static enum toolExit plan(struct trainMoe *moe) {
  const struct trainTeam *team = moe->team;
  const struct trainShape *shape = &team->config->shape;
  const int64_t *demand = NULL;
  int64_t known = 0;
  TOOL_RANK_OK(team->self, lrmoeStepGetDemand(moe->step, &demand));
  memcpy(moe->demand, demand,
         (size_t)(team->self->numRanks * shape->numExperts) *
             sizeof *moe->demand);
  for (int64_t e = 0; e < shape->numExperts; e++)
    known += moe->past[e];
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  if (team->config->placesByPast && known) input.loads = moe->past;
  TOOL_RANK_OK(team->self,
               lrmoePlanMakeWith(team->planner, demand, &input, &moe->plan));
  return toolGood;
}

enum toolExit trainMoeForward(struct trainMoe *moe,
                              const struct trainRouting *routing,
                              const float *x, float *y) {
  const struct toolRank *self = moe->team->self;
  struct trainMoeCost *cost = &moe->cost;
  trainCostClear(self->numRanks, cost);
  int64_t start = toolCpuNs();
  TOOL_RANK_OK(self,
               lrmoeStepCreate(moe->layer, routing->numTokens, routing->experts,
                               routing->weights, NULL, &moe->step));
  enum toolExit code = plan(moe);
  if (code) return code;
  TOOL_RANK_OK(self, lrmoeStepPrepare(moe->step, moe->plan, NULL));
  trainCostLap(cost, trainPhasePrepare, &start);
  TOOL_RANK_OK(self, lrmoeDispatch(moe->step, x, NULL));
  trainCostLap(cost, trainPhaseDispatch, &start);
  TOOL_RANK_OK(self, lrmoeExpertForward(moe->step, NULL));
  trainCostLap(cost, trainPhaseCompute, &start);
  TOOL_RANK_OK(self, lrmoeCombine(moe->step, y, NULL));
  trainCostLap(cost, trainPhaseCombine, &start);
  return trainCostRoute(moe, routing);
}

int64_t trainMoeLoad(const struct trainMoe *moe, int64_t expert) {
  int64_t load = 0;
  for (int rank = 0; rank < moe->team->self->numRanks; rank++)
    load += moe->demand[rank * moe->team->config->shape.numExperts + expert];
  return load;
}

void trainMoeEnd(struct trainMoe *moe) {
  lrmoeStepDestroy(moe->step);
  lrmoePlanDestroy(moe->plan);
  moe->step = NULL;
  moe->plan = NULL;
}

/* ---- Backward ------------------------------------------------------------ */

static enum toolExit runBackward(struct trainMoe *moe, uint64_t seed,
                                 const struct trainMoeRows *rows) {
  const struct toolRank *self = moe->team->self;
  lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
  config.metric =
      moe->team->keepsAll ? lrmoeMetricAll : moe->team->config->metric;
  config.scope = moe->team->config->scope;
  config.seed = seed;
  int64_t start = toolCpuNs();
  TOOL_RANK_OK(
      self, lrmoeSelectPackSend(moe->step, rows->x, rows->dy, &config, NULL));
  trainCostLap(&moe->cost, trainPhaseBackDispatch, &start);
  TOOL_RANK_OK(self, lrmoeExpertBackward(moe->step, NULL));
  trainCostLap(&moe->cost, trainPhaseBackCompute, &start);
  TOOL_RANK_OK(self, lrmoeReturn(moe->step, rows->dx, rows->dweights, NULL));
  trainCostLap(&moe->cost, trainPhaseBackCombine, &start);
  return toolGood;
}

static double ratio(int64_t over, int64_t under) {
  return under ? (double)over / (double)under : 1;
}

static enum toolExit count(struct trainMoe *moe,
                           struct trainMoeFigures *figures) {
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  TOOL_RANK_OK(moe->team->self, lrmoeStepGetStats(moe->step, &stats));
  figures->pairs += stats.pairs;
  figures->kept += stats.kept;
  figures->executed += stats.executed;
  figures->executedKept += stats.executedKept;
  figures->moved += stats.movedIn;
  figures->bytes += stats.selectBytes + stats.rowBytes + stats.returnBytes;
  moe->cost.selectBytes = stats.selectBytes;
  moe->cost.rowBytes = stats.rowBytes;
  moe->cost.returnBytes = stats.returnBytes;
  moe->cost.movedIn = stats.movedIn;
  figures->selectNs += stats.selectNs;
  figures->sendNs += stats.sendNs;
  figures->gemmNs += stats.gemmNs;
  figures->returnNs += stats.returnNs;
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  TOOL_RANK_OK(moe->team->self, lrmoePlanGetView(moe->plan, &view));
  figures->numBlocks++;
  figures->imbalance += ratio(view.peakKept * view.numRanks, view.kept);
  figures->forwardImbalance +=
      ratio(view.peakForward * view.numRanks, view.pairs);
  return toolGood;
}

enum toolExit trainMoeBackward(struct trainMoe *moe, uint64_t seed,
                               const struct trainMoeRows *rows,
                               struct trainMoeFigures *figures) {
  int64_t cpu = toolCpuNs();
  int64_t wall = toolWallNs();
  enum toolExit code = runBackward(moe, seed, rows);
  figures->cpuNs += toolCpuNs() - cpu;
  figures->wallNs += toolWallNs() - wall;
  for (int64_t e = 0; e < moe->team->config->shape.numExperts; e++)
    moe->past[e] = trainMoeLoad(moe, e);
  return code == toolGood ? count(moe, figures) : code;
}

enum toolExit trainMoeReduce(struct trainMoe *moe) {
  int64_t start = toolCpuNs();
  TOOL_RANK_OK(moe->team->self, lrmoeReplicaReduce(moe->layer, NULL));
  trainCostLap(&moe->cost, trainPhaseReduce, &start);
  return toolGood;
}
