/* The rivals, each on an example small enough to be worked out by hand from
 * its published description. */
#include "planner/checks.h"
#include "planner/planner.h"
#include "planner/rivals_random.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

/* One planner and its latest plan. */
struct example {
  lrmoePlannerConfig_t config;
  lrmoePlanner_t planner;
  lrmoePlan_t plan;
  lrmoePlanView_t view;
  int numRanks;
};

static struct example begin(lrmoePolicy_t policy, int numRanks,
                            int32_t numExperts, int32_t slots) {
  struct example x = {LRMOE_PLANNER_CONFIG_INITIALIZER, NULL, NULL,
                      LRMOE_PLAN_VIEW_INITIALIZER, numRanks};
  x.config.policy = policy;
  x.config.numExperts = numExperts;
  x.config.slots = slots;
  return x;
}

static void make(struct example *x, const int64_t *demand) {
  if (!x->planner) x->planner = makePlanner(x->numRanks, &x->config);
  ASSERT_OK(lrmoePlanMake(x->planner, demand, &x->plan));
  x->view = checkPlan(x->plan, demand, x->numRanks, &x->config);
}

/* All pairs come from rank 0. */
static void makeFromLoads(struct example *x, const int64_t *loads) {
  size_t experts = (size_t)x->config.numExperts;
  int64_t *demand = calloc((size_t)x->numRanks * experts, sizeof *demand);
  ck_assert_ptr_nonnull(demand);
  memcpy(demand, loads, experts * sizeof *demand);
  make(x, demand);
  free(demand);
}

static void end(struct example *x) {
  lrmoePlanDestroy(x->plan);
  lrmoePlannerDestroy(x->planner);
}

/* Forward pairs of expert e on a rank; -1: no instance. */
static int64_t pairsOn(const struct example *x, int32_t e, int32_t rank) {
  for (int32_t i = x->view.instanceOffsets[e];
       i < x->view.instanceOffsets[e + 1]; i++)
    if (x->view.instanceRanks[i] == rank) return x->view.forwardPairs[i];
  return -1;
}

/* FlashLB's example, on which EPLB is known to reach 232.  Counts: 5 of expert
 * 0 (120 each) and 5 of expert 1 (112 each).  The second copy of expert 1
 * joins the first on rank 7, which has the least load then. */
START_TEST(eplbExample) {
  static const int64_t loads[] = {600, 560, 120, 120, 20, 10, 10, 10};
  struct example x = begin(lrmoePolicyEplb, 8, 8, 1);
  makeFromLoads(&x, loads);
  ck_assert_int_eq(x.view.peakForward, 232);
  ck_assert_int_eq(x.view.numInstances, 15);
  for (int32_t g = 0; g < 5; g++)
    ck_assert_int_eq(pairsOn(&x, 0, g), 120);
  ck_assert_int_eq(pairsOn(&x, 1, 7), 224);
  ck_assert_int_eq(pairsOn(&x, 1, 2), 112);
  ck_assert_int_eq(pairsOn(&x, 4, 3), 20);
  ck_assert_int_eq(x.view.homesMoved, 6);
  ck_assert_int_eq(x.view.homes[2], 5);
  end(&x);
}
END_TEST

/* Of 8 slots: 3.6, 2.8, 0.8 and 0.8.  Floors and ones leave one, which goes to
 * the largest remainder of the first two. */
START_TEST(proportionalExample) {
  static const int64_t loads[] = {45, 35, 10, 10};
  struct example x = begin(lrmoePolicyProportional, 2, 4, 2);
  makeFromLoads(&x, loads);
  ck_assert_int_eq(pairsOn(&x, 0, 0), 45); /* three slots of one rank */
  ck_assert_int_eq(pairsOn(&x, 1, 0), 12);
  ck_assert_int_eq(pairsOn(&x, 1, 1), 23);
  ck_assert_int_eq(x.view.peakForward, 57);
  ck_assert_int_eq(x.view.homesMoved, 0);
  end(&x);
}
END_TEST

/* Of 6 slots 5.4 and three times less than one, which get one each: two of
 * the five are taken back.  Without spare slots it is policy fixed. */
