/* The verifier sees what it is there to see: plans are broken by hand, one
 * number at a time, in copies of their views. */
#include "planner/checks.h"
#include "support/suite.h"
#include "tools/common/verify.h"

#include <stdlib.h>
#include <string.h>

enum {
  numRanks = 3,
  numExperts = 4,
  maxInstances = 12
};

/* A view whose arrays may be written. */
struct forged {
  lrmoePlanView_t view;
  int64_t demand[numRanks * numExperts];
  int64_t totals[numExperts];
  int64_t quotas[numExperts];
  int64_t forward[maxInstances];
  int64_t kept[maxInstances];
  int32_t homes[numExperts];
  int32_t offsets[numExperts + 1];
  int32_t ranks[maxInstances];
  lrmoePlannerConfig_t config;
  int64_t given[numRanks * numExperts];
};

/* Homes 0, 0, 1, 2; expert 0 is hot. */
static const int64_t someDemand[] = {90, 3, 2, 1, 60, 5, 9, 7, 30, 4, 8, 6};

static void makeForged(struct forged *f, lrmoePolicy_t policy, int32_t slots) {
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.policy = policy;
  config.numExperts = numExperts;
  config.slots = slots;
  config.retainPpm = 500000;
  lrmoePlanner_t planner = makePlanner(numRanks, &config);
  lrmoePlan_t plan = makePlan(planner, someDemand);
  f->config = config;
  f->view = checkPlan(plan, someDemand, numRanks, &config);
  size_t count = (size_t)f->view.numInstances;
  ck_assert_uint_le(count, maxInstances);
  memcpy(f->given, someDemand, sizeof f->given);
  memcpy(f->demand, f->view.demand, sizeof f->demand);
  memcpy(f->totals, f->view.totals, sizeof f->totals);
  memcpy(f->quotas, f->view.quotas, sizeof f->quotas);
  memcpy(f->homes, f->view.homes, sizeof f->homes);
  memcpy(f->offsets, f->view.instanceOffsets, sizeof f->offsets);
  memcpy(f->forward, f->view.forwardPairs, count * sizeof *f->forward);
  memcpy(f->kept, f->view.keptPairs, count * sizeof *f->kept);
  memcpy(f->ranks, f->view.instanceRanks, count * sizeof *f->ranks);
  f->view.demand = f->demand;
  f->view.totals = f->totals;
  f->view.quotas = f->quotas;
  f->view.homes = f->homes;
  f->view.instanceOffsets = f->offsets;
  f->view.forwardPairs = f->forward;
  f->view.keptPairs = f->kept;
  f->view.instanceRanks = f->ranks;
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
}

static void expect(const struct forged *f, const char *why) {
  struct toolPlanOrigin origin = {&f->config, f->given, numRanks, 0};
  struct toolError error = {""};
  enum toolExit code = toolPlanVerify(&f->view, &origin, &error);
  if (!why) {
    ck_assert_msg(code == toolGood, "%s", error.text);
    return;
  }
  ck_assert_int_eq(code, toolWrongData);
  ck_assert_msg(strstr(error.text, why) != NULL, "\"%s\" does not say \"%s\"",
                error.text, why);
}

/* Changes one number, expects the complaint, and takes it back. */
#define BREAK(lvalue, value, why)      \
  do {                                 \
    __typeof__(lvalue) kept_ = lvalue; \
    lvalue = value;                    \
    expect(&f, why);                   \
    lvalue = kept_;                    \
    expect(&f, NULL);                  \
  } while (0)

START_TEST(sumsAndFigures) {
  struct forged f;
  makeForged(&f, lrmoePolicyQuota, 1);
  ck_assert_int_gt(f.view.numReplicas, 0);
  BREAK(f.view.numRanks, 2, "numRanks is 2");
  BREAK(f.demand[3], -1, "demand of rank 0, expert 3 is -1");
  BREAK(f.demand[3], 2, "expert 3 has 14 pairs on its instances of 15");
  BREAK(f.given[3], 2, "for another demand");
  BREAK(f.quotas[1], 13, "expert 1 keeps 13 of 12 pairs");
  BREAK(f.quotas[1], 5, "expert 1 has 6 pairs on its instances of 5");
  BREAK(f.forward[0], -1, "expert 0 has -1 pairs on rank 0");
  BREAK(f.kept[0], f.kept[0] + 1, "pairs on its instances of 90");
  BREAK(f.view.pairs, 1, "pairs is 1");
  BREAK(f.view.kept, 1, "kept is 1");
  BREAK(f.view.retainPpm, 1, "retainPpm is 1");
  BREAK(f.view.peakForward, 1000, "peakForward is 1000");
  BREAK(f.view.peakKept, 0, "peakKept is 0");
  BREAK(f.view.boundForward, 74, "bound of forward pairs is 74");
  BREAK(f.view.boundKept, 1000, "bound of kept pairs is 1000");
  BREAK(f.view.gapKeptPpm, f.view.gapKeptPpm + 1, "gap of kept pairs");
  BREAK(f.view.movesIn, f.view.movesIn + 1, "movesIn");
  BREAK(f.view.peakMovesIn, 999, "peakMovesIn is 999");
  BREAK(f.view.numReplicas, 0, "numReplicas is 0");
}
END_TEST

