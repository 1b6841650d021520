/* The stated trace, and plans of it: see paper.h.
 *
 * Peak / mean of a layer as a function of the zipf exponent begins at about 1
 * and is continuous, but need not rise all the way: a token chooses an expert
 * once, which caps the hottest.  So the exponent is the first at which the
 * skew is crossed, found by steps and then by halving; an order of experts that
 * never reaches the skew is replaced by another. */
#include "perf/paper/paper.h"
#include "tools/common/apportion.h"
#include "tools/common/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxOrders = 1000, /* tries to find an order that reaches the skew */
  maxSteps = 80,    /* of the exponent, up to 4 */
  numHalvings = 40
};

static const double exponentStep = 0.05;

/* ---- The exponent ------------------------------------------------------- */

struct layer {
  const struct paperModel *model;
  uint64_t seed;
  int64_t *shares; /* [E] */
};

static enum toolExit fillShares(const struct layer *layer, double exponent,
                                struct toolError *error) {
  char routing[40];
  snprintf(routing, sizeof routing, "zipf:%.12f", exponent);
  const struct toolWorkloadConfig config = {
      .routing = routing,
      .seed = layer->seed,
      .numExperts = (int32_t)layer->model->numExperts,
      .topk = (int32_t)layer->model->topk};
  struct toolWorkload workload;
  enum toolExit code = toolWorkloadCreate(&config, &workload, error);
  if (code) return code;
  for (int64_t e = 0; e < layer->model->numExperts; e++)
    layer->shares[e] = (int64_t)workload.shares[e];
  toolWorkloadFree(&workload);
  return toolGood;
}

/* Peak / mean over ranks with every expert at home. */
static double findSkew(const struct layer *layer) {
  int64_t ranks = layer->model->numRanks, experts = layer->model->numExperts;
  double peak = 0, here = 0, all = 0;
  for (int64_t e = 0; e < experts; e++) {
    int64_t rank = e * ranks / experts;
    if (e == 0 || rank != (e - 1) * ranks / experts) here = 0;
    here += (double)layer->shares[e];
    all += (double)layer->shares[e];
    if (here > peak) peak = here;
  }
  return peak * (double)ranks / all;
}

/* The first step whose skew is at least the model's; 0: there is none. */
static enum toolExit findCrossing(const struct layer *layer, double *exponent,
                                  struct toolError *error) {
  *exponent = 0;
  for (int i = 1; i <= maxSteps; i++) {
    double at = i * exponentStep;
    enum toolExit code = fillShares(layer, at, error);
    if (code) return code;
    if (findSkew(layer) < layer->model->skew) continue;
    *exponent = at;
    break;
  }
  return toolGood;
}

static enum toolExit halve(const struct layer *layer, double high,
                           struct toolError *error) {
  double low = high - exponentStep;
  for (int i = 0; i < numHalvings; i++) {
    double middle = (low + high) / 2;
    enum toolExit code = fillShares(layer, middle, error);
    if (code) return code;
    if (findSkew(layer) < layer->model->skew)
      low = middle;
    else
      high = middle;
  }
  return fillShares(layer, high, error);
}

static enum toolExit solveLayer(const struct paperModel *model, int64_t index,
                                int64_t *shares, struct toolError *error) {
  struct layer layer = {.model = model, .shares = shares};
  for (int64_t i = 0; i < maxOrders; i++) {
    double exponent;
    layer.seed = (uint64_t)(model->seed + index + i * model->numLayers);
    enum toolExit code = findCrossing(&layer, &exponent, error);
    if (code) return code;
    if (exponent > 0) return halve(&layer, exponent, error);
  }
  return toolFail(error, toolBadInput,
                  "no zipf load of %lld experts on %lld ranks has peak / mean "
                  "%g",
                  (long long)model->numExperts, (long long)model->numRanks,
                  model->skew);
}

enum toolExit paperTraceSolve(const struct paperModel *model, int64_t **shares,
                              struct toolError *error) {
  size_t numbers = (size_t)(model->numLayers * model->numExperts);
  int64_t *made = calloc(numbers, sizeof *made);
  if (!made) return toolFail(error, toolRunFailed, "no memory for the trace");
  enum toolExit code = toolGood;
  for (int64_t i = 0; i < model->numLayers && code == toolGood; i++)
    code = solveLayer(model, i, made + i * model->numExperts, error);
  if (code == toolGood)
    *shares = made;
  else
    free(made);
  return code;
}

/* ---- Demand and plans --------------------------------------------------- */

enum toolExit paperDemand(struct paperRun *run, int64_t layer, int64_t tokens,
                          struct toolError *error) {
  const struct paperModel *model = run->model;
  const int64_t *shares = run->shares + layer * model->numExperts;
  enum toolExit code = toolApportion(shares, model->numExperts,
                                     tokens * model->topk, run->demand, error);
  for (int64_t s = 1; s < model->numRanks; s++)
    memcpy(run->demand + s * model->numExperts, run->demand,
           (size_t)model->numExperts * sizeof *run->demand);
  return code;
}

enum toolExit paperPlan(const struct paperRun *run,
                        const struct paperAsked *asked, struct toolPlan *plan,
                        struct toolError *error) {
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = (int32_t)run->model->numExperts;
  config.policy = asked->policy;
  config.slots = toolPolicySlots(asked->policy, (int32_t)asked->slots);
  config.retainPpm = (int64_t)(asked->retain * 1e6 + 0.5);
  struct toolPlanner planner;
  enum toolExit code = toolPlannerMake(run->topology, (int)run->model->numRanks,
                                       &config, &planner, error);
  if (code) return code;
  code = toolPlanMake(&planner, run->demand, NULL, 1, plan, error);
  toolPlannerFree(&planner);
  return code;
}
