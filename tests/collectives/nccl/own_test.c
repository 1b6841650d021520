/* Communicators that LRMoE made with NCCL: time-outs, aborts, faults. */
#include "base/alloc.h"
#include "collectives/comm.h"
#include "cpu_ranks.h"
#include "standin_control.h"
#include "support/suite.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
  shortMs = 300,
  longMs = 20000
};

/* Joins with a time-out of LRMoE's, while the stand-in waits for long. */
static lrmoeResult_t join(const struct testRank *self, int64_t timeoutMs,
                          lrmoeComm_t *comm) {
  lrmoeCommConfig_t config = LRMOE_COMM_CONFIG_INITIALIZER;
  config.timeoutMs = timeoutMs;
  testStandin()->timeoutMs(longMs);
  return lrmoeCommInitRank(self->numRanks, &self->id, self->rank, &config,
                           comm);
}

/* ---- Time-outs ---- */

static int alone(const struct testRank *self) {
  struct testRank half = *self;
  lrmoeComm_t comm = NULL;
  half.numRanks = 2;
  testStandin()->timeoutMs(2L * shortMs); /* so that its thread ends soon */
  lrmoeCommConfig_t config = LRMOE_COMM_CONFIG_INITIALIZER;
  config.timeoutMs = shortMs;
  RANK_TRUE(self, lrmoeCommInitRank(2, &half.id, 0, &config, &comm) ==
                      lrmoeRemoteError);
  RANK_TRUE(self, testErrorHas("ncclCommInitRankConfig: NCCL was not done "
                               "within 300 ms"));
  RANK_TRUE(self, !comm && testStandin()->misuses() == 0);
  testSleepMs(3L * shortMs);
  return 0;
}

START_TEST(a_rank_that_never_comes) {
  ck_assert_int_eq(testRanksRun(1, alone, NULL), 0);
}
END_TEST

