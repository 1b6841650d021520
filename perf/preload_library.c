/* The library's own choice of the rows that preload_perf's ranks send: a layer
 * with an expert a rank, to which each rank routes as many tokens as it sends
 * rows, keeps some of them by |g|.  Weights are zero: what the experts compute
 * does not matter here. */
#include "perf/preload_perf.h"
#include "tools/common/ranks.h"

#include <stdlib.h>
#include <string.h>

enum {
  ffn = 8
};

struct choice {
  struct preloadOrder *order;
  uint8_t *kept; /* [G, G * rows] */
};

struct layer {
  const struct toolRank *self;
  const struct choice *choice;
  int64_t hidden;
  int64_t numTokens;
  lrmoeComm_t comm;
  lrmoeTopology_t topology;
  lrmoePlanner_t planner;
  lrmoeLayer_t layer;
  lrmoeStep_t step;
  lrmoePlan_t plan;
  void *weights; /* zeros, also x and y */
  void *result;
  unsigned char *g;
  int64_t *experts;
  float *alphas;
};

static enum toolExit bind(struct layer *l) {
  const void *zeros = l->weights;
  lrmoeLayerWeights_t weights = LRMOE_LAYER_WEIGHTS_INITIALIZER;
  weights.w1 = &zeros;
  weights.w2 = &zeros;
  TOOL_RANK_OK(l->self, lrmoeLayerBind(l->layer, &weights));
  return toolGood;
}

static enum toolExit makeLayer(struct layer *l) {
  const struct preloadOrder *order = l->choice->order;
  lrmoePlannerConfig_t planning = LRMOE_PLANNER_CONFIG_INITIALIZER;
  lrmoeLayerConfig_t config = LRMOE_LAYER_CONFIG_INITIALIZER;
  planning.numExperts = (int32_t)order->numRanks;
  planning.retainPpm = (int64_t)(1e6 * (1 - order->dropFraction) + 0.5);
  config.hidden = l->hidden;
  config.ffn = ffn;
  config.maxTokens = l->numTokens;
  config.topk = 1;
  config.gemm = "reference";
  config.routerGrad = lrmoeRouterGradOwner; /* exact: nothing to warn of */
  TOOL_RANK_OK(l->self, lrmoeCommInitRank((int)order->numRanks, &l->self->id,
                                          l->self->rank, NULL, &l->comm));
  TOOL_RANK_OK(l->self,
               lrmoeTopologyCreate((int)order->numRanks, &l->topology));
  TOOL_RANK_OK(l->self,
               lrmoePlannerCreate(l->topology, &planning, &l->planner));
  TOOL_RANK_OK(l->self,
               lrmoeLayerCreate(l->comm, l->planner, &config, &l->layer));
  return bind(l);
}

static enum toolExit forward(struct layer *l) {
  const int64_t *demand = NULL;
  TOOL_RANK_OK(l->self, lrmoeStepCreate(l->layer, l->numTokens, l->experts,
                                        l->alphas, NULL, &l->step));
  TOOL_RANK_OK(l->self, lrmoeStepGetDemand(l->step, &demand));
  TOOL_RANK_OK(l->self, lrmoePlanMake(l->planner, demand, &l->plan));
  TOOL_RANK_OK(l->self, lrmoeStepPrepare(l->step, l->plan, NULL));
  TOOL_RANK_OK(l->self, lrmoeDispatch(l->step, l->weights, NULL));
  TOOL_RANK_OK(l->self, lrmoeExpertForward(l->step, NULL));
  TOOL_RANK_OK(l->self, lrmoeCombine(l->step, l->result, NULL));
  return toolGood;
}

static enum toolExit choose(struct layer *l) {
  lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  config.metric = lrmoeMetricGrad2;
  TOOL_RANK_OK(l->self, lrmoeSelect(l->step, l->g, &config, NULL));
  TOOL_RANK_OK(l->self, lrmoeAllToAllCompact(l->step, NULL, l->g, NULL));
  TOOL_RANK_OK(l->self,
               lrmoeStepGetKept(l->step, l->choice->kept +
                                             l->self->rank * l->numTokens));
  TOOL_RANK_OK(l->self, lrmoePlanGetView(l->plan, &view));
  if (!l->self->rank)
    memcpy(l->choice->order->quotas, view.quotas,
           (size_t)l->self->numRanks * sizeof *view.quotas);
  return toolGood;
}

static int makeData(struct layer *l) {
  const struct preloadOrder *order = l->choice->order;
  size_t rows = (size_t)(l->numTokens * order->rowBytes);
  size_t matrix = (size_t)l->hidden * 2 * ffn * 2;
  l->weights = calloc(rows > matrix ? rows : matrix, 1);
  l->result = calloc(rows + 1, 1);
  l->g = calloc(rows + 1, 1);
  l->experts = calloc((size_t)l->numTokens + 1, sizeof *l->experts);
  l->alphas = calloc((size_t)l->numTokens + 1, sizeof *l->alphas);
  if (!l->weights || !l->result || !l->g || !l->experts || !l->alphas) return 1;
  preloadFill(order, l->self->rank, l->g);
  for (int64_t t = 0; t < l->numTokens; t++) {
    l->experts[t] = t / order->numRows;
    l->alphas[t] = 1;
  }
  return 0;
}

static void closeLayer(struct layer *l) {
  if (l->step) lrmoeStepDestroy(l->step);
  if (l->plan) lrmoePlanDestroy(l->plan);
  if (l->layer) lrmoeLayerDestroy(l->layer);
  if (l->planner) lrmoePlannerDestroy(l->planner);
  if (l->topology) lrmoeTopologyDestroy(l->topology);
  if (l->comm) lrmoeCommDestroy(l->comm);
  free(l->weights);
  free(l->result);
  free(l->g);
  free(l->experts);
  free(l->alphas);
}

static enum toolExit rankMain(const struct toolRank *self) {
  const struct choice *choice = self->user;
  struct layer l = {.self = self,
                    .choice = choice,
                    .hidden = choice->order->rowBytes / 2,
                    .numTokens =
                        choice->order->numRanks * choice->order->numRows};
  enum toolExit code = toolGood;
  if (makeData(&l))
    code = toolRankFail(self, lrmoeSuccess, "no memory for a layer");
  if (code == toolGood) code = makeLayer(&l);
  if (code == toolGood) code = forward(&l);
  if (code == toolGood) code = choose(&l);
  closeLayer(&l);
  return code;
}

enum toolExit preloadChoose(struct preloadOrder *order, uint8_t *kept,
                            struct toolError *error) {
  struct choice choice = {order, kept};
  return toolRanksRun((int)order->numRanks, rankMain, &choice, NULL, error);
}
