/* What relays hold: by hand, in the limits, and against counting the rows of
 * random routes, which no relay may have more of than it is charged. */
#include "planner/checks.h"
#include "planner/planner.h"
#include "support/suite.h"
#include "tools/common/verify.h"
#include "topo/open.h"

#include <stdlib.h>
#include <string.h>

enum {
  maxRanks = 12,
  maxExperts = 8,
  rowBytes = 16 /* of smallModel */
};

/* Hosts of two, or of three. */
static const char twoEach[] = "package:2 core:1 pu:1; gpus=2";
static const char threeEach[] = "package:3 core:1 pu:1; gpus=3";

static lrmoePlannerConfig_t relayed(int32_t numExperts) {
  lrmoePlannerConfig_t config = smallModel(numExperts);
  config.chargesRelays = 1;
  return config;
}

static lrmoeTopology_t hostsOf(int perHost, int numRanks) {
  lrmoeTopology_t topology = NULL;
  ASSERT_OK(openSynthetic(perHost == 2 ? twoEach : threeEach,
                          numRanks / perHost, numRanks, &topology));
  return topology;
}

static lrmoePlan_t planOf(lrmoeTopology_t topology,
                          const lrmoePlannerConfig_t *config,
                          const int64_t *demand) {
  lrmoePlanner_t planner = NULL;
  lrmoePlan_t plan = NULL;
  ASSERT_OK(lrmoePlannerCreate(topology, config, &planner));
  ASSERT_OK(lrmoePlanMake(planner, demand, &plan));
  lrmoePlannerDestroy(planner);
  return plan;
}

/* Ranks 0 and 1 of a host, 2 and 3 of another, expert e at home on rank e.
 * Rank 0 is the relay of rank 2 and has of it experts 0 and 1: 5 + 6. */
START_TEST(itemsByHand) {
  static const int64_t demand[] = {1, 2, 3, 4, 4, 3, 2, 1,
                                   5, 6, 7, 8, 8, 7, 6, 5};
  static const int64_t passing[] = {5 + 6, 8 + 7, 3 + 4, 2 + 1};
  lrmoePlannerConfig_t config = relayed(4);
  lrmoeTopology_t topology = hostsOf(2, 4);
  lrmoePlan_t plan = planOf(topology, &config, demand);
  config.chargesRelays = 0;
  lrmoePlan_t without = planOf(topology, &config, demand);
  for (int g = 0; g < 4; g++) {
    const lrmoeRankMemory_t *m = &viewOf(plan).memory[g];
    const lrmoeRankMemory_t *less = &viewOf(without).memory[g];
    ck_assert_int_eq(m->relayBytes, passing[g] * 2 * rowBytes);
    ck_assert_int_eq(less->relayBytes, 0);
    ck_assert_int_eq(m->peakBytes - less->peakBytes, m->relayBytes);
  }
  lrmoePlanDestroy(plan);
  lrmoePlanDestroy(without);
  lrmoeTopologyDestroy(topology);
}
END_TEST

/* The same as a limit: with the relays' bytes it fits, with one less it does
 * not, and what is kept gives way to them. */
START_TEST(limitsCountThem) {
  static const int64_t demand[] = {10, 2, 10, 2, 10, 2, 10, 2,
                                   10, 2, 10, 2, 10, 2, 10, 2};
  lrmoePlannerConfig_t config = relayed(4);
  lrmoeTopology_t topology = hostsOf(2, 4);
  lrmoePlan_t plan = planOf(topology, &config, demand), less = NULL;
  lrmoePlanner_t planner = NULL;
  int64_t peak = viewOf(plan).memory[0].peakBytes;
  int64_t relayed = viewOf(plan).memory[0].relayBytes;
  lrmoePlanDestroy(plan);
  ck_assert_int_eq(relayed, (int64_t)12 * 2 * rowBytes);
  config.memoryBytes = peak;
  lrmoePlanDestroy(planOf(topology, &config, demand));
  config.memoryBytes = peak - 1;
  ASSERT_OK(lrmoePlannerCreate(topology, &config, &planner));
  ASSERT_RESULT(lrmoePlanMake(planner, demand, &less), lrmoeInfeasible);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "memory does not fit"));
  lrmoePlannerDestroy(planner);
  config.retain = lrmoeRetainLargest;
  config.memoryBytes = peak - relayed;
  plan = planOf(topology, &config, demand);
  config.chargesRelays = 0;
  less = planOf(topology, &config, demand);
  ck_assert_int_lt(viewOf(plan).kept, viewOf(less).kept);
  ck_assert_int_le(viewOf(plan).memory[0].peakBytes, config.memoryBytes);
  lrmoePlanDestroy(plan);
  lrmoePlanDestroy(less);
  lrmoeTopologyDestroy(topology);
}
END_TEST

/* ---- At random ---------------------------------------------------------- */

/* Every pair at an instance of its own choice: more than any quota lets pass.
 * Counts the pairs by the relay between source and instance. */