START_TEST(instancesAndSlots) {
  struct forged f;
  makeForged(&f, lrmoePolicyQuota, 1);
  BREAK(f.offsets[0], 1, "first instance offset is 1");
  BREAK(f.offsets[2], 0, "instances of expert 1 end at 0");
  BREAK(f.offsets[4], f.offsets[4] - 1, "no instance at its home");
  BREAK(f.ranks[1], 0, "expert 0 has an instance on rank 0 after 0");
  BREAK(f.ranks[0], numRanks, "instance on rank 3 after -1 of 3");
  BREAK(f.homes[3], 1, "expert 3 has no instance at its home, rank 1");
  BREAK(f.config.slots, 0, "instances, at home 1 and 0 spare slots");
  BREAK(f.config.policy, lrmoePolicyTopo, "policy 4, not 4 and 9");
  BREAK(f.view.homesMoved, 1, "0 homes differ");
  BREAK(f.config.maxPairs, 10, "executes 75 pairs of 10");
  BREAK(f.config.retainPpm, 600000, "expert 0 keeps 90 of 180 pairs, not 108");
  BREAK(f.config.minReplicaPairs, 1000, "fewer than 1000");
}
END_TEST

/* A replica with nothing to do, and homes that a policy must not move. */
START_TEST(rulesOfPolicies) {
  struct forged f;
  makeForged(&f, lrmoePolicyLrmoe, 1);
  BREAK(f.config.maxReplicas, 1, "at most 1 may be");
  makeForged(&f, lrmoePolicyProportional, 1);
  ck_assert_int_gt(f.view.homesMoved, 0);
  f.config.policy = f.view.policy = lrmoePolicyFlex;
  expect(&f, "policy 6 keeps homes");
  makeForged(&f, lrmoePolicyQuota, 1);
  f.config.policy = f.view.policy = lrmoePolicyShadow;
  expect(&f, "pairs of shadowed expert 0");
  f.config.policy = f.view.policy = lrmoePolicyFlex;
  expect(&f, "which share evenly");
  f.config.policy = f.view.policy = lrmoePolicyFixed;
  expect(&f, "has no replicas and");
  f.config.policy = f.view.policy = lrmoePolicyLocal;
  f.view.changesForward = 1;
  expect(&f, "policy 11 has no replicas");
  makeForged(&f, lrmoePolicyBalanced, 0);
  BREAK(f.given[0], 91, "rank 0 has 96 pairs and was given 97");
  BREAK(f.view.changesForward, 0, "for another demand");
  makeForged(&f, lrmoePolicyLocal, 0);
  f.config.policy = f.view.policy = lrmoePolicyBalanced;
  expect(&f, "pairs of a mean of 56");
  makeForged(&f, lrmoePolicyBalanced, 0);
  f.config.policy = f.view.policy = lrmoePolicyLocal;
  expect(&f, "not at home there");
  makeForged(&f, lrmoePolicyPermute, 0);
  f.config.policy = f.view.policy = lrmoePolicyEplb;
  expect(&f, NULL); /* a permutation is within eplb's rules */
}
END_TEST

START_TEST(oneRateGivesAllQuotas) {
  struct forged f;
  makeForged(&f, lrmoePolicyFixed, 0);
  f.config.retain = lrmoeRetainLargest; /* any rate up to a half */
  expect(&f, NULL);
  f.quotas[0] -= 20;
  f.kept[0] -= 20;
  f.view.kept -= 20;
  f.view.peakKept -= 20;
  f.view.boundKept -= 20;
  f.view.retainPpm = f.view.kept * 1000000 / f.view.pairs;
  f.config.quota = lrmoeQuotaOverload;
  expect(&f, NULL);
  f.config.quota = lrmoeQuotaUniform;
  expect(&f, "no one rate gives the quotas");
  f.config.quota = lrmoeQuotaOverload;
  f.config.minRetainPpm = 450000;
  expect(&f, "expert 0 keeps 70 of 180 pairs, not 81");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {sumsAndFigures, instancesAndSlots,
                                rulesOfPolicies, oneRateGivesAllQuotas};
  return suiteRunTests("plan verifier", tests, sizeof tests / sizeof *tests,
                       60);
}
