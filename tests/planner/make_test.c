/* The planner: quotas, placement, refusals. */
#include "base/alloc.h"
#include "planner/checks.h"
#include "planner/planner.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

static const lrmoePlannerConfig_t defaults = LRMOE_PLANNER_CONFIG_INITIALIZER;

START_TEST(randomDemands) {
  struct testRandom random = {(uint64_t)_i};
  static const int64_t ppms[] = {0, 1, 333333, 700000, 999999, 1000000};
  int numRanks = 1 + (int)randomBelow(&random, 9);
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 1 + (int32_t)randomBelow(&random, 40);
  config.retainPpm = ppms[randomBelow(&random, 6)];
  config.quota = (lrmoeQuota_t)randomBelow(&random, 2);
  int32_t homes[40];
  for (int e = 0; e < config.numExperts; e++)
    homes[e] = (int32_t)randomBelow(&random, numRanks);
  if (randomBelow(&random, 2)) config.homes = homes;

  lrmoePlanner_t planner = makePlanner(numRanks, &config);
  int64_t *demand = makeDemand(&random, numRanks, config.numExperts);
  lrmoePlan_t plan = makePlan(planner, demand);
  lrmoePlan_t again = makePlan(planner, demand);
  lrmoePlannerDestroy(planner); /* the plan outlives it */
  lrmoePlanView_t view = checkPlan(plan, demand, numRanks, &config);
  checkSamePlan(plan, again);
  if (config.homes)
    ck_assert_mem_eq(view.homes, homes,
                     (size_t)config.numExperts * sizeof *homes);
  lrmoePlanDestroy(plan);
  lrmoePlanDestroy(again);
  free(demand);
}
END_TEST

START_TEST(defaultHomesAreContiguousAndFair) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 10;
  lrmoePlanner_t planner = makePlanner(4, &config);
  static const int32_t expected[] = {0, 0, 0, 1, 1, 2, 2, 2, 3, 3};
  ck_assert_mem_eq(planner->homes, expected, sizeof expected);
  lrmoePlannerDestroy(planner);
}
END_TEST

START_TEST(fewerExpertsThanRanks) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 2;
  lrmoePlanner_t planner = makePlanner(5, &config);
  int64_t demand[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  lrmoePlan_t plan = makePlan(planner, demand);
  checkPlan(plan, demand, 5, &config);
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
}
END_TEST

START_TEST(noDemandAtAll) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 3;
  lrmoePlanner_t planner = makePlanner(2, &config);
  int64_t demand[6] = {0};
  lrmoePlan_t plan = makePlan(planner, demand);
  lrmoePlanView_t view = checkPlan(plan, demand, 2, &config);
  ck_assert_int_eq(view.peakForward, 0);
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
}
END_TEST

/* Quotas are exact where n * ppm does not fit an int64. */
START_TEST(quotaOfHugeDemand) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 1;
  static const int64_t ppms[] = {0, 1, 500001, 999999, 1000000};
  for (size_t i = 0; i < sizeof ppms / sizeof *ppms; i++) {
    config.retainPpm = ppms[i];
    lrmoePlanner_t planner = makePlanner(1, &config);
    int64_t demand[] = {INT64_MAX};
    lrmoePlan_t plan = makePlan(planner, demand);
    checkPlan(plan, demand, 1, &config);
    lrmoePlanDestroy(plan);
    lrmoePlannerDestroy(planner);
  }
}
END_TEST

START_TEST(quotaRoundsUp) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 4;
  config.retainPpm = 700000;
  lrmoePlanner_t planner = makePlanner(1, &config);
  int64_t demand[] = {0, 1, 10, 11};
  lrmoePlan_t plan = makePlan(planner, demand);
  static const int64_t expected[] = {0, 1, 7, 8};
  ck_assert_mem_eq(plan->quotas, expected, sizeof expected);
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
}
END_TEST

