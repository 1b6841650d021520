/* Rows into peers' memory when a rank does not come, is aborted, or is at
 * another step: an error on all ranks. */
#include "fused_stuck.h"

#include "collectives/fused.h"
#include "support/simt/simt.h"

#include <pthread.h>
#include <string.h>

enum {
  numRanks = fusedNumRanks
};

static int64_t gone;           /* the rank that fails in the test */
static const char *reason;     /* what its peers say */
static pthread_barrier_t told; /* those that wait for it know */
static pthread_barrier_t left;

/* Memory of the emulator is gone at once where a driver's would stay mapped by
 * the peers, so that everyone has to be out of it first. */
static int closeTogether(struct driver *d, int failed) {
  pthread_barrier_wait(&left);
  driverClose(d);
  return failed;
}

static void runAndClose(testRankBody body, struct oracleCase *c) {
  ck_assert_int_eq(pthread_barrier_init(&told, NULL, numRanks - 1), 0);
  ck_assert_int_eq(pthread_barrier_init(&left, NULL, numRanks), 0);
  ck_assert_int_eq(testRanksThreads(numRanks, body, c), 0);
  pthread_barrier_destroy(&left);
  pthread_barrier_destroy(&told);
}

/* All of Select, and none of the rest. */
static int selectOnly(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  RANK_OK(d->self, lrmoeSelectBegin(d->step, driverDevice(d, data->g), NULL));
  return 0;
}

/* The call itself may learn of it, or who waits for the stream. */
static int sendFails(const struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  lrmoeResult_t error = lrmoeSuccess;
  lrmoeResult_t got = lrmoeSelectPackSend(d->step, driverDevice(d, data->x),
                                          driverDevice(d, data->g), NULL, NULL);
  if (got == lrmoeSuccess) got = lrmoeCommSynchronize(d->comm, NULL);
  RANK_TRUE(d->self, got == lrmoeRemoteError);
  RANK_TRUE(d->self, strstr(lrmoeGetLastError(), reason) != NULL);
  RANK_OK(d->self, lrmoeCommGetAsyncError(d->comm, &error));
  RANK_TRUE(d->self, error == lrmoeRemoteError);
  return 0;
}

static int sendOrStay(struct driver *d, int (*stay)(struct driver *d)) {
  if (d->self->rank == gone) return stay(d);
  return sendFails(d);
}

/* Comes too late: its words are spoiled, and so is its meeting. */
static int comeLate(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  RANK_OK(d->self, lrmoeCommSynchronize(d->comm, NULL));
  const int64_t *words = d->layer->fused->block;
  int64_t word = 0;
  for (int i = 0; i < 20000 && word != lrmoeSignalSpoiled; i++) {
    struct timespec nap = {0, 1000000};
    nanosleep(&nap, NULL);
    simtOpenDevice();
    word = __atomic_load_n(words, __ATOMIC_SEQ_CST);
    simtCloseDevice();
  }
  RANK_TRUE(d->self, word == lrmoeSignalSpoiled);
  return lrmoeAllToAllCompact(d->step, driverDevice(d, data->x),
                              driverDevice(d, data->g), NULL) == lrmoeSuccess &&
         lrmoeCommSynchronize(d->comm, NULL) == lrmoeSuccess;
}

static int runStuck(const struct testRank *self) {
  struct driver d;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  d.comm->timeoutMs = 400;
  if (!failed && self->rank == gone) failed = selectOnly(&d);
  failed = failed || sendOrStay(&d, comeLate);
  if (self->rank != gone) {
    /* Whoever breaks the communicator first would be what others see. */
    pthread_barrier_wait(&told);
    d.comm->transport->commBreak(d.comm->nccl);
  }
  return closeTogether(&d, failed);
}

START_TEST(aStuckPeerIsAnError) {
  struct oracleCase c = fusedCase();
  gone = 3;
  reason = "rank ";
  runAndClose(runStuck, &c);
}
END_TEST

static int abortOwn(struct driver *d) {
  lrmoeResult_t error = lrmoeSuccess;
  RANK_OK(d->self, lrmoeCommSynchronize(d->comm, NULL));
  RANK_OK(d->self, lrmoeCommAbort(d->comm));
  RANK_TRUE(d->self, d->layer->fused->watched.watch->isStopped == 1);
  RANK_OK(d->self, lrmoeCommGetAsyncError(d->comm, &error));
  RANK_TRUE(d->self, error == lrmoeRemoteError);
  return 0;
}

static int runAborted(const struct testRank *self) {
  struct driver d;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  d.comm->timeoutMs = 400;
  if (!failed && self->rank == gone) failed = selectOnly(&d);
  return closeTogether(&d, failed || sendOrStay(&d, abortOwn));
}

START_TEST(anAbortIsAnError) {
  struct oracleCase c = fusedCase();
  gone = 5;
  reason = ""; /* NCCL may be the first to know */
  runAndClose(runAborted, &c);
}
END_TEST

/* ---- Ranks that disagree ---- */

/* Nobody looks at tags but the kernel that lets rows be put: half of the ranks
 * learn of it where they wait, the others where they ask for statistics. */
static int disagree(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
  config.seed = d->self->rank == gone;
  RANK_OK(d->self,
          lrmoeSelectPackSend(d->step, driverDevice(d, data->x),
                              driverDevice(d, data->g), &config, NULL));
  RANK_TRUE(d->self, d->step->route.isDeferred);
  lrmoeResult_t got = d->self->rank % 2 ? lrmoeCommSynchronize(d->comm, NULL)
                                        : lrmoeStepGetStats(d->step, &stats);
  RANK_TRUE(d->self, got == lrmoeInvalidUsage);
  RANK_TRUE(d->self, strstr(lrmoeGetLastError(), reason) != NULL);
  RANK_TRUE(d->self, (strstr(lrmoeGetLastError(), "rank 3 ") != NULL) ==
                         (d->self->rank != gone));
  return 0;
}

static int runApart(const struct testRank *self) {
  struct driver d;
  int failed =
      driverOpen(&d, self, self->user) || driverForward(&d) || disagree(&d);
  return closeTogether(&d, failed);
}

START_TEST(disagreementIsAnError) {
  struct oracleCase c = fusedCase();
  gone = 3;
  reason = "is at another step, plan or backward config";
  runAndClose(runApart, &c);
}
END_TEST

void fusedStuckAdd(Suite *suite) {
  suiteAddTest(suite, 300, aStuckPeerIsAnError, 1);
  suiteAddTest(suite, 300, anAbortIsAnError, 1);
  suiteAddTest(suite, 300, disagreementIsAnError, 1);
}
