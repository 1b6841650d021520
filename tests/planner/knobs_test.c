/* Knobs of policy lrmoe, each against what it promises. */
#include "planner/checks.h"
#include "planner/planner.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

enum {
  numRanks = 8,
  numExperts = 32
};

/* A plan that passes all checks; the view lives as long as it. */
static lrmoePlan_t planAfter(const lrmoePlannerConfig_t *config,
                             const int64_t *demand, lrmoePlan_t previous,
                             lrmoePlanView_t *view) {
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  input.previous = previous;
  lrmoePlanner_t planner = makePlanner(numRanks, config);
  lrmoePlan_t plan = NULL;
  ASSERT_OK(lrmoePlanMakeWith(planner, demand, &input, &plan));
  lrmoePlannerDestroy(planner);
  *view = checkPlan(plan, demand, numRanks, config);
  return plan;
}

static int64_t meanOf(const lrmoePlanView_t *view) {
  return view->pairs / numRanks + (view->pairs % numRanks != 0);
}

static int isReplica(const lrmoePlanView_t *view, int32_t e, int32_t i) {
  return view->instanceRanks[i] != view->homes[e];
}

static int64_t smallestReplica(const lrmoePlanView_t *view) {
  int64_t least = INT64_MAX;
  for (int32_t e = 0; e < numExperts; e++)
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++)
      if (isReplica(view, e, i) && view->forwardPairs[i] < least)
        least = view->forwardPairs[i];
  return least;
}

static int64_t *randomDemand(int seed) {
  struct testRandom random = {(uint64_t)seed * 7919 + 3};
  return makeDemand(&random, numRanks, numExperts);
}

START_TEST(toleranceSavesReplicas) {
  int64_t *demand = randomDemand(_i);
  lrmoePlannerConfig_t config = replicated(numExperts, 2);
  lrmoePlanView_t exact, loose;
  lrmoePlan_t a = planAfter(&config, demand, NULL, &exact);
  config.tolerancePpm = 200000;
  lrmoePlan_t b = planAfter(&config, demand, NULL, &loose);
  ck_assert_int_le(loose.numReplicas, exact.numReplicas);
  if (exact.peakForward <= meanOf(&exact) * 6 / 5)
    ck_assert_int_le(loose.peakForward, meanOf(&exact) * 6 / 5 + 1);
  lrmoePlanDestroy(a);
  lrmoePlanDestroy(b);
  free(demand);
}
END_TEST

START_TEST(mostReplicas) {
  int64_t *demand = randomDemand(_i);
  lrmoePlannerConfig_t config = replicated(numExperts, 2);
  config.maxReplicas = 1 + _i % 5;
  lrmoePlanView_t view;
  lrmoePlan_t plan = planAfter(&config, demand, NULL, &view);
  ck_assert_int_le(view.numReplicas, config.maxReplicas);
  lrmoePlanDestroy(plan);
  free(demand);
}
END_TEST

START_TEST(leastPairsOfReplicas) {
  int64_t *demand = randomDemand(_i);
  lrmoePlannerConfig_t config = replicated(numExperts, 2);
  lrmoePlanView_t view;
  lrmoePlan_t plan = planAfter(&config, demand, NULL, &view);
  if (view.numReplicas > 0) {
    config.minReplicaPairs = smallestReplica(&view) + 1 + _i;
    lrmoePlanDestroy(plan);
    plan = planAfter(&config, demand, NULL, &view);
    ck_assert_int_ge(smallestReplica(&view), config.minReplicaPairs);
  }
  lrmoePlanDestroy(plan);
  free(demand);
}
END_TEST

/* A replica that costs more than the whole step saves is none; free ones all
 * stay that lower the peak. */
START_TEST(breakEven) {
  int64_t *demand = randomDemand(_i);
  lrmoePlannerConfig_t config = replicated(numExperts, 2);
  lrmoePlanView_t view;
  lrmoePlan_t plan = planAfter(&config, demand, NULL, &view);
  int64_t peak = view.peakForward, pairs = view.pairs;
  lrmoePlanDestroy(plan);
  config.pairNs = 10;
  config.materialiseNs = 1;
  plan = planAfter(&config, demand, NULL, &view);
  ck_assert_int_eq(view.peakForward, peak);
  lrmoePlanDestroy(plan);
  config.reduceNs = 10 * (pairs + 1);
  plan = planAfter(&config, demand, NULL, &view);
  ck_assert_int_eq(view.numReplicas, 0);
  lrmoePlanDestroy(plan);
  free(demand);
}
END_TEST

START_TEST(pinnedReplicasStand) {
  int64_t *demand = randomDemand(_i);
  const int32_t pinned[] = {0, 7, 31, 0, 1, 7};
  lrmoePlannerConfig_t config = replicated(numExperts, 2);
  config.pinned = pinned;
  config.numPinned = 3;
  config.tolerancePpm = _i % 2 * 500000;
  lrmoePlanView_t view;
  lrmoePlan_t plan = planAfter(&config, demand, NULL, &view);
  for (int k = 0; k < 3; k++) {
    int found = 0;
    int32_t e = pinned[2 * k];
    for (int32_t i = view.instanceOffsets[e]; i < view.instanceOffsets[e + 1];
         i++)
      found |= view.instanceRanks[i] == pinned[2 * k + 1];
    ck_assert_msg(found, "expert %d is not on rank %d", e, pinned[2 * k + 1]);
  }
  lrmoePlanDestroy(plan);
  free(demand);
}
END_TEST

