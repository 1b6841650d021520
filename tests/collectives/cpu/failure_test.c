/* Dead, stopped, late and mismatched ranks: every other rank gets an error
 * that names the right one, at this call and at every later one. */
#include "collectives/cpu/note.h"
#include "cpu_ranks.h"
#include "support/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  shortMs = 400,
  longMs = 20000
};

/* The call failed with `result` and a text that has `text` in it, and so does
 * every call after it. */
static int failedBy(const struct testRank *self, struct ncclComm *comm,
                    lrmoeResult_t got, lrmoeResult_t result, const char *text) {
  lrmoeResult_t state = lrmoeSuccess;
  char first[512];
  RANK_TRUE(self, got == result);
  if (!testErrorHas(text)) fprintf(stderr, "%s\n", lrmoeGetLastError());
  RANK_TRUE(self, testErrorHas(text));
  snprintf(first, sizeof first, "%s", lrmoeGetLastError());
  RANK_TRUE(self, testExchange(self, comm) == result && testErrorHas(first));
  RANK_OK(self, CPU->commGetAsyncError(comm, &state));
  RANK_TRUE(self, state == result && testErrorHas(first));
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

/* ---- Calls that do not match ---- */

static int mismatch(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  float data[12] = {0};
  lrmoeResult_t got = lrmoeSuccess, result = lrmoeInvalidUsage;
  RANK_OK(self, testJoin(self, longMs, &comm));
  if (self->rank == 0) got = CPU->send(data, 10, lrmoeFloat32, 1, comm, NULL);
  if (self->rank == 1) got = CPU->recv(data, 12, lrmoeFloat32, 0, comm, NULL);
  if (self->rank == 2) {
    got = CPU->recv(data, 1, lrmoeFloat32, 0, comm, NULL);
    result = lrmoeRemoteError;
  }
  return failedBy(self, comm, got, result,
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
    return failedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
                    "rank 1 has not come to the call of rank 0");
  }
  lrmoeResult_t got = CPU->send(&byte, 1, lrmoeInt8, 1, comm, NULL);
  atomic_store(&shared->words[0], 1);
  return failedBy(self, comm, got, lrmoeRemoteError,
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
    return failedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
                    "rank 3 has not come");
  }
  lrmoeResult_t got =
      CPU->recv(&byte, 1, lrmoeInt8, self->rank + 1, comm, NULL);
  atomic_store(&shared->words[0], 1);
  return failedBy(self, comm, got, lrmoeRemoteError, "rank 3 has not come");
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
  return failedBy(self, comm, got, lrmoeRemoteError,
                  "rank 0 and rank 1 do not make the same calls");
}

START_TEST(both_receive) {
  ck_assert_int_eq(testRanksRun(2, deadlock, NULL), 0);
}
END_TEST

/* ---- Ranks that go ---- */

struct buffers {
  char *memory[2]; /* heap, ordinary */
  char *in;
  size_t bytes; /* per peer */
};

/* All-to-alls of changing size out of both memories, until one fails. */
static lrmoeResult_t loop(const struct testRank *self, struct ncclComm *comm,
                          struct buffers *b) {
  for (int turn = 0;; turn++) {
    size_t bytes = b->bytes >> turn % 5 * 4;
    LRMOE_CHECK(CPU->allToAll(b->memory[turn % 2], b->in, bytes, lrmoeInt8,
                              comm, NULL));
    atomic_fetch_add(&((struct testShared *)self->user)->words[self->rank], 1);
  }
}

static lrmoeResult_t loopUntilError(const struct testRank *self,
                                    struct ncclComm *comm) {
  struct buffers b = {{NULL}, NULL, 1 << 20};
  size_t room = b.bytes * (size_t)self->numRanks;
  b.memory[0] = testBuffer(room, 1);
  b.memory[1] = testBuffer(room, 0);
  b.in = testBuffer(room, 0);
  memset(b.memory[1], 1, room);
  lrmoeResult_t result = loop(self, comm, &b);
  testBufferFree(b.memory[0], 1);
  testBufferFree(b.memory[1], 0);
  testBufferFree(b.in, 0);
  return result;
}

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
  lrmoeResult_t got = loopUntilError(self, comm);
  char text[32];
  snprintf(text, sizeof text, "rank %d has ", victim);
  return failedBy(self, comm, got, lrmoeRemoteError, text);
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

