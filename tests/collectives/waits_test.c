/* How often a dispatch makes the host wait for the stream: once, by relays too.
 * And a backward: once, for counts, whether keys are gathered or go to the
 * experts' homes, whether pairs move or not; more often only where the host
 * works the route out, with relays for g and for x at once.  Never where rows
 * go through windows and no pair moves, until somebody asks for statistics. */
#include "collectives/step.h"
#include "driver.h"
#include "support/suite.h"

#include <stdlib.h>

enum {
  numRanks = 3
};

/* Of this rank, which may be a thread. */
static _Thread_local const struct lrmoeBackend *device;
static _Thread_local int numWaits;

/* Events of the backward that runs, of what was not waited for since: to wait
 * for one of an earlier backward holds nobody up, to wait for one of these
 * does. */
static _Thread_local struct {
  const void *list[256];
  lrmoeStream_t streams[256];
  int count;
} events;

static lrmoeResult_t synchronize(lrmoeStream_t stream) {
  int numLeft = 0;
  for (int i = 0; i < events.count; i++) {
    if (events.streams[i] == stream) continue;
    events.list[numLeft] = events.list[i];
    events.streams[numLeft++] = events.streams[i];
  }
  events.count = numLeft;
  numWaits++;
  return device->synchronize(stream);
}

static lrmoeResult_t eventRecord(void *event, lrmoeStream_t stream) {
  if (events.count == 256) return lrmoeInternalError;
  events.list[events.count] = event;
  events.streams[events.count++] = stream;
  return device->eventRecord(event, stream);
}

static lrmoeResult_t eventWait(void *event) {
  int isNew = 0;
  for (int i = 0; i < events.count; i++)
    isNew |= events.list[i] == event;
  numWaits += isNew;
  return device->eventWait(event);
}

static struct lrmoeBackend countingBackend(void) {
  struct lrmoeBackend counting = *device;
  counting.synchronize = synchronize;
  counting.eventRecord = eventRecord;
  counting.eventWait = eventWait;
  return counting;
}

static int runBackward(struct driver *d, int isFused) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  const lrmoeBackwardConfig_t *config = &d->oracle->spec.backward;
  const void *x = driverDevice(d, data->x);
  const void *g = driverDevice(d, data->g);
  if (isFused) {
    RANK_OK(d->self, lrmoeSelectPackSend(d->step, x, g, config, NULL));
  } else {
    RANK_OK(d->self, lrmoeSelect(d->step, g, config, NULL));
    RANK_OK(d->self, lrmoeAllToAllCompact(d->step, x, g, NULL));
  }
  RANK_OK(d->self, lrmoeExpertBackward(d->step, NULL));
  RANK_OK(d->self, lrmoeReturn(d->step, driverDevice(d, d->dx),
                               driverDevice(d, d->dWeights), NULL));
  return 0;
}

struct waitsCase {
  struct oracleCase spec;
  int ofStaged;
  int ofFused; /* in a backward that begins with lrmoeSelectPackSend */
};

/* The first one makes room, which may wait too. */
static int countWaits(struct driver *d, const struct waitsCase *waits) {
  for (int i = 0; i < 4; i++) {
    int most = i % 2 ? waits->ofFused : waits->ofStaged;
    numWaits = events.count = 0;
    if (runBackward(d, i % 2)) return 1;
    RANK_TRUE(d->self, i < 2 || numWaits == most);
  }
  return 0;
}

/* Forward again on the same step. */
static int countForward(struct driver *d) {
  const void *x = driverDevice(d, d->oracle->ranks[d->self->rank].x);
  numWaits = events.count = 0;
  RANK_OK(d->self, lrmoeDispatch(d->step, x, NULL));
  RANK_TRUE(d->self, numWaits == 1);
  RANK_OK(d->self, lrmoeExpertForward(d->step, NULL));
  RANK_OK(d->self, lrmoeCombine(d->step, driverDevice(d, d->y), NULL));
  RANK_TRUE(d->self, numWaits == 1);
  return 0;
}

/* The random plan of a case with slots has replicas, no other one. */
static int hasOtherInstances(const struct driver *d) {
  const struct lrmoePlan *plan = d->step->plan;
  RANK_TRUE(d->self, (plan->numInstances > plan->numExperts) ==
                         (d->oracle->spec.numSlots > 0));
  return 0;
}

/* Whoever asks waits, once. */
static int countStats(struct driver *d, int ofFused) {
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  for (int i = 0; i < 2; i++) {
    numWaits = 0;
    RANK_OK(d->self, lrmoeStepGetStats(d->step, &stats));
    RANK_TRUE(d->self, numWaits == (i == 0 && ofFused == 0));
  }
  RANK_TRUE(d->self, stats.pairs == 0 || stats.kept > 0);
  return 0;
}

