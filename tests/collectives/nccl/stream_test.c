/* The filler and the stand-in where there are streams: ranks are threads of
 * this program. */
#include "collectives/nccl/call.h"
#include "cpu_ranks.h"
#include "fake_streams.h"
#include "standin_control.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
  longMs = 20000
};

/* Of one rank. */
struct bench {
  lrmoeComm_t comm;
  lrmoeStream_t streams[2];
  atomic_int gate;
};

static lrmoeResult_t open(const struct testRank *self, struct bench *bench) {
  testStandin()->timeoutMs(longMs);
  LRMOE_CHECK(lrmoeCommInitRank(self->numRanks, &self->id, self->rank, NULL,
                                &bench->comm));
  for (int i = 0; i < 2; i++)
    bench->streams[i] = fakeStreamMake();
  atomic_store(&bench->gate, 0);
  return lrmoeSuccess;
}

static void flow(struct bench *bench) {
  atomic_store(&bench->gate, 1);
  for (int i = 0; i < 2; i++)
    fakeStreamSync(bench->streams[i]);
}

static lrmoeResult_t shut(struct bench *bench) {
  flow(bench);
  lrmoeResult_t result = lrmoeCommDestroy(bench->comm);
  for (int i = 0; i < 2; i++)
    fakeStreamFree(bench->streams[i]);
  return result;
}

/* ---- When things happen ---- */

/* A group is over before its work is; its arguments were copied. */
static int later(const struct testRank *self) {
  struct bench bench;
  int n = self->numRanks, own = self->rank, got = -1;
  int before = (own + n - 1) % n;
  RANK_OK(self, open(self, &bench));
  fakeStreamHold(bench.streams[0], &bench.gate);
  RANK_OK(self, lrmoeGroupStart());
  RANK_OK(self, lrmoeSend(&own, 1, lrmoeInt32, (own + 1) % n, bench.comm,
                          bench.streams[0]));
  RANK_OK(self,
          lrmoeRecv(&got, 1, lrmoeInt32, before, bench.comm, bench.streams[0]));
  RANK_OK(self, lrmoeGroupEnd());
  testMeet(self->user, 0, n);
  RANK_TRUE(self, got == -1);
  flow(&bench);
  RANK_TRUE(self, got == before);
  RANK_OK(self, shut(&bench));
  return 0;
}

START_TEST(calls_return_before_their_work) {
  ck_assert_int_eq(testRanksThreads(4, later, testSharedMake()), 0);
  ck_assert_int_eq(testStandin()->misuses(), 0);
}
END_TEST

/* The second call's stream is free, and it still waits for the first. */
static int inOrder(const struct testRank *self) {
  struct bench bench;
  int word = self->rank, sum = -1;
  RANK_OK(self, open(self, &bench));
  fakeStreamHold(bench.streams[0], &bench.gate);
  RANK_OK(self, lrmoeBroadcast(&word, &word, 1, lrmoeInt32, 2, bench.comm,
                               bench.streams[0]));
  RANK_OK(self, lrmoeAllReduce(&word, &sum, 1, lrmoeInt32, lrmoeSum, bench.comm,
                               bench.streams[1]));
  testSleepMs(20);
  flow(&bench);
  RANK_TRUE(self, word == 2 && sum == 2 * self->numRanks);
  RANK_OK(self, shut(&bench));
  return 0;
}

START_TEST(works_keep_the_order_of_calls) {
  ck_assert_int_eq(testRanksThreads(3, inOrder, NULL), 0);
}
END_TEST

static void *openGate(void *gate) {
  testSleepMs(50);
  atomic_store((atomic_int *)gate, 1);
  return NULL;
}

/* Destroying waits for what is still to be done. */
static int flushed(const struct testRank *self) {
  struct bench bench;
  pthread_t thread;
  int word = self->rank;
  RANK_OK(self, open(self, &bench));
  fakeStreamHold(bench.streams[0], &bench.gate);
  RANK_OK(self, lrmoeBroadcast(&word, &word, 1, lrmoeInt32, 1, bench.comm,
                               bench.streams[0]));
  RANK_TRUE(self, !pthread_create(&thread, NULL, openGate, &bench.gate));
  RANK_OK(self, lrmoeCommDestroy(bench.comm));
  RANK_TRUE(self, word == 1);
  pthread_join(thread, NULL);
  for (int i = 0; i < 2; i++)
    fakeStreamFree(bench.streams[i]);
  return 0;
}

