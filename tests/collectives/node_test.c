/* Rows that cross between nodes once: as many as distinct (token, node), the
 * results right, for nodes of any size and relays that serve several ranks. */
#include "collectives/step.h"
#include "driver.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

static int nodeOf(const struct oracleCase *spec, int rank) {
  return rank / spec->ranksPerNode;
}

/* Rows that leave this rank's node, distinct (token, rank) or (token, node). */
struct crossings {
  int64_t perRank;
  int64_t perNode;
};

/* Where each pair's row goes, dest [T, k], -1: nowhere. */
static struct crossings countRows(const struct driver *d, const int32_t *dest) {
  const struct oracleCase *spec = &d->oracle->spec;
  int own = nodeOf(spec, d->self->rank);
  struct crossings count = {0, 0};
  for (int64_t t = 0; t < spec->numTokens[d->self->rank]; t++) {
    char ranks[oracleMaxRanks] = {0};
    char nodes[oracleMaxRanks] = {0};
    for (int64_t p = t * spec->topk; p < (t + 1) * spec->topk; p++) {
      if (dest[p] < 0 || nodeOf(spec, dest[p]) == own) continue;
      count.perRank += !ranks[dest[p]]++;
      count.perNode += !nodes[nodeOf(spec, dest[p])]++;
    }
  }
  return count;
}

/* The same of rows of x that kept pairs need again. */
static struct crossings countX(const struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t slots = driverSlots(spec, d->self->rank);
  int32_t *dest = oracleZeroed(slots, sizeof *dest);
  for (int64_t p = 0; p < slots; p++) {
    int isAgain = spec->savedState == lrmoeSavedNone ||
                  d->step->backDest[p] != d->step->dest[p];
    dest[p] = isAgain ? d->step->backDest[p] : -1;
  }
  struct crossings count = countRows(d, dest);
  free(dest);
  return count;
}

static int runWire(struct driver *d, lrmoeWire_t wire,
                   lrmoeStepStats_t *stats) {
  lrmoeBackwardConfig_t config = d->oracle->spec.backward;
  *stats = (lrmoeStepStats_t)LRMOE_STEP_STATS_INITIALIZER;
  config.wire = wire;
  if (driverBackward(d, &config, d->oracle->spec.isFused) ||
      driverCheckSelection(d) || driverCheckResults(d))
    return 1;
  RANK_OK(d->self, lrmoeStepGetStats(d->step, stats));
  return 0;
}

static int checkForward(const struct driver *d, const lrmoeStepStats_t *stats) {
  struct crossings x = countRows(d, d->step->dest);
  int64_t numRows =
      d->oracle->spec.forwardWire == lrmoeWireNode ? x.perNode : x.perRank;
  RANK_TRUE(d->self, x.perNode <= x.perRank);
  RANK_TRUE(d->self, stats->forwardNodeBytes == numRows * d->layer->rowBytes);
  return 0;
}

static int checkBackward(const struct driver *d, const struct crossings *g,
                         const struct crossings *x,
                         const lrmoeStepStats_t *byNode,
                         const lrmoeStepStats_t *byRank) {
  int64_t rowBytes = d->layer->rowBytes;
  RANK_TRUE(d->self, g->perNode <= g->perRank && x->perNode <= x->perRank);
  RANK_TRUE(d->self, byNode->nodeBytes == g->perNode * rowBytes);
  RANK_TRUE(d->self, byNode->xNodeBytes == x->perNode * rowBytes);
  /* A route of the device's windows does not tell of g. */
  RANK_TRUE(d->self, byRank->nodeBytes == g->perRank * rowBytes ||
                         (d->layer->fused && !byRank->nodeBytes));
  RANK_TRUE(d->self, byRank->xNodeBytes == x->perRank * rowBytes);
  return 0;
}

/* No relay has more rows than a plan that charges relays says. */
static int checkCharge(const struct driver *d) {
  const struct lrmoePlan *plan = d->step->plan;
  int64_t pairs[oracleMaxRanks], room[oracleMaxRanks];
  lrmoeNodesPassing(d->layer->nodes, plan, room, pairs);
  for (int i = 0; i < lrmoeNumRelays; i++) {
    const struct lrmoeRelay *relay = &d->step->relays[i];
    if (!relay->rowOffsets) continue;
    RANK_TRUE(d->self,
              relay->rowOffsets[plan->numRanks] <= pairs[d->self->rank]);
    RANK_TRUE(d->self, relay->numOut <= pairs[d->self->rank]);
  }
  return 0;
}

static int runBoth(const struct testRank *self) {
  struct driver d;
  lrmoeStepStats_t byNode, byRank;
  struct crossings g = {0, 0}, x = {0, 0};
  int failed = driverOpen(&d, self, self->user) || driverForward(&d) ||
               checkCharge(&d) || runWire(&d, lrmoeWireNode, &byNode) ||
               checkCharge(&d);
  if (!failed) {
    g = countRows(&d, d.step->backDest);
    x = countX(&d);
  }
  failed = failed || checkForward(&d, &byNode) ||
           runWire(&d, lrmoeWirePairwise, &byRank) ||
           runWire(&d, lrmoeWireDedup, &byRank) || checkForward(&d, &byRank) ||
           checkBackward(&d, &g, &x, &byNode, &byRank);
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
  c.forwardWire = _i % 3 == 2 ? lrmoeWireDedup : lrmoeWireNode;
  c.gatherRanks = _i / 2 % 2 ? 1 : 64;
  if (_i % 6 == 5) c.backward.metric = lrmoeMetricAll;
  ck_assert_int_eq(testRanksRun(c.numRanks, runBoth, &c), 0);
}
END_TEST