static int runRank(const struct testRank *self) {
  const struct waitsCase *waits = self->user;
  const struct oracleCase *spec = &waits->spec;
  struct driver d;
  struct driverLayer options = {NULL, 2, spec->numSlots};
  lrmoeCommConfig_t config = LRMOE_COMM_CONFIG_INITIALIZER;
  RANK_OK(self, lrmoeCommInitRank(numRanks, &self->id, self->rank, &config,
                                  &options.comm));
  RANK_OK(self, lrmoeCommNeedBackend(options.comm));
  device = options.comm->backend;
  struct lrmoeBackend counting = countingBackend();
  options.comm->backend = &counting;
  int failed = driverOpenLayer(&d, self, spec, &options) || driverForward(&d) ||
               hasOtherInstances(&d) || countForward(&d) ||
               countWaits(&d, waits) || countStats(&d, waits->ofFused);
  driverClose(&d);
  lrmoeCommDestroy(options.comm);
  return failed;
}

/* Rows go as messages where ranks are processes. */
START_TEST(waitsOfABackward) {
  struct waitsCase waits = {oraclePlainCase(), 1, 1};
  struct oracleCase *spec = &waits.spec;
  setenv("LRMOE_FUSED", "0", 1);
  spec->numRanks = numRanks;
  spec->gatherRanks = _i % 2 ? 1 : 64;
  spec->numSlots = 2 * (_i / 2 % 2);
  spec->savedState = _i / 4 % 2 ? lrmoeSavedNone : lrmoeSavedFull;
  spec->overlapsReturn = (_i + _i / 4) % 2;
  if (_i == 8) {
    spec->numSlots = 2;
    spec->backward.scope = lrmoeScopeInstance;
  }
  ck_assert_int_eq(testRanksRun(numRanks, runRank, &waits), 0);
}
END_TEST

/* A node of two ranks and one of one; forward by relays, then backward too. */
START_TEST(waitsByRelays) {
  struct waitsCase waits = {oraclePlainCase(), 1, 1};
  struct oracleCase *spec = &waits.spec;
  setenv("LRMOE_FUSED", "0", 1);
  spec->numRanks = numRanks;
  spec->ranksPerNode = 2;
  spec->gatherRanks = 64;
  spec->numSlots = 2 * (_i % 2);
  spec->savedState = _i / 2 % 2 ? lrmoeSavedNone : lrmoeSavedFull;
  spec->forwardWire = lrmoeWireNode;
  if (_i / 4) {
    spec->backward.wire = lrmoeWireNode;
    waits.ofStaged = waits.ofFused = 3;
  }
  ck_assert_int_eq(testRanksRun(numRanks, runRank, &waits), 0);
}
END_TEST

/* Through windows; rank 1 has no tokens. */
static struct waitsCase windowsCase(int number) {
  struct waitsCase made = {oraclePlainCase(), 1, 0};
  struct oracleCase *spec = &made.spec;
  spec->numRanks = numRanks;
  spec->numTokens[1] = 0;
  spec->numSlots = 2;
  spec->gatherRanks = 64;
  spec->backward.scope = lrmoeScopeInstance;
  switch (number) {
  case 1: /* no replicas: an expert's quota is an instance's */
    spec->numSlots = 0;
    spec->backward.scope = lrmoeScopeExpert;
    break;
  case 2:
    spec->backward.metric = lrmoeMetricAll;
    spec->backward.scope = lrmoeScopeExpert;
    break;
  case 3:
    spec->routerGrad = lrmoeRouterGradOwner;
    break;
  case 4:
    spec->numPoison = 2;
    break;
  case 5: /* pairs move */
    spec->backward.scope = lrmoeScopeExpert;
    made.ofFused = 1;
    break;
  case 6: /* x comes again */
    spec->savedState = lrmoeSavedNone;
    made.ofFused = 1;
    break;
  case 7:
    spec->routerGrad = lrmoeRouterGradExecutor;
    made.ofFused = 1;
    break;
  case 8: /* homes select */
    spec->gatherRanks = 1;
    made.ofFused = 1;
    break;
  default:
    break;
  }
  return made;
}

START_TEST(waitsWithWindows) {
  struct waitsCase waits = windowsCase(_i);
  waits.spec.overlapsReturn = _i % 2;
  ck_assert_int_eq(testRanksThreads(numRanks, runRank, &waits), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("waits");
  TCase *group = tcase_create("waits");
  tcase_set_timeout(group, 300);
  tcase_add_loop_test(group, waitsOfABackward, 0, 9);
  tcase_add_loop_test(group, waitsByRelays, 0, 8);
  tcase_add_loop_test(group, waitsWithWindows, 0, 9);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
