/* Every policy, quota and search of the retention, at the edges of demand and
 * shape, under each limit: plans pass the verifier, which shares no code with
 * the planner, and what does not fit is refused with words. */
#include "planner/checks.h"
#include "support/suite.h"

#include <string.h>

enum {
  numPolicies = lrmoePolicyLocal + 1,
  maxCells = 64
};

struct edge {
  const char *name;
  int numRanks;
  int32_t numExperts;
  int32_t slots;
  int64_t demand[maxCells];
};

static const int64_t big = (int64_t)1 << 62;
static const struct edge edges[] = {
    {"2^62 pairs", 2, 4, 1, {big, 1, 5, 7, big - 100, 2, 3, 4}},
    {"2^62 pairs, one expert", 4, 2, 2, {0, 0, 0, big}},
    {"no pairs", 3, 4, 1, {0}},
    {"one rank", 1, 5, 2, {9, 0, 4, 30, 1}},
    {"fewer experts than ranks", 5, 2, 1, {40, 3, 0, 9, 21, 0, 8, 8, 50, 1}},
    {"more slots than experts", 3, 2, 9, {60, 2, 11, 30, 5, 0}},
    {"all on one expert", 4, 4, 1, {90, 0, 0, 0, 70, 0, 0, 0, 1, 0, 0, 0, 30}},
    {"one pair", 2, 3, 1, {0, 0, 0, 0, 1, 0}}};

enum limit {
  limitNone,
  limitMemory,
  limitWindow,
  numLimits
};

struct counts {
  int made;
  int refused;
};

static int hasSlots(lrmoePolicy_t policy) {
  return policy != lrmoePolicyFixed && policy != lrmoePolicyPermute &&
         policy != lrmoePolicyBalanced && policy != lrmoePolicyLocal;
}

/* The plan if there is one; NULL was refused for a limit that is set. */
static lrmoePlan_t tryPlan(const struct edge *edge,
                           const lrmoePlannerConfig_t *config) {
  lrmoePlanner_t planner = makePlanner(edge->numRanks, config);
  lrmoePlan_t plan = NULL;
  lrmoeResult_t result = lrmoePlanMake(planner, edge->demand, &plan);
  int isLimited = config->memoryBytes || config->windowNs;
  if (result != lrmoeSuccess && (result != lrmoeInfeasible || !isLimited ||
                                 plan || !strstr(lrmoeGetLastError(), "fit")))
    ck_abort_msg("%s, policy %d, quota %d, retain %d: %s: %s", edge->name,
                 (int)config->policy, (int)config->quota, (int)config->retain,
                 lrmoeGetErrorString(result), lrmoeGetLastError());
  lrmoePlannerDestroy(planner);
  return plan;
}

/* Three quarters of what the plan without a limit needs, as far as a config
 * may say so. */
static int64_t most(int64_t needed) {
  int64_t limit = needed - needed / 4 + 1;
  return limit < (int64_t)1 << 46 ? limit : (int64_t)1 << 46;
}

static void setLimit(const lrmoePlanView_t *whole, enum limit limit,
                     lrmoePlannerConfig_t *config) {
  int64_t peak = 0;
  for (int32_t g = 0; g < whole->numRanks; g++)
    if (whole->memory[g].peakBytes > peak) peak = whole->memory[g].peakBytes;
  config->memoryBytes = limit == limitMemory ? most(peak) : 0;
  config->windowNs = limit == limitWindow ? most(whole->commNs) : 0;
  config->windowWork = 1 << 20;
}

static void checkLimits(const struct edge *edge, lrmoePlannerConfig_t config,
                        struct counts *counts) {
  lrmoePlan_t whole = tryPlan(edge, &config);
  lrmoePlanView_t view = viewOf(whole);
  for (int limit = limitNone; limit < numLimits; limit++) {
    setLimit(&view, (enum limit)limit, &config);
    lrmoePlan_t plan = tryPlan(edge, &config);
    counts->made += plan != NULL;
    counts->refused += !plan;
    if (plan) checkPlan(plan, edge->demand, edge->numRanks, &config);
    lrmoePlanDestroy(plan);
  }
  lrmoePlanDestroy(whole);
}

/* Rules that leave no retention to find are refused with it. */
static int isRefused(const struct edge *edge,
                     const lrmoePlannerConfig_t *config) {
  lrmoeTopology_t topology = NULL;
  lrmoePlanner_t planner = NULL;
  if (config->retain == lrmoeRetainExact ||
      config->quota == lrmoeQuotaUniform || config->quota == lrmoeQuotaOverload)
    return 0;
  ASSERT_OK(lrmoeTopologyCreate(edge->numRanks, &topology));
  ASSERT_RESULT(lrmoePlannerCreate(topology, config, &planner),
                lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "no retention to find"));
  lrmoeTopologyDestroy(topology);
  return 1;
}

static lrmoePlannerConfig_t configOf(const struct edge *edge, int policy,
                                     int quota, int retain) {
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.policy = (lrmoePolicy_t)policy;
  config.numExperts = edge->numExperts;
  config.slots = hasSlots(config.policy) ? edge->slots : 0;
  config.quota = (lrmoeQuota_t)quota;
  config.retain = (lrmoeRetain_t)retain;
  config.hidden = config.ffn = 8;
  config.savedState = retain ? lrmoeSavedNone : lrmoeSavedFull;
  if (config.quota == lrmoeQuotaCapacity) config.capacityPpm = 1250000;
  return config;
}

START_TEST(everyChoice) {
  struct counts counts = {0, 0};
  for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
    for (int quota = 0; quota <= lrmoeQuotaCapacity; quota++)
      for (int retain = 0; retain <= lrmoeRetainGrid; retain++) {
        lrmoePlannerConfig_t config = configOf(&edges[i], _i, quota, retain);
        if (isRefused(&edges[i], &config)) continue;
        checkLimits(&edges[i], config, &counts);
      }
  /* Without a limit all; with one, some of either kind. */
  ck_assert_int_gt(counts.made, (counts.made + counts.refused) / 3);
  ck_assert_int_gt(counts.refused, 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("planner edge table");
  TCase *cases = tcase_create("edges");
  tcase_set_timeout(cases, 120);
  tcase_add_loop_test(cases, everyChoice, 0, numPolicies);
  suite_add_tcase(suite, cases);
  return suiteRun(suite);
}
