/* Sends and receives: sizes, memory, order, groups. */
#include "cpu_ranks.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

/* Uneven counts, different on every pair, none for some. */
static size_t sizeOf(size_t base, int from, int to) {
  size_t bytes = base + base / 8 * (size_t)((from * 3 + to * 5) % 7);
  return (from + to) % 5 == 4 ? 0 : bytes;
}

struct memory {
  int sendOnHeap;
  int recvOnHeap;
};

static int exchangeAll(const struct testRank *self, struct ncclComm *comm,
                       size_t base, struct memory memory) {
  int n = self->numRanks, me = self->rank;
  char **out = calloc((size_t)n, sizeof *out);
  char **in = calloc((size_t)n, sizeof *in);
  for (int peer = 0; peer < n; peer++) {
    out[peer] = testBuffer(sizeOf(base, me, peer), memory.sendOnHeap);
    in[peer] = testBuffer(sizeOf(base, peer, me), memory.recvOnHeap);
    testFill(out[peer], sizeOf(base, me, peer), me, peer, 0);
  }
  RANK_OK(self, CPU->groupStart());
  for (int peer = 0; peer < n; peer++) {
    RANK_OK(self, CPU->send(out[peer], sizeOf(base, me, peer), lrmoeUint8, peer,
                            comm, NULL));
    RANK_OK(self, CPU->recv(in[peer], sizeOf(base, peer, me), lrmoeUint8, peer,
                            comm, NULL));
  }
  RANK_OK(self, CPU->groupEnd());
  for (int peer = 0; peer < n; peer++) {
    RANK_TRUE(self, testMatches(in[peer], sizeOf(base, peer, me), peer, me, 0));
    testBufferFree(out[peer], memory.sendOnHeap);
    testBufferFree(in[peer], memory.recvOnHeap);
  }
  free(out);
  free(in);
  return 0;
}

static int allSizes(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  static const size_t bases[] = {0, 1, 7, 8, 63, 4096, 65537, 262145, 1300001};
  RANK_OK(self, testJoin(self, 0, &comm));
  for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
    for (int kind = 0; kind < 4; kind++) {
      struct memory memory = {kind & 1, kind >> 1};
      if (exchangeAll(self, comm, bases[i], memory)) return 1;
    }
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(sizes_in_every_memory) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], allSizes, NULL), 0);
}
END_TEST

START_TEST(sizes_between_threads) {
  ck_assert_int_eq(testRanksThreads(rankCounts[_i], allSizes, NULL), 0);
}
END_TEST

/* The smallest ring, so that even middle sizes wrap around it. */
START_TEST(sizes_through_a_small_ring) {
  setenv("LRMOE_RING_BYTES", "4096", 1);
  ck_assert_int_eq(testRanksRun(3, allSizes, NULL), 0);
}
END_TEST

/* Processes of two threads each: some ranks share memory, others do not. */
struct mixed {
  const struct testRank *self;
  int first;
};

static int mixedThread(const struct testRank *thread) {
  const struct mixed *mixed = thread->user;
  struct testRank self = *mixed->self;
  self.numRanks *= 2;
  self.rank = mixed->first + thread->rank;
  return allSizes(&self);
}

static int mixedProcess(const struct testRank *self) {
  struct mixed mixed = {self, 2 * self->rank};
  return testRanksThreads(2, mixedThread, &mixed);
}

START_TEST(sizes_between_threads_and_processes) {
  ck_assert_int_eq(testRanksRun(2, mixedProcess, NULL), 0);
}
END_TEST

