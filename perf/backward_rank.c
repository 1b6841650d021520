/* moe_backward_perf: one rank. */
#include "perf/backward.h"
#include "tools/common/stats.h"
#include "tools/common/tensor.h"
#include "tools/common/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t backwardFc1Rows(const struct backwardOptions *options) {
  return options->activation == lrmoeSwiglu ? 2 * options->ffn : options->ffn;
}

void backwardMakeWeights(const struct backwardOptions *options, int32_t expert,
                         void *w1, void *w2) {
  struct toolRandom random =
      toolRandomMake(options->seed, 1000000 + (uint64_t)expert);
  toolTensorRandom(options->type, backwardFc1Rows(options) * options->hidden,
                   1 / sqrt((double)options->hidden), &random, w1);
  toolTensorRandom(options->type, options->hidden * options->ffn,
                   1 / sqrt((double)options->ffn), &random, w2);
}

static enum toolExit makeData(struct backwardRank *r,
                              const struct toolWorkload *load) {
  const struct backwardOptions *o = r->options;
  int64_t slots = o->numTokens * o->topk;
  int64_t count = o->numTokens * o->hidden;
  int64_t rows = count * (int64_t)toolTypeBytes(o->type);
  const struct {
    struct toolMirror *mirror;
    int64_t bytes;
  } wanted[] = {{&r->topkIdx, slots * (int64_t)sizeof(int64_t)},
                {&r->weights, slots * (int64_t)sizeof(float)},
                {&r->dWeights, slots * (int64_t)sizeof(float)},
                {&r->x, rows},
                {&r->g, rows},
                {&r->y, rows},
                {&r->dx, rows},
                {&r->word, sizeof(int32_t)}};
  enum toolExit code = toolGood;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted && code == toolGood;
       i++)
    code = toolMirrorMake(r->self, wanted[i].bytes, wanted[i].mirror);
  if (code != toolGood) return code;
  r->kept = toolRankRoom(slots, 1);
  toolWorkloadRoute(load, r->self->rank, 0, o->numTokens, r->topkIdx.host,
                    r->weights.host);
  struct toolRandom random = toolRandomMake(o->seed, (uint64_t)r->self->rank);
  toolTensorRandom(o->type, count, 1, &random, r->x.host);
  toolTensorRandom(o->type, count, 1, &random, r->g.host);
  const struct toolMirror *const filled[] = {&r->topkIdx, &r->weights, &r->x,
                                             &r->g, NULL};
  for (int i = 0; filled[i]; i++)
    TOOL_RANK_OK(r->self, toolMirrorPush(filled[i]));
  return toolGood;
}

/* The tensors of local expert i. */
static enum toolExit makeExpert(struct backwardRank *r, int i) {
  const struct backwardOptions *o = r->options;
  const int64_t bytes = (int64_t)toolTypeBytes(o->type);
  const int64_t size1 = backwardFc1Rows(o) * o->hidden;
  const int64_t size2 = o->hidden * o->ffn;
  const int64_t sizes[numTensors] = {[tensorW1] = size1 * bytes,
                                     [tensorW2] = size2 * bytes,
                                     [tensorDw1] = size1 * 4,
                                     [tensorDw2] = size2 * 4};
  struct toolMirror *tensors = r->tensors + (size_t)i * numTensors;
  enum toolExit code = toolGood;
  for (int t = 0; t < numTensors && code == toolGood; t++)
    code = toolMirrorMake(r->self, sizes[t], &tensors[t]);
  if (code != toolGood) return code;
  backwardMakeWeights(o, r->local[i], tensors[tensorW1].host,
                      tensors[tensorW2].host);
  TOOL_RANK_OK(r->self, toolMirrorPush(&tensors[tensorW1]));
  TOOL_RANK_OK(r->self, toolMirrorPush(&tensors[tensorW2]));
  return toolGood;
}

