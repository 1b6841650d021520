/* Policy lrmoe on loads of real sizes: every plan is verified by checks.c, and
 * the balance is what the method promises. */
#include "base/alloc.h"
#include "planner/checks.h"
#include "planner/loads.h"
#include "planner/plan.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

START_TEST(randomLoads) {
  struct testRandom random = {(uint64_t)_i + 1};
  static const int64_t ppms[] = {0, 1, 300000, 700000, 1000000};
  static const int64_t sizes[] = {1, 7, 1000, 262144, (int64_t)1 << 50};
  int numRanks = 1 + (int)randomBelow(&random, 64);
  lrmoePlannerConfig_t config =
      replicated(1 + (int32_t)randomBelow(&random, 256),
                 1 + (int32_t)randomBelow(&random, 4));
  config.retainPpm = ppms[randomBelow(&random, 5)];
  config.quota = (lrmoeQuota_t)randomBelow(&random, 2);
  int32_t homes[256];
  int64_t spread = 1 + randomBelow(&random, numRanks);
  for (int e = 0; e < config.numExperts; e++)
    homes[e] = (int32_t)randomBelow(&random, spread);
  if (randomBelow(&random, 2)) config.homes = homes;
  struct loadSpec spec = {(enum loadShape)(_i % numLoadShapes),
                          (double)randomBelow(&random, 200) / 100,
                          sizes[randomBelow(&random, 5)]};

  lrmoePlanner_t planner = makePlanner(numRanks, &config);
  int64_t *demand = makeLoad(&random, spec, numRanks, config.numExperts);
  lrmoePlan_t made = makePlan(planner, demand);
  checkPlan(made, demand, numRanks, &config);
  lrmoePlanDestroy(made);
  lrmoePlannerDestroy(planner);
  free(demand);
}
END_TEST

/* Eight loads that a user of another balancer published: equal splits over two
 * slots a rank leave a peak of 232; the mean is 181.25. */
START_TEST(publishedExampleIsLevelled) {
  static const int64_t demand[64] = {600, 560, 120, 120, 20, 10, 10, 10};
  lrmoePlannerConfig_t config = replicated(8, 1);
  lrmoePlanner_t planner = makePlanner(8, &config);
  lrmoePlan_t made = makePlan(planner, demand);
  lrmoePlanView_t view = checkPlan(made, demand, 8, &config);
  ck_assert_int_eq(view.peakKept, 182);
  ck_assert_int_eq(view.peakForward, 182);
  ck_assert_int_eq(view.boundKept, 182);
  ck_assert_int_eq(view.gapKeptPpm, 0);
  lrmoePlanDestroy(made);
  lrmoePlannerDestroy(planner);
}
END_TEST

/* All pairs on one expert of G ranks: one slot each shares it out evenly. */
START_TEST(oneHotExpertIsSharedByAll) {
  static const int64_t demand[16] = {0, 1001};
  lrmoePlannerConfig_t config = replicated(2, 1);
  lrmoePlanner_t planner = makePlanner(8, &config);
  lrmoePlan_t made = makePlan(planner, demand);
  lrmoePlanView_t view = checkPlan(made, demand, 8, &config);
  ck_assert_int_eq(view.peakKept, 126);
  ck_assert_int_eq(view.numReplicas, 7);
  lrmoePlanDestroy(made);
  lrmoePlannerDestroy(planner);
}
END_TEST

START_TEST(levelLoadNeedsNoReplica) {
  static const int64_t demand[8] = {5, 5, 5, 5, 4, 6, 7, 3};
  lrmoePlannerConfig_t config = replicated(4, 2);
  config.quota = lrmoeQuotaNone;
  lrmoePlanner_t planner = makePlanner(2, &config);
  lrmoePlan_t made = makePlan(planner, demand);
  lrmoePlanView_t view = checkPlan(made, demand, 2, &config);
  ck_assert_int_eq(view.peakKept, 20);
  ck_assert_int_eq(view.numReplicas, 0);
  lrmoePlanDestroy(made);
  lrmoePlannerDestroy(planner);
}
END_TEST

