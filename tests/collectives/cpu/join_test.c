/* Joining: who is missing, who is there twice, and who does not belong. */
#include "collectives/cpu/note.h"
#include "collectives/cpu/wait.h"
#include "cpu_ranks.h"
#include "support/suite.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  shortMs = 500
};

/* ---- Missing ranks ---- */

struct absence {
  unsigned missing; /* bits */
  const char *text;
};

static int absent(const struct testRank *self) {
  const struct absence *absence = self->user;
  struct ncclComm *comm = NULL;
  if (absence->missing >> self->rank & 1) return 0;
  RANK_TRUE(self, testJoin(self, shortMs, &comm) == lrmoeRemoteError);
  RANK_TRUE(self, testErrorHas(absence->text) && !comm);
  return 0;
}

START_TEST(missing_ranks) {
  static struct absence absences[] = {
      {1 << 2, "not come within 500 ms: 2"},
      {1 << 3 | 1 << 1, "not come within 500 ms: 1, 3"},
      {1 << 0, "rank 0 has not come"},
  };
  ck_assert_int_eq(testRanksRun(4, absent, &absences[_i]), 0);
}
END_TEST

/* The shortest patience counts for all. */
static int impatient(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  if (self->rank == 2) return 0;
  int64_t timeoutMs = self->rank == 1 ? shortMs : 60000;
  RANK_TRUE(self, testJoin(self, timeoutMs, &comm) == lrmoeRemoteError);
  RANK_TRUE(self, testErrorHas(": 2"));
  return 0;
}

START_TEST(shortest_patience) {
  ck_assert_int_eq(testRanksRun(3, impatient, NULL), 0);
}
END_TEST

/* Rank 2 never comes; rank 0 or 1 is killed while it waits. */
static int bereaved(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  char name[32];
  while (self->rank == 2)
    pause();
  snprintf(name, sizeof name, "rank %d has died", *(const int *)self->user);
  RANK_TRUE(self, testJoin(self, 10000, &comm) == lrmoeRemoteError);
  RANK_TRUE(self, testErrorHas(name));
  return 0;
}

START_TEST(killed_while_joining) {
  int pids[3], victim = _i;
  testRanksFork(3, bereaved, &victim, pids);
  testSleepMs(1000); /* ample for both to come */
  kill(pids[victim], SIGKILL);
  ck_assert_int_eq(testRankWait(pids[1 - victim]), 0);
  testRankWait(pids[victim]);
  kill(pids[2], SIGKILL);
  testRankWait(pids[2]);
}
END_TEST

/* ---- Ranks that disagree ---- */

/* What each rank claims. */
struct claims {
  int ranks[3];
  int numRanks[3];
  const char *text;
  int mayMiss; /* a rank that may come too late to be told why */
};

static int claim(const struct testRank *self) {
  const struct claims *claims = self->user;
  struct ncclComm *comm = NULL;
  lrmoeResult_t result = CPU->commInit(claims->numRanks[self->rank], &self->id,
                                       claims->ranks[self->rank], 1000, &comm);
  int isMissed = self->rank == claims->mayMiss && result == lrmoeRemoteError;
  RANK_TRUE(self, result == lrmoeInvalidUsage || isMissed);
  RANK_TRUE(self, testErrorHas(claims->text) || isMissed);
  return 0;
}

START_TEST(ranks_that_disagree) {
  static struct claims claims[] = {
      {{0, 1, 1}, {3, 3, 3}, "rank 1 has joined twice", -1},
      {{0, 0, 1}, {3, 3, 3}, "rank 0 has joined twice", 2},
      {{0, 1, 2}, {3, 4, 3}, "rank 1 says that there are 4 ranks", 2},
  };
  ck_assert_int_eq(testRanksRun(3, claim, &claims[_i]), 0);
}
END_TEST

/* ---- Strangers ---- */

