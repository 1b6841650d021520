/* One layer under each policy: see plan.h. */
#include "tools/plan/plan.h"

#include <math.h>
#include <stdlib.h>

/* What is left of the steps before, by layer: sections come in order of step,
 * so that the plan found here is that of the step before. */
struct planPrevious {
  struct planPrevious *next;
  int64_t layer;
  lrmoePlan_t plan;
  int64_t *loads; /* [E] moving average of n, NULL before the second step */
};

static int64_t millionths(double value) {
  return llround(value * 1e6);
}

/* ---- Planners ----------------------------------------------------------- */

static void fillModel(lrmoePlannerConfig_t *config) {
  const struct planSettings *s = &planSettings;
  static const int32_t bytes[] = {2, 2, 4};
  int isLimited = s->memoryGib > 0 || s->windowUs > 0;
  config->hidden = s->hidden;
  config->ffn = s->ffn;
  config->elementBytes = bytes[s->type];
  config->activation = (lrmoeActivation_t)s->activation;
  config->routerGrad = (lrmoeRouterGrad_t)s->routerGrad;
  config->savedState = (lrmoeSavedState_t)s->savedState;
  config->chargesRelays = s->hasRelays;
  config->memoryBytes = llround(s->memoryGib * 0x1p30);
  config->windowNs = llround(s->windowUs * 1e3);
  config->windowWork = s->windowWork;
  config->retain = !isLimited  ? lrmoeRetainExact
                   : s->isGrid ? lrmoeRetainGrid
                               : lrmoeRetainLargest;
}

/* The knobs are those of policy lrmoe; others are refused with them. */
static void fillKnobs(lrmoePlannerConfig_t *config) {
  const struct planSettings *s = &planSettings;
  config->tolerancePpm = millionths(s->tolerance);
  config->minReplicaPairs = s->minReplicaPairs;
  config->maxReplicas = s->maxReplicas;
  config->balancedPpm = millionths(s->balanced);
  config->hysteresisPpm = millionths(s->hysteresis);
}

static enum toolExit openPlanner(lrmoeTopology_t topology, int32_t numExperts,
                                 struct planRival *rival,
                                 struct toolError *error) {
  const struct planSettings *s = &planSettings;
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = numExperts;
  config.policy = rival->policy;
  config.slots = toolPolicySlots(rival->policy, (int32_t)s->numSlots);
  config.quota = (lrmoeQuota_t)s->quota;
  config.retainPpm = millionths(s->retain);
  config.minRetainPpm = millionths(s->minRetain);
  if (config.quota == lrmoeQuotaCapacity)
    config.capacityPpm = millionths(s->capacityFactor);
  fillModel(&config);
  if (rival->policy == lrmoePolicyLrmoe) fillKnobs(&config);
  return toolPlannerMake(topology, (int)s->numRanks, &config, &rival->planner,
                         error);
}

enum toolExit planRivalsOpen(int32_t numExperts,
                             struct planRival rivals[toolNumPolicies],
                             struct toolError *error) {
  lrmoeTopology_t topology = NULL;
  enum toolExit code = toolGood;
  lrmoeResult_t result =
      toolTopologyOpen(planSettings.topology, planSettings.copies,
                       (int)planSettings.numRanks, &topology);
  if (result != lrmoeSuccess) return toolCallFailed(result, "topology", error);
  for (int i = 0; i < planSettings.numPolicies && code == toolGood; i++) {
    rivals[i].policy = planSettings.policies[i];
    code = openPlanner(topology, numExperts, &rivals[i], error);
  }
  lrmoeTopologyDestroy(topology);
  return code;
}

static void dropPrevious(struct planPrevious *previous) {
  while (previous) {
    struct planPrevious *next = previous->next;
    lrmoePlanDestroy(previous->plan);
    free(previous->loads);
    free(previous);
    previous = next;
  }
}

void planRivalsClose(struct planRival rivals[toolNumPolicies]) {
  for (int i = 0; i < toolNumPolicies; i++) {
    toolPlannerFree(&rivals[i].planner);
    dropPrevious(rivals[i].previous);
    rivals[i] = (struct planRival){0};
  }
}

