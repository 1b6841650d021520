/* Events: what they say of a stream that has work and of one that has none, and
 * of a communicator that fails; their lives.  On the CUDA backend another
 * stream goes on behind one as well. */
#include "collectives/layer.h"
#include "driver.h"
#include "support/suite.h"

#ifdef LRMOE_TEST_STREAMS
#include "support/simt/simt.h"

#include <cuda_runtime_api.h>
#endif

#include <stdlib.h>
#include <string.h>

enum {
  numRanks = 3
};

static struct oracleCase threeRanks(void) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = numRanks;
  return c;
}

/* Enqueues a whole backward. */
static int beginBackward(const struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  const void *x = driverDevice(d, data->x);
  const void *g = driverDevice(d, data->g);
  RANK_OK(d->self, lrmoeSelectPackSend(d->step, x, g, NULL, NULL));
  RANK_OK(d->self, lrmoeExpertBackward(d->step, NULL));
  RANK_OK(d->self, lrmoeReturn(d->step, driverDevice(d, d->dx),
                               driverDevice(d, d->dWeights), NULL));
  return 0;
}

/* ---- Asked and waited for by the host ---- */

/* The second time the mark is another one. */
static int askUntilDone(const struct driver *d, lrmoeEvent_t event) {
  int isDone = 0;
  int numAsked = 0;
  RANK_OK(d->self, lrmoeEventRecord(event, NULL));
  while (!isDone) {
    RANK_OK(d->self, lrmoeEventQuery(event, &isDone));
    numAsked++;
  }
  RANK_TRUE(d->self, numAsked == 1 || !d->comm->backend->isHost);
  return 0;
}

static int runAsked(const struct testRank *self) {
  struct driver d;
  lrmoeEvent_t event = NULL;
  int isDone = 0;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d);
  if (failed) return 1;
  RANK_OK(self, lrmoeEventCreate(d.comm, &event));
  RANK_OK(self, lrmoeEventQuery(event, &isDone));
  RANK_TRUE(self, isDone);
  RANK_OK(self, lrmoeEventSynchronize(event));
  for (int i = 0; i < 2 && !failed; i++)
    failed = beginBackward(&d) || askUntilDone(&d, event);
  if (failed || beginBackward(&d)) return 1;
  RANK_OK(self, lrmoeEventRecord(event, NULL));
  RANK_OK(self, lrmoeEventSynchronize(event));
  RANK_OK(self, lrmoeEventQuery(event, &isDone));
  RANK_TRUE(self, isDone);
  RANK_TRUE(self, lrmoeCommDestroy(d.comm) == lrmoeInvalidUsage);
  RANK_OK(self, lrmoeEventDestroy(event));
  driverClose(&d);
  return 0;
}

START_TEST(doneWhenTheStreamIs) {
  struct oracleCase c = threeRanks();
  c.overlapsReturn = _i;
  ck_assert_int_eq(testRanksRun(numRanks, runAsked, &c), 0);
}
END_TEST

/* The communicator is kept while an event is. */
static int runKept(const struct testRank *self) {
  lrmoeComm_t comm = NULL;
  lrmoeEvent_t events[2] = {NULL, NULL};
  RANK_OK(self,
          lrmoeCommInitRank(numRanks, &self->id, self->rank, NULL, &comm));
  for (int i = 0; i < 2; i++)
    RANK_OK(self, lrmoeEventCreate(comm, &events[i]));
  for (int i = 0; i < 2; i++) {
    RANK_TRUE(self, lrmoeCommDestroy(comm) == lrmoeInvalidUsage);
    RANK_TRUE(self, strstr(lrmoeGetLastError(), "event") != NULL);
    RANK_OK(self, lrmoeEventDestroy(events[i]));
  }
  RANK_OK(self, lrmoeCommDestroy(comm));
  return 0;
}

START_TEST(eventsKeepTheirCommunicator) {
  ck_assert_int_eq(testRanksRun(numRanks, runKept, NULL), 0);
}
END_TEST

/* ---- Failures ---- */

/* A mark that was reached tells of what failed later, too. */
static int runAborted(const struct testRank *self) {
  lrmoeComm_t comm = NULL;
  lrmoeEvent_t event = NULL;
  int isDone = -1;
  RANK_OK(self, lrmoeCommInitRank(1, &self->id, self->rank, NULL, &comm));
  RANK_OK(self, lrmoeEventCreate(comm, &event));
  RANK_OK(self, lrmoeEventRecord(event, NULL));
  RANK_OK(self, lrmoeEventSynchronize(event));
  RANK_OK(self, lrmoeCommAbort(comm));
  RANK_TRUE(self, lrmoeEventQuery(event, &isDone) == lrmoeRemoteError);
  RANK_TRUE(self, isDone == -1);
  RANK_TRUE(self, lrmoeEventSynchronize(event) == lrmoeRemoteError);
  RANK_OK(self, lrmoeEventDestroy(event));
  lrmoeCommDestroy(comm);
  return 0;
}