static enum toolExit bindWeights(struct backwardRank *r) {
  const void **lists = toolRankRoom(r->numLocal, numTensors * sizeof *lists);
  enum toolExit code = toolGood;
  r->tensors = toolRankRoom(r->numLocal, numTensors * sizeof *r->tensors);
  for (int i = 0; i < r->numLocal && code == toolGood; i++)
    code = makeExpert(r, i);
  for (int i = 0; i < r->numLocal; i++)
    for (int t = 0; t < numTensors; t++)
      lists[t * r->numLocal + i] = r->tensors[i * numTensors + t].memory;
  lrmoeLayerWeights_t weights = LRMOE_LAYER_WEIGHTS_INITIALIZER;
  weights.w1 = lists + (ptrdiff_t)tensorW1 * r->numLocal;
  weights.w2 = lists + (ptrdiff_t)tensorW2 * r->numLocal;
  weights.dw1 = (float **)(lists + (ptrdiff_t)tensorDw1 * r->numLocal);
  weights.dw2 = (float **)(lists + (ptrdiff_t)tensorDw2 * r->numLocal);
  lrmoeResult_t result =
      code == toolGood ? lrmoeLayerBind(r->layer, &weights) : lrmoeSuccess;
  free(lists);
  TOOL_RANK_OK(r->self, result);
  return code;
}

static lrmoePlannerConfig_t plannerOf(const struct backwardOptions *o, int i) {
  lrmoePlannerConfig_t planner = LRMOE_PLANNER_CONFIG_INITIALIZER;
  planner.numExperts = (int32_t)o->numExperts;
  planner.retainPpm = i == planAsked ? llround(o->retain * 1e6) : 1000000;
  planner.policy = i == planPlain ? lrmoePolicyFixed : o->policy;
  planner.slots = i == planPlain ? 0 : (int32_t)o->numSlots;
  return planner;
}

static enum toolExit makeHandles(struct backwardRank *r) {
  const struct backwardOptions *o = r->options;
  TOOL_RANK_OK(r->self, lrmoeCommInitRank(r->self->numRanks, &r->self->id,
                                          r->self->rank, NULL, &r->comm));
  TOOL_RANK_OK(r->self, lrmoeTopologyCreate(r->self->numRanks, &r->topology));
  for (int i = 0; i < numPlans; i++) {
    lrmoePlannerConfig_t planner = plannerOf(o, i);
    TOOL_RANK_OK(r->self,
                 lrmoePlannerCreate(r->topology, &planner, &r->planners[i]));
  }
  lrmoeLayerConfig_t layer = LRMOE_LAYER_CONFIG_INITIALIZER;
  layer.hidden = o->hidden;
  layer.ffn = o->ffn;
  layer.maxTokens = o->numTokens;
  layer.topk = (int32_t)o->topk;
  layer.maxSteps = numPlans;
  layer.dtype = o->type;
  layer.activation = o->activation;
  layer.savedState = o->savedState;
  layer.gemm = o->gemm;
  layer.overlapsReturn = o->isOverlapped;
  layer.packsX = o->isXPacked;
  TOOL_RANK_OK(r->self, lrmoeLayerCreate(r->comm, r->planners[planAsked],
                                         &layer, &r->layer));
  TOOL_RANK_OK(r->self,
               lrmoeLayerGetLocalExperts(r->layer, &r->numLocal, &r->local));
  return bindWeights(r);
}

static enum toolExit runForward(struct backwardRank *r, int i) {
  TOOL_RANK_OK(r->self, lrmoeDispatch(r->steps[i], r->x.memory, NULL));
  TOOL_RANK_OK(r->self, lrmoeExpertForward(r->steps[i], NULL));
  TOOL_RANK_OK(r->self, lrmoeCombine(r->steps[i], r->y.memory, NULL));
  return toolGood;
}

static enum toolExit makePlan(struct backwardRank *r, int i) {
  const lrmoePlannerConfig_t config = plannerOf(r->options, i);
  const int64_t *demand = NULL;
  TOOL_RANK_OK(r->self, lrmoeStepGetDemand(r->steps[i], &demand));
  TOOL_RANK_OK(r->self, lrmoePlanMake(r->planners[i], demand, &r->plans[i]));
  const struct toolPlanOrigin origin = {&config, demand, r->self->numRanks, 0};
  return toolRankVerify(r->self, r->plans[i], &origin);
}

/* The steps: the same routing, several plans. */
static enum toolExit makeSteps(struct backwardRank *r) {
  enum toolExit code = toolGood;
  for (int i = 0; i < numPlans && code == toolGood; i++) {
    TOOL_RANK_OK(r->self, lrmoeStepCreate(r->layer, r->options->numTokens,
                                          r->topkIdx.memory, r->weights.memory,
                                          NULL, &r->steps[i]));
    code = makePlan(r, i);
    if (code != toolGood) break;
    TOOL_RANK_OK(r->self, lrmoeStepPrepare(r->steps[i], r->plans[i], NULL));
    code = runForward(r, i);
  }
  return code;
}