START_TEST(overflowOfSumsIsRefused) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 2;
  lrmoePlanner_t planner = makePlanner(2, &config);
  lrmoePlan_t plan = NULL;
  int64_t demand[] = {INT64_MAX - 1, 0, 1, 0};
  ASSERT_OK(lrmoePlanMake(planner, demand, &plan)); /* exactly 2^63 - 1 */
  lrmoePlanDestroy(plan);
  plan = NULL;
  demand[3] = 1;
  ASSERT_RESULT(lrmoePlanMake(planner, demand, &plan), lrmoeInvalidArgument);
  ck_assert_ptr_null(plan);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "rank 1, expert 1"));
  lrmoePlannerDestroy(planner);
}
END_TEST

START_TEST(negativeDemandIsRefused) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 2;
  lrmoePlanner_t planner = makePlanner(2, &config);
  lrmoePlan_t plan = NULL;
  int64_t demand[] = {5, 0, -7, 0};
  ASSERT_RESULT(lrmoePlanMake(planner, demand, &plan), lrmoeInvalidArgument);
  ck_assert_str_eq(lrmoeGetLastError(), "demand of rank 1, expert 0 is -7");
  ASSERT_RESULT(lrmoePlanMake(NULL, demand, &plan), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoePlanMake(planner, NULL, &plan), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoePlanMake(planner, demand, NULL), lrmoeInvalidArgument);
  lrmoePlannerDestroy(planner);
}
END_TEST

START_TEST(infeasibleNamesRankAndExcess) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 4;
  config.maxPairs = 100;
  lrmoePlanner_t planner = makePlanner(2, &config);
  lrmoePlan_t plan = NULL;
  int64_t demand[] = {40, 60, 50, 41, 0, 0, 30, 2}; /* 100 and 123 */
  ASSERT_RESULT(lrmoePlanMake(planner, demand, &plan), lrmoeInfeasible);
  ck_assert_ptr_null(plan);
  ck_assert_str_eq(lrmoeGetLastError(),
                   "forward does not fit: rank 1 would execute 123 pairs and "
                   "maxPairs is 100, 23 too many");
  demand[2] = 27; /* exactly full */
  ASSERT_OK(lrmoePlanMake(planner, demand, &plan));
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
}
END_TEST

static void refuse(const lrmoePlannerConfig_t *config, const char *why) {
  lrmoeTopology_t topology = NULL;
  lrmoePlanner_t planner = NULL;
  ASSERT_OK(lrmoeTopologyCreate(2, &topology));
  ASSERT_RESULT(lrmoePlannerCreate(topology, config, &planner),
                lrmoeInvalidArgument);
  ck_assert_ptr_null(planner);
  ck_assert_msg(strstr(lrmoeGetLastError(), why) != NULL,
                "\"%s\" does not name \"%s\"", lrmoeGetLastError(), why);
  lrmoeTopologyDestroy(topology);
}

START_TEST(configErrorsOneByOne) {
  static const int32_t high[] = {0, 2}, low[] = {-1, 0};
  lrmoePlannerConfig_t good = defaults;
  good.numExperts = 2;
  lrmoePlannerDestroy(makePlanner(2, &good));

#define REFUSE(field, value, why)    \
  do {                               \
    lrmoePlannerConfig_t bad = good; \
    bad.field = value;               \
    refuse(&bad, why);               \
  } while (0)
  REFUSE(numExperts, 0, "numExperts is 0");
  REFUSE(numExperts, -3, "numExperts is -3");
  REFUSE(numExperts, lrmoeMaxExperts + 1, "numExperts");
  REFUSE(retainPpm, -1, "retainPpm is -1");
  REFUSE(retainPpm, 1000001, "retainPpm is 1000001");
  REFUSE(maxPairs, -1, "maxPairs is -1");
  REFUSE(homes, high, "home of expert 1 is rank 2");
  REFUSE(homes, low, "home of expert 0 is rank -1");
  REFUSE(policy, (lrmoePolicy_t)12, "policy 12");
  REFUSE(quota, (lrmoeQuota_t)4, "quota 4");
  REFUSE(slots, 1, "slots is 1; policy fixed");
  good.policy = lrmoePolicyLrmoe;
  good.slots = lrmoeMaxSlots;
  lrmoePlannerDestroy(makePlanner(2, &good));
  REFUSE(slots, lrmoeMaxSlots + 1, "slots is 1025");
  REFUSE(slots, -1, "slots is -1");
  REFUSE(magic, 0, "magic");
  REFUSE(size, 8, "8 B long");
#undef REFUSE
  refuse(NULL, "config is NULL");

  lrmoePlanner_t planner = NULL;
  ASSERT_RESULT(lrmoePlannerCreate(NULL, &good, &planner),
                lrmoeInvalidArgument);
  lrmoeTopology_t topology = NULL;
  ASSERT_OK(lrmoeTopologyCreate(2, &topology));
  ASSERT_RESULT(lrmoePlannerCreate(topology, &good, NULL),
                lrmoeInvalidArgument);
  lrmoeTopologyDestroy(topology);
}
END_TEST