static int joinAndExchange(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  RANK_OK(self, testJoin(self, 20000, &comm));
  RANK_OK(self, testExchange(self, comm));
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

/* Connects to rank 0's place, as soon as it is there. */
static int intrude(const struct testRank *self) {
  struct sockaddr_un address;
  socklen_t bytes = lrmoeNoteAddress(&self->id, &address);
  int intruder = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  while (connect(intruder, (struct sockaddr *)&address, bytes))
    testSleepMs(1);
  return intruder;
}

static enum lrmoeNoteEnd answerOf(int intruder, struct lrmoeNote *note) {
  int fd = -1;
  enum lrmoeNoteEnd end = lrmoeNoteNone;
  while (end == lrmoeNoteNone) {
    end = lrmoeNoteTake(intruder, note, &fd);
    if (end == lrmoeNoteNone) testSleepMs(1);
  }
  if (fd >= 0) close(fd);
  return end;
}

/* Knows the socket's name but not the id: is challenged, then refused. */
static int guessProof(const struct testRank *self, int intruder) {
  lrmoeUniqueId wrong = self->id;
  wrong.internal[100] ^= 1;
  struct lrmoeNote hello = lrmoeNoteMake(lrmoeNoteHello), answer;
  RANK_TRUE(self, !lrmoeNoteTrySend(intruder, &hello, -1));
  RANK_TRUE(self, answerOf(intruder, &answer) == lrmoeNoteCame);
  RANK_TRUE(self, lrmoeNoteIsSigned(&self->id, &answer));
  struct lrmoeNote join = lrmoeNoteMake(lrmoeNoteJoin);
  join.rank = 1;
  join.numRanks = self->numRanks;
  memcpy(join.nonces, answer.nonces, sizeof join.nonces);
  lrmoeNoteSign(&wrong, &join);
  RANK_TRUE(self, !lrmoeNoteTrySend(intruder, &join, STDERR_FILENO));
  RANK_TRUE(self, answerOf(intruder, &answer) == lrmoeNoteClosed);
  return 0;
}

/* Sends the right proof for another challenge. */
static int replay(const struct testRank *self, int intruder) {
  struct lrmoeNote hello = lrmoeNoteMake(lrmoeNoteHello), answer;
  RANK_TRUE(self, !lrmoeNoteTrySend(intruder, &hello, -1));
  RANK_TRUE(self, answerOf(intruder, &answer) == lrmoeNoteCame);
  struct lrmoeNote join = lrmoeNoteMake(lrmoeNoteJoin);
  join.rank = 1;
  join.numRanks = self->numRanks;
  lrmoeNoteSign(&self->id, &join);
  RANK_TRUE(self, !lrmoeNoteTrySend(intruder, &join, STDERR_FILENO));
  RANK_TRUE(self, answerOf(intruder, &answer) == lrmoeNoteClosed);
  return 0;
}

/* Rank 1 plays the strangers, then joins as itself. */
static int besieged(const struct testRank *self) {
  enum {
    numSilent = 80
  };
  int silent[numSilent];
  if (self->rank != 1) return joinAndExchange(self);
  for (int i = 0; i < numSilent; i++)
    silent[i] = intrude(self);
  int guesser = intrude(self), replayer = intrude(self),
      babbler = intrude(self);
  if (guessProof(self, guesser) || replay(self, replayer)) return 1;
  struct lrmoeNote answer;
  RANK_TRUE(self, send(babbler, "hello", 5, MSG_NOSIGNAL) == 5);
  RANK_TRUE(self, answerOf(babbler, &answer) == lrmoeNoteClosed);
  int status = joinAndExchange(self);
  for (int i = 0; i < numSilent; i++)
    close(silent[i]);
  close(guesser);
  close(replayer);
  close(babbler);
  return status;
}

START_TEST(strangers_are_refused) {
  ck_assert_int_eq(testRanksRun(3, besieged, NULL), 0);
}
END_TEST

/* Who holds rank 0's place without the id is not believed. */
static int deceived(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  struct sockaddr_un address;
  struct lrmoeNote note;
  if (self->rank == 1) {
    RANK_TRUE(self, testJoin(self, 5000, &comm) == lrmoeRemoteError);
    RANK_TRUE(self, testErrorHas("does not know the id"));
    return 0;
  }
  socklen_t bytes = lrmoeNoteAddress(&self->id, &address);
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  RANK_TRUE(self, !bind(listener, (struct sockaddr *)&address, bytes));
  RANK_TRUE(self, !listen(listener, 1));
  int victim = accept(listener, NULL, NULL);
  RANK_TRUE(self, answerOf(victim, &note) == lrmoeNoteCame);
  note.kind = lrmoeNoteChallenge; /* with its nonce, without a proof */
  RANK_TRUE(self, !lrmoeNoteTrySend(victim, &note, -1));
  answerOf(victim, &note);
  close(victim);
  close(listener);
  return 0;
}

START_TEST(false_rank_0_is_refused) {
  ck_assert_int_eq(testRanksRun(2, deceived, NULL), 0);
}
END_TEST

/* Another user who has the id. */
static int otherUser(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  if (self->rank == 1 && setuid(65534)) return 2;
  RANK_TRUE(self, testJoin(self, shortMs, &comm) == lrmoeRemoteError);
  return 0;
}

START_TEST(other_user_is_refused) {
  int pids[2];
  if (geteuid() != 0) return; /* only root can become another user */
  testRanksFork(2, otherUser, NULL, pids);
  ck_assert_int_eq(testRankWait(pids[0]), 0);
  ck_assert_int_eq(testRankWait(pids[1]), 0);
}
END_TEST

/* ---- Many communicators ---- */

static int rejoin(const struct testRank *self) {
  int numFds = -1;
  for (int i = 0; i < 5; i++) {
    struct ncclComm *comm = NULL;
    testSleepMs(self->rank == i % self->numRanks ? 30 : 0);
    RANK_OK(self, testJoin(self, 0, &comm)); /* the id may serve again */
    RANK_OK(self, testExchange(self, comm));
    RANK_OK(self, CPU->commDestroy(comm));
    if (i == 0) numFds = testCountFds();
  }
#ifndef TEST_RANKS_ARE_THREADS /* where the other ranks' files count too */
  RANK_TRUE(self, testCountFds() == numFds);
#else
  (void)numFds;
#endif
  return 0;
}

START_TEST(joining_again) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], rejoin, NULL), 0);
}
END_TEST

