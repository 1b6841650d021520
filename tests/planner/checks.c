/* See checks.h. */
#include "planner/checks.h"

#include "support/suite.h"
#include "tools/common/verify.h"

#include <stdlib.h>
#include <string.h>

uint64_t randomNext(struct testRandom *random) {
  uint64_t x = random->state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

int64_t randomBelow(struct testRandom *random, int64_t bound) {
  return (int64_t)(randomNext(random) % (uint64_t)bound);
}

lrmoePlanner_t makePlanner(int numRanks, const lrmoePlannerConfig_t *config) {
  lrmoeTopology_t topology = NULL;
  lrmoePlanner_t planner = NULL;
  ASSERT_OK(lrmoeTopologyCreate(numRanks, &topology));
  ASSERT_OK(lrmoePlannerCreate(topology, config, &planner));
  ASSERT_OK(lrmoeTopologyDestroy(topology));
  return planner;
}

lrmoePlannerConfig_t replicated(int32_t numExperts, int32_t slots) {
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = numExperts;
  config.policy = lrmoePolicyLrmoe;
  config.slots = slots;
  return config;
}

lrmoePlan_t makePlan(lrmoePlanner_t planner, const int64_t *demand) {
  lrmoePlan_t plan = NULL;
  ASSERT_OK(lrmoePlanMake(planner, demand, &plan));
  return plan;
}

lrmoePlanView_t viewOf(lrmoePlan_t plan) {
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  ASSERT_OK(lrmoePlanGetView(plan, &view));
  return view;
}

int64_t *makeDemand(struct testRandom *random, int numRanks, int numExperts) {
  int64_t *demand =
      calloc((size_t)numRanks * (size_t)numExperts, sizeof *demand);
  ck_assert_ptr_nonnull(demand);
  for (int e = 0; e < numExperts; e++) {
    static const int64_t heats[] = {1, 2, 100, 10000, 1 << 30};
    int64_t heat = heats[randomBelow(random, 5)];
    for (int s = 0; s < numRanks; s++)
      demand[s * numExperts + e] = randomBelow(random, heat);
  }
  return demand;
}

lrmoePlanView_t checkPlan(lrmoePlan_t plan, const int64_t *demand, int numRanks,
                          const lrmoePlannerConfig_t *config) {
  lrmoePlanView_t view = viewOf(plan);
  struct toolPlanOrigin origin = {config, demand, numRanks, 0};
  struct toolError error;
  ck_assert_msg(toolPlanVerify(&view, &origin, &error) == toolGood, "%s",
                error.text);
  return view;
}

void checkSamePlan(lrmoePlan_t left, lrmoePlan_t right) {
  lrmoePlanView_t a = viewOf(left), b = viewOf(right);
  size_t experts = (size_t)a.numExperts, instances = (size_t)a.numInstances;
  ck_assert_uint_eq(a.hash, b.hash);
  ck_assert_int_eq(a.pairs, b.pairs);
  ck_assert_int_eq(a.kept, b.kept);
  ck_assert_int_eq(a.peakForward, b.peakForward);
  ck_assert_int_eq(a.peakKept, b.peakKept);
  ck_assert_int_eq(a.numRanks, b.numRanks);
  ck_assert_int_eq(a.numExperts, b.numExperts);
  ck_assert_int_eq(a.numInstances, b.numInstances);
  ck_assert_int_eq(a.policy, b.policy);
  ck_assert_int_eq(a.boundForward, b.boundForward);
  ck_assert_int_eq(a.boundKept, b.boundKept);
  ck_assert_int_eq(a.gapForwardPpm, b.gapForwardPpm);
  ck_assert_int_eq(a.gapKeptPpm, b.gapKeptPpm);
  ck_assert_int_eq(a.numReplicas, b.numReplicas);
  ck_assert_int_eq(a.movesIn, b.movesIn);
  ck_assert_int_eq(a.peakMovesIn, b.peakMovesIn);
  ck_assert_mem_eq(a.demand, b.demand,
                   (size_t)a.numRanks * experts * sizeof *a.demand);
  ck_assert_mem_eq(a.quotas, b.quotas, experts * sizeof *a.quotas);
  ck_assert_mem_eq(a.homes, b.homes, experts * sizeof *a.homes);
  ck_assert_mem_eq(a.instanceOffsets, b.instanceOffsets,
                   (experts + 1) * sizeof *a.instanceOffsets);
  ck_assert_mem_eq(a.instanceRanks, b.instanceRanks,
                   instances * sizeof *a.instanceRanks);
  ck_assert_mem_eq(a.forwardPairs, b.forwardPairs,
                   instances * sizeof *a.forwardPairs);
  ck_assert_mem_eq(a.keptPairs, b.keptPairs, instances * sizeof *a.keptPairs);
}