static void routeAtRandom(struct testRandom *random,
                          const lrmoePlanView_t *view, int perHost,
                          int64_t *pairs) {
  memset(pairs, 0, maxRanks * sizeof *pairs);
  for (int s = 0; s < view->numRanks; s++)
    for (int e = 0; e < view->numExperts; e++)
      for (int64_t i = 0; i < view->demand[s * view->numExperts + e]; i++) {
        int first = view->instanceOffsets[e];
        int64_t at =
            first + randomBelow(random, view->instanceOffsets[e + 1] - first);
        int host = view->instanceRanks[at] / perHost;
        if (host != s / perHost) pairs[host * perHost + s % perHost]++;
      }
}

static void checkOnce(int load) {
  struct testRandom random = {(uint64_t)load + 31};
  int perHost = 2 + load % 2, numRanks = perHost * (1 + load / 2 % 4);
  int64_t demand[maxRanks * maxExperts], pairs[maxRanks];
  int32_t nodes[maxRanks];
  for (int i = 0; i < numRanks * maxExperts; i++)
    demand[i] = randomBelow(&random, i % 5 ? 6 : 40);
  for (int r = 0; r < numRanks; r++)
    nodes[r] = 7 + r / perHost;
  lrmoePlannerConfig_t config = relayed(maxExperts);
  config.policy = load % 3 ? lrmoePolicyLrmoe : lrmoePolicyFixed;
  config.slots = load % 3 && numRanks > 1 ? 2 : 0;
  config.routerGrad = (lrmoeRouterGrad_t)(load % 3);
  config.retainPpm = 700000;
  if (load % 3 < 2 && load / 6 % 2) config.savedState = lrmoeSavedNone;
  lrmoeTopology_t topology = hostsOf(perHost, numRanks);
  lrmoePlan_t plan = planOf(topology, &config, demand);
  lrmoePlanView_t view = viewOf(plan);
  const struct toolPlanOrigin origin = {&config, demand, numRanks,
                                        0,       NULL,   nodes};
  struct toolError error = {""};
  ck_assert_msg(toolPlanVerify(&view, &origin, &error) == toolGood, "%s",
                error.text);
  routeAtRandom(&random, &view, perHost, pairs);
  for (int g = 0; g < numRanks; g++)
    ck_assert_int_le(pairs[g] * 2 * rowBytes, view.memory[g].relayBytes);
  lrmoePlanDestroy(plan);
  lrmoeTopologyDestroy(topology);
}

START_TEST(nothingMorePasses) {
  checkOnce(_i);
}
END_TEST

/* ---- Edges -------------------------------------------------------------- */

START_TEST(totalsDoNotSay) {
  static const int64_t totals[] = {10, 20, 30, 40};
  lrmoePlannerConfig_t config = relayed(4);
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  lrmoeTopology_t topology = hostsOf(2, 4);
  lrmoePlanner_t planner = NULL;
  lrmoePlan_t plan = NULL;
  input.totals = totals;
  ASSERT_OK(lrmoePlannerCreate(topology, &config, &planner));
  ASSERT_OK(lrmoePlanMakeWith(planner, NULL, &input, &plan));
  for (int g = 0; g < 4; g++)
    ck_assert_int_eq(viewOf(plan).memory[g].relayBytes, 0);
  lrmoePlanDestroy(plan);
  config.chargesRelays = 2;
  lrmoePlanner_t refused = NULL;
  ASSERT_RESULT(lrmoePlannerCreate(topology, &config, &refused),
                lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "chargesRelays"));
  lrmoePlannerDestroy(planner);
  lrmoeTopologyDestroy(topology);
}
END_TEST

/* Nodes of 1, 3 and 2 ranks in no order: a domain that spans two hosts is one
 * node, as is a host of several domains. */
START_TEST(nodesOfAnyShape) {
  static const int32_t hosts[] = {0, 1, 2, 1, 3, 1};
  static const int32_t domains[] = {0, 1, 2, 3, 2, 4};
  static const int32_t of[] = {0, 1, 2, 1, 2, 1};
  static const int32_t places[] = {0, 0, 0, 1, 1, 2};
  static const int32_t ranks[] = {0, 1, 3, 5, 2, 4};
  struct lrmoeNodes *nodes = NULL;
  ASSERT_OK(lrmoeNodesMake(6, hosts, domains, &nodes));
  ck_assert_int_eq(nodes->numNodes, 3);
  ck_assert_mem_eq(nodes->of, of, sizeof of);
  ck_assert_mem_eq(nodes->places, places, sizeof places);
  ck_assert_mem_eq(nodes->ranks, ranks, sizeof ranks);
  ck_assert_int_eq(lrmoeNodeRelay(nodes, 5, 0), 0);
  ck_assert_int_eq(lrmoeNodeRelay(nodes, 5, 2), 2);
  ck_assert_int_eq(lrmoeNodeRelay(nodes, 3, 2), 4);
  ck_assert_int_eq(lrmoeNodeRelay(nodes, 4, 1), 3);
  lrmoeNodesFree(nodes);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("relays");
  suiteAddTest(suite, 60, itemsByHand, 1);
  suiteAddTest(suite, 60, limitsCountThem, 1);
  suiteAddTest(suite, 60, nothingMorePasses, 48);
  suiteAddTest(suite, 60, totalsDoNotSay, 1);
  suiteAddTest(suite, 60, nodesOfAnyShape, 1);
  return suiteRun(suite);
}
