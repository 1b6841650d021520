/* Memory, window and the largest retention: against formulas written out by
 * hand, and against trying all kept counts and splits. */
#include "planner/checks.h"
#include "planner/planner.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

enum {
  numRanks = 2,
  rowBytes = 16 /* of smallModel */
};

static lrmoePlan_t planWith(const lrmoePlannerConfig_t *config, int ranks,
                            const int64_t *demand, int bestEffort) {
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  input.bestEffort = bestEffort;
  lrmoePlanner_t planner = makePlanner(ranks, config);
  lrmoePlan_t plan = NULL;
  ASSERT_OK(lrmoePlanMakeWith(planner, demand, &input, &plan));
  lrmoePlannerDestroy(planner);
  return plan;
}

/* The error of a plan that must not be made. */
static void refuses(const lrmoePlannerConfig_t *config, int ranks,
                    const int64_t *demand, const char *words) {
  lrmoePlanner_t planner = makePlanner(ranks, config);
  lrmoePlan_t plan = NULL;
  ASSERT_RESULT(lrmoePlanMake(planner, demand, &plan), lrmoeInfeasible);
  ck_assert_ptr_null(plan);
  ck_assert_msg(strstr(lrmoeGetLastError(), words) != NULL, "%s",
                lrmoeGetLastError());
  lrmoePlannerDestroy(planner);
}

START_TEST(itemsByHand) {
  lrmoePlannerConfig_t config = smallModel(2);
  const int64_t demand[] = {6, 1, 4, 3};
  config.retainPpm = 500000;
  lrmoePlan_t plan = planWith(&config, numRanks, demand, 0);
  const lrmoeRankMemory_t *m = viewOf(plan).memory;
  ck_assert_int_eq(m[0].forwardBytes, 10 * 32);
  ck_assert_int_eq(m[0].savedBytes, 10 * 32);
  ck_assert_int_eq(m[0].backwardBytes, 5 * 80);
  ck_assert_int_eq(m[0].moveBytes + m[0].replicaBytes + m[0].routerBytes, 0);
  ck_assert_int_eq(m[0].peakBytes, 10 * 32 + 5 * 80);
  lrmoePlanDestroy(plan);
  config.savedState = lrmoeSavedNone;
  config.routerGrad = lrmoeRouterGradOwner;
  plan = planWith(&config, numRanks, demand, 0);
  m = viewOf(plan).memory;
  ck_assert_int_eq(m[0].savedBytes, 0);
  ck_assert_int_eq(m[0].backwardBytes, 5 * 112);
  ck_assert_int_eq(m[0].routerBytes, 7 * rowBytes);
  ck_assert_int_eq(m[0].peakBytes, 7 * rowBytes + 10 * 64);
  lrmoePlanDestroy(plan);
  config.savedState = lrmoeSavedFull;
  config.routerGrad = lrmoeRouterGradExecutor;
  plan = planWith(&config, numRanks, demand, 0);
  m = viewOf(plan).memory;
  ck_assert_int_eq(m[0].routerBytes, 5 * 32);
  ck_assert_int_eq(m[0].peakBytes, 10 * 32 + 5 * 80 + 5 * 32);
  lrmoePlanDestroy(plan);
}
END_TEST

/* 2 experts on 2 ranks, 10 and 4 pairs; rank 0 has room for 6 kept ones. */
START_TEST(largestRate) {
  lrmoePlannerConfig_t config = smallModel(2);
  const int64_t demand[] = {6, 1, 4, 3};
  config.memoryBytes = 10 * 64 + 6 * 80 - 10 * 32;
  refuses(&config, numRanks, demand,
          "backward memory does not fit: rank 0 would need 1120 B and "
          "memoryBytes is 800, 320 too many");
  config.retain = lrmoeRetainLargest;
  lrmoePlan_t plan = planWith(&config, numRanks, demand, 0);
  ck_assert_int_eq(viewOf(plan).quotas[0], 6);
  ck_assert_int_eq(viewOf(plan).quotas[1], 3); /* ceil(0.6 * 4) */
  ck_assert_int_eq(viewOf(plan).constraint, lrmoeConstraintBackwardMemory);
  ck_assert_int_eq(viewOf(plan).constraintRank, 0);
  ck_assert_int_eq(viewOf(plan).constraintSlack, 0);
  lrmoePlanDestroy(plan);
  config.quota = lrmoeQuotaOverload;
  plan = planWith(&config, numRanks, demand, 0);
  ck_assert_int_eq(viewOf(plan).quotas[0], 6);
  ck_assert_int_eq(viewOf(plan).quotas[1], 4); /* nothing binds there */
  lrmoePlanDestroy(plan);
  config.minRetainPpm = 700000;
  refuses(&config, numRanks, demand, "80 too many");
  plan = planWith(&config, numRanks, demand, 1);
  ck_assert_int_eq(viewOf(plan).quotas[0], 7);
  ck_assert_int_eq(viewOf(plan).constraintSlack, -80);
  lrmoePlanDestroy(plan);
}
END_TEST