START_TEST(proportionalGivesEveryExpertASlot) {
  static const int64_t loads[] = {90, 4, 3, 3};
  struct example x = begin(lrmoePolicyProportional, 2, 4, 1);
  makeFromLoads(&x, loads);
  ck_assert_int_eq(pairsOn(&x, 0, 0), 90);
  ck_assert_int_eq(pairsOn(&x, 1, 1), 4);
  ck_assert_int_eq(x.view.homesMoved, 1);
  end(&x);
  x = begin(lrmoePolicyProportional, 2, 4, 0);
  makeFromLoads(&x, loads);
  ck_assert_int_eq(x.view.numReplicas, 0);
  ck_assert_int_eq(x.view.peakForward, 94);
  end(&x);
}
END_TEST

/* Ranks hold 19 and 3 pairs; 10 and 1, 9 and 2 are the best two and two. */
START_TEST(permuteExample) {
  static const int64_t loads[] = {10, 9, 2, 1};
  struct example x = begin(lrmoePolicyPermute, 2, 4, 0);
  makeFromLoads(&x, loads);
  ck_assert_int_eq(x.view.peakForward, 11);
  ck_assert_int_eq(x.view.boundForward, 11);
  static const int32_t homes[] = {0, 1, 1, 0};
  ck_assert_mem_eq(x.view.homes, homes, sizeof homes);
  ck_assert_int_eq(x.view.homesMoved, 2);
  end(&x);
}
END_TEST

/* Excess 40 and slack 40; a replica of at least 50 pairs is not worth it. */
START_TEST(quotaExample) {
  static const int64_t loads[] = {100, 20};
  struct example x = begin(lrmoePolicyQuota, 2, 2, 1);
  makeFromLoads(&x, loads);
  ck_assert_int_eq(pairsOn(&x, 0, 0), 60);
  ck_assert_int_eq(pairsOn(&x, 0, 1), 40);
  ck_assert_int_eq(x.view.gapForwardPpm, 0);
  end(&x);
  x = begin(lrmoePolicyQuota, 2, 2, 1);
  x.config.minReplicaPairs = 50;
  makeFromLoads(&x, loads);
  ck_assert_int_eq(x.view.numReplicas, 0);
  ck_assert_int_eq(x.view.peakForward, 100);
  end(&x);
}
END_TEST

/* Pairs that leave their home's host. */
static int64_t crossing(const struct example *x, const int32_t *hosts) {
  int64_t pairs = 0;
  for (int32_t e = 0; e < x->config.numExperts; e++)
    for (int32_t g = 0; g < x->numRanks; g++)
      if (hosts[g] != hosts[x->view.homes[e]] && pairsOn(x, e, g) > 0)
        pairs += pairsOn(x, e, g);
  return pairs;
}

/* Ranks 0 and 3 are 30 and 20 above the mean, 1 and 2 are 20 and 30 below.
 * Most slack first sends all 50 to the other host, near first only 10. */
START_TEST(topoStaysNear) {
  static const int64_t loads[] = {80, 30, 20, 70};
  static const int32_t hosts[] = {0, 0, 1, 1};
  static const int64_t expected[] = {50, 10};
  for (int i = 0; i < 2; i++) {
    struct example x = begin(i ? lrmoePolicyTopo : lrmoePolicyQuota, 4, 4, 2);
    x.planner = makePlanner(4, &x.config);
    memcpy(x.planner->hosts, hosts, sizeof hosts);
    makeFromLoads(&x, loads);
    ck_assert_int_eq(x.view.peakForward, 50);
    ck_assert_int_eq(crossing(&x, hosts), expected[i]);
    end(&x);
  }
}
END_TEST

/* Each of four ranks has 10 pairs of expert 0 and one of the others: with
 * expert 0 everywhere ranks hold 10 and 14, and a second shadow makes it 15.
 * If a shadow costs 30 pairs it is not worth 26. */
