/* Rows that cross between nodes once: as many as distinct (token, node), the
 * results right, for nodes of any size and relays that serve several ranks. */
#include "collectives/step.h"
#include "driver.h"
#include "support/suite.h"

#include <stdlib.h>

static int nodeOf(const struct oracleCase *spec, int rank) {
  return rank / spec->ranksPerNode;
}

/* Distinct (token, rank) of kept pairs that leave this rank's node, and
 * distinct (token, node). */
static void countRows(const struct driver *d, int64_t *perRank,
                      int64_t *perNode) {
  const struct oracleCase *spec = &d->oracle->spec;
  int own = nodeOf(spec, d->self->rank);
  *perRank = *perNode = 0;
  for (int64_t t = 0; t < spec->numTokens[d->self->rank]; t++) {
    char ranks[oracleMaxRanks] = {0};
    char nodes[oracleMaxRanks] = {0};
    for (int64_t p = t * spec->topk; p < (t + 1) * spec->topk; p++) {
      int32_t to = d->step->backDest[p];
      if (to < 0 || nodeOf(spec, to) == own) continue;
      *perRank += !ranks[to]++;
      *perNode += !nodes[nodeOf(spec, to)]++;
    }
  }
}

static int runWire(struct driver *d, lrmoeWire_t wire, int64_t *nodeBytes) {
  lrmoeBackwardConfig_t config = d->oracle->spec.backward;
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  config.wire = wire;
  if (driverBackward(d, &config, d->oracle->spec.isFused) ||
      driverCheckSelection(d) || driverCheckResults(d))
    return 1;
  RANK_OK(d->self, lrmoeStepGetStats(d->step, &stats));
  *nodeBytes = stats.nodeBytes;
  return 0;
}

static int runBoth(const struct testRank *self) {
  struct driver d;
  int64_t perRank = 0, perNode = 0, dedupBytes = 0, nodeBytes = 0;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d) ||
               runWire(&d, lrmoeWireNode, &nodeBytes);
  if (!failed) countRows(&d, &perRank, &perNode);
  failed = failed || runWire(&d, lrmoeWirePairwise, &dedupBytes) ||
           runWire(&d, lrmoeWireDedup, &dedupBytes);
  if (!failed) {
    RANK_TRUE(self, nodeBytes == perNode * d.layer->rowBytes);
    /* A route of the device's windows does not tell. */
    RANK_TRUE(self, dedupBytes == perRank * d.layer->rowBytes ||
                        (d.layer->fused && !dedupBytes));
    RANK_TRUE(self, perNode <= perRank);
  }
  driverClose(&d);
  return failed;
}

START_TEST(rowsCrossOnce) {
  struct oracleCase c = oraclePlainCase();
  c.seed = 900 + (uint64_t)_i;
  c.numRanks = 2 + _i % 7;
  c.ranksPerNode = 1 + _i / 7 % 4;
  for (int r = 0; r < c.numRanks; r++)
    c.numTokens[r] = _i % 5 == r ? 0 : 9 + 5 * r;
  c.isFused = _i % 2;
  c.numSlots = _i % 3;
  c.retainPpm = 300000 + 100000 * (_i % 8);
  c.savedState = _i % 4 == 3 ? lrmoeSavedNone : lrmoeSavedFull;
  c.gatherRanks = _i / 2 % 2 ? 1 : 64;
  if (_i % 6 == 5) c.backward.metric = lrmoeMetricAll;
  ck_assert_int_eq(testRanksRun(c.numRanks, runBoth, &c), 0);
}
END_TEST

/* Three of a node need a row, and one copy comes: 8 ranks, all experts. */
static int runWhole(const struct testRank *self) {
  struct driver d;
  int64_t bytes[2] = {0, 0};
  int failed = driverOpen(&d, self, self->user) || driverForward(&d) ||
               runWire(&d, lrmoeWireNode, &bytes[0]) ||
               runWire(&d, lrmoeWireDedup, &bytes[1]);
  int64_t numTokens = d.oracle->spec.numTokens[self->rank];
  if (!failed) {
    RANK_TRUE(self, bytes[0] == numTokens * d.layer->rowBytes);
    RANK_TRUE(self, bytes[1] == 4 * bytes[0] || d.layer->fused);
  }
  driverClose(&d);
  return failed;
}

START_TEST(aRowForAWholeNode) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = 8;
  c.numExperts = 8;
  c.topk = 8;
  c.ranksPerNode = 4;
  c.retainPpm = 1000000;
  for (int r = 0; r < c.numRanks; r++)
    c.numTokens[r] = 3 + r;
  ck_assert_int_eq(testRanksRun(c.numRanks, runWhole, &c), 0);
}
END_TEST

static int runExact(const struct testRank *self) {
  struct driver d;
  int64_t bytes = 0;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d) ||
               runWire(&d, lrmoeWireNode, &bytes);
  driverClose(&d);
  return failed;
}

START_TEST(exactRouterGradients) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = 6;
  for (int r = 0; r < c.numRanks; r++)
    c.numTokens[r] = 11;
  c.ranksPerNode = 2 + _i / 2;
  c.numSlots = 1;
  c.routerGrad = _i % 2 ? lrmoeRouterGradOwner : lrmoeRouterGradExecutor;
  ck_assert_int_eq(testRanksRun(c.numRanks, runExact, &c), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("node");
  TCase *group = tcase_create("node");
  tcase_set_timeout(group, 300);
  tcase_add_loop_test(group, rowsCrossOnce, 0, 28);
  tcase_add_test(group, aRowForAWholeNode);
  tcase_add_loop_test(group, exactRouterGradients, 0, 4);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
