/* kill -9 at moments of chance: what is resumed is the uninterrupted run, to
 * the last bit.  Five times; LRMOE_TEST_CASES says how often otherwise, and
 * LRMOE_TEST_SEED with which moments. */
#include "curve.h"
#include "support/program.h"
#include "support/suite.h"
#include "tools/common/stats.h"
#include "tools/common/workload.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  maxWords = 64
};

static int64_t fromEnvironment(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text ? atoll(text) : otherwise;
}

/* Starts the program as a child, to be killed by its pid. */
static pid_t startRun(const char *options) {
  char line[1024], *words[maxWords] = {LRMOE_TRAIN_MOE};
  int count = 1;
  snprintf(line, sizeof line, "%s %s", curveOptions, options);
  for (char *word = strtok(line, " "); word && count < maxWords - 1;
       word = strtok(NULL, " "))
    words[count++] = word;
  const char *folder = programFolder(); /* a child would make its own */
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid) return pid;
  int null = open("/dev/null", O_WRONLY);
  if (chdir(folder) || null < 0 || dup2(null, 1) < 0) _exit(99);
  execv(words[0], words);
  _exit(99);
}

static void sleepUs(int64_t us) {
  struct timespec pause = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&pause, NULL);
}

/* Whether a checkpoint was being written when the run was killed. */
static int isHalfWritten(void) {
  return system(curveCommand("ls -d k/*.partial >stdout 2>&1")) == 0;
}

/* Kills a run after a while, or lets it end before; whether it was killed. */
static int killOne(const char *options, int64_t afterUs) {
  int status = 0;
  pid_t pid = startRun(options);
  sleepUs(afterUs);
  kill(pid, SIGKILL);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  if (WIFSIGNALED(status)) return 1;
  ck_assert_int_eq(WEXITSTATUS(status), 0);
  return 0;
}

START_TEST(kills) {
  static const char options[] =
      "-n 30 --checkpoint k --checkpoint-every 1 --resume";
  int64_t numKills = fromEnvironment("LRMOE_TEST_CASES", 5), numKilled = 0;
  int64_t numHalfWritten = 0;
  uint64_t seed = (uint64_t)fromEnvironment("LRMOE_TEST_SEED", 1);
  struct toolRandom random = toolRandomMake(seed, 1);
  struct curve whole, part;
  curveText();
  curveRun(&whole, "-n 30");
  int64_t start = toolWallNs();
  curveRun(&part, options);
  int64_t takesUs = (toolWallNs() - start) / 1000;
  curveSame(&whole, &part, 0);
  ck_assert_int_eq(system(curveCommand("rm -r k")), 0);
  while (numKilled < numKills) {
    int64_t after = (int64_t)toolRandomBelow(&random, (uint64_t)takesUs);
    numKilled += killOne(options, after);
    numHalfWritten += isHalfWritten();
    if (toolRandomBelow(&random, 4)) continue; /* kill what is resumed too */
    curveRun(&part, options);
    curveSame(&whole, &part, 0);
    ck_assert_int_eq(system(curveCommand("rm -r k")), 0);
  }
  curveRun(&part, options);
  curveSame(&whole, &part, 0);
  printf("%lld kills, %lld of them left a checkpoint half-written\n",
         (long long)numKilled, (long long)numHalfWritten);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {kills};
  double timeout = 400 + 10 * (double)fromEnvironment("LRMOE_TEST_CASES", 5);
  return suiteRunTests("kill", tests, sizeof tests / sizeof *tests, timeout);
}