/* A process that ends without good-bye, though not by a signal. */
static int quit(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  char byte = 0;
  RANK_OK(self, testJoin(self, longMs, &comm));
  RANK_OK(self, testExchange(self, comm));
  if (self->rank == 1) _exit(0);
  lrmoeResult_t got = CPU->recv(&byte, 1, lrmoeInt8, 1, comm, NULL);
  return failedBy(self, comm, got, lrmoeRemoteError, "rank 1 has died");
}

START_TEST(rank_that_ends) {
  int pids[3];
  testRanksFork(3, quit, NULL, pids);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(testRankWait(pids[i]), 0);
}
END_TEST

/* The last message of a rank that ends at once still arrives. */
static int lastWords(const struct testRank *self) {
  enum {
    bytes = 3000000
  };
  struct ncclComm *comm = NULL;
  char *data = testBuffer(bytes, self->rank & 1);
  RANK_OK(self, testJoin(self, longMs, &comm));
  if (self->rank == 0) {
    RANK_OK(self, CPU->recv(data, bytes, lrmoeInt8, 1, comm, NULL));
    RANK_TRUE(self, testMatches(data, bytes, 1, 0, 9));
    RANK_TRUE(self, testExchange(self, comm) == lrmoeRemoteError);
    _exit(0);
  }
  testFill(data, bytes, 1, 0, 9);
  RANK_OK(self, CPU->send(data, bytes, lrmoeInt8, 0, comm, NULL));
  _exit(0);
}

START_TEST(last_words_arrive) {
  int pids[2];
  testRanksFork(2, lastWords, NULL, pids);
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(testRankWait(pids[i]), 0);
}
END_TEST

/* Rank 1 destroys its communicator while the others still call. */
static int deserted(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  RANK_OK(self, testJoin(self, longMs, &comm));
  if (self->rank == 1) {
    RANK_TRUE(self, CPU->commDestroy(comm) == lrmoeRemoteError);
    RANK_TRUE(self, testErrorHas("rank 1 has destroyed its communicator"));
    return 0;
  }
  return failedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
                  "rank 1 has destroyed its communicator");
}

START_TEST(rank_that_leaves) {
  ck_assert_int_eq(testRanksRun(3, deserted, NULL), 0);
}
END_TEST

