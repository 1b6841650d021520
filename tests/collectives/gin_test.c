/* Rows between nodes that devices hand to NICs: the bits of the same rows as
 * messages, whatever the schedule and the network's order.  Ranks are threads
 * with an emulated device each, over NCCL's stand-in, whose network moves rows
 * late (support/nccl/gin.c). */
#include "collectives/node_gin.h"
#include "gin_stuck.h"
#include "left.h"
#include "nccl/standin_control.h"
#include "support/simt/simt.h"

#include <stdlib.h>

enum {
  numSameCases = 9,
#ifdef TEST_RANKS_ARE_THREADS
  numOrders = 1, /* TSan takes its time */
  numFlights = 4
#else
  numOrders = 3,
  numFlights = 12
#endif
};

struct oracleCase ginCase(int numRanks, int ranksPerNode) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = numRanks;
  c.ranksPerNode = ranksPerNode;
  c.numExperts = 2 * numRanks;
  c.gatherRanks = 64;
  c.backward.wire = lrmoeWireNode;
  for (int r = 0; r < numRanks; r++)
    c.numTokens[r] = r == 2 ? 0 : 4 + 3 * r;
  setenv("LRMOE_GIN", "1", 1);
  return c;
}

static int64_t launchesOf(const char *kernel) {
  struct simtCounters counters;
  simtGetCounters(kernel, &counters);
  return counters.launches;
}

/* ---- The same bits ---- */

static int appendResults(struct left *left, const struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t numTokens = spec->numTokens[d->self->rank];
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  RANK_OK(d->self, lrmoeStepGetStats(d->step, &stats));
  const int64_t counts[] = {stats.rowBytes, stats.returnBytes,  stats.nodeBytes,
                            stats.kept,     stats.executedKept, stats.movedIn};
  leftAppend(left, counts, (int64_t)sizeof counts);
  leftAppend(left, d->kept, numTokens * spec->topk);
  leftAppend(left, d->dWeights,
             numTokens * spec->topk * (int64_t)sizeof(float));
  leftAppend(left, d->dx, numTokens * d->layer->rowBytes);
  return 0;
}

static int runWay(struct driver *d, struct left *left) {
  const struct oracleCase *spec = &d->oracle->spec;
  left->count = 0;
  return driverSelect(d, &spec->backward, spec->isFused) ||
         (!spec->isFused && driverSend(d)) || leftAppendHandoff(left, d) ||
         driverExpertBackward(d) || driverReturn(d) || appendResults(left, d) ||
         driverCheckResults(d);
}

/* By NICs, by messages, and by NICs again. */
static int runWays(struct driver *d, struct left *left) {
  struct lrmoeNodeGin *gin = d->layer->gin;
  for (int way = 0; way < 3; way++) {
    d->layer->gin = way == 1 ? NULL : gin;
    int failed = runWay(d, &left[way]);
    d->layer->gin = gin;
    if (failed) return 1;
  }
  RANK_TRUE(d->self, left[1].count == left[0].count);
  RANK_TRUE(d->self, left[2].count == left[0].count);
  RANK_TRUE(d->self, leftIsSame(&left[0], &left[1]));
  RANK_TRUE(d->self, leftIsSame(&left[0], &left[2]));
  return 0;
}

static int64_t pieceBytes; /* 0: as the layer has it */

static int runSame(const struct testRank *self) {
  struct driver d;
  struct left left[3] = {{NULL, 0, 0}};
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  if (!failed && !d.layer->gin) failed = 1;
  if (!failed && pieceBytes) d.layer->gin->pieceBytes = pieceBytes;
  failed = failed || runWays(&d, left);
  for (int way = 0; way < 3; way++)
    free(left[way].bytes);
  driverClose(&d);
  return failed;
}

static struct oracleCase sameCase(int number) {
  static const int sizes[numSameCases][2] = {
      {2, 1}, {3, 2}, {4, 2}, {5, 1}, {6, 4}, {7, 3}, {8, 2}, {8, 3}, {8, 4}};
  struct oracleCase c = ginCase(sizes[number][0], sizes[number][1]);
  c.seed = 70 + (uint64_t)number;
  c.isFused = number % 2;
  c.numSlots = number % 3;
  c.retainPpm = 300000 + 100000 * (number % 8);
  if (number == 3) c.savedState = lrmoeSavedNone;
  if (number == 4) c.numPoison = 2;
  if (number == 5) c.routerGrad = lrmoeRouterGradOwner;
  if (number == 6) c.backward.metric = lrmoeMetricAll;
  if (number == 7) c.overlapsReturn = 1;
  if (number % 2) c.forwardWire = lrmoeWireNode;
  return c;
}

/* Phases of a rank: of two backwards g, x if pairs move, and dx; of a forward x
 * and y, unless y comes home by pair. */
static int numPhases(const struct oracleCase *c) {
  int hasX = c->savedState == lrmoeSavedNone ||
             (c->numSlots && c->backward.metric != lrmoeMetricAll);
  int hasY = c->routerGrad != lrmoeRouterGradOwner;
  int isForward = c->forwardWire == lrmoeWireNode;
  return 2 * (2 + hasX) + isForward * (1 + hasY);
}