/* A caller built against a header whose struct ended after numExperts. */
START_TEST(shorterConfigGetsDefaults) {
  lrmoePlannerConfig_t config = defaults;
  config.size = offsetof(lrmoePlannerConfig_t, policy);
  config.numExperts = 2;
  config.policy = (lrmoePolicy_t)77; /* not the caller's to set */
  config.slots = 77;
  lrmoePlanner_t planner = makePlanner(2, &config);
  ck_assert_int_eq(planner->config.policy, lrmoePolicyFixed);
  ck_assert_int_eq(planner->config.quota, lrmoeQuotaUniform);
  lrmoePlannerDestroy(planner);
}
END_TEST

/* Every agreed input, and nothing else, tells planners apart. */
START_TEST(hashCoversEveryInput) {
  static const int32_t homes[] = {0, 0, 1, 1}, swapped[] = {1, 0, 1, 0};
  lrmoePlannerConfig_t configs[8];
  for (int i = 0; i < 8; i++) {
    configs[i] = defaults;
    configs[i].numExperts = 4;
  }
  configs[1].retainPpm = 999999;
  configs[2].maxPairs = 1000;
  configs[3].numExperts = 5;
  configs[4].quota = lrmoeQuotaNone;
  configs[5].homes = swapped;
  configs[6].policy = lrmoePolicyLrmoe;
  configs[7].policy = lrmoePolicyLrmoe;
  configs[7].slots = 1;
  uint64_t hashes[9];
  for (int i = 0; i < 9; i++) {
    lrmoePlanner_t planner =
        i < 8 ? makePlanner(2, &configs[i]) : makePlanner(3, &configs[0]);
    hashes[i] = planner->hash;
    lrmoePlannerDestroy(planner);
    for (int j = 0; j < i; j++)
      ck_assert_uint_ne(hashes[i], hashes[j]);
  }
  configs[0].homes = homes; /* the default, said aloud */
  lrmoePlanner_t same = makePlanner(2, &configs[0]);
  ck_assert_uint_eq(same->hash, hashes[0]);
  lrmoePlannerDestroy(same);
}
END_TEST

START_TEST(planHashCoversDemand) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 2;
  lrmoePlanner_t planner = makePlanner(2, &config);
  /* The same n[e], from other sources. */
  int64_t first[] = {1, 2, 3, 4}, second[] = {3, 4, 1, 2};
  lrmoePlan_t left = makePlan(planner, first);
  lrmoePlan_t right = makePlan(planner, second);
  ck_assert_uint_ne(left->hash, right->hash);
  lrmoePlanDestroy(left);
  lrmoePlanDestroy(right);
  lrmoePlannerDestroy(planner);
}
END_TEST

/* Each invariant, broken by hand, is named. */
START_TEST(verifyNamesWhatIsBroken) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 2;
  lrmoePlanner_t planner = makePlanner(2, &config);
  int64_t demand[] = {1, 2, 3, 4};
  lrmoePlan_t plan = makePlan(planner, demand);
