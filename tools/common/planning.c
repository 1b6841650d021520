/* Plans: see planning.h. */
#include "tools/common/planning.h"

#include "tools/common/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const toolPolicyNames[toolNumPolicies + 1] = {
    "fixed", "lrmoe",   "proportional", "eplb", "quota",    "shadow",
    "flex",  "permute", "relayout",     "topo", "balanced", "local"};
const char *const toolQuotaNames[] = {"none", "uniform", "overload", "capacity",
                                      NULL};
const char *const toolConstraintNames[] = {
    "none", "pairs", "forward memory", "backward memory", "window", NULL};

/* ---- Policies ----------------------------------------------------------- */

static int findPolicy(const char *name, size_t bytes) {
  for (int i = 0; i < toolNumPolicies; i++)
    if (strlen(toolPolicyNames[i]) == bytes &&
        memcmp(toolPolicyNames[i], name, bytes) == 0)
      return i;
  return -1;
}

static enum toolExit refusePolicy(const char *option, const char *name,
                                  size_t bytes, struct toolError *error) {
  char names[160] = "";
  size_t used = 0;
  for (int i = 0; i < toolNumPolicies; i++)
    used += (size_t)snprintf(names + used, sizeof names - used, "%s, ",
                             toolPolicyNames[i]);
  return toolFail(error, toolBadInput,
                  "option --%s: \"%.*s\" is not one of %sall", option,
                  bytes > 40 ? 40 : (int)bytes, name, names);
}

/* At most toolNumPolicies are found, since none may be there twice. */
static enum toolExit readPolicies(const char *text, const char *option,
                                  lrmoePolicy_t policies[toolNumPolicies],
                                  int *count, struct toolError *error) {
  unsigned seen = 0;
  int found = 0;
  for (;; text++) {
    size_t bytes = strcspn(text, ",");
    int policy = findPolicy(text, bytes);
    if (policy < 0) return refusePolicy(option, text, bytes, error);
    if (seen & 1u << policy)
      return toolFail(error, toolBadInput, "option --%s: %s is there twice",
                      option, toolPolicyNames[policy]);
    seen |= 1u << policy;
    policies[found++] = (lrmoePolicy_t)policy;
    text += bytes;
    if (!*text) break;
  }
  *count = found;
  return toolGood;
}

enum toolExit toolPoliciesRead(const char *text, const char *option,
                               lrmoePolicy_t policies[toolNumPolicies],
                               int *count, struct toolError *error) {
  if (strcmp(text, "all") != 0)
    return readPolicies(text, option, policies, count, error);
  for (int i = 0; i < toolNumPolicies; i++)
    policies[i] = (lrmoePolicy_t)i;
  *count = toolNumPolicies;
  return toolGood;
}

int32_t toolPolicySlots(lrmoePolicy_t policy, int32_t slots) {
  int isWithout = policy == lrmoePolicyFixed || policy == lrmoePolicyPermute ||
                  policy == lrmoePolicyBalanced || policy == lrmoePolicyLocal;
  return isWithout ? 0 : slots;
}

enum toolExit toolCallFailed(lrmoeResult_t result, const char *what,
                             struct toolError *error) {
  int isInput = result == lrmoeInvalidArgument || result == lrmoeUnsupported ||
                result == lrmoeSystemError || result == lrmoeInfeasible;
  return toolFail(error, isInput ? toolBadInput : toolRunFailed, "%s: %.400s",
                  what, lrmoeGetLastError());
}

/* ---- Plans -------------------------------------------------------------- */

lrmoeResult_t toolTopologyOpen(const char *file, int64_t copies, int numRanks,
                               lrmoeTopology_t *topology) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  if (!file) return lrmoeTopologyCreate(numRanks, topology);
  source.text = file;
  source.copies = (int32_t)copies;
  config.sources = &source;
  config.numSources = 1;
  config.numRanks = numRanks;
  return lrmoeTopologyOpen(&config, topology);
}

enum toolExit toolTopologyCheck(const char *file, int64_t copies, int numRanks,
                                struct toolError *error) {
  lrmoeTopology_t topology = NULL;
  if (!file) return toolGood;
  if (toolTopologyOpen(file, copies, numRanks, &topology) != lrmoeSuccess)
    return toolFail(error, toolBadInput, "option --topology: %s",
                    lrmoeGetLastError());
  lrmoeTopologyDestroy(topology);
  return toolGood;
}

/* Ranks that reach each other without a NIC have one number. */
static lrmoeResult_t numberNodes(lrmoeTopology_t topology, int numRanks,
                                 int32_t *nodes) {
  lrmoeResult_t result = lrmoeSuccess;
  for (int r = 0; r < numRanks; r++) {
    nodes[r] = r;
    for (int near = 0; near < r && nodes[r] == r; near++) {
      lrmoeLink_t link;
      result = lrmoeTopologyGetLink(topology, near, r, &link);
      if (result != lrmoeSuccess) return result;
      if (link.linkClass < lrmoeLinkNic) nodes[r] = nodes[near];
    }
  }
  return result;
}