START_TEST(pinsThatCannotStand) {
  static const struct {
    int32_t pinned[6];
    int32_t count;
    const char *words;
  } cases[] = {{{0, 0}, 1, "at its home"},
               {{32, 1}, 1, "expert 32"},
               {{0, 8}, 1, "rank 8"},
               {{0, 1, 0, 1}, 2, "twice"},
               {{0, 7, 1, 7, 2, 7}, 3, "more than 2 replicas"}};
  lrmoeTopology_t topology = NULL;
  lrmoePlanner_t planner = NULL;
  ASSERT_OK(lrmoeTopologyCreate(numRanks, &topology));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    lrmoePlannerConfig_t config = replicated(numExperts, 2);
    config.pinned = cases[i].pinned;
    config.numPinned = cases[i].count;
    ASSERT_RESULT(lrmoePlannerCreate(topology, &config, &planner),
                  lrmoeInvalidArgument);
    ck_assert_msg(strstr(lrmoeGetLastError(), cases[i].words) != NULL, "%s",
                  lrmoeGetLastError());
  }
  lrmoeTopologyDestroy(topology);
}
END_TEST

/* Whether replicas of `after` stood in `before` too. */
static int isSubset(const lrmoePlanView_t *after,
                    const lrmoePlanView_t *before) {
  for (int32_t e = 0; e < numExperts; e++)
    for (int32_t i = after->instanceOffsets[e];
         i < after->instanceOffsets[e + 1]; i++) {
      int found = 0;
      for (int32_t k = before->instanceOffsets[e];
           k < before->instanceOffsets[e + 1]; k++)
        found |= before->instanceRanks[k] == after->instanceRanks[i];
      if (!found) return 0;
    }
  return 1;
}

/* A little more load of one expert; then another load altogether. */
START_TEST(hysteresisKeepsInstances) {
  int64_t *demand = randomDemand(_i);
  lrmoePlannerConfig_t config = replicated(numExperts, 2);
  lrmoePlanView_t first, second, third, fresh;
  lrmoePlan_t a = planAfter(&config, demand, NULL, &first);
  demand[5] += first.pairs / 100;
  config.hysteresisPpm = 200000;
  lrmoePlan_t b = planAfter(&config, demand, a, &second);
  ck_assert(isSubset(&second, &first));
  for (int s = 0; s < numRanks; s++)
    demand[s * numExperts + 3] += first.pairs;
  lrmoePlan_t c = planAfter(&config, demand, a, &third);
  lrmoePlan_t d = planAfter(&config, demand, NULL, &fresh);
  ck_assert(!isSubset(&third, &first) ||
            third.peakForward * 8 / 10 <= fresh.peakForward + 1);
  lrmoePlanDestroy(a);
  lrmoePlanDestroy(b);
  lrmoePlanDestroy(c);
  lrmoePlanDestroy(d);
  free(demand);
}
END_TEST

START_TEST(balancedStays) {
  int64_t demand[numRanks * numExperts];
  for (int i = 0; i < numRanks * numExperts; i++)
    demand[i] = 100;
  demand[0] += 200;
  lrmoePlannerConfig_t config = replicated(numExperts, 2);
  lrmoePlanView_t view;
  lrmoePlan_t plan = planAfter(&config, demand, NULL, &view);
  ck_assert_int_gt(view.numReplicas, 0);
  lrmoePlanDestroy(plan);
  config.balancedPpm = 100000;
  plan = planAfter(&config, demand, NULL, &view);
  ck_assert_int_eq(view.numReplicas, 0);
  lrmoePlanDestroy(plan);
  demand[0] += 3000;
  plan = planAfter(&config, demand, NULL, &view);
  ck_assert_int_gt(view.numReplicas, 0);
  lrmoePlanDestroy(plan);
}
END_TEST

START_TEST(knobsOfOtherPolicies) {
  lrmoeTopology_t topology = NULL;
  lrmoePlanner_t planner = NULL;
  ASSERT_OK(lrmoeTopologyCreate(numRanks, &topology));
  lrmoePlannerConfig_t config = replicated(numExperts, 2);
  config.policy = lrmoePolicyQuota;
  config.hysteresisPpm = 1;
  ASSERT_RESULT(lrmoePlannerCreate(topology, &config, &planner),
                lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "hysteresisPpm"));
  lrmoeTopologyDestroy(topology);
}
END_TEST

