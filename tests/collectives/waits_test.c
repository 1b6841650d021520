/* How often a backward makes the host wait for the stream: once, for counts,
 * whether keys are gathered or go to the experts' homes, whether pairs move or
 * not; more often only where the host works the route out. */
#include "collectives/comm.h"
#include "driver.h"
#include "support/suite.h"

enum {
  numRanks = 3
};

/* Of this rank, which may be a thread. */
static _Thread_local const struct lrmoeBackend *device;
static _Thread_local int numWaits;

static lrmoeResult_t synchronize(lrmoeStream_t stream) {
  numWaits++;
  return device->synchronize(stream);
}

static int runBackward(struct driver *d, int isFused) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  const void *x = driverDevice(d, data->x);
  const void *g = driverDevice(d, data->g);
  if (isFused) {
    RANK_OK(d->self, lrmoeSelectPackSend(d->step, x, g, NULL, NULL));
  } else {
    RANK_OK(d->self, lrmoeSelect(d->step, g, NULL, NULL));
    RANK_OK(d->self, lrmoeAllToAllCompact(d->step, x, g, NULL));
  }
  RANK_OK(d->self, lrmoeExpertBackward(d->step, NULL));
  RANK_OK(d->self, lrmoeReturn(d->step, driverDevice(d, d->dx),
                               driverDevice(d, d->dWeights), NULL));
  return 0;
}

/* The first one makes room, which may wait too. */
static int countWaits(struct driver *d, int expected) {
  for (int i = 0; i < 4; i++) {
    numWaits = 0;
    if (runBackward(d, i % 2)) return 1;
    RANK_TRUE(d->self, i < 2 || numWaits == expected);
  }
  return 0;
}

static int runRank(const struct testRank *self) {
  const struct oracleCase *spec = self->user;
  struct driver d;
  struct driverLayer options = {NULL, 2, spec->numSlots};
  lrmoeCommConfig_t config = LRMOE_COMM_CONFIG_INITIALIZER;
  RANK_OK(self, lrmoeCommInitRank(numRanks, &self->id, self->rank, &config,
                                  &options.comm));
  RANK_OK(self, lrmoeCommNeedBackend(options.comm));
  device = options.comm->backend;
  struct lrmoeBackend counting = *device;
  counting.synchronize = synchronize;
  options.comm->backend = &counting;
  int failed = driverOpenLayer(&d, self, spec, &options) || driverForward(&d) ||
               countWaits(&d, 1);
  driverClose(&d);
  lrmoeCommDestroy(options.comm);
  return failed;
}

START_TEST(waitsOfABackward) {
  struct oracleCase spec = oraclePlainCase();
  spec.numRanks = numRanks;
  spec.gatherRanks = _i % 2 ? 1 : 64;
  spec.numSlots = _i / 2 % 2;
  spec.savedState = _i / 4 ? lrmoeSavedNone : lrmoeSavedFull;
  spec.overlapsReturn = (_i + _i / 4) % 2;
  ck_assert_int_eq(testRanksRun(numRanks, runRank, &spec), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("waits");
  TCase *group = tcase_create("waits");
  tcase_set_timeout(group, 300);
  tcase_add_loop_test(group, waitsOfABackward, 0, 8);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
