/* Policy lrmoe on small examples whose plans are known. */
#include "planner/checks.h"
#include "planner/planner.h"
#include "support/suite.h"
#include "topo/nccl_text.h"
#include "topo/open.h"

#include <stdlib.h>
#include <string.h>

/* The planner goes on when its maker has let the topology go. */
START_TEST(topologyIsHeld) {
  lrmoeTopology_t topology = NULL;
  lrmoePlanner_t planner = NULL;
  lrmoePlan_t plan = NULL;
  struct testRandom random = {7922};
  int64_t *demand = makeDemand(&random, 8, 32);
  lrmoePlannerConfig_t config = replicated(32, 2);
  config.hidden = config.ffn = 64;
  ASSERT_OK(lrmoeTopologyCreate(8, &topology));
  ASSERT_OK(lrmoePlannerCreate(topology, &config, &planner));
  lrmoeTopologyDestroy(topology);
  ASSERT_OK(lrmoePlanMake(planner, demand, &plan));
  lrmoePlanView_t view = checkPlan(plan, demand, 8, &config);
  ck_assert_int_gt(view.commNs, 0);
  ck_assert_int_eq(view.crossNodeBytes, 0); /* one host */
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
  free(demand);
}
END_TEST

/* Two hosts of three ranks, each level in itself.  Rank 3 is the hottest and
 * rank 1, on the other host, the deepest sink: by depth alone rows cross. */
START_TEST(nearSinksFirst) {
  const char *host = SYSTEM(
      CPU("0", GPU("0000:11:00.0", "0", "") GPU("0000:12:00.0", "1", "")
                   GPU("0000:14:00.0", "2", "")
                       NIC("0000:13:00.0", NET("n0", "100000", "1", "1"))));
  lrmoeTopology_t topology = NULL;
  lrmoePlanner_t planner = NULL;
  lrmoePlan_t plan = NULL;
  ASSERT_OK(openCopies(host, 2, 0, &topology));
  lrmoePlannerConfig_t config = replicated(6, 1); /* an expert a rank */
  config.hidden = config.ffn = 8;
  const int64_t demand[36] = {50, 10, 30, [3 * 6 + 3] = 54, 18, 18};
  ASSERT_OK(lrmoePlannerCreate(topology, &config, &planner));
  ASSERT_OK(lrmoePlanMake(planner, demand, &plan));
  lrmoePlanView_t view = checkPlan(plan, demand, 6, &config);
  ck_assert_int_eq(view.peakForward, 30);
  ck_assert_int_eq(view.crossNodeBytes, 0);
  lrmoePlanDestroy(plan);
  /* All tokens on the other host: every row crosses, four times 16 B. */
  const int64_t away[36] = {0, 0, 0, 54, 18, 18, [3 * 6] = 50, 10, 30};
  ASSERT_OK(lrmoePlanMake(planner, away, &plan));
  view = checkPlan(plan, away, 6, &config);
  ck_assert_int_eq(view.crossNodeBytes, 180 * 4 * 16 + view.movesIn * 16);
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
  lrmoeTopologyDestroy(topology);
}
END_TEST

/* The example of FlashLB's authors: the optimum is 182. */
START_TEST(hotPair) {
  const int64_t loads[8] = {600, 560, 120, 120, 20, 10, 10, 10};
  int64_t demand[8 * 8] = {0};
  memcpy(demand, loads, sizeof loads);
  lrmoePlannerConfig_t config = replicated(8, 1);
  lrmoePlanner_t planner = makePlanner(8, &config);
  lrmoePlan_t plan = makePlan(planner, demand);
  lrmoePlanView_t view = checkPlan(plan, demand, 8, &config);
  ck_assert_int_eq(view.peakForward, 182);
  ck_assert_int_le(view.boundForward, 182);
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {topologyIsHeld, nearSinksFirst, hotPair};
  return suiteRunTests("planner examples", tests, sizeof tests / sizeof *tests,
                       60);
}
