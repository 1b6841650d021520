/* Benchmarks of one stage: one rank.  See stage.h. */
#include "perf/stage.h"
#include "tools/common/planning.h"
#include "tools/common/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of this rank, [T, H] each. */
enum rows {
  rowsX,
  rowsG,
  rowsY,
  rowsDx,
  rowsFirst, /* dX of the first way of a metric */
  numRows
};

struct rank {
  const struct toolRank *self;
  const struct stageRun *run;
  const struct stageOptions *options;
  lrmoeComm_t comm;
  lrmoeTopology_t topology;
  lrmoePlanner_t planner;
  lrmoeLayer_t layer;
  lrmoeStep_t step;
  lrmoePlan_t plan;
  char *rows;
  uint8_t *kept; /* [T, k] */
  int64_t *topkIdx;
  float *topkWeights;
  char *weights; /* one block serves all experts: data do not change times */
  float *gradients;
};

static int64_t rowBytes(const struct stageOptions *options) {
  return options->hidden * (int64_t)toolTypeBytes(options->type);
}

static char *rowsOf(const struct rank *r, enum rows which) {
  return r->rows +
         (int64_t)which * r->options->numTokens * rowBytes(r->options);
}

/* ---- Making -------------------------------------------------------------- */

static void makeData(struct rank *r) {
  const struct stageOptions *o = r->options;
  int64_t slots = o->numTokens * o->topk;
  int64_t count = o->numTokens * o->hidden;
  struct toolRandom random = toolRandomMake(o->seed, (uint64_t)r->self->rank);
  r->rows = toolRankRoom(numRows * o->numTokens, (size_t)rowBytes(o));
  r->kept = toolRankRoom(slots, 1);
  r->topkIdx = toolRankRoom(slots, sizeof *r->topkIdx);
  r->topkWeights = toolRankRoom(slots, sizeof *r->topkWeights);
  toolWorkloadRoute(&r->run->workload, r->self->rank, 0, o->numTokens,
                    r->topkIdx, r->topkWeights);
  toolTensorRandom(o->type, count, 1, &random, rowsOf(r, rowsX));
  toolTensorRandom(o->type, count, 1, &random, rowsOf(r, rowsG));
}