START_TEST(destroying_waits_for_works) {
  ck_assert_int_eq(testRanksThreads(2, flushed, NULL), 0);
  ck_assert_int_eq(testStandin()->misuses(), 0);
}
END_TEST

/* ---- What goes wrong ---- */

/* It shows later, at every call, in the same words. */
static int wrongLater(const struct testRank *self) {
  struct bench bench;
  char data[3] = {0};
  lrmoeResult_t state = lrmoeSuccess;
  RANK_OK(self, open(self, &bench));
  fakeStreamHold(bench.streams[0], &bench.gate);
  if (self->rank)
    RANK_OK(self,
            lrmoeRecv(data, 3, lrmoeInt8, 0, bench.comm, bench.streams[0]));
  else
    RANK_OK(self,
            lrmoeSend(data, 2, lrmoeInt8, 1, bench.comm, bench.streams[0]));
  testMeet(self->user, 0, 2);
  flow(&bench);
  for (int i = 0; i < 2; i++) {
    RANK_OK(self, lrmoeCommGetAsyncError(bench.comm, &state));
    RANK_TRUE(self, state == lrmoeInvalidUsage &&
                        testErrorHas("rank 0 sends 2 elements"));
  }
  RANK_TRUE(self, lrmoeSend(data, 1, lrmoeInt8, 0, bench.comm,
                            bench.streams[0]) == lrmoeInvalidUsage);
  RANK_TRUE(self, testErrorHas("rank 0 sends 2 elements"));
  RANK_OK(self, shut(&bench));
  return 0;
}

START_TEST(errors_of_works_are_async) {
  ck_assert_int_eq(testRanksThreads(2, wrongLater, testSharedMake()), 0);
  ck_assert_int_eq(testStandin()->misuses(), 0);
}
END_TEST

/* With a work still queued, which then finds nothing to do. */
static int abortQueued(const struct testRank *self) {
  struct bench bench;
  int word = self->rank;
  RANK_OK(self, open(self, &bench));
  fakeStreamHold(bench.streams[0], &bench.gate);
  RANK_OK(self, lrmoeBroadcast(&word, &word, 1, lrmoeInt32, 0, bench.comm,
                               bench.streams[0]));
  testMeet(self->user, 0, self->numRanks);
  RANK_OK(self, lrmoeCommAbort(bench.comm));
  testMeet(self->user, 1, self->numRanks);
  flow(&bench);
  RANK_TRUE(self, word == self->rank);
  RANK_OK(self, shut(&bench));
  return 0;
}

START_TEST(an_abort_with_works_queued) {
  ck_assert_int_eq(testRanksThreads(3, abortQueued, testSharedMake()), 0);
  ck_assert_int_eq(testStandin()->misuses(), 0);
}
END_TEST

static void *sendInThread(void *argument) {
  static char byte;
  struct bench *bench = argument;
  return (void *)(intptr_t)lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0,
                                          bench->comm, bench->streams[0]);
}

/* An abort that finds another thread in NCCL is left to that thread. */
START_TEST(an_abort_under_a_call) {
  struct testRank self = {0, 1, {{0}}, NULL};
  struct bench bench;
  pthread_t thread;
  void *result = NULL;
  char byte = 0;
  ASSERT_OK(lrmoeGetUniqueId(&self.id));
  ASSERT_OK(open(&self, &bench));
  atomic_store(&fakeStreamBlock, 1);
  ck_assert(!pthread_create(&thread, NULL, sendInThread, &bench));
  while (!atomic_load(&fakeStreamWaiting))
    testSleepMs(1);
  ASSERT_OK(lrmoeCommAbort(bench.comm));
  ASSERT_RESULT(lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, bench.comm,
                               bench.streams[0]),
                lrmoeRemoteError);
  atomic_store(&fakeStreamBlock, 0);
  pthread_join(thread, &result);
  ASSERT_OK(shut(&bench));
  ck_assert_int_eq(testStandin()->misuses(), 0);
}
END_TEST

/* Nor does the call wait for those before it: their stream may stand still
 * until this very thread lets it go. */
