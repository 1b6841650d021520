/* Rows straight into peers' memory: the bits of the staged way, whatever the
 * schedule and whether or not the host waits for counts.  Ranks are threads
 * with an emulated device each, which can address each other's, over NCCL's
 * stand-in. */
#include "collectives/fused.h"
#include "fused_stuck.h"
#include "left.h"
#include "support/simt/simt.h"

#include <stdlib.h>
#include <string.h>

enum {
  numRanks = fusedNumRanks
};

struct oracleCase fusedCase(void) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = numRanks;
  for (int r = 0; r < numRanks; r++)
    c.numTokens[r] = 4 + r;
  c.numTokens[2] = 0;
  c.numExperts = 2 * numRanks;
  c.gatherRanks = 64;
  return c;
}

/* ---- The same bits ---- */

/* Ways of a backward: rows in windows; as messages; and by a route that the
 * host works out, whose dx has other sums. */
enum way {
  byWindows,
  byMessages,
  byHost,
  numWays
};

/* Counts that do not depend on the way, then for rows sent per (token, rank)
 * the rest of what it does not change. */
static void appendResults(struct left *left, const struct driver *d,
                          enum way way, const lrmoeStepStats_t *stats) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t numTokens = spec->numTokens[d->self->rank];
  const int64_t counts[] = {stats->pairs,
                            stats->kept,
                            stats->executed,
                            stats->executedKept,
                            stats->nonFiniteDropped,
                            stats->movedIn};
  leftAppend(left, d->dWeights,
             numTokens * spec->topk * (int64_t)sizeof(float));
  leftAppend(left, d->kept, numTokens * spec->topk);
  leftAppend(left, counts, (int64_t)sizeof counts);
  if (way == byHost) return;
  leftAppend(left, &stats->rowBytes, (int64_t)sizeof stats->rowBytes);
  leftAppend(left, d->dx, numTokens * d->layer->rowBytes);
}

/* Nothing moves, so that nobody has to know what was kept. */
static int isKnown(const struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  int mayMove = spec->backward.scope != lrmoeScopeInstance &&
                spec->backward.metric != lrmoeMetricAll &&
                d->step->plan->numInstances > d->step->plan->numExperts;
  return !mayMove && spec->savedState == lrmoeSavedFull;
}

/* Statistics are asked for before rows come home, or after. */
static int runWay(struct driver *d, enum way way, int isEarly,
                  struct left *left) {
  lrmoeBackwardConfig_t config = d->oracle->spec.backward;
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  int isFused = way == byWindows;
  if (way == byHost) config.wire = lrmoeWirePairwise;
  left->count = 0;
  if (driverSelect(d, &config, isFused) || (!isFused && driverSend(d)) ||
      leftAppendHandoff(left, d))
    return 1;
  RANK_TRUE(d->self, d->step->route.isDeferred == (isFused && isKnown(d)));
  if (isEarly) RANK_OK(d->self, lrmoeStepGetStats(d->step, &stats));
  if (driverExpertBackward(d) || driverReturn(d)) return 1;
  RANK_OK(d->self, lrmoeStepGetStats(d->step, &stats));
  appendResults(left, d, way, &stats);
  return driverCheckResults(d);
}

static int runWays(struct driver *d, int isEarly, struct left *left) {
  for (int way = 0; way < numWays; way++) {
    if (runWay(d, (enum way)way, isEarly, &left[way])) return 1;
    RANK_TRUE(d->self, leftIsSame(&left[byWindows], &left[way]));
  }
  RANK_TRUE(d->self, left[byMessages].count == left[byWindows].count);
  return 0;
}

static int runAllWays(const struct testRank *self) {
  struct driver d;
  struct left left[numWays] = {{NULL, 0, 0}};
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  if (!failed && !d.layer->fused) failed = 1;
  if (!failed && d.oracle->spec.numSlots)
    failed = d.step->plan->numInstances == d.step->plan->numExperts;
  for (int i = 0; i < 2 && !failed; i++)
    failed = runWays(&d, i, left);
  for (int way = 0; way < numWays; way++)
    free(left[way].bytes);
  driverClose(&d);
  return failed;
}

enum {
  numSameCases = 7
};

/* In the last two the host needs counts: pairs come with x. */
static struct oracleCase sameCase(int number) {
  struct oracleCase c = fusedCase();
  c.numSlots = 1;
  if (number < 3) c.backward.scope = lrmoeScopeInstance;
  switch (number) {
  case 1:
    c.numPoison = 2;
    c.retainPpm = 300000;
    c.hotExpert = 5;
    break;
  case 2:
    c.routerGrad = lrmoeRouterGradOwner;
    c.convention = lrmoeWeightPre;
    break;
  case 3:
    c.backward.metric = lrmoeMetricAll;
    break;
  case 4:
    c.numSlots = 0;
    break;
  case 5:
    c.savedState = lrmoeSavedNone;
    break;
  default:
    break;
  }
  return c;
}

START_TEST(sameBitsAsStaged) {
  struct simtCounters puts;
  struct simtCounters sums;
  struct oracleCase c = sameCase(_i % numSameCases);
  if (_i / numSameCases) simtSetOrder(simtOrderRandom, (uint64_t)(_i + 1));
  simtResetCounters();
  ck_assert_int_eq(testRanksThreads(numRanks, runAllWays, &c), 0);
  simtGetCounters("putRowsKernel", &puts);
  simtGetCounters("putSumsKernel", &sums);
  ck_assert_int_eq(puts.launches, 2 * (numRanks - 1)); /* rank 2 has no rows */
  ck_assert_int_ge(sums.launches, 2);
}
END_TEST

/* ---- When it is not taken ---- */

static int runMessages(const struct testRank *self) {
  struct driver d;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  failed = failed || d.layer->fused || driverBackward(&d, NULL, 1) ||
           driverCheckResults(&d);
  driverClose(&d);
  return failed;
}

START_TEST(messagesWhereItIsNotWanted) {
  struct oracleCase c = fusedCase();
  setenv("LRMOE_FUSED", "0", 1);
  ck_assert_int_eq(testRanksThreads(numRanks, runMessages, &c), 0);
}
END_TEST

#ifndef TEST_RANKS_ARE_THREADS
/* Processes cannot address each other's emulated memory: NCCL 2.28 says so by
 * a window that is none. */
START_TEST(messagesWhereMemoryIsNotReached) {
  struct oracleCase c = fusedCase();
  int pids[numRanks];
  testRanksFork(numRanks, runMessages, &c, pids);
  for (int i = 0; i < numRanks; i++)
    ck_assert_int_eq(testRankWait(pids[i]), 0);
}
END_TEST
#endif

int main(void) {
  Suite *suite = suite_create("fused");
  suiteAddTest(suite, 300, sameBitsAsStaged, 2 * numSameCases);
  fusedStuckAdd(suite);
  suiteAddTest(suite, 300, messagesWhereItIsNotWanted, 1);
#ifndef TEST_RANKS_ARE_THREADS
  suiteAddTest(suite, 300, messagesWhereMemoryIsNotReached, 1);
#endif
  return suiteRun(suite);
}