static enum toolExit bind(struct rank *r) {
  const struct stageOptions *o = r->options;
  int numLocal = 0;
  const int32_t *local = NULL;
  int64_t count = 3 * o->ffn * o->hidden;
  int64_t first2 = 2 * o->ffn * o->hidden;
  struct toolRandom random = toolRandomMake(o->seed, 1u << 30);
  TOOL_RANK_OK(r->self, lrmoeLayerGetLocalExperts(r->layer, &numLocal, &local));
  r->weights = toolRankRoom(count, toolTypeBytes(o->type));
  r->gradients = toolRankRoom(count, sizeof(float));
  toolTensorRandom(o->type, count, 1 / sqrt((double)o->hidden), &random,
                   r->weights);
  const void **w = toolRankRoom(2 * (int64_t)numLocal, sizeof *w);
  float **dw = toolRankRoom(2 * (int64_t)numLocal, sizeof *dw);
  for (int i = 0; i < numLocal; i++) {
    w[i] = r->weights;
    w[numLocal + i] = r->weights + first2 * (int64_t)toolTypeBytes(o->type);
    dw[i] = r->gradients;
    dw[numLocal + i] = r->gradients + first2;
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

static enum toolExit makeLayer(struct rank *r) {
  const struct stageOptions *o = r->options;
  int numRanks = r->self->numRanks;
  TOOL_RANK_OK(r->self, lrmoeCommInitRank(numRanks, &r->self->id, r->self->rank,
                                          NULL, &r->comm));
  TOOL_RANK_OK(r->self, toolTopologyOpen(o->topology, o->copies, numRanks,
                                         &r->topology));
  lrmoePlannerConfig_t planner = LRMOE_PLANNER_CONFIG_INITIALIZER;
  planner.numExperts = (int32_t)o->numExperts;
  planner.retainPpm = llround(o->retain * 1e6);
  planner.policy = o->policy;
  planner.slots = (int32_t)o->numSlots;
  TOOL_RANK_OK(r->self, lrmoePlannerCreate(r->topology, &planner, &r->planner));
  lrmoeLayerConfig_t layer = LRMOE_LAYER_CONFIG_INITIALIZER;
  layer.hidden = o->hidden;
  layer.ffn = o->ffn;
  layer.maxTokens = o->numTokens;
  layer.topk = (int32_t)o->topk;
  layer.dtype = o->type;
  layer.gemm = o->gemm;
  layer.forwardWire = o->forwardWire;
  TOOL_RANK_OK(r->self,
               lrmoeLayerCreate(r->comm, r->planner, &layer, &r->layer));
  return bind(r);
}

/* The step, with its forward. */
static enum toolExit makeStep(struct rank *r) {
  const int64_t *demand = NULL;
  TOOL_RANK_OK(r->self,
               lrmoeStepCreate(r->layer, r->options->numTokens, r->topkIdx,
                               r->topkWeights, NULL, &r->step));
  TOOL_RANK_OK(r->self, lrmoeStepGetDemand(r->step, &demand));
  TOOL_RANK_OK(r->self, lrmoePlanMake(r->planner, demand, &r->plan));
  TOOL_RANK_OK(r->self, lrmoeStepPrepare(r->step, r->plan, NULL));
  TOOL_RANK_OK(r->self, lrmoeDispatch(r->step, rowsOf(r, rowsX), NULL));
  TOOL_RANK_OK(r->self, lrmoeExpertForward(r->step, NULL));
  TOOL_RANK_OK(r->self, lrmoeCombine(r->step, rowsOf(r, rowsY), NULL));
  return toolGood;
}

/* ---- A backward ---------------------------------------------------------- */

static enum toolExit barrier(const struct rank *r) {
  int32_t one = 1;
  TOOL_RANK_OK(r->self, lrmoeAllReduce(&one, &one, 1, lrmoeInt32, lrmoeSum,
                                       r->comm, NULL));
  return toolGood;
}

struct lap {
  int64_t wall;
  int64_t cpu;
};

static struct lap now(void) {
  return (struct lap){.wall = toolWallNs(), .cpu = toolCpuNs()};
}

/* A barrier before each stage, so that the stages before it take nothing from
 * its time or add to it. */
static enum toolExit backward(const struct rank *r, const struct stageWay *way,
                              struct lap laps[2]) {
  lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
  enum stageKind kind = r->run->kind;
  config.metric = way->metric;
  config.wire = way->wire;
  config.seed = r->options->seed;
  const char *x = rowsOf(r, rowsX), *g = rowsOf(r, rowsG);
  enum toolExit code = barrier(r);
  if (code == toolGood && kind == stageSelect) laps[0] = now();
  TOOL_RANK_OK(r->self, lrmoeSelect(r->step, g, &config, NULL));
  if (kind == stageSelect) laps[1] = now();
  if (code == toolGood) code = barrier(r);
  if (kind == stageCompact) laps[0] = now();
  TOOL_RANK_OK(r->self, lrmoeAllToAllCompact(r->step, x, g, NULL));
  if (kind == stageCompact) laps[1] = now();
  if (code == toolGood) code = barrier(r);
  if (kind == stageExperts) laps[0] = now();
  TOOL_RANK_OK(r->self, lrmoeExpertBackward(r->step, NULL));
  if (kind == stageExperts) laps[1] = now();
  TOOL_RANK_OK(r->self, lrmoeReturn(r->step, rowsOf(r, rowsDx), NULL, NULL));
  TOOL_RANK_OK(r->self, lrmoeReplicaReduce(r->layer, NULL));
  return code;
}

/* ---- Checks -------------------------------------------------------------- */

/* Experts whose kept pairs, of all ranks, are not as many as the plan says. */
static enum toolExit checkQuotas(const struct rank *r,
                                 const struct stageWay *way,
                                 int64_t *numWrong) {
  int64_t numExperts = r->options->numExperts;
  int64_t *counts = toolRankRoom(numExperts, sizeof *counts);
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  lrmoeResult_t result = lrmoePlanGetView(r->plan, &view);
  if (result == lrmoeSuccess) result = lrmoeStepGetKept(r->step, r->kept);
  for (int64_t i = 0; i < r->options->numTokens * r->options->topk; i++)
    counts[r->topkIdx[i]] += r->kept[i];
  if (result == lrmoeSuccess)
    result = lrmoeAllReduce(counts, counts, (size_t)numExperts, lrmoeInt64,
                            lrmoeSum, r->comm, NULL);
  for (int64_t e = 0; result == lrmoeSuccess && e < numExperts; e++) {
    int isAll = way->metric == lrmoeMetricAll;
    int64_t wanted = isAll ? 0 : view.quotas[e];
    for (int32_t rank = 0; isAll && rank < view.numRanks; rank++)
      wanted += view.demand[rank * numExperts + e];
    *numWrong += counts[e] != wanted;
  }
  free(counts);
  TOOL_RANK_OK(r->self, result);
  return toolGood;
}

/* Rows of dX that are not those of the first way: sums of other order, of rows
 * rounded to the type once more. */
static int64_t countDifferent(const struct rank *r) {
  const struct stageOptions *o = r->options;
  const double allowed = o->type == lrmoeFloat32 ? 1e-5 : 2e-2;
  int64_t numDifferent = 0;
  for (int64_t t = 0; t < o->numTokens; t++) {
    double difference = 0, size = 0;
    for (int64_t i = t * o->hidden; i < (t + 1) * o->hidden; i++) {
      double a = (double)toolTensorGet(o->type, rowsOf(r, rowsDx), i);
      double b = (double)toolTensorGet(o->type, rowsOf(r, rowsFirst), i);
      difference += (a - b) * (a - b);
      size += b * b;
    }
    numDifferent += !(sqrt(difference) <= allowed * sqrt(size));
  }
  return numDifferent;
}

/* The first way with the metric of way i. */
static int firstLike(const struct stageRun *run, int i) {
  int first = 0;
  while (run->ways[first].metric != run->ways[i].metric)
    first++;
  return first;
}

static enum toolExit check(const struct rank *r, int i,
                           struct stageFigures *figures) {
  struct lap laps[2] = {{0}};
  const struct stageWay *way = &r->run->ways[i];
  int first = firstLike(r->run, i);
  enum toolExit code = backward(r, &r->run->ways[first], laps);
  size_t bytes = (size_t)(r->options->numTokens * rowBytes(r->options));
  memcpy(rowsOf(r, rowsFirst), rowsOf(r, rowsDx), bytes);
  memset(rowsOf(r, rowsDx), 0xff, bytes);
  if (code == toolGood) code = backward(r, way, laps);
  if (code == toolGood) code = checkQuotas(r, way, &figures->numWrong);
  figures->numWrong += countDifferent(r);
  return code;
}

/* ---- Rounds -------------------------------------------------------------- */

static enum toolExit timeWay(const struct rank *r, int i, int64_t round,
                             struct stageFigures *figures) {
  struct lap laps[2] = {{0}};
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  enum toolExit code = backward(r, &r->run->ways[i], laps);
  if (code) return code;
  TOOL_RANK_OK(r->self, lrmoeStepGetStats(r->step, &stats));
  figures->wallMs[round] = 1e-6 * (double)(laps[1].wall - laps[0].wall);
  figures->cpuMs[round] = 1e-6 * (double)(laps[1].cpu - laps[0].cpu);
  figures->pairs = stats.pairs;
  figures->kept = stats.kept;
  figures->executed = stats.executed;
  figures->executedKept = stats.executedKept;
  figures->selectBytes = stats.selectBytes;
  figures->rowBytes = stats.rowBytes;
  figures->nodeBytes = stats.nodeBytes;
  figures->xNodeBytes = stats.xNodeBytes;
  figures->forwardNodeBytes = stats.forwardNodeBytes;
  return toolGood;
}

static enum toolExit runAll(struct rank *r, struct stageRankResult *result) {
  int numWays = r->run->numWays;
  enum toolExit code = toolGood;
  makeData(r);
  code = makeLayer(r);
  if (code == toolGood) code = makeStep(r);
  for (int i = 0; i < numWays && code == toolGood; i++)
    code = check(r, i, &result->ways[i]);
  for (int64_t i = 0; i < r->options->numRounds * numWays && code == toolGood;
       i++) {
    int64_t round = i / numWays, way = (i + round) % numWays;
    code = timeWay(r, (int)way, round, &result->ways[way]);
  }
  return code;
}

enum toolExit stageRankMain(const struct toolRank *self) {
  const struct stageRun *run = self->user;
  struct rank rank = {.self = self, .run = run, .options = &run->options};
  enum toolExit code = runAll(&rank, &run->results[self->rank]);
  lrmoeStepDestroy(rank.step);
  lrmoePlanDestroy(rank.plan);
  lrmoeLayerDestroy(rank.layer);
  lrmoePlannerDestroy(rank.planner);
  lrmoeTopologyDestroy(rank.topology);
  lrmoeCommDestroy(rank.comm);
  void *blocks[] = {rank.rows,        rank.kept,    rank.topkIdx,
                    rank.topkWeights, rank.weights, rank.gradients};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    free(blocks[i]);
  return code;
}