/* Three of a node need a row, and one copy comes: 8 ranks, all experts. */
static int runWhole(const struct testRank *self) {
  struct driver d;
  lrmoeStepStats_t byNode, byRank;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d) ||
               runWire(&d, lrmoeWireNode, &byNode) ||
               runWire(&d, lrmoeWireDedup, &byRank);
  const struct oracleCase *spec = &d.oracle->spec;
  if (!failed) {
    int64_t bytes = spec->numTokens[self->rank] * d.layer->rowBytes;
    int64_t again = spec->savedState == lrmoeSavedNone ? bytes : 0;
    RANK_TRUE(self, byNode.forwardNodeBytes == bytes);
    RANK_TRUE(self, byNode.nodeBytes == bytes);
    RANK_TRUE(self, byNode.xNodeBytes == again);
    RANK_TRUE(self, byRank.nodeBytes == 4 * bytes || d.layer->fused);
    RANK_TRUE(self, byRank.xNodeBytes == 4 * again);
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
  c.forwardWire = lrmoeWireNode;
  c.savedState = _i ? lrmoeSavedNone : lrmoeSavedFull;
  for (int r = 0; r < c.numRanks; r++)
    c.numTokens[r] = 3 + r;
  ck_assert_int_eq(testRanksRun(c.numRanks, runWhole, &c), 0);
}
END_TEST

/* Forward twice on one step, as recomputation does, then backward. */
static int runExact(const struct testRank *self) {
  struct driver d;
  lrmoeStepStats_t stats;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d) ||
               driverDispatch(&d) || driverExperts(&d) || driverCombine(&d) ||
               runWire(&d, lrmoeWireNode, &stats) || checkForward(&d, &stats);
  driverClose(&d);
  return failed;
}

START_TEST(everyRouterGradient) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = 6;
  for (int r = 0; r < c.numRanks; r++)
    c.numTokens[r] = 11;
  c.ranksPerNode = 2 + _i / 3;
  c.numSlots = 1;
  c.forwardWire = lrmoeWireNode;
  c.routerGrad = (lrmoeRouterGrad_t)(_i % 3);
  ck_assert_int_eq(testRanksRun(c.numRanks, runExact, &c), 0);
}
END_TEST

/* What a layer gives, y first. */
struct results {
  void *y;
  void *dx;
  float *dWeights;
  int64_t rowsBytes;
  int64_t weightsBytes;
};

static void *copyOf(const void *data, int64_t bytes) {
  void *copy = oracleZeroed(bytes, 1);
  if (bytes) memcpy(copy, data, (size_t)bytes);
  return copy;
}

static int runForward(const struct testRank *self, lrmoeWire_t wire,
                      struct results *results) {
  struct driver d;
  struct oracleCase spec = *(const struct oracleCase *)self->user;
  spec.forwardWire = wire;
  int failed = driverOpen(&d, self, &spec) || driverForward(&d) ||
               driverBackward(&d, &spec.backward, spec.isFused) ||
               driverCheckSelection(&d) || driverCheckResults(&d);
  if (!failed) {
    results->rowsBytes = spec.numTokens[self->rank] * d.layer->rowBytes;
    results->weightsBytes =
        driverSlots(&spec, self->rank) * (int64_t)sizeof *d.dWeights;
    results->y = copyOf(d.y, results->rowsBytes);
    results->dx = copyOf(d.dx, results->rowsBytes);
    results->dWeights = copyOf(d.dWeights, results->weightsBytes);
  }
  driverClose(&d);
  return failed;
}

static void freeResults(struct results *results) {
  free(results->y);
  free(results->dx);
  free(results->dWeights);
}

static int runSame(const struct testRank *self) {
  struct results a = {0}, b = {0};
  int failed = runForward(self, lrmoeWireDedup, &a) ||
               runForward(self, lrmoeWireNode, &b);
  int isSame = !failed && !memcmp(a.y, b.y, (size_t)a.rowsBytes) &&
               !memcmp(a.dx, b.dx, (size_t)a.rowsBytes) &&
               !memcmp(a.dWeights, b.dWeights, (size_t)a.weightsBytes);
  freeResults(&a);
  freeResults(&b);
  RANK_TRUE(self, failed || isSame);
  return failed;
}

/* One node, or nodes of one rank each: nothing is added between. */
START_TEST(forwardAsDedup) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = 4;
  for (int r = 0; r < c.numRanks; r++)
    c.numTokens[r] = 7 + r;
  c.numSlots = 1;
  c.ranksPerNode = _i % 2 ? 1 : c.numRanks;
  c.savedState = _i / 2 ? lrmoeSavedNone : lrmoeSavedFull;
  ck_assert_int_eq(testRanksRun(c.numRanks, runSame, &c), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("node");
  TCase *group = tcase_create("node");
  tcase_set_timeout(group, 300);
  tcase_add_loop_test(group, rowsCrossOnce, 0, 28);
  tcase_add_loop_test(group, aRowForAWholeNode, 0, 2);
  tcase_add_loop_test(group, everyRouterGradient, 0, 6);
  tcase_add_loop_test(group, forwardAsDedup, 0, 4);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