static lrmoeBackwardConfig_t configOf(const struct backwardOptions *options,
                                      enum backwardWay way) {
  static const lrmoeWire_t wires[numWays] = {
      [wayFullPairwise] = lrmoeWirePairwise, [wayFullDedup] = lrmoeWireDedup,
      [wayMasked] = lrmoeWireMasked,         [wayPairwise] = lrmoeWirePairwise,
      [wayDedup] = lrmoeWireDedup,           [wayRho1] = lrmoeWireDedup};
  lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
  config.wire = wires[way];
  config.metric = way == wayFullPairwise || way == wayFullDedup
                      ? lrmoeMetricAll
                      : options->metric;
  config.seed = options->seed;
  return config;
}

static int planOf(enum backwardWay way) {
  if (way == wayFullPairwise || way == wayFullDedup) return planPlain;
  return way == wayRho1 ? planWhole : planAsked;
}

lrmoeResult_t backwardRunWay(struct backwardRank *r, enum backwardWay way,
                             lrmoeStepStats_t *stats) {
  lrmoeStep_t step = r->steps[planOf(way)];
  lrmoeBackwardConfig_t config = configOf(r->options, way);
  const void *x = r->x.memory;
  const void *g = r->g.memory;
  lrmoeResult_t result;
  if (r->options->isStaged) {
    result = lrmoeSelect(step, g, &config, NULL);
    if (result == lrmoeSuccess) result = lrmoeAllToAllCompact(step, x, g, NULL);
  } else {
    result = lrmoeSelectPackSend(step, x, g, &config, NULL);
  }
  if (result == lrmoeSuccess) result = lrmoeExpertBackward(step, NULL);
  if (result == lrmoeSuccess)
    result = lrmoeReturn(step, r->dx.memory, r->dWeights.memory, NULL);
  if (result == lrmoeSuccess) result = lrmoeStepGetKept(step, r->kept);
  if (result == lrmoeSuccess) result = lrmoeStepGetStats(step, stats);
  /* A device's stream is waited for. */
  return result == lrmoeSuccess ? toolMirrorPull(&r->word) : result;
}

/* What one rank has awaited, all have done. */
static lrmoeResult_t barrier(struct backwardRank *r) {
  lrmoeResult_t result = lrmoeAllReduce(r->word.memory, r->word.memory, 1,
                                        lrmoeInt32, lrmoeSum, r->comm, NULL);
  return result == lrmoeSuccess ? toolMirrorPull(&r->word) : result;
}

/* In training the backward of a step finds the replicas of its forward, mostly;
 * here the other ways' steps have taken their slots.  Forward again, not timed,
 * brings them back. */
static enum toolExit standReplicas(struct backwardRank *r,
                                   enum backwardWay way) {
  TOOL_RANK_OK(r->self, lrmoeReplicaReduce(r->layer, NULL));
  return r->options->numSlots ? runForward(r, planOf(way)) : toolGood;
}

static enum toolExit timeWay(struct backwardRank *r, enum backwardWay way,
                             int64_t round, struct backwardWayResult *out) {
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  enum toolExit code = standReplicas(r, way);
  if (code != toolGood) return code;
  TOOL_RANK_OK(r->self, barrier(r));
  int64_t cpu = toolCpuNs();
  int64_t wall = toolWallNs();
  TOOL_RANK_OK(r->self, backwardRunWay(r, way, &stats));
  int64_t cpuEnd = toolCpuNs();
  TOOL_RANK_OK(r->self, barrier(r)); /* the slowest rank counts */
  if (round < 0) return toolGood;
  out->wallMs[round] = (double)(toolWallNs() - wall) * 1e-6;
  out->cpuMs[round] = (double)(cpuEnd - cpu) * 1e-6;
  out->selectMs[round] = (double)stats.selectNs * 1e-6;
  out->sendMs[round] = (double)stats.sendNs * 1e-6;
  out->gemmMs[round] = (double)stats.gemmNs * 1e-6;
  out->returnMs[round] = (double)stats.returnNs * 1e-6;
  out->bytes = stats.selectBytes + stats.rowBytes + stats.returnBytes;
  out->workspace = stats.workspaceBytes;
  out->saved = stats.savedBytes;
  out->kept = stats.executedKept;
  out->moved = stats.movedIn;
  return toolGood;
}