START_TEST(a_stream_that_takes_nothing) {
  struct testRank self = {0, 1, {{0}}, NULL};
  struct bench bench;
  char byte = 0;
  ASSERT_OK(lrmoeGetUniqueId(&self.id));
  ASSERT_OK(open(&self, &bench));
  fakeStreamHold(bench.streams[0], &bench.gate);
  ASSERT_OK(lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, bench.comm,
                           bench.streams[0]));
  atomic_store(&fakeStreamError, 700);
  ASSERT_RESULT(lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, bench.comm,
                               bench.streams[0]),
                lrmoeUnhandledCudaError);
  ck_assert(testErrorHas("CUDA error 700"));
  atomic_store(&fakeStreamError, 0);
  ASSERT_OK(shut(&bench));
  ck_assert_int_eq(testStandin()->misuses(), 0);
}
END_TEST

START_TEST(a_group_on_two_streams) {
  struct testRank self = {0, 1, {{0}}, NULL};
  struct bench bench;
  char byte = 0;
  ASSERT_OK(lrmoeGetUniqueId(&self.id));
  ASSERT_OK(open(&self, &bench));
  ASSERT_OK(lrmoeGroupStart());
  for (int i = 0; i < 2; i++)
    ASSERT_OK(lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, bench.comm,
                             bench.streams[i]));
  ASSERT_RESULT(lrmoeGroupEnd(), lrmoeInvalidUsage);
  ck_assert(testErrorHas("on one stream only"));
  ASSERT_OK(shut(&bench));
}
END_TEST

/* A CPU communicator still has none. */
START_TEST(streams_of_the_cpu) {
  lrmoeUniqueId id;
  lrmoeComm_t comm = NULL;
  char byte = 0;
  lrmoeStream_t stream = fakeStreamMake();
  setenv("LRMOE_BACKEND", "cpu", 1);
  ASSERT_OK(lrmoeGetUniqueId(&id));
  ASSERT_OK(lrmoeCommInitRank(1, &id, 0, NULL, &comm));
  ASSERT_RESULT(lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, comm, stream),
                lrmoeInvalidArgument);
  ck_assert(testErrorHas("a CPU communicator has no streams"));
  ASSERT_OK(lrmoeCommDestroy(comm));
  fakeStreamFree(stream);
}
END_TEST

/* ---- The device ---- */

START_TEST(memory_of_the_device_is_opened) {
  struct testRank self = {0, 1, {{0}}, NULL};
  struct bench bench;
  char byte = 0;
  ASSERT_OK(lrmoeGetUniqueId(&self.id));
  ASSERT_OK(open(&self, &bench));
  for (int i = 0; i < 3; i++)
    ASSERT_OK(lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, bench.comm,
                             bench.streams[0]));
  flow(&bench);
  ck_assert_int_eq(atomic_load(&fakeAccesses), 3);
  ck_assert_int_eq(atomic_load(&fakeOpenAccesses), 0);
  ASSERT_OK(shut(&bench));
}
END_TEST

START_TEST(the_device_of_a_communicator) {
  const struct lrmoeNcclApi *api = &lrmoeNcclLoaded()->api;
  lrmoeNcclConfig_t config = LRMOE_NCCL_CONFIG(1);
  lrmoeResult_t (*getDevice)(struct ncclComm * comm, int *device) = NULL;
  struct ncclComm *comm = NULL;
  lrmoeUniqueId id;
  int device = -1;
  void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  *(void **)&getDevice = dlsym(handle, "ncclCommCuDevice");
  ck_assert_ptr_nonnull(*(void **)&getDevice);
  ASSERT_OK(lrmoeGetUniqueId(&id));
  ASSERT_OK(api->commInitRankConfig(&comm, 1, id, 0, &config));
  ASSERT_OK(getDevice(comm, &device));
  ck_assert_int_eq(device, 5);
  ASSERT_OK(api->commDestroy(comm));
}
END_TEST

int main(void) {
  setenv("LRMOE_BACKEND", "cuda", 1);
  const TTest *const tests[] = {calls_return_before_their_work,
                                works_keep_the_order_of_calls,
                                destroying_waits_for_works,
                                errors_of_works_are_async,
                                an_abort_with_works_queued,
                                an_abort_under_a_call,
                                a_stream_that_takes_nothing,
                                a_group_on_two_streams,
                                streams_of_the_cpu,
                                memory_of_the_device_is_opened,
                                the_device_of_a_communicator};
  return suiteRunTests("nccl_stream", tests, sizeof tests / sizeof tests[0],
                       120);
}