static enum toolExit findNodes(lrmoeTopology_t topology,
                               struct toolPlanner *planner,
                               struct toolError *error) {
  if (!planner->config.chargesRelays) return toolGood;
  planner->nodes = calloc((size_t)planner->numRanks, sizeof *planner->nodes);
  if (!planner->nodes) return toolFail(error, toolRunFailed, "no memory");
  lrmoeResult_t result =
      numberNodes(topology, planner->numRanks, planner->nodes);
  return result == lrmoeSuccess ? toolGood
                                : toolCallFailed(result, "link", error);
}

enum toolExit toolPlannerMake(lrmoeTopology_t topology, int numRanks,
                              const lrmoePlannerConfig_t *config,
                              struct toolPlanner *planner,
                              struct toolError *error) {
  struct toolPlanner made = {.config = *config, .numRanks = numRanks};
  lrmoeResult_t result = lrmoePlannerCreate(topology, config, &made.planner);
  if (result != lrmoeSuccess)
    return toolCallFailed(result, toolPolicyNames[config->policy], error);
  enum toolExit code = findNodes(topology, &made, error);
  if (code) {
    toolPlannerFree(&made);
    return code;
  }
  *planner = made;
  return toolGood;
}

void toolPlannerFree(struct toolPlanner *planner) {
  lrmoePlannerDestroy(planner->planner);
  free(planner->nodes);
  *planner = (struct toolPlanner){0};
}

/* What a plan is made from. */
struct asked {
  const struct toolPlanner *planner;
  const int64_t *demand;
  const lrmoePlanInput_t *input;
};

static enum toolExit makeOnce(const struct asked *asked, lrmoePlan_t *plan,
                              double *us, struct toolError *error) {
  int64_t start = toolWallNs();
  lrmoeResult_t result = lrmoePlanMakeWith(asked->planner->planner,
                                           asked->demand, asked->input, plan);
  *us = (double)(toolWallNs() - start) / 1e3;
  if (result == lrmoeSuccess) return toolGood;
  return toolCallFailed(result, toolPolicyNames[asked->planner->config.policy],
                        error);
}

static enum toolExit getView(lrmoePlan_t plan, lrmoePlanView_t *view,
                             struct toolError *error) {
  *view = (lrmoePlanView_t)LRMOE_PLAN_VIEW_INITIALIZER;
  lrmoeResult_t result = lrmoePlanGetView(plan, view);
  return result == lrmoeSuccess ? toolGood
                                : toolCallFailed(result, "view", error);
}

/* The plan of every round but the first is compared with the first. */
static enum toolExit makeAgain(const struct asked *asked, uint64_t hash,
                               double *us, struct toolError *error) {
  lrmoePlan_t plan = NULL;
  enum toolExit code = makeOnce(asked, &plan, us, error);
  if (code) return code;
  lrmoePlanView_t view;
  code = getView(plan, &view, error);
  if (code == toolGood && view.hash != hash)
    code = toolFail(error, toolWrongData,
                    "two plans from the same demand have different hashes");
  lrmoePlanDestroy(plan);
  return code;
}

static enum toolExit verify(const struct asked *asked,
                            const lrmoePlanView_t *view,
                            struct toolError *error) {
  const struct toolPlanOrigin origin = {
      .config = &asked->planner->config,
      .demand = asked->demand,
      .numRanks = asked->planner->numRanks,
      .isBestEffort = asked->input && asked->input->bestEffort,
      .totals = asked->input ? asked->input->totals : NULL,
      .nodes = asked->planner->nodes};
  return toolPlanVerify(view, &origin, error);
}

enum toolExit toolPlanMake(const struct toolPlanner *planner,
                           const int64_t *demand, const lrmoePlanInput_t *input,
                           int64_t rounds, struct toolPlan *plan,
                           struct toolError *error) {
  const struct asked asked = {planner, demand, input};
  struct toolPlan made = {0};
  double us[toolMaxPlanRounds];
  enum toolExit code = makeOnce(&asked, &made.plan, us, error);
  if (code) return code;
  code = getView(made.plan, &made.view, error);
  for (int64_t i = 1; i < rounds && code == toolGood; i++)
    code = makeAgain(&asked, made.view.hash, &us[i], error);
  if (code == toolGood) code = verify(&asked, &made.view, error);
  if (code == toolGood)
    code = toolPlanFiguresMake(&made.view, &made.figures, error);
  if (code) {
    toolPlanFree(&made);
    return code;
  }
  made.medianUs = toolStatsMake(us, rounds).median;
  *plan = made;
  return toolGood;
}

void toolPlanFree(struct toolPlan *plan) {
  toolPlanFiguresFree(&plan->figures);
  lrmoePlanDestroy(plan->plan);
  *plan = (struct toolPlan){0};
}