enum {
  numLines = 4
};

struct line {
  const struct testRank *process;
  const lrmoeUniqueId *ids;
};

/* Thread i of every process belongs to communicator i. */
static int lineThread(const struct testRank *thread) {
  const struct line *line = thread->user;
  struct testRank self = *line->process;
  self.id = line->ids[thread->rank];
  for (int i = 0; i < 3; i++)
    if (joinAndExchange(&self)) return 1;
  return 0;
}

static int lineProcess(const struct testRank *self) {
  struct line line = {self, self->user};
  return testRanksThreads(numLines, lineThread, &line);
}

START_TEST(several_at_once) {
  lrmoeUniqueId ids[numLines];
  for (int i = 0; i < numLines; i++)
    ASSERT_OK(CPU->getUniqueId(&ids[i]));
  ck_assert_int_eq(testRanksRun(3, lineProcess, ids), 0);
}
END_TEST

START_TEST(ids_differ) {
  lrmoeUniqueId a, b;
  ASSERT_OK(CPU->getUniqueId(&a));
  ASSERT_OK(CPU->getUniqueId(&b));
  ck_assert_int_ne(memcmp(&a, &b, sizeof a), 0);
  ck_assert_int_ne(memcmp(a.internal, a.internal + 16, 16), 0);
}
END_TEST

START_TEST(wrong_arguments) {
  struct ncclComm *comm = NULL;
  lrmoeUniqueId id;
  ASSERT_OK(CPU->getUniqueId(&id));
  ASSERT_RESULT(lrmoeCpuCommInit(0, &id, 0, 0, &comm), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeCpuCommInit(2, &id, 2, 0, &comm), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeCpuCommInit(2, &id, -1, 0, &comm), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeCpuCommInit(2, &id, 0, -1, &comm), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeCpuCommInit(2, NULL, 0, 0, &comm), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeCpuCommInit(2, &id, 0, 0, NULL), lrmoeInvalidArgument);
  ck_assert_ptr_null(comm);
}
END_TEST

/* ---- fork() ---- */

/* A child is refused by its parent's communicator, cannot touch its heap, and
 * can make its own. */
static int childOf(struct ncclComm *comm) {
  char byte = 1;
  lrmoeResult_t error = lrmoeSuccess;
  void *block = NULL;
  if (CPU->allGather(&byte, &byte, 1, lrmoeInt8, comm, NULL) !=
          lrmoeInvalidUsage ||
      !testErrorHas("fork") || CPU->commDestroy(comm) != lrmoeInvalidUsage ||
      CPU->commAbort(comm) != lrmoeInvalidUsage ||
      CPU->commGetAsyncError(comm, &error) != lrmoeInvalidUsage)
    return 1;
  if (CPU->memAlloc(&block, 100000) != lrmoeSuccess) return 2;
  memset(block, 0xee, 100000);
  struct testRank self = {.rank = 0, .numRanks = 1};
  if (CPU->getUniqueId(&self.id) != lrmoeSuccess) return 3;
  return joinAndExchange(&self) ? 4 : 0;
}

START_TEST(child_of_fork) {
  struct testRank self = {.rank = 0, .numRanks = 1};
  struct ncclComm *comm = NULL;
  unsigned char *block = NULL;
  ASSERT_OK(CPU->getUniqueId(&self.id));
  ASSERT_OK(testJoin(&self, 0, &comm));
  ASSERT_OK(CPU->memAlloc((void **)&block, 100000));
  memset(block, 0x11, 100000);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) _exit(childOf(comm));
  ck_assert_int_eq(testRankWait(child), 0);
  for (int i = 0; i < 100000; i++)
    ck_assert_int_eq(block[i], 0x11);
  ASSERT_OK(testExchange(&self, comm));
  ASSERT_OK(CPU->commDestroy(comm));
  ASSERT_OK(CPU->memFree(block));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cpu_join");
  TCase *tests = tcase_create("join");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, missing_ranks, 0, 3);
  tcase_add_test(tests, shortest_patience);
  tcase_add_loop_test(tests, killed_while_joining, 0, 2);
  tcase_add_loop_test(tests, ranks_that_disagree, 0, 3);
  tcase_add_test(tests, strangers_are_refused);
  tcase_add_test(tests, false_rank_0_is_refused);
  tcase_add_test(tests, other_user_is_refused);
  tcase_add_loop_test(tests, joining_again, 0, numRankCounts);
  tcase_add_test(tests, several_at_once);
  tcase_add_test(tests, ids_differ);
  tcase_add_test(tests, wrong_arguments);
  tcase_add_test(tests, child_of_fork);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
