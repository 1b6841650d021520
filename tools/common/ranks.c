/* Ranks that are forked, and which rank is to blame: see ranks.h. */
#include "tools/common/ranks.h"

#include "tools/common/device.h"
#include "tools/common/ranks_end.h"

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

void *toolRankRoom(int64_t count, size_t bytes) {
  void *block = calloc((size_t)(count > 0 ? count : 1), bytes);
  if (!block) abort();
  return block;
}

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
static int blame(const struct toolRankEnd *end) {
  if (end->signal) return end->wasEnded ? 1 : 5;
  if (end->code == toolGood) return 0;
  if (end->code == toolWrongData) return 3;
  return end->report.result == lrmoeRemoteError ? 2 : 4;
}

enum toolExit toolRanksJudge(const struct toolRankEnd *ends, int numRanks,
                             struct toolError *error) {
  int worst = 0;
  for (int i = 1; i < numRanks; i++)
    if (blame(&ends[i]) > blame(&ends[worst])) worst = i;
  const struct toolRankEnd *end = &ends[worst];
  if (!blame(end)) return toolGood;
  if (end->signal)
    return toolFail(error, toolRunFailed, "rank %d of %d %s signal %d (%s)",
                    worst, numRanks,
                    end->wasEnded ? "hung and was ended by" : "died of",
                    end->signal, strsignal(end->signal));
  if (*end->report.text)
    return toolFail(error, (enum toolExit)end->code, "rank %d of %d: %s", worst,
                    numRanks, end->report.text);
  return toolFail(error, (enum toolExit)end->code,
                  "rank %d of %d ended with status %d", worst, numRanks,
                  end->code);
}

static enum toolExit judge(const struct team *team, struct toolError *error) {
  struct toolRankEnd *ends = calloc((size_t)team->numRanks, sizeof *ends);
  if (!ends) return toolFail(error, toolRunFailed, "out of memory");
  for (int i = 0; i < team->numRanks; i++) {
    const struct child *child = &team->children[i];
    ends[i].signal = WIFSIGNALED(child->status) ? WTERMSIG(child->status) : 0;
    ends[i].code = WIFEXITED(child->status) ? WEXITSTATUS(child->status) : 0;
    ends[i].wasEnded = child->wasEnded;
    ends[i].report = team->reports[i];
  }
  enum toolExit code = toolRanksJudge(ends, team->numRanks, error);
  free(ends);
  return code;
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

static enum toolExit runForked(int numRanks, toolRankBody body, void *user,
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

enum toolExit toolRanksRun(int numRanks, toolRankBody body, void *user,
                           const struct toolResults *results,
                           struct toolError *error) {
  const struct toolLaunch *launch;
  enum toolExit code = toolLaunchFind(&launch, error);
  if (code != toolGood) return code;
  if (launch) return toolRanksLaunched(launch, body, user, results, error);
  return runForked(numRanks, body, user, error);
}

enum toolExit toolRanksCount(int64_t *numRanks, struct toolError *error) {
  const struct toolLaunch *launch;
  enum toolExit code = toolLaunchFind(&launch, error);
  if (code != toolGood) return code;
  if (launch && *numRanks && *numRanks != launch->numRanks)
    return toolFail(error, toolBadInput,
                    "-g %lld, and %d ranks were started: leave it out",
                    (long long)*numRanks, launch->numRanks);
  if (!*numRanks) *numRanks = launch ? launch->numRanks : 4;
  return toolGood;
}