/* Waits for what has been enqueued; ms since *start, which becomes now. */
static lrmoeResult_t lap(const struct backwardRank *r, int64_t *start,
                         double *ms) {
  lrmoeResult_t result = toolMirrorPull(&r->word);
  int64_t now = toolWallNs();
  *ms = (double)(now - *start) * 1e-6;
  *start = now;
  return result;
}

/* The phases of the dedup way once more, each waited for: on a device the
 * library's own times are those of enqueuing. */
static enum toolExit timePhases(struct backwardRank *r, int64_t round,
                                struct backwardWayResult *out) {
  lrmoeStep_t step = r->steps[planOf(wayDedup)];
  const lrmoeBackwardConfig_t config = configOf(r->options, wayDedup);
  enum toolExit code = standReplicas(r, wayDedup);
  if (code != toolGood) return code;
  TOOL_RANK_OK(r->self, barrier(r));
  int64_t start = toolWallNs();
  TOOL_RANK_OK(r->self, lrmoeSelect(step, r->g.memory, &config, NULL));
  TOOL_RANK_OK(r->self, lap(r, &start, &out->selectMs[round]));
  TOOL_RANK_OK(r->self,
               lrmoeAllToAllCompact(step, r->x.memory, r->g.memory, NULL));
  TOOL_RANK_OK(r->self, lap(r, &start, &out->sendMs[round]));
  TOOL_RANK_OK(r->self, lrmoeExpertBackward(step, NULL));
  TOOL_RANK_OK(r->self, lap(r, &start, &out->gemmMs[round]));
  TOOL_RANK_OK(r->self,
               lrmoeReturn(step, r->dx.memory, r->dWeights.memory, NULL));
  TOOL_RANK_OK(r->self, lap(r, &start, &out->returnMs[round]));
  return toolGood;
}

/* All ways in every round, beginning with another one each time. */
static enum toolExit timeWays(struct backwardRank *r,
                              struct backwardRankResult *result) {
  for (int64_t round = -r->options->numWarmups; round < r->options->numRounds;
       round++) {
    for (int i = 0; i < numWays; i++) {
      int64_t way = (i + (round < 0 ? -round : round)) % numWays;
      enum toolExit code =
          timeWay(r, (enum backwardWay)way, round, &result->ways[way]);
      if (code != toolGood) return code;
    }
  }
  for (int64_t i = 0; i < r->options->numRounds && r->options->isDevice; i++) {
    enum toolExit code = timePhases(r, i, &result->ways[wayDedup]);
    if (code != toolGood) return code;
  }
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  TOOL_RANK_OK(r->self, lrmoeStepGetStats(r->steps[planPlain], &stats));
  TOOL_RANK_OK(r->self, lrmoePlanGetView(r->plans[planAsked], &view));
  result->pairs = stats.executed;
  result->numReplicas = view.numReplicas;
  return toolGood;
}

static void freeRank(struct backwardRank *r) {
  for (int i = 0; i < numPlans; i++) {
    lrmoeStepDestroy(r->steps[i]);
    lrmoePlanDestroy(r->plans[i]);
  }
  lrmoeLayerDestroy(r->layer);
  for (int i = 0; i < numPlans; i++)
    lrmoePlannerDestroy(r->planners[i]);
  lrmoeTopologyDestroy(r->topology);
  lrmoeCommDestroy(r->comm);
  for (int i = 0; i < numTensors * r->numLocal && r->tensors; i++)
    toolMirrorFree(&r->tensors[i]);
  struct toolMirror *const mirrors[] = {&r->topkIdx,  &r->weights, &r->x,
                                        &r->g,        &r->y,       &r->dx,
                                        &r->dWeights, &r->word,    NULL};
  for (int i = 0; mirrors[i]; i++)
    toolMirrorFree(mirrors[i]);
  free(r->tensors);
  free(r->kept);
}

enum toolExit backwardRankMain(const struct toolRank *self) {
  struct backwardRun *run = self->user;
  struct backwardRankResult *result = &run->results[self->rank];
  struct backwardRank rank = {.self = self, .options = &run->options};
  enum toolExit code = makeData(&rank, &run->workload);
  if (code == toolGood) code = makeHandles(&rank);
  if (code == toolGood) code = makeSteps(&rank);
  if (code == toolGood) code = backwardCheck(&rank, result);
  if (code == toolGood) code = timeWays(&rank, result);
  freeRank(&rank);
  return code;
}