START_TEST(gridRates) {
  lrmoePlannerConfig_t config = smallModel(2);
  const int64_t demand[] = {50, 10, 50, 10};
  config.retain = lrmoeRetainGrid;
  const int64_t kept[] = {100, 90, 80, 70};
  for (int i = 0; i < 4; i++) {
    config.memoryBytes = 100 * 32 + kept[i] * 80 + 79;
    lrmoePlan_t plan = planWith(&config, numRanks, demand, 0);
    ck_assert_int_eq(viewOf(plan).quotas[0], kept[i]);
    lrmoePlanDestroy(plan);
  }
  config.memoryBytes = 100 * 32 + 69 * 80 + 79;
  refuses(&config, numRanks, demand, "backward memory");
}
END_TEST

START_TEST(forwardIsNamed) {
  lrmoePlannerConfig_t config = smallModel(2);
  const int64_t demand[] = {50, 10, 50, 10};
  config.retain = lrmoeRetainLargest;
  config.memoryBytes = 100 * 64 - 1;
  refuses(&config, numRanks, demand,
          "forward memory does not fit: rank 0 would need 6400 B and "
          "memoryBytes is 6399, 1 too many");
}
END_TEST

/* Halving the window about halves what is kept. */
START_TEST(windowBinds) {
  lrmoePlannerConfig_t config = smallModel(2);
  const int64_t demand[] = {4000000, 100000, 4000000, 100000};
  lrmoePlan_t plan = planWith(&config, numRanks, demand, 0);
  int64_t whole = viewOf(plan).commNs;
  lrmoePlanDestroy(plan);
  ck_assert_int_gt(whole, 10000);
  config.windowNs = whole / 2;
  refuses(&config, numRanks, demand, "do not fit the window");
  config.retain = lrmoeRetainLargest;
  plan = planWith(&config, numRanks, demand, 0);
  lrmoePlanView_t view = viewOf(plan);
  ck_assert_int_le(view.commNs, config.windowNs);
  ck_assert_int_gt(view.commNs, config.windowNs - config.windowNs / 100);
  ck_assert(view.retainPpm > 480000 && view.retainPpm < 520000);
  lrmoePlanDestroy(plan);
}
END_TEST

/* ---- Against trying all ------------------------------------------------- */

enum {
  bruteRanks = 3,
  bruteExperts = 4,
  maxCap = 64
};

struct brute {
  const lrmoePlanView_t *view;
  int64_t caps[bruteRanks];
};

/* Hall's condition over all sets of ranks: quotas fit if no set of experts
 * has more than the ranks that host them. */
static int bruteFits(const struct brute *brute, const int64_t *quotas) {
  const lrmoePlanView_t *view = brute->view;
  for (unsigned set = 1; set < 1u << bruteExperts; set++) {
    int64_t need = 0, have = 0;
    unsigned ranks = 0;
    for (int e = 0; e < bruteExperts; e++) {
      if (!(set >> e & 1)) continue;
      need += quotas[e];
      for (int i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
           i++)
        ranks |= 1u << view->instanceRanks[i];
    }
    for (int g = 0; g < bruteRanks; g++)
      have += ranks >> g & 1 ? brute->caps[g] : 0;
    if (need > have) return 0;
  }
  return 1;
}

static void brutePairs(const lrmoePlanView_t *view, int64_t *pairs) {
  for (int e = 0; e < bruteExperts; e++) {
    pairs[e] = 0;
    for (int s = 0; s < bruteRanks; s++)
      pairs[e] += view->demand[s * bruteExperts + e];
  }
}

/* The rate that is largest, in steps of a millionth; every expert has so few
 * pairs that only rates k / n matter. */
static int64_t bruteUniform(const struct brute *brute, const int64_t *pairs) {
  int64_t best = -1;
  for (int from = 0; from < bruteExperts; from++)
    for (int64_t k = 0; k <= pairs[from]; k++) {
      if (!pairs[from]) continue;
      int64_t ppm = k * 1000000 / pairs[from], quotas[bruteExperts], sum = 0;
      for (int e = 0; e < bruteExperts; e++)
        sum += quotas[e] = (pairs[e] * ppm + 999999) / 1000000;
      if (bruteFits(brute, quotas) && sum > best) best = sum;
    }
  return best;
}

