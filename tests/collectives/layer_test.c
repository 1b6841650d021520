/* The whole layer against the single-process oracle: random cases, and the
 * corner cases by name.  LRMOE_TEST_SEED=N runs one random case again;
 * LRMOE_TEST_CASES=N sets how many there are, from LRMOE_TEST_FIRST on. */
#include "driver.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>

static void runCase(struct oracleCase *spec) {
  int numFailed = testRanksRun(spec->numRanks, driverRunCase, spec);
  ck_assert_msg(!numFailed, "%d ranks failed", numFailed);
}

static int64_t numberFrom(const char *name, int64_t fallback) {
  const char *text = getenv(name);
  return text ? strtoll(text, NULL, 10) : fallback;
}

START_TEST(randomCases) {
  int64_t seed = numberFrom("LRMOE_TEST_SEED", -1);
  int64_t first = seed >= 0 ? seed : numberFrom("LRMOE_TEST_FIRST", 1);
  int64_t count = seed >= 0 ? 1 : numberFrom("LRMOE_TEST_CASES", 150);
  for (int64_t i = first; i < first + count; i++) {
    struct oracleCase spec = oracleRandomCase((uint64_t)i);
    int numFailed = testRanksRun(spec.numRanks, flightRunCase, &spec);
    ck_assert_msg(!numFailed,
                  "%d ranks failed; again: LRMOE_TEST_SEED=%lld "
                  "build/tests/collectives_layer",
                  numFailed, (long long)i);
  }
}
END_TEST

/* Runs the case over every wire, staged and fused, both ways of selection. */
static void runEveryWay(struct oracleCase c) {
  static const char *const gatherRanks[] = {"1", "64"};
  for (int i = 0; i < 12; i++) {
    c.backward.wire = (lrmoeWire_t)(i % 3);
    c.isFused = i / 3 % 2;
    setenv("LRMOE_GATHER_RANKS", gatherRanks[i / 6], 1);
    runCase(&c);
  }
}

START_TEST(plain) {
  runEveryWay(oraclePlainCase());
}
END_TEST

START_TEST(replicas) {
  struct oracleCase c = oraclePlainCase();
  c.numSlots = 2;
  for (uint64_t seed = 50; seed < 56; seed++) {
    c.seed = seed;
    runEveryWay(c);
  }
}
END_TEST

START_TEST(replicasWithoutSavedState) {
  struct oracleCase c = oraclePlainCase();
  c.numSlots = 2;
  c.savedState = lrmoeSavedNone;
  for (uint64_t seed = 60; seed < 63; seed++) {
    c.seed = seed;
    runEveryWay(c);
  }
}
END_TEST

START_TEST(savedStateNone) {
  struct oracleCase c = oraclePlainCase();
  c.savedState = lrmoeSavedNone;
  runEveryWay(c);
}
END_TEST

START_TEST(exactRouterGradients) {
  struct oracleCase c = oraclePlainCase();
  for (int i = 0; i < 8; i++) {
    c.routerGrad = i % 2 ? lrmoeRouterGradOwner : lrmoeRouterGradExecutor;
    c.convention = (lrmoeWeightConvention_t)(i / 2 % 2);
    c.numSlots = i / 4;
    for (c.isFused = 0; c.isFused < 2; c.isFused++)
      runCase(&c);
  }
}
END_TEST

START_TEST(weightBeforeFc2) {
  struct oracleCase c = oraclePlainCase();
  c.convention = lrmoeWeightPre;
  runEveryWay(c);
}
END_TEST

START_TEST(oneRank) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = 1;
  runEveryWay(c);
}
END_TEST

START_TEST(nineRanks) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = 9;
  for (int r = 0; r < 9; r++)
    c.numTokens[r] = 5 + r;
  runEveryWay(c);
}
END_TEST

START_TEST(rankWithoutTokens) {
  struct oracleCase c = oraclePlainCase();
  c.numTokens[1] = 0;
  runEveryWay(c);
}
END_TEST

START_TEST(noTokensAtAll) {
  struct oracleCase c = oraclePlainCase();
  for (int r = 0; r < c.numRanks; r++)
    c.numTokens[r] = 0;
  runEveryWay(c);
}
END_TEST

START_TEST(expertWithoutTokens) {
  struct oracleCase c = oraclePlainCase();
  c.unusedExpert = 2;
  runEveryWay(c);
}
END_TEST

START_TEST(rankWithoutExperts) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = 5;
  c.numTokens[3] = 4;
  c.numTokens[4] = 6;
  c.numExperts = 3;
  runEveryWay(c);
}
END_TEST

