/* Rows by NICs when a rank does not put, puts too few, or an abort comes: an
 * error on the ranks that wait for it. */
#include "gin_stuck.h"

#include "collectives/node_gin.h"
#include "support/simt/simt.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
  numRanks = 4,
  gone = 3
};

static pthread_barrier_t left;
static int numNamed; /* ranks that say who it was */

/* Memory of the emulator is gone at once where a driver's would stay mapped by
 * the peers, so that everyone has to be out of it first. */
static int closeTogether(struct driver *d, int failed) {
  pthread_barrier_wait(&left);
  driverClose(d);
  return failed;
}

static void runAndClose(testRankBody body, struct oracleCase *c) {
  numNamed = 0;
  ck_assert_int_eq(pthread_barrier_init(&left, NULL, (unsigned)c->numRanks), 0);
  ck_assert_int_eq(testRanksThreads(c->numRanks, body, c), 0);
  pthread_barrier_destroy(&left);
}

/* ---- A rank that does not put, or not what is expected ---- */

static lrmoeResult_t doNothing(const struct lrmoeGin *args,
                               lrmoeStream_t stream) {
  (void)args;
  (void)stream;
  return lrmoeSuccess;
}

/* The emulator's kernels, whose words this rank makes wrong. */
static const struct lrmoeBackend *real;

static lrmoeResult_t putWrong(const struct lrmoeGin *args,
                              lrmoeStream_t stream) {
  struct lrmoeGinPeer *sends = (struct lrmoeGinPeer *)(uintptr_t)args->sends;
  LRMOE_CHECK(real->synchronize(stream));
  simtOpenDevice();
  for (int32_t i = 0; i < args->numSends; i++)
    sends[i].rows++;
  simtCloseDevice();
  return real->gin->put(args, stream);
}

/* A rank whose kernels are not what they should be. */
struct faulty {
  struct lrmoeBackend backend;
  struct lrmoeGinBackend gin;
};

static void makeFaulty(struct driver *d, int isWrong, struct faulty *faulty) {
  real = d->layer->backend;
  faulty->backend = *real;
  faulty->gin = *real->gin;
  faulty->gin.put = isWrong ? putWrong : doNothing;
  if (!isWrong) faulty->gin.await = doNothing;
  faulty->backend.gin = &faulty->gin;
  d->layer->backend = &faulty->backend;
}

static lrmoeResult_t send(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  lrmoeResult_t got = lrmoeSelectPackSend(d->step, driverDevice(d, data->x),
                                          driverDevice(d, data->g),
                                          &d->oracle->spec.backward, NULL);
  return got == lrmoeSuccess ? lrmoeCommSynchronize(d->comm, NULL) : got;
}

static int sendFails(struct driver *d, lrmoeResult_t expected,
                     const char *reason) {
  lrmoeResult_t error = lrmoeSuccess;
  lrmoeResult_t got = send(d);
  int isNamed = strstr(lrmoeGetLastError(), reason) != NULL;
  RANK_TRUE(d->self, got == expected || got == lrmoeRemoteError);
  RANK_TRUE(d->self, strstr(lrmoeGetLastError(), "rank ") != NULL);
  __atomic_add_fetch(&numNamed, isNamed, __ATOMIC_SEQ_CST);
  RANK_OK(d->self, lrmoeCommGetAsyncError(d->comm, &error));
  RANK_TRUE(d->self, error != lrmoeSuccess);
  return 0;
}

static const char *reason; /* of the ranks that find out themselves */
static int isWrong;

static int runStuck(const struct testRank *self) {
  struct driver d;
  struct faulty faulty;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  if (!failed && !d.layer->gin) failed = 1;
  if (!failed && !isWrong) d.comm->timeoutMs = 400;
  if (!failed && self->rank == gone) {
    makeFaulty(&d, isWrong, &faulty);
    send(&d);
    d.layer->backend = real;
  } else if (!failed) {
    failed =
        sendFails(&d, isWrong ? lrmoeInvalidUsage : lrmoeRemoteError, reason);
  }
  return closeTogether(&d, failed);
}

/* Each rank is a node, and so a peer of all. */
START_TEST(aStuckPeerIsAnError) {
  struct oracleCase c = ginCase(numRanks, 1);
  isWrong = _i;
  reason = isWrong ? "rank 3 wrote " : "rank 3 wrote no rows within 400 ms";
  runAndClose(runStuck, &c);
  ck_assert_int_ge(numNamed, 1);
}
END_TEST

/* ---- An abort ---- */

static void *abortSoon(void *argument) {
  struct driver *d = argument;
  const struct lrmoeWatch *watch = d->layer->gin->watched.watch;
  const struct timespec nap = {0, 1000000};
  while (!__atomic_load_n(&watch->numEntered, __ATOMIC_SEQ_CST))
    nanosleep(&nap, NULL);
  lrmoeCommAbort(d->comm);
  return NULL;
}

static int sendAborted(struct driver *d) {
  pthread_t thread;
  const struct lrmoeWatch *watch = d->layer->gin->watched.watch;
  RANK_TRUE(d->self, !pthread_create(&thread, NULL, abortSoon, d));
  lrmoeResult_t got = send(d);
  pthread_join(thread, NULL);
  RANK_TRUE(d->self, got == lrmoeRemoteError);
  RANK_TRUE(d->self, watch->isStopped == 1);
  RANK_TRUE(d->self, watch->status == lrmoeMeetingStopped);
  RANK_TRUE(d->self, watch->numLeft == watch->numEntered);
  return 0;
}

static int runAborted(const struct testRank *self) {
  struct driver d;
  struct faulty faulty;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  if (!failed && !d.layer->gin) failed = 1;
  if (!failed && self->rank == 1) {
    makeFaulty(&d, 0, &faulty);
    send(&d);
    d.layer->backend = real;
  } else if (!failed) {
    failed = sendAborted(&d);
  }
  return closeTogether(&d, failed);
}

/* The wait would last 30 s; it ends as soon as the host says so. */
START_TEST(anAbortEndsAWait) {
  struct oracleCase c = ginCase(2, 1);
  runAndClose(runAborted, &c);
}
END_TEST

void ginStuckAdd(Suite *suite) {
  suiteAddTest(suite, 300, aStuckPeerIsAnError, 2);
  suiteAddTest(suite, 300, anAbortEndsAWait, 1);
}