#define CHANGED(field, value)                                            \
  do {                                                                   \
    lrmoePlannerConfig_t changed = base;                                 \
    changed.field = (value);                                             \
    lrmoePlanner_t other = makePlanner(numRanks, &changed);              \
    ck_assert_msg(other->hash != planner->hash, "%s is not in the hash", \
                  #field);                                               \
    lrmoePlannerDestroy(other);                                          \
  } while (0)

/* Ranks that were given another config must not plan together. */
START_TEST(hashCoversKnobs) {
  const int32_t pinned[] = {0, 7}, others[] = {0, 6};
  lrmoePlannerConfig_t base = replicated(numExperts, 2);
  base.hidden = base.ffn = 64;
  base.pinned = pinned;
  base.numPinned = 1;
  lrmoePlanner_t planner = makePlanner(numRanks, &base);
  CHANGED(hidden, 128);
  CHANGED(ffn, 128);
  CHANGED(memoryBytes, 1);
  CHANGED(weightBytes, 1);
  CHANGED(gradBytes, 1);
  CHANGED(windowNs, 1);
  CHANGED(windowWork, 1);
  CHANGED(minRetainPpm, 1);
  CHANGED(capacityPpm, 1);
  CHANGED(tolerancePpm, 1);
  CHANGED(minReplicaPairs, 1);
  CHANGED(maxReplicas, 1);
  CHANGED(balancedPpm, 1);
  CHANGED(hysteresisPpm, 1);
  CHANGED(materialiseNs, 1);
  CHANGED(reduceNs, 1);
  CHANGED(pairNs, 1);
  CHANGED(pinned, others);
  CHANGED(elementBytes, 4);
  CHANGED(retain, lrmoeRetainLargest);
  CHANGED(activation, lrmoeGelu);
  CHANGED(routerGrad, lrmoeRouterGradOwner);
  CHANGED(savedState, lrmoeSavedNone);
  lrmoePlannerDestroy(planner);
}
END_TEST

#define REFUSED(field, value)                                            \
  do {                                                                   \
    lrmoePlannerConfig_t changed = base;                                 \
    changed.field = (value);                                             \
    ASSERT_RESULT(lrmoePlannerCreate(topology, &changed, &planner),      \
                  lrmoeInvalidArgument);                                 \
    ck_assert_msg(strstr(lrmoeGetLastError(), #field) != NULL, "%s: %s", \
                  #field, lrmoeGetLastError());                          \
  } while (0)

START_TEST(valuesOutOfRange) {
  lrmoeTopology_t topology = NULL;
  lrmoePlanner_t planner = NULL;
  ASSERT_OK(lrmoeTopologyCreate(numRanks, &topology));
  lrmoePlannerConfig_t base = replicated(numExperts, 2);
  REFUSED(hidden, -1);
  REFUSED(memoryBytes, 1); /* without hidden */
  REFUSED(windowNs, 1);
  base.hidden = base.ffn = 64;
  base.retainPpm = 500000;
  REFUSED(ffn, 0);
  REFUSED(memoryBytes, ((int64_t)1 << 46) + 1);
  REFUSED(weightBytes, -1);
  REFUSED(gradBytes, -1);
  REFUSED(windowNs, -1);
  REFUSED(windowWork, -1);
  REFUSED(minRetainPpm, 500001);
  REFUSED(capacityPpm, -1);
  REFUSED(tolerancePpm, -1);
  REFUSED(minReplicaPairs, -1);
  REFUSED(maxReplicas, -1);
  REFUSED(balancedPpm, -1);
  REFUSED(hysteresisPpm, 1000001);
  REFUSED(materialiseNs, -1);
  REFUSED(reduceNs, -1);
  REFUSED(pairNs, -1);
  REFUSED(numPinned, 1);
  REFUSED(elementBytes, 3);
  REFUSED(retain, (lrmoeRetain_t)3);
  REFUSED(activation, (lrmoeActivation_t)2);
  REFUSED(routerGrad, (lrmoeRouterGrad_t)3);
  REFUSED(savedState, (lrmoeSavedState_t)2);
  base.retain = lrmoeRetainLargest;
  REFUSED(quota, lrmoeQuotaCapacity);
  lrmoeTopologyDestroy(topology);
}
END_TEST

int main(void) {
  TCase *cases = tcase_create("knobs");
  tcase_add_loop_test(cases, toleranceSavesReplicas, 0, 30);
  tcase_add_loop_test(cases, mostReplicas, 0, 30);
  tcase_add_loop_test(cases, leastPairsOfReplicas, 0, 30);
  tcase_add_loop_test(cases, breakEven, 0, 20);
  tcase_add_loop_test(cases, pinnedReplicasStand, 0, 20);
  tcase_add_test(cases, pinsThatCannotStand);
  tcase_add_loop_test(cases, hysteresisKeepsInstances, 0, 20);
  tcase_add_test(cases, balancedStays);
  tcase_add_test(cases, knobsOfOtherPolicies);
  tcase_add_test(cases, hashCoversKnobs);
  tcase_add_test(cases, valuesOutOfRange);
  Suite *suite = suite_create("planner knobs");
  suite_add_tcase(suite, cases);
  return suiteRun(suite);
}
