/* Rows straight into peers' memory: the bits of the staged way, whatever the
 * schedule; and a rank that does not come, or is aborted, ends in an error on
 * all ranks.  Ranks are threads with an emulated device each, which can address
 * each other's, over NCCL's stand-in. */
#include "collectives/fused.h"
#include "driver.h"
#include "support/simt/simt.h"
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
  c.numTokens[2] = 0;
  c.numExperts = 2 * numRanks;
  c.gatherRanks = 64;
  return c;
}

/* ---- The same bits ---- */

/* What a backward leaves: rows of g and places of the handoff, and results. */
struct left {
  char *bytes;
  int64_t count;
  int64_t room;
};

static void append(struct left *left, const void *data, int64_t count) {
  if (left->count + count > left->room) {
    left->room = 2 * (left->count + count);
    left->bytes = realloc(left->bytes, (size_t)left->room);
    if (!left->bytes) abort();
  }
  if (count) memcpy(left->bytes + left->count, data, (size_t)count);
  left->count += count;
}

static void appendDevice(struct left *left, const struct driver *d,
                         const void *from, int64_t count) {
  char *raw = oracleZeroed(count + 1, 1);
  mirrorFetch(&d->mirrors, from, count, raw);
  append(left, raw, count);
  free(raw);
}

/* The row of g of every pair: where it lies may differ. */
static int appendHandoff(struct left *left, const struct driver *d) {
  lrmoeHandoff_t handoff = LRMOE_HANDOFF_INITIALIZER;
  int64_t rowBytes = d->layer->rowBytes;
  RANK_OK(d->self, lrmoeStepGetHandoff(d->step, &handoff));
  append(left, handoff.offsets,
         (handoff.numInstances + 1) * (int64_t)sizeof *handoff.offsets);
  for (int64_t i = 0; i < handoff.numPairs; i++) {
    int64_t row = 0;
    mirrorFetch(&d->mirrors, handoff.gRow + i, (int64_t)sizeof row, &row);
    appendDevice(left, d, (const char *)handoff.g + row * rowBytes, rowBytes);
  }
  if (!handoff.numPairs) return 0;
  appendDevice(left, d, handoff.weights,
               handoff.numPairs * (int64_t)sizeof(float));
  return 0;
}

static int runOne(struct driver *d, int isFused, struct left *left) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t numTokens = spec->numTokens[d->self->rank];
  if (driverSelect(d, &spec->backward, isFused) ||
      (!isFused && driverSend(d)) || appendHandoff(left, d) ||
      driverExpertBackward(d) || driverReturn(d))
    return 1;
  append(left, d->dx, numTokens * d->layer->rowBytes);
  append(left, d->dWeights, numTokens * spec->topk * (int64_t)sizeof(float));
  append(left, d->kept, numTokens * spec->topk);
  return 0;
}

static int runBoth(const struct testRank *self) {
  struct driver d;
  struct left staged = {NULL, 0, 0};
  struct left fused = {NULL, 0, 0};
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  if (!failed && !d.layer->fused) failed = 1;
  for (int i = 0; i < 2 && !failed; i++) {
    staged.count = fused.count = 0;
    failed = runOne(&d, 0, &staged) || runOne(&d, 1, &fused) ||
             staged.count != fused.count ||
             memcmp(staged.bytes, fused.bytes, (size_t)staged.count) != 0;
  }
  free(staged.bytes);
  free(fused.bytes);
  driverClose(&d);
  return failed;
}

/* Without replicas routes are worked out on the device, with them rows of x
 * and alphas cross as well. */
START_TEST(sameBitsAsStaged) {
  struct simtCounters puts;
  struct simtCounters sums;
  struct oracleCase c = eightRanks();
  c.numSlots = _i % 3 == 1;
  if (_i % 3 == 2) c.savedState = lrmoeSavedNone;
  if (_i / 3) simtSetOrder(simtOrderRandom, (uint64_t)(_i + 1));
  simtResetCounters();
  ck_assert_int_eq(testRanksThreads(numRanks, runBoth, &c), 0);
  simtGetCounters("putRowsKernel", &puts);
  simtGetCounters("putSumsKernel", &sums);
  ck_assert_int_eq(puts.launches, 2 * (numRanks - 1)); /* rank 2 has no rows */
  ck_assert_int_ge(sums.launches, 2);
}
END_TEST

/* ---- Ranks that do not come ---- */

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
  struct oracleCase c = eightRanks();
  gone = 3;
  reason = "rank ";
  runAndClose(runStuck, &c);
}
END_TEST

static int abortOwn(struct driver *d) {
  lrmoeResult_t error = lrmoeSuccess;
  RANK_OK(d->self, lrmoeCommSynchronize(d->comm, NULL));
  RANK_OK(d->self, lrmoeCommAbort(d->comm));
  RANK_TRUE(d->self, d->layer->fused->watch->isStopped == 1);
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
  struct oracleCase c = eightRanks();
  gone = 5;
  reason = ""; /* NCCL may be the first to know */
  runAndClose(runAborted, &c);
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
  struct oracleCase c = eightRanks();
  setenv("LRMOE_FUSED", "0", 1);
  ck_assert_int_eq(testRanksThreads(numRanks, runMessages, &c), 0);
}
END_TEST

#ifndef TEST_RANKS_ARE_THREADS
/* Processes cannot address each other's emulated memory: NCCL 2.28 says so by
 * a window that is none. */
START_TEST(messagesWhereMemoryIsNotReached) {
  struct oracleCase c = eightRanks();
  int pids[numRanks];
  testRanksFork(numRanks, runMessages, &c, pids);
  for (int i = 0; i < numRanks; i++)
    ck_assert_int_eq(testRankWait(pids[i]), 0);
}
END_TEST
#endif

int main(void) {
  Suite *suite = suite_create("fused");
  suiteAddTest(suite, 300, sameBitsAsStaged, 6);
  suiteAddTest(suite, 300, aStuckPeerIsAnError, 1);
  suiteAddTest(suite, 300, anAbortIsAnError, 1);
  suiteAddTest(suite, 300, messagesWhereItIsNotWanted, 1);
#ifndef TEST_RANKS_ARE_THREADS
  suiteAddTest(suite, 300, messagesWhereMemoryIsNotReached, 1);
#endif
  return suiteRun(suite);
}
