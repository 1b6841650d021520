/* See checks.h. */
#include "planner/checks.h"

#include "support/suite.h"
#include "tools/common/verify.h"

#include <stdlib.h>
#include <string.h>

/* Check writes to its parent at every assertion, so those that are asked most
 * often speak only where they fail. */
#define SAME(holds) \
  if (!(holds)) ck_abort_msg("not the same plan: %s is wrong", #holds)

uint64_t randomNext(struct testRandom *random) {
  uint64_t x = random->state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

int64_t randomBelow(struct testRandom *random, int64_t bound) {
  return (int64_t)(randomNext(random) % (uint64_t)bound);
}

/* Kept for the next planner of as many ranks: what takes long is to look at
 * the machine. */
static lrmoeTopology_t topologyOf(int numRanks) {
  static lrmoeTopology_t kept[16];
  static int keptRanks[16];
  int at = numRanks % 16;
  if (kept[at] && keptRanks[at] == numRanks) return kept[at];
  if (kept[at]) ASSERT_OK(lrmoeTopologyDestroy(kept[at]));
  kept[at] = NULL;
  ASSERT_OK(lrmoeTopologyCreate(numRanks, &kept[at]));
  keptRanks[at] = numRanks;
  return kept[at];
}

lrmoePlanner_t makePlanner(int numRanks, const lrmoePlannerConfig_t *config) {
  lrmoePlanner_t planner = NULL;
  ASSERT_OK(lrmoePlannerCreate(topologyOf(numRanks), config, &planner));
  return planner;
}

lrmoePlannerConfig_t replicated(int32_t numExperts, int32_t slots) {
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = numExperts;
  config.policy = lrmoePolicyLrmoe;
  config.slots = slots;
  return config;
}

lrmoePlannerConfig_t smallModel(int32_t numExperts) {
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = numExperts;
  config.hidden = 8;
  config.ffn = 8;
  config.activation = lrmoeGelu;
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
  if (toolPlanVerify(&view, &origin, &error) != toolGood)
    ck_abort_msg("%s", error.text);
  return view;
}

void checkSamePlan(lrmoePlan_t left, lrmoePlan_t right) {
  lrmoePlanView_t a = viewOf(left), b = viewOf(right);
  size_t experts = (size_t)a.numExperts, instances = (size_t)a.numInstances;
  SAME(a.hash == b.hash);
  SAME(a.pairs == b.pairs);
  SAME(a.kept == b.kept);
  SAME(a.peakForward == b.peakForward);
  SAME(a.peakKept == b.peakKept);
  SAME(a.numRanks == b.numRanks);
  SAME(a.numExperts == b.numExperts);
  SAME(a.numInstances == b.numInstances);
  SAME(a.policy == b.policy);
  SAME(a.boundForward == b.boundForward);
  SAME(a.boundKept == b.boundKept);
  SAME(a.gapForwardPpm == b.gapForwardPpm);
  SAME(a.gapKeptPpm == b.gapKeptPpm);
  SAME(a.numReplicas == b.numReplicas);
  SAME(a.movesIn == b.movesIn);
  SAME(a.peakMovesIn == b.peakMovesIn);
  SAME(!memcmp(a.demand, b.demand,
               (size_t)a.numRanks * experts * sizeof *a.demand));
  SAME(!memcmp(a.quotas, b.quotas, experts * sizeof *a.quotas));
  SAME(!memcmp(a.homes, b.homes, experts * sizeof *a.homes));
  SAME(!memcmp(a.instanceOffsets, b.instanceOffsets,
               (experts + 1) * sizeof *a.instanceOffsets));
  SAME(!memcmp(a.instanceRanks, b.instanceRanks,
               instances * sizeof *a.instanceRanks));
  SAME(!memcmp(a.forwardPairs, b.forwardPairs,
               instances * sizeof *a.forwardPairs));
  SAME(!memcmp(a.keptPairs, b.keptPairs, instances * sizeof *a.keptPairs));
}