/* More messages than a channel has posts, of all kinds, in order. */
static int many(const struct testRank *self) {
  enum {
    numMessages = 700,
    room = 20000
  };
  struct ncclComm *comm = NULL;
  int me = self->rank, next = (me + 1) % self->numRanks;
  int before = (me + self->numRanks - 1) % self->numRanks;
  RANK_OK(self, testJoin(self, 0, &comm));
  char *out[2] = {testBuffer(numMessages * 64 + room, 0),
                  testBuffer(numMessages * 64 + room, 1)};
  char *in = calloc(numMessages, room);
  testFill(out[0], numMessages * 64 + room, 1, 2, 3);
  testFill(out[1], numMessages * 64 + room, 1, 2, 3);
  RANK_OK(self, CPU->groupStart());
  for (int i = 0; i < numMessages; i++) {
    size_t bytes = (size_t)(i * 7919 % room);
    RANK_OK(self, CPU->send(out[i % 3 == 0] + i * 64, bytes, lrmoeInt8, next,
                            comm, NULL));
    RANK_OK(self, CPU->recv(in + (size_t)i * room, bytes, lrmoeInt8, before,
                            comm, NULL));
  }
  RANK_OK(self, CPU->groupEnd());
  for (int i = 0; i < numMessages; i++)
    RANK_TRUE(self, !memcmp(in + (size_t)i * room, out[0] + i * 64,
                            (size_t)(i * 7919 % room)));
  free(in);
  testBufferFree(out[0], 0);
  testBufferFree(out[1], 1);
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(many_messages_in_a_group) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], many, NULL), 0);
}
END_TEST

/* Groups nest; nothing is delivered before the outermost end. */
static int nested(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  int next = (self->rank + 1) % self->numRanks;
  int before = (self->rank + self->numRanks - 1) % self->numRanks;
  int64_t out[2] = {10 + self->rank, 20 + self->rank}, in[2] = {-1, -1};
  RANK_OK(self, testJoin(self, 0, &comm));
  RANK_OK(self, CPU->groupStart());
  RANK_OK(self, CPU->groupStart());
  RANK_OK(self, CPU->send(&out[0], 1, lrmoeInt64, next, comm, NULL));
  RANK_OK(self, CPU->recv(&in[0], 1, lrmoeInt64, before, comm, NULL));
  RANK_OK(self, CPU->groupEnd());
  RANK_TRUE(self, in[0] == -1);
  RANK_OK(self, CPU->groupStart());
  RANK_OK(self, CPU->recv(&in[1], 1, lrmoeInt64, before, comm, NULL));
  RANK_OK(self, CPU->send(&out[1], 1, lrmoeInt64, next, comm, NULL));
  RANK_OK(self, CPU->groupEnd());
  RANK_TRUE(self, in[1] == -1);
  RANK_OK(self, CPU->groupEnd());
  RANK_TRUE(self, in[0] == 10 + before && in[1] == 20 + before);
  RANK_TRUE(self, CPU->groupEnd() == lrmoeInvalidUsage);
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(groups_nest) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], nested, NULL), 0);
}
END_TEST

/* Two communicators with opposite rank orders in one group, collectives and
 * messages mixed in different orders on different ranks. */
static int several(const struct testRank *self) {
  struct ncclComm *comm = NULL, *reverse = NULL;
  int n = self->numRanks, me = self->rank;
  RANK_OK(self, testJoin(self, 0, &comm));
  RANK_OK(self, CPU->commSplit(comm, 0, -me, &reverse));
  int64_t own = me, in = -1, fromReverse = -1, sum = me + 1;
  int64_t all[16] = {0};
  for (int round = 0; round < 50; round++) {
    RANK_OK(self, CPU->groupStart());
    if (me % 2)
      RANK_OK(self,
              CPU->allReduce(&sum, &sum, 1, lrmoeInt64, lrmoeMax, comm, NULL));
    RANK_OK(self, CPU->send(&own, 1, lrmoeInt64, (me + 1) % n, comm, NULL));
    RANK_OK(self, CPU->recv(&fromReverse, 1, lrmoeInt64, me, reverse, NULL));
    if (!(me % 2))
      RANK_OK(self,
              CPU->allReduce(&sum, &sum, 1, lrmoeInt64, lrmoeMax, comm, NULL));
    RANK_OK(self, CPU->recv(&in, 1, lrmoeInt64, (me + n - 1) % n, comm, NULL));
    RANK_OK(self, CPU->send(&own, 1, lrmoeInt64, me, reverse, NULL));
    RANK_OK(self, CPU->allGather(&own, all, 1, lrmoeInt64, reverse, NULL));
    RANK_OK(self, CPU->groupEnd());
    RANK_TRUE(self, in == (me + n - 1) % n && sum == n);
    RANK_TRUE(self, fromReverse == n - 1 - me);
    for (int i = 0; i < n; i++)
      RANK_TRUE(self, all[i] == n - 1 - i);
  }
  RANK_OK(self, CPU->commDestroy(reverse));
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(several_communicators_in_a_group) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], several, NULL), 0);
}
END_TEST