START_TEST(shadowExample) {
  static const int64_t demand[] = {10, 1, 1, 1, 10, 1, 1, 1,
                                   10, 1, 1, 1, 10, 1, 1, 1};
  struct example x = begin(lrmoePolicyShadow, 4, 4, 3);
  make(&x, demand);
  for (int32_t g = 0; g < 4; g++)
    ck_assert_int_eq(pairsOn(&x, 0, g), 10);
  ck_assert_int_eq(x.view.numReplicas, 3);
  ck_assert_int_eq(x.view.peakForward, 14);
  end(&x);
  x = begin(lrmoePolicyShadow, 4, 4, 3);
  x.config.pairNs = 1;
  x.config.materialiseNs = 20;
  x.config.reduceNs = 10;
  make(&x, demand);
  ck_assert_int_eq(x.view.numReplicas, 0);
  end(&x);
}
END_TEST

/* Expert 0 to rank 1: 50 and 70; expert 1 to rank 0: 60 and 60. */
START_TEST(flexExpands) {
  static const int64_t loads[] = {100, 20};
  struct example x = begin(lrmoePolicyFlex, 2, 2, 1);
  makeFromLoads(&x, loads);
  ck_assert_int_eq(pairsOn(&x, 0, 1), 50);
  ck_assert_int_eq(pairsOn(&x, 1, 0), 10);
  ck_assert_int_eq(x.view.peakForward, 60);
  end(&x);
}
END_TEST

/* The first plan has expert 0 on rank 1 as well: 75 and 25.  Then expert 1 is
 * hot: the only slot of rank 1 is freed for it (40 and 60), and the free one
 * of rank 0 takes half of expert 3 (50 and 50). */
START_TEST(flexShrinksTheColdest) {
  static const int64_t first[] = {50, 50, 0, 0, 0, 0, 0, 0};
  static const int64_t second[] = {0, 80, 0, 20, 0, 0, 0, 0};
  struct example x = begin(lrmoePolicyFlex, 2, 4, 1);
  make(&x, first);
  ck_assert_int_eq(pairsOn(&x, 0, 1), 25);
  ck_assert_int_eq(x.view.numReplicas, 1);
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  lrmoePlan_t next = NULL;
  input.previous = x.plan;
  ASSERT_OK(lrmoePlanMakeWith(x.planner, second, &input, &next));
  lrmoePlanDestroy(x.plan);
  x.plan = next;
  x.view = checkPlan(x.plan, second, 2, &x.config);
  ck_assert_int_eq(pairsOn(&x, 0, 1), -1);
  ck_assert_int_eq(pairsOn(&x, 1, 1), 40);
  ck_assert_int_eq(pairsOn(&x, 3, 0), 10);
  ck_assert_int_eq(x.view.peakForward, 50);
  end(&x);
}
END_TEST

/* Placed by loads of the past, and divided by those of the step. */
START_TEST(loadsOfThePast) {
  static const int64_t past[] = {90, 10}, demand[] = {10, 90, 0, 0};
  struct example x = begin(lrmoePolicyProportional, 2, 2, 1);
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  input.loads = past;
  x.planner = makePlanner(2, &x.config);
  ASSERT_OK(lrmoePlanMakeWith(x.planner, demand, &input, &x.plan));
  x.view = checkPlan(x.plan, demand, 2, &x.config);
  /* Of 4 slots 3.6 and 0.4: three and one. */
  ck_assert_int_eq(pairsOn(&x, 0, 0), 7);
  ck_assert_int_eq(pairsOn(&x, 0, 1), 3);
  ck_assert_int_eq(pairsOn(&x, 1, 1), 90);
  end(&x);
}
END_TEST

/* With one host the pairs of every source are divided over both ranks.  With
 * two they go to the copy that is near, and the other ones stay idle. */
