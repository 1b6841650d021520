/* What a backward copies between host and device, and how often the host waits:
 * counts and tables of ranges, however many pairs there are, and once. */
#include "driver.h"
#include "guarded.h"
#include "support/suite.h"

static struct oracleCase manyTokens(void) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = 2;
  c.numTokens[0] = 2000;
  c.numTokens[1] = 1900;
  c.hidden = 8;
  c.ffn = 8;
  c.retainPpm = 600000;
  return c;
}

static int sendFused(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  RANK_OK(d->self, lrmoeSelectPackSend(d->step, driverDevice(d, data->x),
                                       driverDevice(d, data->g), NULL, NULL));
  return 0;
}

static int sendStaged(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  RANK_OK(d->self, lrmoeSelect(d->step, driverDevice(d, data->g), NULL, NULL));
  return driverSend(d);
}

/* A backward of which nothing is looked at meanwhile. */
static int runBackward(struct driver *d, int isFused) {
  if (isFused ? sendFused(d) : sendStaged(d)) return 1;
  RANK_OK(d->self, lrmoeExpertBackward(d->step, NULL));
  RANK_OK(d->self, lrmoeReturn(d->step, driverDevice(d, d->dx),
                               driverDevice(d, d->dWeights), NULL));
  return 0;
}

static int checkCopies(struct driver *d, int isFused) {
  guardedResetCopies();
  if (runBackward(d, isFused)) return 1;
  struct guardedCopies copies = guardedGetCopies();
  int64_t numPairs = driverSlots(&d->oracle->spec, d->self->rank);
  RANK_TRUE(d->self, copies.numWaits == 1);
  RANK_TRUE(d->self, copies.bytesToHost > 0);
  RANK_TRUE(d->self, copies.bytesToHost + copies.bytesToDevice < numPairs);
  return 0;
}

/* The first backward makes room, which waits. */
static int runCopies(const struct testRank *self) {
  struct driver d;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d) ||
               driverBackward(&d, NULL, 0) || driverCheckSelection(&d) ||
               driverCheckResults(&d) || checkCopies(&d, 0) ||
               checkCopies(&d, 1);
  driverClose(&d);
  return failed;
}

/* With and without replicas, whose pairs move; with and without saved state;
 * keys gathered, and at home. */
START_TEST(copiesDoNotGrowWithPairs) {
  struct oracleCase c = manyTokens();
  c.numSlots = _i % 2;
  c.savedState = _i / 2 % 2 ? lrmoeSavedNone : lrmoeSavedFull;
  c.gatherRanks = _i / 4 ? 1 : 64;
  if (_i == 8) c.routerGrad = lrmoeRouterGradExecutor;
  ck_assert(guardedIsWanted());
  ck_assert_int_eq(testRanksRun(c.numRanks, runCopies, &c), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("copies");
  TCase *group = tcase_create("copies");
  tcase_set_timeout(group, 120);
  tcase_add_loop_test(group, copiesDoNotGrowWithPairs, 0, 9);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
