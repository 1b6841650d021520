/* Ranks of a program: see ranks.h. */
#include "tools/common/ranks.h"

#include "tools/common/device.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One per rank, in memory that all share. */
struct toolRankReport {
  lrmoeResult_t result;
  char text[400];
};

struct child {
  pid_t pid; /* 0: has ended */
  int status;
  int wasEnded; /* by us */
};

struct team {
  int numRanks;
  int numRunning;
  struct child *children;
  struct toolRankReport *reports;
};

/* How long the others may go on after a failure. */
enum {
  pollMs = 5,
  graceMs = 2000
};

void *toolSharedAlloc(size_t bytes) {
  void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void toolSharedFree(void *memory, size_t bytes) {
  if (memory) munmap(memory, bytes ? bytes : 1);
}

enum toolExit toolRankFail(const struct toolRank *self, lrmoeResult_t result,
                           const char *format, ...) {
  struct toolRankReport *report = &self->report[self->rank];
  report->result = result;
  va_list arguments;
  va_start(arguments, format);
  int used = vsnprintf(report->text, sizeof report->text, format, arguments);
  va_end(arguments);
  if (result != lrmoeSuccess && used >= 0 && used < (int)sizeof report->text)
    snprintf(report->text + used, sizeof report->text - (size_t)used,
             ": %s: %s", lrmoeGetErrorString(result), lrmoeGetLastError());
  return result == lrmoeNotInstalled ? toolNotInstalled : toolRunFailed;
}

static void runChild(int rank, toolRankBody body, const struct toolRank *base,
                     pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(toolRunFailed); /* it died before prctl */
  struct toolRank self = *base;
  self.rank = rank;
  toolDeviceChoose(rank);
  enum toolExit code = body(&self);
  exit(code);
}

static void endAll(struct team *team, int number) {
  for (int i = 0; i < team->numRanks; i++) {
    if (!team->children[i].pid) continue;
    kill(team->children[i].pid, number);
    team->children[i].wasEnded = 1;
  }
}

static int isFailure(int status) {
  return !WIFEXITED(status) || (WEXITSTATUS(status) != toolGood &&
                                WEXITSTATUS(status) != toolWrongData);
}

/* Takes note of the ranks that have ended; whether any of them failed. */
static int reap(struct team *team) {
  int failed = 0;
  for (int i = 0; i < team->numRanks; i++) {
    struct child *child = &team->children[i];
    if (!child->pid || waitpid(child->pid, &child->status, WNOHANG) == 0)
      continue;
    child->pid = 0;
    team->numRunning--;
    failed |= isFailure(child->status);
  }
  return failed;
}

static void sleepMs(long ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static void waitForAll(struct team *team, int failed) {
  int leftMs = graceMs;
  while (team->numRunning) {
    failed |= reap(team);
    if (!team->numRunning) return;
    sleepMs(pollMs);
    if (!failed) continue;
    leftMs -= pollMs;
    if (leftMs <= 0) endAll(team, SIGKILL);
  }
}

/* How much a rank is to blame; 0: it is not. */
static int blame(const struct team *team, int rank) {
  const struct child *child = &team->children[rank];
  if (WIFEXITED(child->status) && WEXITSTATUS(child->status) == toolGood)
    return 0;
  if (WIFSIGNALED(child->status)) return child->wasEnded ? 1 : 5;
  if (WEXITSTATUS(child->status) == toolWrongData) return 3;
  return team->reports[rank].result == lrmoeRemoteError ? 2 : 4;
}

static enum toolExit judge(const struct team *team, struct toolError *error) {
  int worst = 0;
  for (int i = 1; i < team->numRanks; i++)
    if (blame(team, i) > blame(team, worst)) worst = i;
  if (!blame(team, worst)) return toolGood;
  const struct child *child = &team->children[worst];
  const char *text = team->reports[worst].text;
  if (WIFSIGNALED(child->status)) {
    int number = WTERMSIG(child->status);
    return toolFail(error, toolRunFailed, "rank %d of %d %s signal %d (%s)",
                    worst, team->numRanks,
                    child->wasEnded ? "hung and was ended by" : "died of",
                    number, strsignal(number));
  }
  int code = WEXITSTATUS(child->status);
  if (*text)
    return toolFail(error, (enum toolExit)code, "rank %d of %d: %s", worst,
                    team->numRanks, text);
  return toolFail(error, (enum toolExit)code,
                  "rank %d of %d ended with status %d", worst, team->numRanks,
                  code);
}

static enum toolExit start(struct team *team, toolRankBody body, void *user,
                           struct toolError *error) {
  struct toolRank base = {
      .numRanks = team->numRanks, .user = user, .report = team->reports};
  if (lrmoeGetUniqueId(&base.id) != lrmoeSuccess)
    return toolFail(error, toolRunFailed, "no id: %s", lrmoeGetLastError());
  pid_t parent = getpid();
  fflush(NULL); /* or each rank would print what is buffered */
  for (int i = 0; i < team->numRanks; i++) {
    pid_t pid = fork();
    if (pid == 0) runChild(i, body, &base, parent);
    if (pid < 0)
      return toolFail(error, toolRunFailed, "cannot fork rank %d: %s", i,
                      strerror(errno));
    team->children[i].pid = pid;
    team->numRunning++;
  }
  return toolGood;
}

enum toolExit toolRanksRun(int numRanks, toolRankBody body, void *user,
                           struct toolError *error) {
  if (numRanks < 1 || numRanks > toolMaxRanks)
    return toolFail(error, toolBadInput, "%d ranks, not 1..%d", numRanks,
                    toolMaxRanks);
  struct team team = {.numRanks = numRanks};
  size_t reportBytes = (size_t)numRanks * sizeof *team.reports;
  team.reports = toolSharedAlloc(reportBytes);
  team.children = calloc((size_t)numRanks, sizeof *team.children);
  enum toolExit code;
  if (!team.reports || !team.children) {
    code = toolFail(error, toolRunFailed, "no memory for %d ranks", numRanks);
  } else {
    code = start(&team, body, user, error);
    if (code) endAll(&team, SIGKILL);
    waitForAll(&team, code != toolGood);
    if (!code) code = judge(&team, error);
  }
  free(team.children);
  toolSharedFree(team.reports, reportBytes);
  return code;
}