#define BREAK(lvalue, value, why)                                     \
  do {                                                                \
    __typeof__(lvalue) saved = lvalue;                                \
    lvalue = value;                                                   \
    ASSERT_RESULT(lrmoePlanVerify(plan), lrmoeInternalError);         \
    ck_assert_msg(strstr(lrmoeGetLastError(), why) != NULL, "\"%s\"", \
                  lrmoeGetLastError());                               \
    lvalue = saved;                                                   \
    ASSERT_OK(lrmoePlanVerify(plan));                                 \
  } while (0)
  int64_t *demand1 = (int64_t *)plan->demand + 1; /* of this plan's copy */
  BREAK(*demand1, -1, "demand of rank 0, expert 1 is -1");
  BREAK(*demand1, INT64_MAX, "at rank 0, expert 1");
  BREAK(plan->quotas[0], 5, "expert 0 keeps 5 of 4");
  BREAK(plan->quotas[1], -1, "expert 1 keeps -1");
  BREAK(plan->instanceOffsets[0], 1, "begin at 1");
  BREAK(plan->instanceOffsets[1], 0, "expert 0 has no instance");
  BREAK(plan->instanceOffsets[1], INT32_MAX, "expert 1 has no instance");
  BREAK(plan->instanceOffsets[2], 3, "end at 3");
  BREAK(plan->instanceRanks[1], 2, "instance on rank 2");
  BREAK(plan->instanceRanks[1], -1, "instance on rank -1");
  BREAK(plan->homes[1], 0, "expert 1 has no instance at its home");
  BREAK(plan->forwardPairs[0], 3, "1 of 4 forward pairs have no rank");
  BREAK(plan->forwardPairs[0], 5, "5 forward pairs of 4");
  BREAK(plan->keptPairs[1], -1, "-1 kept pairs");
#undef BREAK
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
}
END_TEST

/* Every allocation fails in turn: an error, nothing written, nothing lost
 * (LeakSanitizer looks), and success once none fails. */
START_TEST(allocationFaults) {
  lrmoePlannerConfig_t config = defaults;
  config.numExperts = 4;
  config.policy = lrmoePolicyLrmoe;
  config.slots = 1;
  int64_t demand[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  lrmoeTopology_t topology = NULL;
  ASSERT_OK(lrmoeTopologyCreate(2, &topology));
  int numFaults = 0;
  for (int64_t n = 1;; n++) {
    lrmoePlanner_t planner = NULL;
    lrmoePlan_t plan = NULL;
    lrmoeAllocFailAt(n);
    lrmoeResult_t result = lrmoePlannerCreate(topology, &config, &planner);
    if (result == lrmoeSuccess) result = lrmoePlanMake(planner, demand, &plan);
    lrmoeAllocFailAt(0);
    ck_assert(result == lrmoeSuccess || result == lrmoeOutOfMemory);
    ck_assert((plan != NULL) == (result == lrmoeSuccess));
    lrmoePlanDestroy(plan);
    lrmoePlannerDestroy(planner);
    if (result == lrmoeSuccess) break;
    numFaults++;
  }
  ck_assert_int_eq(numFaults,
                   6); /* planner, homes, hosts, domains, work, plan */
  lrmoeTopologyDestroy(topology);
}
END_TEST

START_TEST(nullIsDestroyed) {
  ASSERT_OK(lrmoePlannerDestroy(NULL));
  ASSERT_OK(lrmoePlanDestroy(NULL));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("planner");
  TCase *tcase = tcase_create("make");
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, randomDemands, 0, 100);
  tcase_add_test(tcase, defaultHomesAreContiguousAndFair);
  tcase_add_test(tcase, fewerExpertsThanRanks);
  tcase_add_test(tcase, noDemandAtAll);
  tcase_add_test(tcase, quotaOfHugeDemand);
  tcase_add_test(tcase, quotaRoundsUp);
  tcase_add_test(tcase, overflowOfSumsIsRefused);
  tcase_add_test(tcase, negativeDemandIsRefused);
  tcase_add_test(tcase, infeasibleNamesRankAndExcess);
  tcase_add_test(tcase, configErrorsOneByOne);
  tcase_add_test(tcase, shorterConfigGetsDefaults);
  tcase_add_test(tcase, hashCoversEveryInput);
  tcase_add_test(tcase, planHashCoversDemand);
  tcase_add_test(tcase, verifyNamesWhatIsBroken);
  tcase_add_test(tcase, allocationFaults);
  tcase_add_test(tcase, nullIsDestroyed);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