/* The largest sum of any quotas. */
static int64_t bruteLargest(const struct brute *brute, const int64_t *pairs) {
  int64_t best = -1, q[bruteExperts];
  for (q[0] = 0; q[0] <= pairs[0]; q[0]++)
    for (q[1] = 0; q[1] <= pairs[1]; q[1]++)
      for (q[2] = 0; q[2] <= pairs[2]; q[2]++)
        for (q[3] = 0; q[3] <= pairs[3]; q[3]++)
          if (q[0] + q[1] + q[2] + q[3] > best && bruteFits(brute, q))
            best = q[0] + q[1] + q[2] + q[3];
  return best;
}

/* Of savedState none, where moves cost nothing: cap = (memory - replicas) over
 * 112. */
static void bruteCaps(const lrmoePlannerConfig_t *config, struct brute *brute) {
  for (int g = 0; g < bruteRanks; g++)
    brute->caps[g] =
        (config->memoryBytes - brute->view->memory[g].replicaBytes) / 112;
}

static void largestOfAllOnce(int load) {
  struct testRandom random = {(uint64_t)load + 1};
  int64_t demand[bruteRanks * bruteExperts], pairs[bruteExperts];
  for (int i = 0; i < bruteRanks * bruteExperts; i++)
    demand[i] = (int64_t)(randomNext(&random) % (i % 4 ? 3 : 9));
  lrmoePlannerConfig_t config = smallModel(bruteExperts);
  config.policy = load % 3 ? lrmoePolicyLrmoe : lrmoePolicyFixed;
  config.slots = load % 3 ? 1 : 0;
  config.savedState = lrmoeSavedNone;
  config.weightBytes = 100;
  config.gradBytes = 60;
  config.retain = lrmoeRetainLargest;
  config.quota = load % 2 ? lrmoeQuotaOverload : lrmoeQuotaUniform;
  config.memoryBytes = 600 + (int64_t)(randomNext(&random) % 1200);
  lrmoePlan_t plan = planWith(&config, bruteRanks, demand, 1);
  lrmoePlanView_t view = viewOf(plan);
  struct brute brute = {&view, {0}};
  bruteCaps(&config, &brute);
  brutePairs(&view, pairs);
  int64_t expected = config.quota == lrmoeQuotaUniform
                         ? bruteUniform(&brute, pairs)
                         : bruteLargest(&brute, pairs);
  ck_assert_int_eq(view.kept, expected);
  if (view.constraintSlack >= 0) checkPlan(plan, demand, bruteRanks, &config);
  ck_assert(bruteFits(&brute, view.quotas));
  lrmoePlanDestroy(plan);
}

START_TEST(largestOfAll) {
  for (int load = 0; load < 50; load++)
    largestOfAllOnce(50 * _i + load);
}
END_TEST

/* Max-min fair: no expert could have one more pair without another that has
 * no higher rate losing one. */
static void overloadIsFairOnce(int load) {
  struct testRandom random = {(uint64_t)load + 77};
  int64_t demand[bruteRanks * bruteExperts], pairs[bruteExperts];
  for (int i = 0; i < bruteRanks * bruteExperts; i++)
    demand[i] = (int64_t)(randomNext(&random) % (i % 4 ? 3 : 9));
  lrmoePlannerConfig_t config = smallModel(bruteExperts);
  config.policy = lrmoePolicyLrmoe;
  config.slots = 1;
  config.savedState = lrmoeSavedNone;
  config.weightBytes = config.gradBytes = 10;
  config.retain = lrmoeRetainLargest;
  config.quota = lrmoeQuotaOverload;
  config.memoryBytes = 500 + (int64_t)(randomNext(&random) % 900);
  lrmoePlan_t plan = planWith(&config, bruteRanks, demand, 1);
  lrmoePlanView_t view = viewOf(plan);
  struct brute brute = {&view, {0}};
  int64_t quotas[bruteExperts];
  bruteCaps(&config, &brute);
  brutePairs(&view, pairs);
  memcpy(quotas, view.quotas, sizeof quotas);
  for (int up = 0; up < bruteExperts; up++) {
    if (quotas[up] >= pairs[up]) continue;
    quotas[up]++;
    ck_assert(!bruteFits(&brute, quotas));
    for (int down = 0; down < bruteExperts; down++) {
      if (!quotas[down] || down == up) continue;
      quotas[down]--; /* to trade pairs would not lift the lower rate */
      if (bruteFits(&brute, quotas))
        ck_assert_int_le(quotas[down] * pairs[up], quotas[up] * pairs[down]);
      quotas[down]++;
    }
    quotas[up]--;
  }
  lrmoePlanDestroy(plan);
}