/* ---- Plans -------------------------------------------------------------- */

static int needsPlan(const struct planRival *rival) {
  return rival->policy == lrmoePolicyLrmoe &&
         (planSettings.balanced > 0 || planSettings.hysteresis > 0);
}

static int needsPrevious(const struct planRival *rival) {
  return needsPlan(rival) || planSettings.history > 0;
}

/* The layer's place among the last plans, made if it is new. */
static enum toolExit findPrevious(struct planRival *rival, int64_t layer,
                                  struct planPrevious **found,
                                  struct toolError *error) {
  struct planPrevious *previous = rival->previous;
  while (previous && previous->layer != layer)
    previous = previous->next;
  if (!previous) {
    previous = calloc(1, sizeof *previous);
    if (!previous)
      return toolFail(error, toolRunFailed, "no memory for a layer");
    *previous = (struct planPrevious){rival->previous, layer, NULL, NULL};
    rival->previous = previous;
  }
  *found = previous;
  return toolGood;
}

/* A copy, since the plan itself is the caller's. */
static enum toolExit keepPlan(struct planPrevious *previous, lrmoePlan_t plan,
                              struct toolError *error) {
  size_t bytes = 0;
  lrmoePlan_t copy = NULL;
  lrmoeResult_t result = lrmoePlanSave(plan, NULL, &bytes);
  void *buffer = result == lrmoeSuccess ? malloc(bytes) : NULL;
  if (buffer) result = lrmoePlanSave(plan, buffer, &bytes);
  if (buffer && result == lrmoeSuccess)
    result = lrmoePlanLoad(buffer, bytes, &copy);
  free(buffer);
  if (result != lrmoeSuccess) return toolCallFailed(result, "copy", error);
  if (!copy) return toolFail(error, toolRunFailed, "no memory for a plan");
  lrmoePlanDestroy(previous->plan);
  previous->plan = copy;
  return toolGood;
}

/* Rounded, and within int64 also where a double is not. */
static int64_t average(double value) {
  return value < 0x1p63 ? llround(value) : INT64_MAX;
}

/* Adds this step to the average; the first is taken as it is. */
static enum toolExit keepLoads(struct planPrevious *previous,
                               const struct toolTraceSection *section,
                               struct toolError *error) {
  size_t experts = (size_t)section->numExperts;
  int isFirst = previous->loads == NULL;
  if (isFirst) previous->loads = calloc(experts, sizeof *previous->loads);
  if (!previous->loads)
    return toolFail(error, toolRunFailed, "no memory for %zu loads", experts);
  for (size_t e = 0; e < experts; e++) {
    double old = (double)previous->loads[e];
    double change = (double)section->counts[e] - old;
    previous->loads[e] = isFirst ? section->counts[e]
                                 : average(old + planSettings.history * change);
  }
  return toolGood;
}

static enum toolExit keepStep(const struct planRival *rival,
                              struct planPrevious *previous,
                              const struct toolTraceSection *section,
                              lrmoePlan_t plan, struct toolError *error) {
  enum toolExit code = toolGood;
  if (needsPlan(rival)) code = keepPlan(previous, plan, error);
  if (code == toolGood && planSettings.history > 0)
    code = keepLoads(previous, section, error);
  return code;
}

enum toolExit planLayer(struct planRival *rival,
                        const struct toolTraceSection *section,
                        struct toolPlan *plan, struct toolError *error) {
  struct planPrevious *previous = NULL;
  enum toolExit code = toolGood;
  if (needsPrevious(rival))
    code = findPrevious(rival, section->layer, &previous, error);
  if (code) return code;
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  input.bestEffort = 1;
  if (previous) {
    input.previous = previous->plan;
    input.loads = previous->loads;
  }
  struct toolPlan made;
  code = toolPlanMake(&rival->planner, section->demand, &input,
                      planSettings.numRounds, &made, error);
  if (code) return code;
  if (previous) code = keepStep(rival, previous, section, made.plan, error);
  if (code == toolGood)
    *plan = made;
  else
    toolPlanFree(&made);
  return code;
}