START_TEST(failuresAreTold) {
  ck_assert_int_eq(testRanksRun(1, runAborted, NULL), 0);
}
END_TEST

static int runMisuse(const struct testRank *self) {
  lrmoeComm_t comm = NULL;
  lrmoeEvent_t event = NULL;
  lrmoeStream_t noStream = (lrmoeStream_t)(void *)&comm;
  RANK_OK(self, lrmoeCommInitRank(1, &self->id, self->rank, NULL, &comm));
  RANK_TRUE(self, lrmoeEventCreate(NULL, &event) == lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeEventCreate(comm, NULL) == lrmoeInvalidArgument);
  RANK_OK(self, lrmoeEventCreate(comm, &event));
  RANK_TRUE(self, lrmoeEventRecord(NULL, NULL) == lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeEventWait(NULL, NULL) == lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeEventQuery(event, NULL) == lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeEventSynchronize(NULL) == lrmoeInvalidArgument);
  if (!comm->transport->hasStreams) {
    RANK_TRUE(self, lrmoeEventRecord(event, noStream) == lrmoeInvalidArgument);
    RANK_TRUE(self, lrmoeEventWait(event, noStream) == lrmoeInvalidArgument);
  }
  RANK_OK(self, lrmoeEventDestroy(NULL));
  RANK_OK(self, lrmoeEventDestroy(event));
  RANK_OK(self, lrmoeCommDestroy(comm));
  return 0;
}

START_TEST(wrongArgumentsAreRefused) {
  ck_assert_int_eq(testRanksRun(1, runMisuse, NULL), 0);
}
END_TEST

/* ---- Waited for by another stream ---- */

#ifdef LRMOE_TEST_STREAMS
static int64_t dxBytes(const struct driver *d) {
  return d->oracle->spec.numTokens[d->self->rank] * d->layer->rowBytes;
}

/* dx as it is on a stream that waits for the mark and for nothing else: the
 * emulator tells of a race if that is too early. */
static int copyBehind(const struct driver *d, lrmoeEvent_t event, char *dx) {
  cudaStream_t stream = NULL;
  RANK_TRUE(d->self,
            !cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  RANK_OK(d->self, lrmoeEventWait(event, stream));
  RANK_TRUE(d->self,
            !cudaMemcpyAsync(dx, driverDevice(d, d->dx), (size_t)dxBytes(d),
                             cudaMemcpyDeviceToHost, stream));
  RANK_TRUE(d->self, !cudaStreamSynchronize(stream));
  RANK_TRUE(d->self, !cudaStreamDestroy(stream));
  return 0;
}

static int runBehind(const struct testRank *self) {
  struct driver d;
  lrmoeEvent_t event = NULL;
  if (driverOpen(&d, self, self->user) || driverForward(&d)) return 1;
  RANK_OK(self, lrmoeEventCreate(d.comm, &event));
  char *dx = oracleZeroed(dxBytes(&d), 1);
  int failed = beginBackward(&d);
  RANK_OK(self, lrmoeEventRecord(event, NULL));
  failed = failed || copyBehind(&d, event, dx);
  mirrorPull(&d.mirrors, d.dx);
  failed = failed || memcmp(dx, d.dx, (size_t)dxBytes(&d)) != 0;
  free(dx);
  RANK_OK(self, lrmoeEventDestroy(event));
  driverClose(&d);
  return failed;
}

START_TEST(aStreamGoesOnBehindTheMark) {
  struct oracleCase c = threeRanks();
  c.overlapsReturn = _i % 2;
  simtSetOrder(_i / 2 ? simtOrderLifo : simtOrderRandom, (uint64_t)_i + 1);
  ck_assert_int_eq(testRanksThreads(numRanks, runBehind, &c), 0);
}
END_TEST
#endif

int main(void) {
  Suite *suite = suite_create("event");
  suiteAddTest(suite, 300, doneWhenTheStreamIs, 2);
  suiteAddTest(suite, 300, eventsKeepTheirCommunicator, 1);
  suiteAddTest(suite, 300, failuresAreTold, 1);
  suiteAddTest(suite, 300, wrongArgumentsAreRefused, 1);
#ifdef LRMOE_TEST_STREAMS
  if (getenv("LRMOE_BACKEND"))
    suiteAddTest(suite, 300, aStreamGoesOnBehindTheMark, 4);
#endif
  return suiteRun(suite);
}