START_TEST(overloadIsFair) {
  for (int load = 0; load < 50; load++)
    overloadIsFairOnce(50 * _i + load);
}
END_TEST

/* Also where moves cost memory, what is planned fits. */
static void movesAreChargedOnce(int load) {
  struct testRandom random = {(uint64_t)load + 5};
  const int ranks = 4, experts = 12;
  int64_t *demand = makeDemand(&random, ranks, experts);
  lrmoePlannerConfig_t config = smallModel(experts);
  config.policy = lrmoePolicyLrmoe;
  config.slots = 2;
  config.quota = load % 2 ? lrmoeQuotaOverload : lrmoeQuotaUniform;
  lrmoePlan_t plan = planWith(&config, ranks, demand, 0);
  int64_t peak = 0;
  for (int g = 0; g < ranks; g++)
    if (viewOf(plan).memory[g].peakBytes > peak)
      peak = viewOf(plan).memory[g].peakBytes;
  lrmoePlanDestroy(plan);
  config.retain = lrmoeRetainLargest;
  config.memoryBytes = peak - peak / 5 + 1;
  plan = planWith(&config, ranks, demand, 1);
  lrmoePlanView_t view = viewOf(plan);
  if (view.constraintSlack >= 0) checkPlan(plan, demand, ranks, &config);
  ck_assert(view.constraintSlack >= 0 ||
            view.constraint != lrmoeConstraintBackwardMemory);
  ck_assert_int_lt(view.kept, view.pairs);
  lrmoePlanDestroy(plan);
  free(demand);
}

START_TEST(movesAreCharged) {
  for (int load = 0; load < 20; load++)
    movesAreChargedOnce(20 * _i + load);
}
END_TEST

/* Counts and sizes so large that products leave an int64. */
START_TEST(hugeCounts) {
  lrmoePlannerConfig_t config = smallModel(2);
  const int64_t demand[] = {(int64_t)1 << 61, 0, (int64_t)1 << 61, 0};
  config.memoryBytes = (int64_t)1 << 40;
  config.windowNs = 1000;
  config.retain = lrmoeRetainLargest;
  refuses(&config, numRanks, demand, "forward memory");
  lrmoePlan_t plan = planWith(&config, numRanks, demand, 1);
  ck_assert_int_lt(viewOf(plan).constraintSlack, 0);
  lrmoePlanDestroy(plan);
}
END_TEST

START_TEST(modelIsSaved) {
  lrmoePlannerConfig_t config = smallModel(2);
  const int64_t demand[] = {6, 1, 4, 3};
  lrmoePlan_t plan = planWith(&config, numRanks, demand, 0), again = NULL;
  size_t bytes = 0;
  ASSERT_OK(lrmoePlanSave(plan, NULL, &bytes));
  char *saved = malloc(bytes);
  ck_assert_ptr_nonnull(saved);
  ASSERT_OK(lrmoePlanSave(plan, saved, &bytes));
  ASSERT_OK(lrmoePlanLoad(saved, bytes, &again));
  lrmoePlanView_t a = viewOf(plan), b = viewOf(again);
  ck_assert_int_eq(a.hash, b.hash);
  ck_assert_int_eq(a.commNs, b.commNs);
  ck_assert_mem_eq(a.memory, b.memory, numRanks * sizeof *a.memory);
  free(saved);
  lrmoePlanDestroy(plan);
  lrmoePlanDestroy(again);
}
END_TEST

int main(void) {
  TCase *cases = tcase_create("retain");
  tcase_add_test(cases, itemsByHand);
  tcase_add_test(cases, largestRate);
  tcase_add_test(cases, gridRates);
  tcase_add_test(cases, forwardIsNamed);
  tcase_add_test(cases, windowBinds);
  tcase_add_loop_test(cases, largestOfAll, 0, 4);
  tcase_add_loop_test(cases, overloadIsFair, 0, 2);
  tcase_add_loop_test(cases, movesAreCharged, 0, 2);
  tcase_add_test(cases, hugeCounts);
  tcase_add_test(cases, modelIsSaved);
  Suite *suite = suite_create("planner retain");
  suite_add_tcase(suite, cases);
  return suiteRun(suite);
}
