/* Ranks that end, leave, abort and give up: what the others are told, and what
 * stays behind. */
#include "collectives/cpu/note.h"
#include "cpu_ranks.h"
#include "support/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  shortMs = 400,
  longMs = 20000
};

/* A process that ends without good-bye, though not by a signal. */
static int quit(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  char byte = 0;
  RANK_OK(self, testJoin(self, longMs, &comm));
  RANK_OK(self, testExchange(self, comm));
  if (self->rank == 1) _exit(0);
  lrmoeResult_t got = CPU->recv(&byte, 1, lrmoeInt8, 1, comm, NULL);
  return testFailedBy(self, comm, got, lrmoeRemoteError, "rank 1 has died");
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
  return testFailedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
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
  char received = 0;
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
  RANK_OK(self, CPU->recv(&received, 1, lrmoeInt8, other, comm, NULL));
  RANK_OK(self, CPU->groupEnd());
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(ranks_that_leave_late) {
  ck_assert_int_eq(testRanksRun(3, lingering, testSharedMake()), 0);
}
END_TEST

/* Ranks 0 and 1 are threads of one process.  When 0 has left, 1 still counts
 * as alive, though 0 has let go of the shared file. */
static int halfGone(const struct testRank *self, struct testShared *shared) {
  struct ncclComm *comm = NULL;
  char byte = 0;
  RANK_OK(self, testJoin(self, self->rank ? longMs : shortMs, &comm));
  if (self->rank == 0) {
    RANK_TRUE(self, CPU->commDestroy(comm) == lrmoeRemoteError);
    atomic_store(&shared->words[0], 1);
    return 0;
  }
  while (!atomic_load(&shared->words[0]))
    testSleepMs(1);
  if (self->rank == 1) {
    testSleepMs(300);
    RANK_OK(self, CPU->send(&byte, 1, lrmoeInt8, 2, comm, NULL));
  }
  if (self->rank == 2)
    RANK_OK(self, CPU->recv(&byte, 1, lrmoeInt8, 1, comm, NULL));
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

struct halfProcess {
  const struct testRank *process;
};

static int halfThread(const struct testRank *thread) {
  const struct halfProcess *half = thread->user;
  struct testRank self = *half->process;
  self.rank = 2 * half->process->rank + thread->rank;
  self.numRanks = 4;
  return halfGone(&self, half->process->user);
}

static int halfProcess(const struct testRank *self) {
  struct halfProcess half = {self};
  return testRanksThreads(2, halfThread, &half);
}

START_TEST(thread_that_leaves_early) {
  int pids[2];
  testRanksFork(2, halfProcess, testSharedMake(), pids);
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(testRankWait(pids[i]), 0);
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
  return testFailedBy(self, comm, got, lrmoeRemoteError, "rank 0 has aborted");
}

START_TEST(abort_from_a_thread) {
  ck_assert_int_eq(testRanksRun(3, aborted, NULL), 0);
}
END_TEST

/* Threads stream out of each other's memory while one aborts.  After the call
 * nobody reads a buffer of its owner, who unmaps it at once: a late reader
 * would get SIGSEGV. */
static int abortedStream(const struct testRank *self) {
  const size_t bytes = 4 << 20;
  struct ncclComm *comm = NULL;
  pthread_t thread;
  size_t room = bytes * (size_t)self->numRanks;
  RANK_OK(self, testJoin(self, longMs, &comm));
  char *in = testBuffer(room, 0);
  char *out = mmap(NULL, room, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  RANK_TRUE(self, out != MAP_FAILED);
  if (self->rank == 0)
    RANK_TRUE(self, !pthread_create(&thread, NULL, abortSoon, comm));
  lrmoeResult_t result = lrmoeSuccess;
  while (result == lrmoeSuccess)
    result = CPU->allToAll(out, in, bytes, lrmoeInt8, comm, NULL);
  munmap(out, room);
  RANK_TRUE(self, result == lrmoeRemoteError);
  if (self->rank == 0) pthread_join(thread, NULL);
  RANK_OK(self, CPU->commDestroy(comm));
  testBufferFree(in, 0);
  return 0;
}

START_TEST(abort_between_threads) {
  for (int i = 0; i < 10; i++)
    ck_assert_int_eq(testRanksThreads(4, abortedStream, NULL), 0);
}
END_TEST

/* A rank that cannot go on says why. */
static int broke(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  RANK_OK(self, testJoin(self, longMs, &comm));
  if (self->rank == 1) {
    RANK_TRUE(self, LRMOE_FAIL(lrmoeOutOfMemory, "no memory for 77 rows"));
    CPU->commBreak(comm);
    return testFailedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
                        "no memory for 77 rows");
  }
  return testFailedBy(self, comm, testExchange(self, comm), lrmoeRemoteError,
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

/* Joins but for the last rank, which never does, and waits for it. */
static int waitToJoin(const struct testRank *self) {
  struct testShared *shared = self->user;
  struct ncclComm *comm = NULL;
  while (self->rank == 2)
    pause(); /* until it is killed */
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
  Suite *suite = suite_create("cpu_leaving");
  TCase *tests = tcase_create("leaving");
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, rank_that_ends);
  tcase_add_test(tests, last_words_arrive);
  tcase_add_test(tests, rank_that_leaves);
  tcase_add_test(tests, ranks_that_leave_late);
  tcase_add_test(tests, thread_that_leaves_early);
  tcase_add_test(tests, abort_from_a_thread);
  tcase_add_test(tests, abort_between_threads);
  tcase_add_test(tests, rank_that_gives_up);
  tcase_add_test(tests, nothing_is_left);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
