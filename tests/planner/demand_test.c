/* Ways in which demand reaches a planner, and what making a plan allocates. */
#include "base/alloc.h"
#include "planner/checks.h"
#include "planner/loads.h"
#include "support/suite.h"
#include "tools/common/verify.h"

#include <stdlib.h>
#include <string.h>

enum {
  numRanks = 6,
  numExperts = 20,
  numPolicies = lrmoePolicyLocal + 1
};

static lrmoePlannerConfig_t configOf(int policy) {
  int hasReplicas = policy != lrmoePolicyFixed &&
                    policy != lrmoePolicyPermute &&
                    policy != lrmoePolicyBalanced && policy != lrmoePolicyLocal;
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.policy = (lrmoePolicy_t)policy;
  config.numExperts = numExperts;
  config.slots = hasReplicas ? 2 : 0;
  config.retainPpm = 600000;
  return config;
}

static int64_t *load(void) {
  struct testRandom random = {7};
  const struct loadSpec spec = {loadZipf, 1.0, 999};
  return makeLoad(&random, spec, numRanks, numExperts);
}

static lrmoePlan_t make(lrmoePlanner_t planner, const int64_t *demand,
                        const lrmoePlanInput_t *input) {
  lrmoePlan_t plan = NULL;
  ASSERT_OK(lrmoePlanMakeWith(planner, demand, input, &plan));
  return plan;
}

/* A borrowed matrix makes the same plan, down to the hash; only policies that
 * change it have a copy. */
START_TEST(borrowedDemand) {
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  input.borrowDemand = 1;
  int64_t *demand = load();
  for (int policy = 0; policy < numPolicies; policy++) {
    lrmoePlannerConfig_t config = configOf(policy);
    lrmoePlanner_t planner = makePlanner(numRanks, &config);
    lrmoePlan_t copied = make(planner, demand, NULL);
    lrmoePlan_t borrowed = make(planner, demand, &input);
    lrmoePlanView_t own = checkPlan(copied, demand, numRanks, &config);
    lrmoePlanView_t view = checkPlan(borrowed, demand, numRanks, &config);
    ck_assert_ptr_ne(own.demand, demand);
    ck_assert(view.changesForward || view.demand == demand);
    checkSamePlan(copied, borrowed);
    lrmoePlanDestroy(copied);
    lrmoePlanDestroy(borrowed);
    lrmoePlannerDestroy(planner);
  }
  free(demand);
}
END_TEST

/* Everything but what sources are asked for. */
static void checkTotalsPlan(const lrmoePlanView_t *known,
                            const lrmoePlanView_t *view) {
  size_t instances = (size_t)known->numInstances;
  ck_assert_ptr_null(view->demand);
  ck_assert_int_eq(view->numInstances, known->numInstances);
  ck_assert_int_eq(view->boundKept, known->boundKept);
  ck_assert_int_eq(view->peakForward, known->peakForward);
  ck_assert_mem_eq(view->totals, known->totals, numExperts * sizeof(int64_t));
  ck_assert_mem_eq(view->quotas, known->quotas, numExperts * sizeof(int64_t));
  ck_assert_mem_eq(view->instanceRanks, known->instanceRanks,
                   instances * sizeof(int32_t));
  ck_assert_mem_eq(view->forwardPairs, known->forwardPairs,
                   instances * sizeof(int64_t));
  ck_assert_mem_eq(view->keptPairs, known->keptPairs,
                   instances * sizeof(int64_t));
}

static int needsSources(int policy) {
  return policy == lrmoePolicyShadow || policy == lrmoePolicyRelayout ||
         policy == lrmoePolicyBalanced || policy == lrmoePolicyLocal;
}

START_TEST(totalsMakeTheSamePlan) {
  int64_t *demand = load(), totals[numExperts] = {0};
  for (int i = 0; i < numRanks * numExperts; i++)
    totals[i % numExperts] += demand[i];
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  input.totals = totals;
  for (int policy = 0; policy < numPolicies; policy++) {
    lrmoePlannerConfig_t config = configOf(policy);
    const struct toolPlanOrigin origin = {&config, NULL, numRanks, 0, totals};
    struct toolError error;
    lrmoePlanner_t planner = makePlanner(numRanks, &config);
    lrmoePlan_t known = make(planner, demand, NULL), plan = NULL;
    lrmoePlanView_t a = LRMOE_PLAN_VIEW_INITIALIZER, b = a;
    if (needsSources(policy)) {
      ASSERT_RESULT(lrmoePlanMakeWith(planner, NULL, &input, &plan),
                    lrmoeInvalidArgument);
    } else {
      plan = make(planner, NULL, &input);
      ASSERT_OK(lrmoePlanGetView(known, &a));
      ASSERT_OK(lrmoePlanGetView(plan, &b));
      checkTotalsPlan(&a, &b);
      ck_assert_msg(toolPlanVerify(&b, &origin, &error) == toolGood, "%s",
                    error.text);
    }
    lrmoePlanDestroy(known);
    lrmoePlanDestroy(plan);
    lrmoePlannerDestroy(planner);
  }
  free(demand);
}
END_TEST