/* Rank 0 does not wait for ever for the others to leave; they can go on. */
static int lingering(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  struct testShared *shared = self->user;
  char byte = 0;
  RANK_OK(self, testJoin(self, shortMs, &comm));
  if (self->rank == 0) {
    RANK_TRUE(self, CPU->commDestroy(comm) == lrmoeRemoteError);
    RANK_TRUE(self, testErrorHas("has not destroyed its communicator"));
    atomic_store(&shared->words[0], 1);
    return 0;
  }
  while (!atomic_load(&shared->words[0]))
    testSleepMs(1);
  int other = 3 - self->rank;
  RANK_OK(self, CPU->groupStart());
  RANK_OK(self, CPU->send(&byte, 1, lrmoeInt8, other, comm, NULL));
  RANK_OK(self, CPU->recv(&byte, 1, lrmoeInt8, other, comm, NULL));
  RANK_OK(self, CPU->groupEnd());
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(ranks_that_leave_late) {
  ck_assert_int_eq(testRanksRun(3, lingering, testSharedMake()), 0);
}
END_TEST

/* ---- Ranks that give up ---- */

static void *abortSoon(void *comm) {
  testSleepMs(50);
  CPU->commAbort(comm);
  return NULL;
}

/* Rank 0 sits in a call; another thread of it aborts. */
static int aborted(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  pthread_t thread;
  char byte = 0;
  RANK_OK(self, testJoin(self, longMs, &comm));
  if (self->rank == 0)
    RANK_TRUE(self, !pthread_create(&thread, NULL, abortSoon, comm));
  int peer = (self->rank + 1) % self->numRanks;
  lrmoeResult_t got = CPU->recv(&byte, 1, lrmoeInt8, peer, comm, NULL);
  if (self->rank == 0) pthread_join(thread, NULL);
  return failedBy(self, comm, got, lrmoeRemoteError, "rank 0 has aborted");
}

START_TEST(abort_from_a_thread) {
  ck_assert_int_eq(testRanksRun(3, aborted, NULL), 0);
}
END_TEST

/* Threads stream out of each other's memory while one aborts: after the call
 * nobody reads a buffer that its owner has freed (ASan would see it). */
static int abortedStream(const struct testRank *self) {
  struct testShared *shared = self->user;
  struct ncclComm *comm = NULL;
  RANK_OK(self, testJoin(self, longMs, &comm));
  pthread_t thread;
  if (self->rank == 0)
    RANK_TRUE(self, !pthread_create(&thread, NULL, abortSoon, comm));
  (void)shared;
  RANK_TRUE(self, loopUntilError(self, comm) == lrmoeRemoteError);
  if (self->rank == 0) pthread_join(thread, NULL);
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(abort_between_threads) {
  for (int i = 0; i < 5; i++)
    ck_assert_int_eq(testRanksThreads(4, abortedStream, testSharedMake()), 0);
}
END_TEST

/* A rank that cannot go on says why. */
static int broke(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  RANK_OK(self, testJoin(self, longMs, &comm));
  if (self->rank == 1) {
    RANK_TRUE(self, LRMOE_FAIL(lrmoeOutOfMemory, "no memory for 77 rows"));
    lrmoeCpuCommBreak(comm);
    return failedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
                    "no memory for 77 rows");
  }
  return failedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
                  "rank 1 has failed: no memory for 77 rows");
}

START_TEST(rank_that_gives_up) {
  ck_assert_int_eq(testRanksRun(3, broke, NULL), 0);
}
END_TEST

/* ---- Leftovers ---- */

static int hasLine(const char *path, const char *text) {
  char line[512];
  int found = 0;
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  while (fgets(line, sizeof line, file))
    found |= strstr(line, text) != NULL;
  fclose(file);
  return found;
}

/* Joins but for the last rank, and waits for it. */
static int waitToJoin(const struct testRank *self) {
  struct testShared *shared = self->user;
  struct ncclComm *comm = NULL;
  if (self->rank == 0) memcpy((void *)&shared->words[0], &self->id, 128);
  atomic_store(&shared->words[40 + self->rank], 1);
  testJoin(self, longMs, &comm);
  return 0;
}

/* Killed while they join, ranks leave no socket behind; nothing is ever in
 * /dev/shm. */
START_TEST(nothing_is_left) {
  struct testShared *shared = testSharedMake();
  struct sockaddr_un address;
  lrmoeUniqueId id;
  int pids[3];
  testRanksFork(3, waitToJoin, shared, pids);
  kill(pids[2], SIGKILL);
  while (!atomic_load(&shared->words[40]) || !atomic_load(&shared->words[41]))
    testSleepMs(1);
  memcpy(&id, (void *)&shared->words[0], sizeof id);
  lrmoeNoteAddress(&id, &address);
  while (!hasLine("/proc/net/unix", address.sun_path + 1))
    testSleepMs(1);
  kill(pids[0], SIGKILL);
  kill(pids[1], SIGKILL);
  for (int i = 0; i < 3; i++)
    testRankWait(pids[i]);
  ck_assert(!hasLine("/proc/net/unix", address.sun_path + 1));
  ck_assert_int_ne(system("ls /dev/shm 2>/dev/null | grep -q lrmoe"), 0);
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
  tcase_add_test(tests, rank_that_ends);
  tcase_add_test(tests, last_words_arrive);
  tcase_add_test(tests, rank_that_leaves);
  tcase_add_test(tests, ranks_that_leave_late);
  tcase_add_test(tests, abort_from_a_thread);
  tcase_add_test(tests, abort_between_threads);
  tcase_add_test(tests, rank_that_gives_up);
  tcase_add_test(tests, nothing_is_left);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
