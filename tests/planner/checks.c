/* See checks.h. */
#include "planner/checks.h"

#include "support/suite.h"

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

/* Shares by [E, G], so that two instances on one rank would add up. */
static void checkShares(const lrmoePlanView_t *view, const int64_t *shares,
                        const int64_t *totals, int64_t expectedPeak) {
  int ranks = view->numRanks;
  int64_t *perRank = calloc((size_t)ranks, sizeof *perRank);
  ck_assert_ptr_nonnull(perRank);
  for (int e = 0; e < view->numExperts; e++) {
    int64_t sum = 0;
    for (int i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      ck_assert_int_ge(shares[i], 0);
      sum += shares[i];
      perRank[view->instanceRanks[i]] += shares[i];
    }
    ck_assert_int_eq(sum, totals[e]);
  }
  int64_t most = 0;
  for (int g = 0; g < ranks; g++)
    if (perRank[g] > most) most = perRank[g];
  ck_assert_int_eq(most, expectedPeak);
  free(perRank);
}

static void checkInstances(const lrmoePlanView_t *view) {
  ck_assert_int_eq(view->instanceOffsets[0], 0);
  ck_assert_int_eq(view->instanceOffsets[view->numExperts], view->numInstances);
  for (int e = 0; e < view->numExperts; e++) {
    int numHomes = 0;
    for (int i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      int rank = view->instanceRanks[i];
      ck_assert(rank >= 0 && rank < view->numRanks);
      numHomes += rank == view->homes[e];
      if (i > view->instanceOffsets[e])
        ck_assert_int_lt(view->instanceRanks[i - 1], rank);
    }
    ck_assert_int_eq(numHomes, 1);
  }
}

/* Spare slots hold, and every replica serves. */
static void checkReplicas(const lrmoePlanView_t *view, int32_t slots) {
  int32_t *used = calloc((size_t)view->numRanks, sizeof *used);
  ck_assert_ptr_nonnull(used);
  for (int e = 0; e < view->numExperts; e++)
    for (int i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      if (view->instanceRanks[i] == view->homes[e]) continue;
      ck_assert_int_le(++used[view->instanceRanks[i]], slots);
      ck_assert(view->forwardPairs[i] > 0 || view->keptPairs[i] > 0);
    }
  ck_assert_int_eq(view->numReplicas, view->numInstances - view->numExperts);
  free(used);
}

/* Worst-case moves by their definition (design 3, row 8). */
static void checkMoves(const lrmoePlanView_t *view, const int64_t *totals) {
  int64_t *into = calloc((size_t)view->numRanks, sizeof *into);
  ck_assert_ptr_nonnull(into);
  int64_t sum = 0, most = 0;
  for (int e = 0; e < view->numExperts; e++)
    for (int i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      int64_t stays = view->quotas[e] - (totals[e] - view->forwardPairs[i]);
      int64_t moves = view->keptPairs[i] - (stays > 0 ? stays : 0);
      if (moves <= 0) continue;
      sum += moves;
      into[view->instanceRanks[i]] += moves;
    }
  for (int g = 0; g < view->numRanks; g++)
    if (into[g] > most) most = into[g];
  ck_assert_int_eq(view->movesIn, sum);
  ck_assert_int_eq(view->peakMovesIn, most);
  free(into);
}

static void checkBound(int64_t total, int numRanks, int64_t bound, int64_t peak,
                       int64_t gapPpm) {
  __extension__ typedef __int128 wide;
  ck_assert_int_ge(bound, total / numRanks + (total % numRanks != 0));
  ck_assert_int_le(bound, peak);
  ck_assert_int_ge(gapPpm, 0);
  ck_assert_int_eq(gapPpm == 0, peak == bound);
  /* Rounded up; a bound above 2^63 / 10^6 may round it up once more. */
  wide exact = (wide)(peak - bound) * 1000000;
  ck_assert((wide)gapPpm * bound >= exact);
  ck_assert(gapPpm == 0 || (wide)(gapPpm - 2) * bound < exact);
}

/* The quota by its definition, in wider integers. */
static int64_t expectedQuota(const lrmoePlannerConfig_t *config, int64_t n) {
  if (config->quota == lrmoeQuotaNone) return n;
  __extension__ typedef __int128 wide;
  return (int64_t)(((wide)n * config->retainPpm + 999999) / 1000000);
}

lrmoePlanView_t checkPlan(lrmoePlan_t plan, const int64_t *demand, int numRanks,
                          const lrmoePlannerConfig_t *config) {
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  ASSERT_OK(lrmoePlanGetView(plan, &view));
  int experts = config->numExperts;
  ck_assert_int_eq(view.numRanks, numRanks);
  ck_assert_int_eq(view.numExperts, experts);
  ck_assert_int_eq(view.policy, config->policy);
  ck_assert_mem_eq(view.demand, demand,
                   (size_t)numRanks * (size_t)experts * sizeof *demand);
  int64_t *totals = calloc((size_t)experts, sizeof *totals);
  ck_assert_ptr_nonnull(totals);
  int64_t pairs = 0, kept = 0;
  for (int e = 0; e < experts; e++) {
    for (int s = 0; s < numRanks; s++)
      totals[e] += demand[s * experts + e];
    ck_assert_int_eq(view.quotas[e], expectedQuota(config, totals[e]));
    ck_assert(view.quotas[e] >= 0 && view.quotas[e] <= totals[e]);
    pairs += totals[e];
    kept += view.quotas[e];
  }
  ck_assert_int_eq(view.pairs, pairs);
  ck_assert_int_eq(view.kept, kept);
  checkInstances(&view);
  checkShares(&view, view.forwardPairs, totals, view.peakForward);
  checkShares(&view, view.keptPairs, view.quotas, view.peakKept);
  checkReplicas(&view, config->slots);
  checkMoves(&view, totals);
  checkBound(pairs, numRanks, view.boundForward, view.peakForward,
             view.gapForwardPpm);
  checkBound(kept, numRanks, view.boundKept, view.peakKept, view.gapKeptPpm);
  free(totals);
  return view;
}

void checkSamePlan(lrmoePlan_t left, lrmoePlan_t right) {
  lrmoePlanView_t a = LRMOE_PLAN_VIEW_INITIALIZER, b = a;
  ASSERT_OK(lrmoePlanGetView(left, &a));
  ASSERT_OK(lrmoePlanGetView(right, &b));
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
