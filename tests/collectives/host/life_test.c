/* Worker threads: when they start, what if they do not, signals and fork(). */
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The linker sends the library's calls here (--wrap), by these names.
 * NOLINTBEGIN(bugprone-reserved-identifier) */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument);

static int numStarts;
static int failAt; /* the n-th start fails; 0: none */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument) {
  numStarts++;
  if (numStarts == failAt) return EAGAIN;
  return __real_pthread_create(thread, attributes, body, argument);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static const struct fixtureShape one = {1, 1, {1}};

static lrmoeHostOptimizer_t create(int32_t numThreads) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&one);
  config.numThreads = numThreads;
  return fixtureRandom(&config);
}

static lrmoeResult_t pushOne(lrmoeHostOptimizer_t optimizer) {
  const float gradient = 1;
  return lrmoeHostOptimizerPush(optimizer, 0, 0, &gradient, 1);
}

/* All that does not need them leaves them unstarted. */
START_TEST(workersStartWhenNeeded) {
  lrmoeHostOptimizer_t optimizer = create(3);
  int32_t isFinite = 0;
  size_t bytes;
  char *saved = fixtureSave(optimizer, &bytes);
  ASSERT_OK(lrmoeHostOptimizerLoad(optimizer, saved, bytes));
  ASSERT_OK(lrmoeHostOptimizerFlush(optimizer));
  ASSERT_OK(lrmoeHostOptimizerDiscard(optimizer));
  ASSERT_OK(lrmoeHostOptimizerCheck(optimizer, 1, &isFinite));
  free(fixturePull(optimizer, lrmoeBfloat16));
  free(saved);
  ck_assert_int_eq(numStarts, 0);
  if (_i)
    fixtureStep(optimizer, 0.1, 1);
  else
    ASSERT_OK(pushOne(optimizer));
  ck_assert_int_eq(numStarts, 3);
  ASSERT_OK(pushOne(optimizer));
  ck_assert_int_eq(numStarts, 3);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

/* Those that had started are ended; the next call tries again. */
START_TEST(failedStartIsAnErrorOnce) {
  lrmoeHostOptimizer_t optimizer = create(3);
  int32_t isSkipped = -1;
  failAt = _i + 1;
  ASSERT_RESULT(pushOne(optimizer), lrmoeSystemError);
  numStarts = 0;
  ASSERT_RESULT(lrmoeHostOptimizerStep(optimizer, 0.1, 1, &isSkipped),
                lrmoeSystemError);
  ck_assert_int_eq(isSkipped, -1);
  failAt = 0;
  ck_assert_int_eq(fixtureStats(optimizer).pushes, 0);
  ck_assert_int_eq(fixtureStats(optimizer).steps, 0);
  ASSERT_OK(pushOne(optimizer));
  fixtureStep(optimizer, 0.1, 1);
  ck_assert_float_eq(optimizer->state.first[0], 0.1f);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

/* Sent to the process and blocked in this thread, a signal stays pending
 * unless a worker takes it (and, not handled, it would end the process). */
START_TEST(workersTakeNoSignals) {
  lrmoeHostOptimizer_t optimizer = create(2);
  ASSERT_OK(pushOne(optimizer));
  ASSERT_OK(lrmoeHostOptimizerFlush(optimizer));
  sigset_t set, before, after;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  ck_assert_int_eq(sigismember(&before, SIGUSR1), 0); /* restored by start */
  kill(getpid(), SIGUSR1);
  usleep(20000);
  int signal = 0;
  sigpending(&after);
  ck_assert_int_eq(sigismember(&after, SIGUSR1), 1);
  sigwait(&set, &signal);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

/* The exit status of body in a child. */
static int inChild(int (*body)(lrmoeHostOptimizer_t),
                   lrmoeHostOptimizer_t optimizer) {
  fflush(NULL);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (!pid) _exit(body(optimizer));
  int status = 0;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int useIt(lrmoeHostOptimizer_t optimizer) {
  int32_t isSkipped = -1;
  if (pushOne(optimizer) != lrmoeSuccess) return 1;
  if (lrmoeHostOptimizerStep(optimizer, 0.1, 1, &isSkipped)) return 2;
  if (isSkipped || optimizer->numSteps != 1) return 3;
  return lrmoeHostOptimizerDestroy(optimizer) ? 4 : 0;
}

static int findItUnusable(lrmoeHostOptimizer_t optimizer) {
  int32_t flag = -1;
  float weight;
  size_t bytes = 0;
  const float gradient = 1;
  lrmoeHostOptimizerStats_t stats = LRMOE_HOST_OPTIMIZER_STATS_INITIALIZER;
  const lrmoeResult_t results[] = {
      pushOne(optimizer),
      lrmoeHostOptimizerTryPush(optimizer, 0, 0, &gradient, 1),
      lrmoeHostOptimizerFlush(optimizer),
      lrmoeHostOptimizerCheck(optimizer, 1, &flag),
      lrmoeHostOptimizerDiscard(optimizer),
      lrmoeHostOptimizerStep(optimizer, 0.1, 1, &flag),
      lrmoeHostOptimizerPull(optimizer, 0, 0, lrmoeFloat32, &weight),
      lrmoeHostOptimizerSave(optimizer, NULL, &bytes),
      lrmoeHostOptimizerLoad(optimizer, &weight, 1),
      lrmoeHostOptimizerGetStats(optimizer, &stats)};
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    if (results[i] != lrmoeInvalidUsage) return 1 + (int)i;
  return lrmoeHostOptimizerDestroy(optimizer) ? 100 : 0;
}

START_TEST(childUsesWhatWasNotStarted) {
  lrmoeHostOptimizer_t optimizer = create(2);
  ck_assert_int_eq(inChild(useIt, optimizer), 0);
  ck_assert_int_eq(useIt(optimizer), 0); /* the parent's own copy */
}
END_TEST

START_TEST(childMayOnlyDestroyWhatWasStarted) {
  lrmoeHostOptimizer_t optimizer = create(2);
  ASSERT_OK(pushOne(optimizer));
  /* As if a worker held the lock at that moment: the child's copy of it will
   * never be free. */
  pthread_mutex_lock(&optimizer->team.lock);
  int status = inChild(findItUnusable, optimizer);
  pthread_mutex_unlock(&optimizer->team.lock);
  ck_assert_int_eq(status, 0);
  fixtureStep(optimizer, 0.1, 1); /* the parent goes on */
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("host life");
  TCase *tests = tcase_create("life");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, workersStartWhenNeeded, 0, 2);
  tcase_add_loop_test(tests, failedStartIsAnErrorOnce, 0, 3);
  tcase_add_test(tests, workersTakeNoSignals);
  tcase_add_test(tests, childUsesWhatWasNotStarted);
  tcase_add_test(tests, childMayOnlyDestroyWhatWasStarted);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