/* Backward keeps nothing: the placement serves forward alone. */
START_TEST(nothingKeptStillLevelsForward) {
  static const int64_t demand[8] = {100, 0, 0, 0};
  lrmoePlannerConfig_t config = replicated(2, 1);
  config.retainPpm = 0;
  lrmoePlanner_t planner = makePlanner(4, &config);
  lrmoePlan_t made = makePlan(planner, demand);
  lrmoePlanView_t view = checkPlan(made, demand, 4, &config);
  ck_assert_int_eq(view.peakKept, 0);
  ck_assert_int_eq(view.peakForward, 25);
  ck_assert_int_eq(view.movesIn, 0);
  lrmoePlanDestroy(made);
  lrmoePlannerDestroy(planner);
}
END_TEST

/* What is sure to stay: two ranks, K = 60 of n = 100, F = X = half each.  40
 * dropped pairs may all be one instance's, which leaves it 10 of its 30. */
START_TEST(movesAreTheWorstCase) {
  static const int64_t demand[2] = {100, 0};
  lrmoePlannerConfig_t config = replicated(1, 1);
  config.retainPpm = 600000;
  lrmoePlanner_t planner = makePlanner(2, &config);
  lrmoePlan_t made = makePlan(planner, demand);
  lrmoePlanView_t view = checkPlan(made, demand, 2, &config);
  ck_assert_int_eq(view.peakForward, 50);
  ck_assert_int_eq(view.peakKept, 30);
  ck_assert_int_eq(view.movesIn, 40);
  ck_assert_int_eq(view.peakMovesIn, 20);
  lrmoePlanDestroy(made);
  lrmoePlannerDestroy(planner);
}
END_TEST

/* Mean of peak / mean over many loads, in millionths. */
static int64_t meanPeakPpm(struct loadSpec spec, int numRanks,
                           const lrmoePlannerConfig_t *config) {
  enum {
    numLoads = 100
  };
  struct testRandom random = {42};
  lrmoePlanner_t planner = makePlanner(numRanks, config);
  int64_t sum = 0;
  for (int i = 0; i < numLoads; i++) {
    int64_t *demand = makeLoad(&random, spec, numRanks, config->numExperts);
    lrmoePlan_t made = makePlan(planner, demand);
    lrmoePlanView_t view = checkPlan(made, demand, numRanks, config);
    sum += view.peakKept * numRanks * 1000000 / view.kept;
    lrmoePlanDestroy(made);
    free(demand);
  }
  lrmoePlannerDestroy(planner);
  return sum / numLoads;
}

START_TEST(balanceOfManyLoads) {
  static const struct {
    struct loadSpec spec;
    int numRanks, numExperts, slots;
    int64_t most; /* mean of peak / mean, in millionths */
  } cases[] = {
      {{loadZipf, 0.8, 262144}, 8, 128, 1, 1003000},
      {{loadZipf, 1.2, 262144}, 8, 128, 1, 1003000},
      {{loadLognormal, 1.0, 262144}, 8, 128, 1, 1010000},
      {{loadZipf, 1.2, 262144}, 8, 128, 2, 1001000},
      {{loadLognormal, 1.0, 262144}, 8, 128, 2, 1002000},
      {{loadZipf, 0.5, 262144}, 64, 256, 1, 1001000},
      {{loadLognormal, 1.0, 262144}, 64, 256, 1, 1001000},
  };
  lrmoePlannerConfig_t config =
      replicated(cases[_i].numExperts, cases[_i].slots);
  int64_t mean = meanPeakPpm(cases[_i].spec, cases[_i].numRanks, &config);
  ck_assert_int_le(mean, cases[_i].most);

  lrmoePlannerConfig_t fixed = config;
  fixed.policy = lrmoePolicyFixed;
  fixed.slots = 0;
  mean = meanPeakPpm(cases[_i].spec, cases[_i].numRanks, &fixed);
  ck_assert_int_ge(mean, 1300000); /* there was something to level */
}
END_TEST