/* Rank 1 is silent until rank 0 has lost patience, and aborted. */
static int silent(const struct testRank *self) {
  struct testShared *shared = self->user;
  lrmoeComm_t comm = NULL;
  char byte = 0;
  RANK_OK(self, join(self, shortMs, &comm));
  if (self->rank == 1) {
    while (!atomic_load(&shared->words[0]))
      testSleepMs(1);
    RANK_TRUE(self, lrmoeSend(&byte, 1, lrmoeInt8, 0, comm, NULL) ==
                        lrmoeRemoteError);
    RANK_TRUE(self, testErrorHas("rank 0 has aborted"));
  } else {
    RANK_TRUE(self, lrmoeRecv(&byte, 1, lrmoeInt8, 1, comm, NULL) ==
                        lrmoeRemoteError);
    RANK_TRUE(self, testErrorHas("ncclRecv: NCCL was not done within 300 ms"));
    RANK_TRUE(self, lrmoeRecv(&byte, 1, lrmoeInt8, 1, comm, NULL) ==
                        lrmoeRemoteError);
    RANK_TRUE(self, testErrorHas("ncclRecv: NCCL was not done within 300 ms"));
    RANK_OK(self, lrmoeCommAbort(comm));
    atomic_store(&shared->words[0], 1);
  }
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(a_peer_that_is_silent) {
  ck_assert_int_eq(testRanksRun(2, silent, testSharedMake()), 0);
}
END_TEST

/* ---- Aborts ---- */

static void *abortSoon(void *comm) {
  testSleepMs(50);
  for (int i = 0; i < 2; i++)
    lrmoeCommAbort(comm);
  return NULL;
}

static int aborted(const struct testRank *self) {
  lrmoeComm_t comm = NULL;
  pthread_t thread;
  char byte = 0;
  RANK_OK(self, join(self, longMs, &comm));
  testMeet(self->user, 0, self->numRanks);
  if (self->rank == 0)
    RANK_TRUE(self, !pthread_create(&thread, NULL, abortSoon, comm));
  int peer = (self->rank + 1) % self->numRanks;
  lrmoeResult_t got = lrmoeRecv(&byte, 1, lrmoeInt8, peer, comm, NULL);
  RANK_TRUE(self, got == lrmoeRemoteError);
  RANK_TRUE(self, testErrorHas("rank 0 has aborted the communicator"));
  if (self->rank == 0) pthread_join(thread, NULL);
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(abort_from_a_thread) {
  ck_assert_int_eq(testRanksRun(3, aborted, testSharedMake()), 0);
}
END_TEST

/* Threads stream out of each other's memory while one aborts: a call that has
 * returned reads its buffers no more. */
static int abortedStream(const struct testRank *self) {
  const size_t bytes = 1 << 20;
  lrmoeComm_t comm = NULL;
  pthread_t thread;
  size_t room = bytes * (size_t)self->numRanks;
  RANK_OK(self, join(self, longMs, &comm));
  testMeet(self->user, 0, self->numRanks);
  char *in = testBuffer(room, 0), *out = calloc(1, room);
  if (self->rank == 0)
    RANK_TRUE(self, !pthread_create(&thread, NULL, abortSoon, comm));
  lrmoeResult_t result = lrmoeSuccess;
  while (result == lrmoeSuccess)
    result = lrmoeAllToAll(out, in, bytes, lrmoeInt8, comm, NULL);
  RANK_TRUE(self, result == lrmoeRemoteError);
  if (self->rank == 0) pthread_join(thread, NULL);
  RANK_OK(self, lrmoeCommDestroy(comm));
  testBufferFree(in, 0);
  free(out);
  return 0;
}

START_TEST(abort_between_threads) {
  for (int i = 0; i < 5; i++)
    ck_assert_int_eq(testRanksThreads(4, abortedStream, testSharedMake()), 0);
  ck_assert_int_eq(testStandin()->misuses(), 0);
}
END_TEST

/* A rank that cannot go on ends its own communicator, and the peers see it. */
static int settles(const struct testRank *self) {
  lrmoeComm_t comm = NULL;
  int32_t word = 0;
  RANK_OK(self, join(self, longMs, &comm));
  testMeet(self->user, 0, self->numRanks);
  if (self->rank == 1)
    RANK_TRUE(self, lrmoeCommSettle(comm, LRMOE_FAIL(lrmoeOutOfMemory,
                                                     "no memory for 7 rows")));
  RANK_TRUE(self, lrmoeAllReduce(&word, &word, 1, lrmoeInt32, lrmoeSum, comm,
                                 NULL) == lrmoeRemoteError);
  RANK_TRUE(self, testErrorHas(self->rank == 1 ? "no memory for 7 rows"
                                               : "rank 1 has aborted"));
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(a_rank_that_gives_up) {
  ck_assert_int_eq(testRanksRun(3, settles, testSharedMake()), 0);
}
END_TEST

/* ---- Groups ---- */

static int grouped(const struct testRank *self) {
  lrmoeComm_t comm = NULL, part = NULL;
  lrmoeUniqueId id = self->id;
  int n = self->numRanks, word = 0;
  RANK_OK(self, join(self, longMs, &comm));
  RANK_OK(self, lrmoeGroupStart());
  RANK_TRUE(self,
            lrmoeCommInitRank(1, &id, 0, NULL, &part) == lrmoeInvalidUsage);
  RANK_TRUE(self, lrmoeCommSplit(comm, 0, 0, &part) == lrmoeInvalidUsage);
  RANK_TRUE(self, testErrorHas("in an open group"));
  RANK_OK(self, lrmoeGroupEnd());
  /* The first failure is the group's, with its text; nothing is sent. */
  RANK_OK(self, lrmoeGroupStart());
  RANK_OK(self,
          lrmoeSend(&word, 1, lrmoeInt32, (self->rank + 1) % n, comm, NULL));
  RANK_TRUE(self, lrmoeSend(NULL, 1, lrmoeInt32, 0, comm, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeGroupEnd() == lrmoeInvalidArgument);
  RANK_TRUE(self, testErrorHas("the send buffer is NULL for 1 elements"));
  RANK_OK(self, lrmoeBroadcast(&word, &word, 1, lrmoeInt32, 0, comm, NULL));
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(groups_fail_as_one) {
  ck_assert_int_eq(testRanksRun(2, grouped, NULL), 0);
}
END_TEST

/* A call that NCCL refuses ends the communicators of its group. */
static int groupLost(const struct testRank *self) {
  lrmoeComm_t comm = NULL;
  int word = self->rank, got = 0;
  RANK_OK(self, join(self, longMs, &comm));
  RANK_OK(self, lrmoeGroupStart());
  RANK_OK(self, lrmoeSend(&word, 1, lrmoeInt32, 0, comm, NULL));
  RANK_OK(self, lrmoeRecv(&got, 1, lrmoeInt32, 0, comm, NULL));
  testStandin()->failNext(lrmoeSystemError);
  RANK_TRUE(self, lrmoeGroupEnd() == lrmoeSystemError);
  RANK_TRUE(self, testErrorHas("ncclSend: system error: injected failure"));
  RANK_TRUE(self,
            lrmoeSend(&word, 1, lrmoeInt32, 0, comm, NULL) == lrmoeSystemError);
  RANK_TRUE(self, testErrorHas("injected failure"));
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(a_fatal_call_ends_the_communicator) {
  ck_assert_int_eq(testRanksRun(1, groupLost, NULL), 0);
}
END_TEST

/* ---- Windows ---- */

static int windows(const struct testRank *self) {
  lrmoeComm_t comm = NULL;
  lrmoeWindow_t window = NULL;
  int32_t *block = NULL, *theirs = NULL;
  int peer = 1 - self->rank, word = 0;
  RANK_OK(self, join(self, longMs, &comm));
  RANK_OK(self, lrmoeMemAlloc(64, (void **)&block));
  block[0] = 1000 + self->rank;
  RANK_OK(self, lrmoeCommWindowRegister(comm, block, 64, &window));
  lrmoeResult_t got = lrmoeWindowPeerPointer(window, peer, (void **)&theirs);
#ifdef STANDIN_HAS_POINTERS
  RANK_OK(self, got);
  RANK_TRUE(self, theirs[0] == 1000 + peer);
#else
  RANK_TRUE(self, got == lrmoeUnsupported && !theirs);
#endif
  RANK_OK(self, lrmoeBroadcast(&word, &word, 1, lrmoeInt32, 0, comm, NULL));
  RANK_OK(self, lrmoeCommWindowDeregister(comm, window));
  /* One that outlives an abort, which frees it. */
  RANK_OK(self, lrmoeCommWindowRegister(comm, block, 64, &window));
  testMeet(self->user, 0, self->numRanks);
  RANK_OK(self, lrmoeCommAbort(comm));
  RANK_OK(self, lrmoeCommWindowDeregister(comm, window));
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_OK(self, lrmoeMemFree(block));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(windows_and_pointers) {
  ck_assert_int_eq(testRanksRun(2, windows, testSharedMake()), 0);
}
END_TEST

/* ---- Device communicators ---- */

/* Without a device there is none; that it was tried costs nothing. */
static int probe(const struct testRank *self) {
  lrmoeComm_t comm = NULL;
  int32_t word = 1;
  const char needs[64] = {0};
  char devComm[256];
  RANK_OK(self, join(self, longMs, &comm));
  const struct lrmoeTransport *transport = comm->transport;
  int version = transport->ginVersion();
  RANK_TRUE(self, version == 22809 || version == 23007);
  for (int i = 0; i < 2; i++)
    RANK_TRUE(self, transport->ginProbe(comm->nccl, needs, devComm) ==
                        lrmoeUnsupported);
  RANK_OK(self, lrmoeBroadcast(&word, &word, 1, lrmoeInt32, 0, comm, NULL));
  testMeet(self->user, 0, self->numRanks);
  RANK_TRUE(self, transport->ginOpen(comm->nccl, needs, devComm) ==
                      lrmoeInvalidUsage);
  RANK_TRUE(self, lrmoeBroadcast(&word, &word, 1, lrmoeInt32, 0, comm, NULL) ==
                      lrmoeInvalidUsage);
  lrmoeCommDestroy(comm);
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(a_probe_leaves_the_communicator_whole) {
  ck_assert_int_eq(testRanksRun(2, probe, testSharedMake()), 0);
}
END_TEST

/* ---- Allocations that fail ---- */

static lrmoeResult_t lifetime(const struct testRank *self) {
  lrmoeComm_t comm = NULL, part = NULL;
  int32_t word = 1;
  LRMOE_CHECK(join(self, longMs, &comm));
  lrmoeResult_t result = lrmoeCommSplit(comm, 0, 0, &part);
  if (result == lrmoeSuccess)
    result = lrmoeAllReduce(&word, &word, 1, lrmoeInt32, lrmoeSum, part, NULL);
  if (part) lrmoeCommDestroy(part);
  lrmoeResult_t left = lrmoeCommDestroy(comm);
  return result != lrmoeSuccess ? result : left;
}

/* One rank, so that it meets every fault by itself. */
START_TEST(faults_at_every_allocation) {
  struct testRank self = {0, 1, {{0}}, NULL};
  int numFaults = 0;
  for (int64_t step = 1;; step++) {
    ASSERT_OK(lrmoeGetUniqueId(&self.id));
    lrmoeAllocFailAt(step);
    lrmoeResult_t result = lifetime(&self);
    if (lrmoeAllocFailAt(0) < step) {
      ck_assert_int_eq(result, lrmoeSuccess);
      break;
    }
    ck_assert_int_eq(result, lrmoeOutOfMemory);
    numFaults++;
  }
  ck_assert_int_ge(numFaults, 6); /* two handles of three blocks */
  ck_assert_int_eq(testStandin()->misuses(), 0);
}
END_TEST

int main(void) {
  setenv("LRMOE_BACKEND", "cuda", 1);
  const TTest *const tests[] = {a_rank_that_never_comes,
                                a_peer_that_is_silent,
                                abort_from_a_thread,
                                abort_between_threads,
                                a_rank_that_gives_up,
                                groups_fail_as_one,
                                a_fatal_call_ends_the_communicator,
                                windows_and_pointers,
                                a_probe_leaves_the_communicator_whole,
                                faults_at_every_allocation};
  return suiteRunTests("nccl_own", tests, sizeof tests / sizeof tests[0], 120);
}
