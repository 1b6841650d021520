/* Moved pairs stay near: of an expert's pairs none leaves a host while another
 * comes to it from outside, since the first could have had its place; and the
 * same of ranks.  Six ranks that are said to be on three hosts; random
 * plans. */
#include "collectives/reroute.h"
#include "driver.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

enum {
  numRanks = 6,
  ranksPerHost = 2,
  numHosts = numRanks / ranksPerHost,
  numPlans = 40
};

/* Counts, over all plans and ranks, in memory that ranks write and the test
 * reads through an all-reduce. */
struct tally {
  int64_t withinHost;
  int64_t acrossHosts;
};

/* crossing[e][a][b]: pairs of e from rank a that moved to rank b. */
static int countMoves(struct driver *d, int64_t *crossing) {
  const struct oracleCase *spec = &d->oracle->spec;
  const struct lrmoeStep *step = d->step;
  int64_t count = (int64_t)spec->numExperts * numRanks * numRanks;
  memset(crossing, 0, (size_t)count * sizeof *crossing);
  for (int64_t p = 0; p < driverSlots(spec, d->self->rank); p++) {
    int32_t to = step->backDest[p];
    if (to < 0 || to == step->dest[p]) continue;
    int64_t e = d->oracle->ranks[d->self->rank].topkIdx[p];
    crossing[(e * numRanks + d->self->rank) * numRanks + to]++;
  }
  int64_t *all = oracleZeroed(count * numRanks, sizeof *all);
  lrmoeResult_t result = lrmoeAllGatherHost(
      d->comm, crossing, all, count * (int64_t)sizeof *crossing, NULL);
  memset(crossing, 0, (size_t)count * sizeof *crossing);
  for (int64_t i = 0; i < count * numRanks; i++)
    crossing[i % count] += all[i];
  free(all);
  RANK_OK(d->self, result);
  return 0;
}

/* moves [n, n]: what leaves each group, and what comes to it. */
static int checkGroups(struct driver *d, int numGroups, const int64_t *moves) {
  for (int a = 0; a < numGroups; a++) {
    int64_t out = 0;
    int64_t in = 0;
    for (int b = 0; b < numGroups; b++) {
      out += a == b ? 0 : moves[a * numGroups + b];
      in += a == b ? 0 : moves[b * numGroups + a];
    }
    RANK_TRUE(d->self, !out || !in);
  }
  return 0;
}

static int checkExpert(struct driver *d, const int64_t *crossing,
                       struct tally *tally) {
  int64_t hosts[numHosts * numHosts] = {0};
  for (int a = 0; a < numRanks; a++)
    for (int b = 0; b < numRanks; b++) {
      int64_t moved = crossing[a * numRanks + b];
      int from = a / ranksPerHost;
      int to = b / ranksPerHost;
      hosts[from * numHosts + to] += moved;
      *(from == to ? &tally->withinHost : &tally->acrossHosts) += moved;
    }
  return checkGroups(d, numRanks, crossing) || checkGroups(d, numHosts, hosts);
}

static int runPlan(struct driver *base, int plan, struct tally *tally) {
  struct driver d = *base;
  d.step = NULL;
  d.plan = NULL;
  d.numPlans = plan;
  int64_t count = (int64_t)d.oracle->spec.numExperts * numRanks * numRanks;
  int64_t *crossing = calloc((size_t)count, sizeof *crossing);
  if (!crossing) abort();
  int failed = driverForward(&d) || driverBackward(&d, NULL, plan % 2) ||
               countMoves(&d, crossing) || driverCheckResults(&d);
  for (int32_t e = 0; e < d.oracle->spec.numExperts && !failed; e++)
    failed =
        checkExpert(&d, crossing + (int64_t)e * numRanks * numRanks, tally);
  free(crossing);
  lrmoeStepDestroy(d.step);
  lrmoePlanDestroy(d.plan);
  return failed;
}

static int runPlans(const struct testRank *self) {
  struct tally tally = {0, 0};
  struct driver d;
  struct oracleCase c = oraclePlainCase();
  c.numRanks = numRanks;
  for (int r = 0; r < numRanks; r++)
    c.numTokens[r] = 20 + r;
  c.numSlots = 3;
  c.retainPpm = 500000;
  int failed = driverOpen(&d, self, &c);
  for (int r = 0; r < numRanks && !failed; r++) {
    d.planner->hosts[r] = r / ranksPerHost;
    d.planner->domains[r] = r;
  }
  for (int i = 0; i < numPlans && !failed; i++)
    failed = runPlan(&d, i, &tally);
  driverClose(&d);
  if (failed) return 1;
  RANK_TRUE(self, tally.withinHost > 0 && tally.acrossHosts > 0);
  return 0;
}

START_TEST(movesAreNear) {
  ck_assert_int_eq(testRanksRun(numRanks, runPlans, NULL), 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {movesAreNear};
  return suiteRunTests("near", tests, 1, 600);
}