static void refuses(lrmoePlanner_t planner, const int64_t *demand,
                    const int64_t *totals, const char *why) {
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  lrmoePlan_t plan = NULL;
  input.totals = totals;
  ASSERT_RESULT(lrmoePlanMakeWith(planner, demand, &input, &plan),
                lrmoeInvalidArgument);
  ck_assert_ptr_null(plan);
  ck_assert_msg(strstr(lrmoeGetLastError(), why) != NULL, "%s",
                lrmoeGetLastError());
}

START_TEST(totalsThatCannotBe) {
  static const int64_t big = (int64_t)1 << 62;
  static const int64_t demand[2] = {1, 1};
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = 2;
  lrmoePlanner_t planner = makePlanner(1, &config);
  refuses(planner, demand, demand, "both");
  refuses(planner, NULL, (int64_t[]){0, -1}, "total of expert 1 is -1");
  refuses(planner, NULL, (int64_t[]){big, big}, "more than 2^63 - 1");
  refuses(planner, NULL, NULL, "demand is NULL");
  const int64_t fits[] = {big, big - 1};
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  input.totals = fits;
  lrmoePlan_t plan = make(planner, NULL, &input);
  size_t bytes = 0;
  ASSERT_RESULT(lrmoePlanSave(plan, NULL, &bytes), lrmoeUnsupported);
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
  config.hidden = config.ffn = 8;
  config.routerGrad = lrmoeRouterGradOwner;
  planner = makePlanner(1, &config);
  refuses(planner, NULL, demand, "routerGrad owner");
  lrmoePlannerDestroy(planner);
  config.routerGrad = lrmoeRouterGradKept;
  config.windowNs = 1;
  planner = makePlanner(1, &config);
  refuses(planner, NULL, demand, "windowNs");
  lrmoePlannerDestroy(planner);
}
END_TEST

/* Limits that bind, so that retention is searched for with T_comm in the loop:
 * three quarters of what a plan without limits needs. */
static void setLimits(const int64_t *demand, lrmoePlannerConfig_t *config) {
  config->retainPpm = 1000000;
  config->hidden = config->ffn = 8;
  lrmoePlanner_t planner = makePlanner(numRanks, config);
  lrmoePlan_t plan = make(planner, demand, NULL);
  lrmoePlanView_t view = viewOf(plan);
  config->windowNs = view.commNs / 4 * 3;
  config->windowWork = 1 << 20;
  for (int g = 0; g < numRanks; g++)
    if (view.memory[g].peakBytes > config->memoryBytes)
      config->memoryBytes = view.memory[g].peakBytes;
  config->retain = lrmoeRetainLargest;
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
}

/* The plan is the only block that a call needs, and a call that does not get it
 * leaves the planner as it was. */
START_TEST(planIsTheOnlyAllocation) {
  int64_t *demand = load();
  for (int policy = 0; policy < numPolicies; policy++) {
    lrmoePlannerConfig_t config = configOf(policy);
    setLimits(demand, &config);
    lrmoePlanner_t planner = makePlanner(numRanks, &config);
    lrmoePlan_t plan = NULL;
    lrmoeAllocFailAt(1);
    ASSERT_RESULT(lrmoePlanMake(planner, demand, &plan), lrmoeOutOfMemory);
    ck_assert_ptr_null(plan);
    lrmoeAllocFailAt(0);
    plan = make(planner, demand, NULL);
    ck_assert_int_eq(lrmoeAllocFailAt(0), 1);
    lrmoePlanView_t view = viewOf(plan);
    ck_assert_int_lt(view.kept, view.pairs);
    ck_assert_int_le(view.commNs, config.windowNs);
    lrmoePlanDestroy(plan);
    lrmoePlannerDestroy(planner);
  }
  free(demand);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {borrowedDemand, totalsMakeTheSamePlan,
                                totalsThatCannotBe, planIsTheOnlyAllocation};
  return suiteRunTests("planner demand", tests, sizeof tests / sizeof *tests,
                       60);
}