/* The bits of a plan do not depend on what was planned before. */
START_TEST(plansDoNotDependOnHistory) {
  struct testRandom random = {(uint64_t)_i};
  lrmoePlannerConfig_t config = replicated(48, 1 + _i % 3);
  config.retainPpm = 700000;
  struct loadSpec spec = {loadLognormal, 1.5, 5000};
  lrmoePlanner_t used = makePlanner(8, &config);
  for (int round = 0; round < 20; round++) {
    int64_t *demand = makeLoad(&random, spec, 8, 48);
    lrmoePlanner_t fresh = makePlanner(8, &config);
    lrmoePlan_t left = makePlan(used, demand), right = makePlan(fresh, demand);
    lrmoePlan_t again = makePlan(used, demand);
    checkSamePlan(left, right);
    checkSamePlan(left, again);
    lrmoePlanDestroy(left);
    lrmoePlanDestroy(right);
    lrmoePlanDestroy(again);
    lrmoePlannerDestroy(fresh);
    free(demand);
  }
  lrmoePlannerDestroy(used);
}
END_TEST

START_TEST(withoutSlotsItIsFixed) {
  struct testRandom random = {(uint64_t)_i};
  lrmoePlannerConfig_t config = replicated(24, 0), fixed = config;
  fixed.policy = lrmoePolicyFixed;
  config.retainPpm = fixed.retainPpm = 650000;
  lrmoePlanner_t left = makePlanner(5, &config), right = makePlanner(5, &fixed);
  int64_t *demand = makeDemand(&random, 5, 24);
  lrmoePlan_t a = makePlan(left, demand), b = makePlan(right, demand);
  checkPlan(a, demand, 5, &config);
  a->policy = lrmoePolicyFixed; /* all that tells them apart */
  lrmoePlanFinish(a);
  checkSamePlan(a, b);
  ck_assert_int_eq(viewOf(b).gapKeptPpm, 0);
  lrmoePlanDestroy(a);
  lrmoePlanDestroy(b);
  lrmoePlannerDestroy(left);
  lrmoePlannerDestroy(right);
  free(demand);
}
END_TEST

/* The hot path allocates the plan and nothing else. */
START_TEST(planIsTheOnlyAllocation) {
  struct testRandom random = {7};
  for (int slots = 0; slots < 4; slots++) {
    lrmoePlannerConfig_t config = replicated(64, slots);
    config.retainPpm = 500000;
    lrmoePlanner_t planner = makePlanner(16, &config);
    struct loadSpec spec = {loadZipf, 1.0, 999};
    int64_t *demand = makeLoad(&random, spec, 16, 64);
    lrmoeAllocFailAt(0);
    lrmoePlan_t made = makePlan(planner, demand);
    ck_assert_int_eq(lrmoeAllocFailAt(0), 1);
    lrmoePlanDestroy(made);
    lrmoePlannerDestroy(planner);
    free(demand);
  }
}
END_TEST

/* Replicas make room: what policy fixed must refuse fits exactly. */
START_TEST(replicasMakeRoom) {
  static const int64_t demand[8] = {40, 60, 50, 41, 0, 0, 30, 2};
  lrmoePlannerConfig_t config = replicated(4, 1);
  config.maxPairs = 112; /* of 223 pairs on two ranks */
  lrmoePlanner_t planner = makePlanner(2, &config);
  lrmoePlan_t made = makePlan(planner, demand);
  checkPlan(made, demand, 2, &config);
  lrmoePlanDestroy(made);
  lrmoePlannerDestroy(planner);

  config.maxPairs = 111;
  planner = makePlanner(2, &config);
  made = NULL;
  ASSERT_RESULT(lrmoePlanMake(planner, demand, &made), lrmoeInfeasible);
  ck_assert_ptr_null(made);
  ck_assert_msg(strstr(lrmoeGetLastError(),
                       "112 pairs and maxPairs is 111, 1 too many") != NULL,
                "%s", lrmoeGetLastError());
  lrmoePlannerDestroy(planner);
}
END_TEST