START_TEST(relayoutExample) {
  static const int64_t demand[] = {30, 0, 0, 10};
  struct example x = begin(lrmoePolicyRelayout, 2, 2, 1);
  make(&x, demand);
  ck_assert_int_eq(pairsOn(&x, 0, 0), 15);
  ck_assert_int_eq(pairsOn(&x, 0, 1), 15);
  ck_assert_int_eq(x.view.peakForward, 20);
  end(&x);
  x = begin(lrmoePolicyRelayout, 2, 2, 1);
  x.planner = makePlanner(2, &x.config);
  x.planner->hosts[1] = 1;
  make(&x, demand);
  ck_assert_int_eq(pairsOn(&x, 0, 0), 30);
  ck_assert_int_eq(pairsOn(&x, 0, 1), -1);
  ck_assert_int_eq(pairsOn(&x, 1, 1), 10);
  end(&x);
}
END_TEST

/* Six pairs, three for each expert; the sources keep 4 and 2. */
START_TEST(balancedExample) {
  static const int64_t demand[] = {3, 1, 0, 2}, dealt[] = {2, 2, 1, 1};
  struct example x = begin(lrmoePolicyBalanced, 2, 2, 0);
  make(&x, demand);
  ck_assert_mem_eq(x.view.demand, dealt, sizeof dealt);
  ck_assert_int_eq(x.view.peakForward, 3);
  ck_assert_int_eq(x.view.changesForward, 1);
  end(&x);
}
END_TEST

/* Rank 0 has 2 and 1 for its own experts, so all six go there as 4 and 2; rank
 * 1 has none for its own. */
START_TEST(localExample) {
  static const int64_t demand[] = {2, 1, 3, 0, 5, 0, 0, 0};
  static const int64_t local[] = {4, 2, 0, 0, 0, 0, 3, 2};
  struct example x = begin(lrmoePolicyLocal, 2, 4, 0);
  make(&x, demand);
  ck_assert_mem_eq(x.view.demand, local, sizeof local);
  ck_assert_int_eq(x.view.peakForward, 6);
  end(&x);
}
END_TEST

/* Mean 5: a factor of 1.25 gives 7 (6.25), of 1.1 gives 6 (5.5). */
START_TEST(capacityExample) {
  static const int64_t loads[] = {10, 6, 3, 1};
  static const int64_t expected[2][4] = {{7, 6, 3, 1}, {6, 6, 3, 1}};
  static const int64_t ppms[] = {1250000, 1100000};
  for (int i = 0; i < 2; i++) {
    struct example x = begin(lrmoePolicyFixed, 2, 4, 0);
    x.config.quota = lrmoeQuotaCapacity;
    x.config.capacityPpm = ppms[i];
    makeFromLoads(&x, loads);
    ck_assert_mem_eq(x.view.quotas, expected[i], sizeof expected[i]);
    end(&x);
  }
}
END_TEST

/* Kept pairs are shared as forward pairs are: 60 and 40 of 100, so 24 and 16
 * of 40. */
START_TEST(keptPairsFollowForward) {
  static const int64_t loads[] = {100, 20};
  struct example x = begin(lrmoePolicyQuota, 2, 2, 1);
  x.config.retainPpm = 400000;
  makeFromLoads(&x, loads);
  ck_assert_int_eq(x.view.keptPairs[0], 24);
  ck_assert_int_eq(x.view.keptPairs[1], 16);
  end(&x);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("planner rivals");
  TCase *tcase = tcase_create("examples");
  tcase_add_test(tcase, eplbExample);
  tcase_add_test(tcase, proportionalExample);
  tcase_add_test(tcase, proportionalGivesEveryExpertASlot);
  tcase_add_test(tcase, permuteExample);
  tcase_add_test(tcase, quotaExample);
  tcase_add_test(tcase, topoStaysNear);
  tcase_add_test(tcase, shadowExample);
  tcase_add_test(tcase, flexExpands);
  tcase_add_test(tcase, flexShrinksTheColdest);
  tcase_add_test(tcase, loadsOfThePast);
  tcase_add_test(tcase, relayoutExample);
  tcase_add_test(tcase, balancedExample);
  tcase_add_test(tcase, localExample);
  tcase_add_test(tcase, capacityExample);
  tcase_add_test(tcase, keptPairsFollowForward);
  suite_add_tcase(suite, tcase);
  suite_add_tcase(suite, rivalsRandomCase());
  return suiteRun(suite);
}