START_TEST(sameBitsAsMessages) {
  struct oracleCase c = sameCase(_i % numSameCases);
  int order = _i / numSameCases; /* the second is the usual one */
  if (order != 1) simtSetOrder(simtOrderRandom, 1 + (uint64_t)_i);
  pieceBytes = order == 2 ? 48 : 0;
  simtResetCounters();
  ck_assert_int_eq(testRanksThreads(c.numRanks, runSame, &c), 0);
  int count = numPhases(&c) * c.numRanks;
  ck_assert_int_eq(launchesOf("ginPutKernel"), count);
  ck_assert_int_eq(launchesOf("ginAwaitKernel"), count);
}
END_TEST

/* ---- Several steps in flight ---- */

/* Of random shapes, with backwards in any order. */
START_TEST(flights) {
  struct oracleCase c = oracleRandomCase(500 + (uint64_t)_i);
  setenv("LRMOE_GIN", "1", 1);
  c.ranksPerNode = 1 + _i % 3;
  if (c.numRanks <= c.ranksPerNode) c.ranksPerNode = 1;
  simtSetOrder(simtOrderRandom, 1 + (uint64_t)_i);
  ck_assert_int_eq(testRanksThreads(c.numRanks, flightRunCase, &c), 0);
}
END_TEST

/* A step that is destroyed with its rows sent leaves nothing on its way. */
static int runDestroyed(const struct testRank *self) {
  struct driver d, other;
  const struct oracleCase *spec = self->user;
  struct oracleCase next = *spec;
  next.dataSeed = 5;
  int failed = driverOpen(&d, self, spec) || driverForward(&d);
  if (!failed && !d.layer->gin) failed = 1;
  for (int i = 0; i < 3 && !failed; i++) {
    driverJoin(&other, &d, &next);
    failed = driverForward(&other) || driverSelect(&other, &next.backward, 1) ||
             lrmoeStepDestroy(other.step) != lrmoeSuccess;
    other.step = NULL;
    driverClose(&other);
    failed = failed || driverBackward(&d, &spec->backward, i % 2) ||
             driverCheckSelection(&d) || driverCheckResults(&d);
  }
  driverClose(&d);
  return failed;
}

START_TEST(destroyedBetweenSendAndReturn) {
  struct oracleCase c = ginCase(6, 2);
  c.dataSeed = 4;
  if (_i) simtSetOrder(simtOrderRandom, (uint64_t)_i);
  ck_assert_int_eq(testRanksThreads(c.numRanks, runDestroyed, &c), 0);
}
END_TEST

/* ---- Messages, where it cannot be used ---- */

static int refusingRank = -1;

static int runMessages(const struct testRank *self) {
  struct driver d;
  if (refusingRank >= 0) testStandin()->ginRefuse(self->rank == refusingRank);
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  failed = failed || d.layer->gin ||
           driverBackward(&d, &d.oracle->spec.backward, 1) ||
           driverCheckResults(&d);
  driverClose(&d);
  return failed;
}

static void expectMessages(void) {
  struct oracleCase c = ginCase(4, 2);
  simtResetCounters();
  ck_assert_int_eq(testRanksThreads(c.numRanks, runMessages, &c), 0);
  ck_assert_int_eq(launchesOf("ginPutKernel"), 0);
}

START_TEST(messagesWithoutANic) {
  lrmoeUniqueId id;
  ASSERT_OK(lrmoeGetUniqueId(&id)); /* loads the stand-in */
  testStandin()->ginAbsent(1);
  expectMessages();
}
END_TEST

START_TEST(messagesWhereOneRankCannot) {
  refusingRank = _i;
  expectMessages();
}
END_TEST

START_TEST(messagesWithAnotherNccl) {
  setenv("LRMOE_STANDIN_NCCL_VERSION", _i ? "22808" : "22810", 1);
  expectMessages();
}
END_TEST

START_TEST(messagesWhereItIsNotWanted) {
  struct oracleCase c = ginCase(4, 2);
  unsetenv("LRMOE_GIN");
  ck_assert_int_eq(testRanksThreads(c.numRanks, runMessages, &c), 0);
}
END_TEST

#ifndef TEST_RANKS_ARE_THREADS
START_TEST(messagesBetweenProcesses) {
  struct oracleCase c = ginCase(4, 2);
  int pids[4];
  testRanksFork(4, runMessages, &c, pids);
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(testRankWait(pids[i]), 0);
}
END_TEST
#endif

int main(void) {
  Suite *suite = suite_create("gin");
  suiteAddTest(suite, 300, sameBitsAsMessages, numOrders * numSameCases);
  suiteAddTest(suite, 300, flights, numFlights);
  suiteAddTest(suite, 300, destroyedBetweenSendAndReturn, 3);
  ginStuckAdd(suite);
  suiteAddTest(suite, 300, messagesWithoutANic, 1);
  suiteAddTest(suite, 300, messagesWhereOneRankCannot, 4);
  suiteAddTest(suite, 300, messagesWithAnotherNccl, 2);
  suiteAddTest(suite, 300, messagesWhereItIsNotWanted, 1);
#ifndef TEST_RANKS_ARE_THREADS
  suiteAddTest(suite, 300, messagesBetweenProcesses, 1);
#endif
  return suiteRun(suite);
}