/* Many more ranks than cores. */
static int crowd(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  int32_t out[64], in[64];
  RANK_OK(self, testJoin(self, 0, &comm));
  for (int peer = 0; peer < self->numRanks; peer++)
    out[peer] = 1000 * self->rank + peer;
  for (int turn = 0; turn < 5; turn++) {
    memset(in, 0, sizeof in);
    RANK_OK(self, CPU->allToAll(out, in, 1, lrmoeInt32, comm, NULL));
    for (int peer = 0; peer < self->numRanks; peer++)
      RANK_TRUE(self, in[peer] == 1000 * peer + self->rank);
  }
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(many_ranks) {
  ck_assert_int_eq(testRanksRun(48, crowd, NULL), 0);
}
END_TEST

/* Without a group: one sends, the other receives. */
static int single(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  size_t bytes = 900001;
  char *buffer = testBuffer(bytes, 0);
  RANK_OK(self, testJoin(self, 0, &comm));
  if (self->rank == 0) {
    testFill(buffer, bytes, 0, 1, 5);
    RANK_OK(self, CPU->send(buffer, bytes, lrmoeUint8, 1, comm, NULL));
  } else {
    RANK_OK(self, CPU->recv(buffer, bytes, lrmoeUint8, 0, comm, NULL));
    RANK_TRUE(self, testMatches(buffer, bytes, 0, 1, 5));
  }
  testBufferFree(buffer, 0);
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(single_calls) {
  ck_assert_int_eq(testRanksRun(2, single, NULL), 0);
}
END_TEST

/* A wrong argument fails its call and the group, and harms nothing else. */
static int arguments(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  char byte = 0;
  int n = self->numRanks;
  RANK_OK(self, testJoin(self, 0, &comm));
  RANK_TRUE(self, CPU->send(&byte, 1, lrmoeInt8, n, comm, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, CPU->recv(&byte, 1, lrmoeInt8, -1, comm, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, CPU->send(NULL, 1, lrmoeInt8, 0, comm, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, CPU->send(&byte, 1, (lrmoeDataType_t)99, 0, comm, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, CPU->send(&byte, SIZE_MAX / 2, lrmoeInt64, 0, comm, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, CPU->send(&byte, 1, lrmoeInt8, 0, NULL, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, CPU->allReduce(&byte, &byte, 1, lrmoeInt8, (lrmoeRedOp_t)7,
                                 comm, NULL) == lrmoeInvalidArgument);
  RANK_TRUE(self, CPU->allToAll(&byte, &byte, 1, lrmoeInt8, comm, NULL) ==
                      lrmoeInvalidArgument);
  RANK_OK(self, CPU->groupStart());
  RANK_OK(self, CPU->send(&byte, 1, lrmoeInt8, 0, comm, NULL));
  RANK_TRUE(self, CPU->send(&byte, 1, lrmoeInt8, n, comm, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, CPU->commDestroy(comm) == lrmoeInvalidUsage);
  RANK_TRUE(self, CPU->groupEnd() == lrmoeInvalidArgument);
  RANK_OK(self, testExchange(self, comm));
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(wrong_arguments) {
  ck_assert_int_eq(testRanksRun(3, arguments, NULL), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cpu_messages");
  TCase *tests = tcase_create("messages");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, sizes_in_every_memory, 0, numRankCounts);
  tcase_add_loop_test(tests, sizes_between_threads, 0, numRankCounts);
  tcase_add_test(tests, sizes_through_a_small_ring);
  tcase_add_test(tests, sizes_between_threads_and_processes);
  tcase_add_loop_test(tests, many_messages_in_a_group, 0, numRankCounts);
  tcase_add_loop_test(tests, groups_nest, 0, numRankCounts);
  tcase_add_loop_test(tests, several_communicators_in_a_group, 0,
                      numRankCounts);
  tcase_add_test(tests, many_ranks);
  tcase_add_test(tests, single_calls);
  tcase_add_test(tests, wrong_arguments);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
