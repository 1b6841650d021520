/* Moves that the device works out are the host's: of the same selection, who
 * executes each pair, and the handoff.  Rows per token are routed on the
 * device, rows per pair on the host. */
#include "collectives/step.h"
#include "driver.h"
#include "guarded.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

/* What both ways must agree on, copied. */
struct outcome {
  int64_t numSlots;
  int64_t numPairs;
  int64_t numInstances;
  int32_t *backDest;
  int64_t *offsets;
  int64_t *stayed;
  int64_t *fwdRow;
  int64_t *xRow;
  float *weights;
  int64_t xRows;
  int64_t numMoved;
};

static struct outcome outcomeOf(const struct driver *d) {
  const struct lrmoeStep *step = d->step;
  const lrmoeHandoff_t *handoff = &step->handoff;
  struct outcome o = {.numSlots = driverSlots(&d->oracle->spec, d->self->rank),
                      .numPairs = handoff->numPairs,
                      .numInstances = handoff->numInstances,
                      .xRows = step->xRecvOffsets[step->plan->numRanks],
                      .numMoved = step->stats.movedIn};
  int64_t longs = (int64_t)sizeof(int64_t);
  o.backDest = oracleZeroed(o.numSlots, sizeof *o.backDest);
  o.offsets = oracleZeroed(o.numInstances + 1, sizeof *o.offsets);
  o.stayed = oracleZeroed(o.numInstances, sizeof *o.stayed);
  o.fwdRow = oracleZeroed(o.numPairs, sizeof *o.fwdRow);
  o.xRow = oracleZeroed(o.numPairs, sizeof *o.xRow);
  o.weights = oracleZeroed(o.numPairs, sizeof *o.weights);
  memcpy(o.backDest, step->backDest, (size_t)o.numSlots * sizeof *o.backDest);
  memcpy(o.offsets, handoff->offsets,
         (size_t)(o.numInstances + 1) * sizeof *o.offsets);
  memcpy(o.stayed, handoff->stayed, (size_t)o.numInstances * sizeof *o.stayed);
  mirrorFetch(&d->mirrors, handoff->fwdRow, o.numPairs * longs, o.fwdRow);
  mirrorFetch(&d->mirrors, handoff->xRow, o.numPairs * longs, o.xRow);
  mirrorFetch(&d->mirrors, handoff->weights,
              o.numPairs * (int64_t)sizeof *o.weights, o.weights);
  return o;
}

static void freeOutcome(struct outcome *o) {
  free(o->backDest);
  free(o->offsets);
  free(o->stayed);
  free(o->fwdRow);
  free(o->xRow);
  free(o->weights);
}

static int isSame(const void *a, const void *b, int64_t count, size_t bytes) {
  return !count || !memcmp(a, b, (size_t)count * bytes);
}

static int compare(const struct driver *d, const struct outcome *a,
                   const struct outcome *b) {
  RANK_TRUE(d->self, a->numPairs == b->numPairs);
  RANK_TRUE(d->self, a->xRows == b->xRows && a->numMoved == b->numMoved);
  RANK_TRUE(d->self,
            isSame(a->backDest, b->backDest, a->numSlots, sizeof *a->backDest));
  RANK_TRUE(d->self, isSame(a->offsets, b->offsets, a->numInstances + 1,
                            sizeof *a->offsets));
  RANK_TRUE(d->self,
            isSame(a->stayed, b->stayed, a->numInstances, sizeof *a->stayed));
  RANK_TRUE(d->self,
            isSame(a->fwdRow, b->fwdRow, a->numPairs, sizeof *a->fwdRow));
  RANK_TRUE(d->self, isSame(a->xRow, b->xRow, a->numPairs, sizeof *a->xRow));
  RANK_TRUE(d->self,
            isSame(a->weights, b->weights, a->numPairs, sizeof *a->weights));
  return 0;
}

/* A backward, with what it decided. */
static int runWire(struct driver *d, lrmoeWire_t wire, struct outcome *o) {
  lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
  config.wire = wire;
  if (driverSelect(d, &config, 0) || driverSend(d) || driverExpertBackward(d))
    return 1;
  *o = outcomeOf(d);
  return driverReturn(d) || driverCheckSelection(d) || driverCheckResults(d);
}

static int runBoth(const struct testRank *self) {
  struct driver d;
  struct outcome device = {0};
  struct outcome host = {0};
  int failed = driverOpen(&d, self, self->user);
  /* Two ranks to a domain, two domains to a host. */
  for (int r = 0; r < d.oracle->spec.numRanks && !failed; r++) {
    d.planner->domains[r] = r / 2;
    d.planner->hosts[r] = r / 4;
  }
  failed = failed || driverForward(&d) ||
           runWire(&d, lrmoeWireDedup, &device) ||
           runWire(&d, lrmoeWirePairwise, &host) || compare(&d, &device, &host);
  freeOutcome(&device);
  freeOutcome(&host);
  driverClose(&d);
  return failed;
}

START_TEST(movesAreTheHosts) {
  struct oracleCase c = oraclePlainCase();
  c.seed = 700 + (uint64_t)_i;
  c.numRanks = 2 + _i % 7;
  for (int r = 0; r < c.numRanks; r++)
    c.numTokens[r] = _i % 5 == r ? 0 : 9 + 5 * r;
  c.numSlots = 1 + _i % 4;
  c.retainPpm = 200000 + 100000 * (_i % 8);
  c.hotExpert = _i % 3 ? -1 : 1;
  c.savedState = _i % 4 == 3 ? lrmoeSavedNone : lrmoeSavedFull;
  c.gatherRanks = _i % 2 ? 1 : 64;
  ck_assert(guardedIsWanted());
  ck_assert_int_eq(testRanksRun(c.numRanks, runBoth, &c), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("moves");
  TCase *group = tcase_create("moves");
  tcase_set_timeout(group, 300);
  tcase_add_loop_test(group, movesAreTheHosts, 0, 56);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
