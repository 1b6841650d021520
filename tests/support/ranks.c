/* Ranks for tests: see ranks.h. */
#include "support/ranks.h"

#include <check.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int testRankQuiet;

void testRankComplain(const struct testRank *self, const char *file, int line,
                      const char *what, lrmoeResult_t result) {
  if (testRankQuiet) return;
  fprintf(stderr, "%s:%d: rank %d of %d: %s", file, line, self->rank,
          self->numRanks, what);
  if (result != lrmoeSuccess)
    fprintf(stderr, ": %s: %s", lrmoeGetErrorString(result),
            lrmoeGetLastError());
  fputc('\n', stderr);
}

/* A forked rank inherits Check's handlers, which would end the whole group. */
static void resetSignals(void) {
  static const int signals[] = {SIGTERM, SIGINT, SIGALRM, SIGHUP};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    signal(signals[i], SIG_DFL);
}

void testRanksFork(int numRanks, testRankBody body, void *user, int *pids) {
  lrmoeUniqueId id;
  ck_assert_int_eq(lrmoeGetUniqueId(&id), lrmoeSuccess);
  fflush(NULL);
  for (int i = 0; i < numRanks; i++) {
    pids[i] = fork();
    ck_assert_int_ge(pids[i], 0);
    if (pids[i]) continue;
    resetSignals();
    struct testRank self = {i, numRanks, id, user};
    exit(body(&self)); /* exit, so that LeakSanitizer runs */
  }
}

int testRankWait(int pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

struct threadRank {
  struct testRank self;
  testRankBody body;
  pthread_t thread;
  int status;
};

/* Of the emulated CUDA runtime, where the program has it. */
int cudaSetDevice(int device) __attribute__((weak));
int cudaGetDeviceCount(int *count) __attribute__((weak));

/* A rank that is a thread has a device of its own, as one that is a process
 * would; with more ranks than devices they share, which suites on the CPU do
 * not notice. */
static int chooseDevice(int rank) {
  int count = 0;
  if (!cudaSetDevice || !cudaGetDeviceCount) return 0;
  return cudaGetDeviceCount(&count) || cudaSetDevice(rank % count);
}

static void *threadMain(void *argument) {
  struct threadRank *rank = argument;
  rank->status = chooseDevice(rank->self.rank);
  if (!rank->status) rank->status = rank->body(&rank->self);
  return NULL;
}

int testRanksThreads(int numRanks, testRankBody body, void *user) {
  lrmoeUniqueId id;
  ck_assert_int_eq(lrmoeGetUniqueId(&id), lrmoeSuccess);
  struct threadRank *ranks = calloc((size_t)numRanks, sizeof *ranks);
  ck_assert_ptr_nonnull(ranks);
  for (int i = 0; i < numRanks; i++) {
    ranks[i].self = (struct testRank){i, numRanks, id, user};
    ranks[i].body = body;
    ck_assert_int_eq(
        pthread_create(&ranks[i].thread, NULL, threadMain, &ranks[i]), 0);
  }
  int numFailed = 0;
  for (int i = 0; i < numRanks; i++) {
    pthread_join(ranks[i].thread, NULL);
    numFailed += ranks[i].status != 0;
  }
  free(ranks);
  return numFailed;
}

int testRanksRun(int numRanks, testRankBody body, void *user) {
#ifdef TEST_RANKS_ARE_THREADS
  return testRanksThreads(numRanks, body, user);
#else
  int *pids = calloc((size_t)numRanks, sizeof *pids);
  ck_assert_ptr_nonnull(pids);
  testRanksFork(numRanks, body, user, pids);
  int numFailed = 0;
  for (int i = 0; i < numRanks; i++)
    numFailed += testRankWait(pids[i]) != 0;
  free(pids);
  return numFailed;
#endif
}