START_TEST(allToOneExpert) {
  struct oracleCase c = oraclePlainCase();
  c.hotExpert = 4;
  c.topk = 1;
  runEveryWay(c);
}
END_TEST

START_TEST(hotExpertInEveryToken) {
  struct oracleCase c = oraclePlainCase();
  c.hotExpert = 0;
  runEveryWay(c);
}
END_TEST

START_TEST(topOne) {
  struct oracleCase c = oraclePlainCase();
  c.topk = 1;
  runEveryWay(c);
}
END_TEST

START_TEST(topAll) {
  struct oracleCase c = oraclePlainCase();
  c.topk = c.numExperts;
  runEveryWay(c);
}
END_TEST

START_TEST(manyUnroutedSlots) {
  struct oracleCase c = oraclePlainCase();
  c.noneShare = 0.8;
  runEveryWay(c);
}
END_TEST

START_TEST(keepNothing) {
  struct oracleCase c = oraclePlainCase();
  c.retainPpm = 0;
  runEveryWay(c);
}
END_TEST

START_TEST(keepEverything) {
  struct oracleCase c = oraclePlainCase();
  c.retainPpm = 1000000;
  runEveryWay(c);
}
END_TEST

START_TEST(allScoresEqual) {
  struct oracleCase c = oraclePlainCase();
  c.equalScores = 1;
  runEveryWay(c);
}
END_TEST

START_TEST(nonFiniteFewerThanQuota) {
  struct oracleCase c = oraclePlainCase();
  c.numPoison = 2;
  runEveryWay(c);
}
END_TEST

START_TEST(nonFiniteMoreThanQuota) {
  struct oracleCase c = oraclePlainCase();
  c.numPoison = 16;
  c.retainPpm = 300000;
  c.backward.wire = lrmoeWireDedup;
  for (int metric = lrmoeMetricLrm; metric <= lrmoeMetricRandom; metric++) {
    c.backward.metric = (lrmoeMetric_t)metric;
    runEveryWay(c);
  }
}
END_TEST

START_TEST(everyMetricAndScope) {
  struct oracleCase c = oraclePlainCase();
  c.backward.seed = 99;
  for (int metric = lrmoeMetricLrm; metric <= lrmoeMetricAll; metric++) {
    for (int scope = lrmoeScopeExpert; scope <= lrmoeScopeInstance; scope++) {
      c.backward.metric = (lrmoeMetric_t)metric;
      c.backward.scope = (lrmoeScope_t)scope;
      runCase(&c);
    }
  }
}
END_TEST

START_TEST(everyTypeAndActivation) {
  static const lrmoeDataType_t types[] = {lrmoeBfloat16, lrmoeFloat16,
                                          lrmoeFloat32};
  struct oracleCase c = oraclePlainCase();
  for (int i = 0; i < 6; i++) {
    c.type = types[i % 3];
    c.activation = (lrmoeActivation_t)(i / 3);
    runCase(&c);
  }
}
END_TEST

START_TEST(homesNotContiguous) {
  struct oracleCase c = oraclePlainCase();
  c.isHomesMixed = 1;
  runEveryWay(c);
}
END_TEST

/* Those that keep homes; with scope `layer` the kept counts of instances are
 * not the plan's but follow from the selection. */
START_TEST(rivalsThatKeepHomes) {
  static const lrmoePolicy_t policies[] = {lrmoePolicyQuota, lrmoePolicyShadow,
                                           lrmoePolicyFlex, lrmoePolicyTopo};
  struct oracleCase c = oraclePlainCase();
  c.hotExpert = 3;
  c.numSlots = 2;
  for (int i = 0; i < 8; i++) {
    c.policy = policies[i / 2];
    c.backward.scope = i % 2 ? lrmoeScopeLayer : lrmoeScopeExpert;
    runCase(&c);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {replicas,
                                rivalsThatKeepHomes,
                                replicasWithoutSavedState,
                                savedStateNone,
                                weightBeforeFc2,
                                exactRouterGradients,
                                randomCases,
                                plain,
                                oneRank,
                                nineRanks,
                                rankWithoutTokens,
                                noTokensAtAll,
                                expertWithoutTokens,
                                rankWithoutExperts,
                                allToOneExpert,
                                hotExpertInEveryToken,
                                topOne,
                                topAll,
                                manyUnroutedSlots,
                                keepNothing,
                                keepEverything,
                                allScoresEqual,
                                nonFiniteFewerThanQuota,
                                nonFiniteMoreThanQuota,
                                everyMetricAndScope,
                                everyTypeAndActivation,
                                homesNotContiguous};
  return suiteRunTests("layer", tests, sizeof tests / sizeof *tests, 300);
}
