/* See rivals_random.h.  Every plan passes the verifier, whose rules of a
 * policy are the properties that are tested here. */
#include "planner/rivals_random.h"

#include "planner/checks.h"
#include "planner/loads.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

enum {
  numPolicies = lrmoePolicyLocal + 1
};

static int32_t slotsFor(lrmoePolicy_t policy, int32_t slots) {
  int hasReplicas = policy != lrmoePolicyFixed &&
                    policy != lrmoePolicyPermute &&
                    policy != lrmoePolicyBalanced && policy != lrmoePolicyLocal;
  return hasReplicas ? slots : 0;
}

static void checkSaved(lrmoePlan_t plan) {
  size_t bytes = 0;
  ASSERT_OK(lrmoePlanSave(plan, NULL, &bytes));
  char *buffer = malloc(bytes);
  ck_assert_ptr_nonnull(buffer);
  ASSERT_OK(lrmoePlanSave(plan, buffer, &bytes));
  lrmoePlan_t again = NULL;
  ASSERT_OK(lrmoePlanLoad(buffer, bytes, &again));
  checkSamePlan(plan, again);
  lrmoePlanDestroy(again);
  free(buffer);
}

/* Twice the same plan, whatever was planned in between, and verified. */
static void checkOne(int numRanks, const lrmoePlannerConfig_t *config,
                     const int64_t *demand) {
  lrmoePlanner_t planner = makePlanner(numRanks, config);
  size_t cells = (size_t)numRanks * (size_t)config->numExperts;
  int64_t *none = calloc(cells, sizeof *none);
  ck_assert_ptr_nonnull(none);
  lrmoePlan_t plan = NULL, empty = NULL, again = NULL;
  ASSERT_OK(lrmoePlanMake(planner, demand, &plan));
  ASSERT_OK(lrmoePlanMake(planner, none, &empty));
  ASSERT_OK(lrmoePlanMake(planner, demand, &again));
  checkPlan(plan, demand, numRanks, config);
  checkPlan(empty, none, numRanks, config);
  checkSamePlan(plan, again);
  checkSaved(plan);
  lrmoePlanDestroy(plan);
  lrmoePlanDestroy(empty);
  lrmoePlanDestroy(again);
  lrmoePlannerDestroy(planner);
  free(none);
}

static void checkPolicies(int numRanks, lrmoePlannerConfig_t config,
                          const int64_t *demand) {
  int32_t slots = config.slots;
  for (int policy = 0; policy < numPolicies; policy++) {
    config.policy = (lrmoePolicy_t)policy;
    config.slots = slotsFor(config.policy, slots);
    checkOne(numRanks, &config, demand);
  }
}

START_TEST(randomLoads) {
  struct testRandom random = {(uint64_t)_i + 1};
  static const int64_t ppms[] = {0, 300000, 700000, 1000000};
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  int numRanks = 1 + (int)randomBelow(&random, 12);
  config.numExperts = 1 + (int32_t)randomBelow(&random, 40);
  config.slots = (int32_t)randomBelow(&random, 4);
  config.retainPpm = ppms[randomBelow(&random, 4)];
  config.quota =
      randomBelow(&random, 4) ? lrmoeQuotaUniform : lrmoeQuotaCapacity;
  config.capacityPpm = randomBelow(&random, 3000000);
  config.minReplicaPairs = randomBelow(&random, 3);
  int32_t homes[40];
  for (int e = 0; e < config.numExperts; e++)
    homes[e] = (int32_t)randomBelow(&random, numRanks);
  if (randomBelow(&random, 2)) config.homes = homes;
  struct loadSpec spec = {(enum loadShape)(_i % numLoadShapes), 1.1,
                          1 + randomBelow(&random, 5000)};
  int64_t *demand = makeLoad(&random, spec, numRanks, config.numExperts);
  checkPolicies(numRanks, config, demand);
  free(demand);
}
END_TEST

/* Counts that differ between sources, with 2^62 pairs of one expert. */
START_TEST(hugeCounts) {
  static const int64_t big = (int64_t)1 << 62;
  const int64_t demands[3][8] = {
      {big, 0, 0, 0, 0, 0, 0, 0},
      {big, 1, 5, 7, big - 100, 2, 3, 4},
      {big / 2, big / 4, big / 8, big / 16, 1, big / 8, 0, 99}};
  for (int i = 0; i < 3; i++)
    for (int32_t slots = 0; slots < 4; slots++) {
      lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
      config.numExperts = 4;
      config.slots = slots;
      config.retainPpm = 700001;
      checkPolicies(2, config, demands[i]);
      config.numExperts = 2;
      checkPolicies(4, config, demands[i]);
      config.quota = lrmoeQuotaCapacity;
      config.capacityPpm = 999999999;
      checkPolicies(4, config, demands[i]);
    }
}
END_TEST

/* One rank; one expert on many ranks; more slots than experts; all load on
 * one expert. */
START_TEST(corners) {
  static const int shapes[][3] = {{1, 5, 0}, {1, 5, 3}, {6, 1, 2},
                                  {3, 2, 9}, {5, 2, 1}, {4, 16, 20}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
    int numRanks = shapes[i][0];
    config.numExperts = shapes[i][1];
    config.slots = shapes[i][2];
    int64_t demand[64] = {0};
    for (int s = 0; s < numRanks; s++)
      demand[s * config.numExperts + config.numExperts / 2] = 7 + 3 * s;
    checkPolicies(numRanks, config, demand);
  }
}
END_TEST

/* No rival but proportional, which does not look at ranks, is worse than policy
 * fixed on a skewed load, and those that lay out anew are better. */
START_TEST(rivalsBalance) {
  struct testRandom random = {(uint64_t)_i + 100};
  struct loadSpec spec = {loadZipf, 0.8, 32768};
  int64_t *demand = makeLoad(&random, spec, 8, 64);
  int64_t fixed = 0;
  for (int policy = 0; policy <= lrmoePolicyTopo; policy++) {
    lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
    config.policy = (lrmoePolicy_t)policy;
    config.numExperts = 64;
    config.slots = slotsFor(config.policy, 2);
    lrmoePlanner_t planner = makePlanner(8, &config);
    lrmoePlan_t plan = makePlan(planner, demand);
    lrmoePlanView_t view = checkPlan(plan, demand, 8, &config);
    if (policy == lrmoePolicyFixed) fixed = view.peakForward;
    ck_assert_int_le(view.peakForward,
                     policy == lrmoePolicyProportional ? INT64_MAX : fixed);
    if (policy == lrmoePolicyPermute || policy == lrmoePolicyRelayout)
      ck_assert_int_lt(view.peakForward, fixed);
    if (policy == lrmoePolicyEplb || policy == lrmoePolicyQuota)
      ck_assert_int_le(view.gapForwardPpm, 30000);
    lrmoePlanDestroy(plan);
    lrmoePlannerDestroy(planner);
  }
  free(demand);
}
END_TEST

TCase *rivalsRandomCase(void) {
  TCase *tcase = tcase_create("random");
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, randomLoads, 0, 200);
  tcase_add_test(tcase, hugeCounts);
  tcase_add_test(tcase, corners);
  tcase_add_loop_test(tcase, rivalsBalance, 0, 10);
  return tcase;
}
