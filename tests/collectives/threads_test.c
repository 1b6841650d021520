/* Ranks that are threads of one process, each with a device of its own, as
 * frameworks of one process per machine have them: the layer over emulated
 * kernels and NCCL's stand-in.  ThreadSanitizer looks on where it is built in;
 * a race of hosts is planted there, which it must see although every runtime
 * call of the emulator takes one lock; one of kernels is the emulator's to
 * report. */
#include "collectives/comm.h"
#include "driver.h"
#include "simt/device.h"
#include "support/suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
  numRanks = 8
};

static struct oracleCase eightRanks(void) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = numRanks;
  for (int r = 0; r < numRanks; r++)
    c.numTokens[r] = 4 + r;
  c.numExperts = 2 * numRanks;
  c.numSlots = 1;
  c.isFused = 0;
  return c;
}

static int64_t gatherRanks[] = {64, 1};

START_TEST(theStagedBackward) {
  struct oracleCase c = eightRanks();
  c.gatherRanks = gatherRanks[_i];
  ck_assert_int_eq(testRanksThreads(numRanks, driverRunCase, &c), 0);
}
END_TEST

START_TEST(theFusedBackward) {
  struct oracleCase c = eightRanks();
  c.gatherRanks = gatherRanks[_i];
  c.isFused = 1;
  ck_assert_int_eq(testRanksThreads(numRanks, driverRunCase, &c), 0);
}
END_TEST

START_TEST(stepsInFlight) {
  struct oracleCase c = eightRanks();
  c.gatherRanks = gatherRanks[_i];
  c.dataSeed = 3;
  ck_assert_int_eq(testRanksThreads(numRanks, flightRunCase, &c), 0);
}
END_TEST

#ifdef TEST_RANKS_ARE_THREADS
/* ---- Planted races, each in a child ---- */

static volatile int hostCount; /* of all ranks, and nothing guards it */
static float *shared;          /* rank 0's, on its device */
/* Two, or whoever leaves late would look ordered by those who come again. */
static pthread_barrier_t met;
static pthread_barrier_t through;

/* Work of the rank's own: it orders nothing. */
static int callRuntime(const struct driver *d) {
  float *own = driverDevice(d, d->dWeights);
  RANK_OK(d->self, d->comm->backend->clear(own, sizeof *own, NULL));
  return 0;
}

/* No collective follows before all ranks are through, which would order them;
 * calls of the runtime do not. */
static int countOnHosts(struct driver *d) {
  pthread_barrier_wait(&met);
  int failed = callRuntime(d);
  hostCount++;
  failed |= callRuntime(d);
  pthread_barrier_wait(&through);
  return failed;
}

/* Every device adds to the same memory. */
static int addOnDevices(struct driver *d) {
  const struct lrmoeBackend *backend = d->comm->backend;
  float *own = driverDevice(d, d->dWeights);
  RANK_OK(d->self, backend->synchronize(NULL));
  if (d->self->rank == 0) shared = own;
  pthread_barrier_wait(&met);
  int failed = backend->addFloats(d->oracle->spec.topk, own, shared, NULL) ||
               backend->synchronize(NULL);
  pthread_barrier_wait(&through);
  return failed;
}

static int (*plant)(struct driver *d);

static int runPlanted(const struct testRank *self) {
  const struct oracleCase *spec = self->user;
  struct driver d;
  int failed = driverOpen(&d, self, spec) || driverForward(&d) ||
               driverSelect(&d, &spec->backward, 0) || driverSend(&d) ||
               driverExpertBackward(&d) || plant(&d);
  return failed; /* the child ends here */
}

static void runRacy(void *user) {
  struct oracleCase *spec = user;
  pthread_barrier_init(&met, NULL, (unsigned)spec->numRanks);
  pthread_barrier_init(&through, NULL, (unsigned)spec->numRanks);
  int numFailed = testRanksThreads(spec->numRanks, runPlanted, spec);
  if (numFailed) exit(1);
}

static void assertRace(int (*planted)(struct driver *d), const char *words,
                       const char *where) {
  struct oracleCase c = eightRanks();
  int endedWell;
  plant = planted;
  const char *text = childErrors(runRacy, &c, &endedWell);
  ck_assert_msg(!endedWell, "no race was reported: %.2000s", text);
  ck_assert_msg(strstr(text, words) != NULL, "%.2000s", text);
  ck_assert_msg(strstr(text, where) != NULL, "%s is not in %.3000s", where,
                text);
}

START_TEST(aRaceOfHostsIsSeen) {
  assertRace(countOnHosts, "WARNING: ThreadSanitizer: data race",
             "countOnHosts");
}
END_TEST

START_TEST(aRaceOfKernelsIsSeen) {
  assertRace(addOnDevices, "race between streams: ", "addFloatsKernel");
}
END_TEST
#endif

int main(void) {
  Suite *suite = suite_create("threads");
  suiteAddTest(suite, 300, theStagedBackward, 2);
  suiteAddTest(suite, 300, theFusedBackward, 2);
  suiteAddTest(suite, 300, stepsInFlight, 2);
#ifdef TEST_RANKS_ARE_THREADS
  suiteAddTest(suite, 300, aRaceOfHostsIsSeen, 1);
  suiteAddTest(suite, 300, aRaceOfKernelsIsSeen, 1);
#endif
  return suiteRun(suite);
}
