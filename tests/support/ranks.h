/* Ranks for tests: forked processes, or threads under ThreadSanitizer (which
 * sees nothing across processes). */
#ifndef LRMOE_TESTS_SUPPORT_RANKS_H
#define LRMOE_TESTS_SUPPORT_RANKS_H

#include "lrmoe.h"

#if defined(__SANITIZE_THREAD__)
#define TEST_RANKS_ARE_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_RANKS_ARE_THREADS 1
#endif
#endif

struct testRank {
  int rank;
  int numRanks;
  lrmoeUniqueId id;
  void *user; /* shared with the parent only where it is mmap'ed shared */
};

/* What a rank does; 0 is success.  It must not use Check's assertions (a
 * forked rank is not the test process): print to stderr, return non-zero. */
typedef int (*testRankBody)(const struct testRank *rank);

/* Says what failed, with the library's last error, and leaves the body. */
#define RANK_OK(self, call)                                      \
  do {                                                           \
    lrmoeResult_t got_ = (call);                                 \
    if (got_ != lrmoeSuccess) {                                  \
      testRankComplain((self), __FILE__, __LINE__, #call, got_); \
      return 1;                                                  \
    }                                                            \
  } while (0)

#define RANK_TRUE(self, condition)                                            \
  do {                                                                        \
    if (!(condition)) {                                                       \
      testRankComplain((self), __FILE__, __LINE__, #condition, lrmoeSuccess); \
      return 1;                                                               \
    }                                                                         \
  } while (0)

void testRankComplain(const struct testRank *self, const char *file, int line,
                      const char *what, lrmoeResult_t result);

/* Set before ranks start: complaints are expected and not printed. */
extern int testRankQuiet;

/* Runs body on numRanks ranks and returns how many failed (non-zero return,
 * signal).  testRanksRun forks, or makes threads in a TSan build;
 * testRanksFork always forks and gives the pids, for tests that kill. */
int testRanksRun(int numRanks, testRankBody body, void *user);
int testRanksThreads(int numRanks, testRankBody body, void *user);
void testRanksFork(int numRanks, testRankBody body, void *user, int *pids);

/* Waits for a forked rank: its exit status, or 128 + signal. */
int testRankWait(int pid);

#endif