/* A limit at the peak that is reached without one is kept to, and one below
 * what is proven is refused. */
START_TEST(limitAtItsOwnPeakFits) {
  struct testRandom random = {(uint64_t)_i};
  lrmoePlannerConfig_t config = replicated(20, 1);
  config.retainPpm = _i % 2 ? 1000000 : 300000;
  lrmoePlanner_t planner = makePlanner(4, &config);
  struct loadSpec spec = {loadLognormal, 1.0, 500};
  int64_t *demand = makeLoad(&random, spec, 4, 20);
  lrmoePlan_t made = makePlan(planner, demand);
  lrmoePlanView_t view = viewOf(made);
  const int64_t limits[] = {view.peakForward, view.boundForward - 1};
  lrmoePlanDestroy(made);
  lrmoePlannerDestroy(planner);
  for (int i = 0; i < 2; i++) {
    config.maxPairs = limits[i];
    planner = makePlanner(4, &config);
    made = NULL;
    ASSERT_RESULT(lrmoePlanMake(planner, demand, &made),
                  i ? lrmoeInfeasible : lrmoeSuccess);
    if (made) checkPlan(made, demand, 4, &config);
    lrmoePlanDestroy(made);
    lrmoePlannerDestroy(planner);
  }
  free(demand);
}
END_TEST

/* Sums up to 2^63 - 1 overflow nowhere (UBSan looks). */
START_TEST(hugeCounts) {
  static const int64_t demand[8] = {INT64_MAX - 10, 0, 3, 0, 0, 5, 1, 1};
  static const int64_t ppms[] = {1000000, 700001, 3};
  for (int i = 0; i < 3; i++) {
    lrmoePlannerConfig_t config = replicated(2, 1 + i);
    config.retainPpm = ppms[i];
    lrmoePlanner_t planner = makePlanner(4, &config);
    lrmoePlan_t made = makePlan(planner, demand);
    lrmoePlanView_t view = checkPlan(made, demand, 4, &config);
    ck_assert_int_eq(view.gapKeptPpm, 0);
    lrmoePlanDestroy(made);
    lrmoePlannerDestroy(planner);
  }
  /* A hot expert and more cold ranks than it can fill. */
  struct testRandom random = {3};
  struct loadSpec spec = {loadLognormal, 2.0, INT64_MAX / 16};
  lrmoePlannerConfig_t config = replicated(40, 1);
  lrmoePlanner_t planner = makePlanner(8, &config);
  for (int i = 0; i < 50; i++) {
    int64_t *loads = makeLoad(&random, spec, 8, 40);
    lrmoePlan_t made = makePlan(planner, loads);
    checkPlan(made, loads, 8, &config);
    lrmoePlanDestroy(made);
    free(loads);
  }
  lrmoePlannerDestroy(planner);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("planner replicas");
  TCase *tcase = tcase_create("replicas");
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, randomLoads, 0, 300);
  tcase_add_test(tcase, publishedExampleIsLevelled);
  tcase_add_test(tcase, oneHotExpertIsSharedByAll);
  tcase_add_test(tcase, levelLoadNeedsNoReplica);
  tcase_add_test(tcase, nothingKeptStillLevelsForward);
  tcase_add_test(tcase, movesAreTheWorstCase);
  tcase_add_loop_test(tcase, balanceOfManyLoads, 0, 7);
  tcase_add_loop_test(tcase, plansDoNotDependOnHistory, 0, 6);
  tcase_add_loop_test(tcase, withoutSlotsItIsFixed, 0, 10);
  tcase_add_test(tcase, planIsTheOnlyAllocation);
  tcase_add_test(tcase, replicasMakeRoom);
  tcase_add_loop_test(tcase, limitAtItsOwnPeakFits, 0, 20);
  tcase_add_test(tcase, hugeCounts);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
