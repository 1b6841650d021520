/* Mismatched, late, stopped and killed ranks: every other rank gets an error
 * that names the right one, at this call and at every later one. */
#include "cpu_ranks.h"
#include "support/suite.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum {
  shortMs = 400,
  longMs = 20000
};

/* ---- Calls that do not match ---- */

static int mismatch(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  float data[12] = {0};
  lrmoeResult_t result = lrmoeInvalidUsage;
  RANK_OK(self, testJoin(self, longMs, &comm));
  /* All have joined then; rank 2 may hear of the others' failure here. */
  lrmoeResult_t got = testExchange(self, comm);
  RANK_TRUE(self, got == lrmoeSuccess || self->rank == 2);
  if (self->rank == 0) got = CPU->send(data, 10, lrmoeFloat32, 1, comm, NULL);
  if (self->rank == 1) got = CPU->recv(data, 12, lrmoeFloat32, 0, comm, NULL);
  if (self->rank == 2) {
    if (got == lrmoeSuccess)
      got = CPU->recv(data, 1, lrmoeFloat32, 0, comm, NULL);
    result = lrmoeRemoteError;
  }
  return testFailedBy(
      self, comm, got, result,
      "rank 0 sends 10 elements of 4 B (40 B) but rank 1 receives "
      "12 elements of 4 B (48 B)");
}

START_TEST(counts_that_differ) {
  ck_assert_int_eq(testRanksRun(3, mismatch, NULL), 0);
}
END_TEST

START_TEST(counts_that_differ_between_threads) {
  ck_assert_int_eq(testRanksThreads(3, mismatch, NULL), 0);
}
END_TEST

/* Rank 0 sends; rank 1 is alive, but never calls. */
static int unmatched(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  struct testShared *shared = self->user;
  char byte = 0;
  RANK_OK(self, testJoin(self, shortMs, &comm));
  if (self->rank == 1) {
    while (!atomic_load(&shared->words[0]))
      testSleepMs(1);
    return testFailedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
                        "rank 1 has not come to the call of rank 0");
  }
  lrmoeResult_t got = CPU->send(&byte, 1, lrmoeInt8, 1, comm, NULL);
  atomic_store(&shared->words[0], 1);
  return testFailedBy(self, comm, got, lrmoeRemoteError,
                      "rank 1 has not come to the call of rank 0");
}

START_TEST(send_without_receive) {
  ck_assert_int_eq(testRanksRun(2, unmatched, testSharedMake()), 0);
}
END_TEST

/* 0 waits for 1, 1 for 2, 2 for 3, and 3 is late: whoever loses patience
 * first, the culprit is 3. */
static int chain(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  struct testShared *shared = self->user;
  char byte = 0;
  int last = self->numRanks - 1;
  RANK_OK(self, testJoin(self, self->rank ? longMs : shortMs, &comm));
  if (self->rank == last) {
    while (!atomic_load(&shared->words[0]))
      testSleepMs(1);
    return testFailedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
                        "rank 3 has not come");
  }
  lrmoeResult_t got =
      CPU->recv(&byte, 1, lrmoeInt8, self->rank + 1, comm, NULL);
  atomic_store(&shared->words[0], 1);
  return testFailedBy(self, comm, got, lrmoeRemoteError, "rank 3 has not come");
}

START_TEST(late_rank_behind_others) {
  ck_assert_int_eq(testRanksRun(4, chain, testSharedMake()), 0);
}
END_TEST

/* Both receive. */
static int deadlock(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  char byte = 0;
  RANK_OK(self, testJoin(self, self->rank ? longMs : shortMs, &comm));
  lrmoeResult_t got =
      CPU->recv(&byte, 1, lrmoeInt8, 1 - self->rank, comm, NULL);
  return testFailedBy(self, comm, got, lrmoeRemoteError,
                      "rank 0 and rank 1 do not make the same calls");
}

START_TEST(both_receive) {
  ck_assert_int_eq(testRanksRun(2, deadlock, NULL), 0);
}
END_TEST

/* ---- Ranks that go ---- */

enum {
  victimWord = 60,
  timeoutWord
};

static int survive(const struct testRank *self) {
  struct testShared *shared = self->user;
  struct ncclComm *comm = NULL;
  int victim = (int)atomic_load(&shared->words[victimWord]);
  RANK_OK(self,
          testJoin(self, atomic_load(&shared->words[timeoutWord]), &comm));
  lrmoeResult_t got = testLoop(self, comm, &shared->words[self->rank]);
  char text[32];
  snprintf(text, sizeof text, "rank %d has ", victim);
  return testFailedBy(self, comm, got, lrmoeRemoteError, text);
}

/* Lets the ranks run, does `signal` to one at a moment of chance, and gives
 * the number of others that did not end as they should. */
static int strike(int numRanks, int victim, int signalNumber, int64_t moment) {
  struct testShared *shared = testSharedMake();
  int pids[16], numFailed = 0;
  atomic_store(&shared->words[victimWord], victim);
  atomic_store(&shared->words[timeoutWord],
               signalNumber == SIGSTOP ? shortMs : longMs);
  testRanksFork(numRanks, survive, shared, pids);
  while (atomic_load(&shared->words[victim]) < 1 + moment % 7)
    testSleepMs(1);
  usleep((useconds_t)(moment * 977 % 5000));
  kill(pids[victim], signalNumber);
  for (int i = 0; i < numRanks; i++)
    if (i != victim) numFailed += testRankWait(pids[i]) != 0;
  kill(pids[victim], SIGKILL);
  testRankWait(pids[victim]);
  return numFailed;
}

START_TEST(killed_rank) {
  ck_assert_int_eq(strike(4, _i % 4, SIGKILL, _i * 31 + 5), 0);
}
END_TEST

START_TEST(stopped_rank) {
  ck_assert_int_eq(strike(4, _i % 4, SIGSTOP, _i * 17 + 3), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cpu_failure");
  TCase *tests = tcase_create("failure");
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, counts_that_differ);
  tcase_add_test(tests, counts_that_differ_between_threads);
  tcase_add_test(tests, send_without_receive);
  tcase_add_test(tests, late_rank_behind_others);
  tcase_add_test(tests, both_receive);
  tcase_add_loop_test(tests, killed_rank, 0, 10);
  tcase_add_loop_test(tests, stopped_rank, 0, 5);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
