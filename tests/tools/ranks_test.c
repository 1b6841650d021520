/* Ranks of a program: all good, or the one to blame by name. */
#include "support/suite.h"
#include "tools/common/device.h"
#include "tools/common/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct toolError error;

struct results {
  int64_t squares[64];
  pid_t pids[64];
  lrmoeUniqueId ids[64];
};

static enum toolExit square(const struct toolRank *self) {
  struct results *results = self->user;
  results->squares[self->rank] = (int64_t)self->rank * self->rank;
  results->pids[self->rank] = getpid();
  results->ids[self->rank] = self->id;
  return self->numRanks == 7 ? toolGood : toolRunFailed;
}

START_TEST(allGood) {
  struct results *results = toolSharedAlloc(sizeof *results);
  ck_assert_ptr_nonnull(results);
  ck_assert_int_eq(toolRanksRun(7, square, results, NULL, &error), toolGood);
  for (int i = 0; i < 7; i++) {
    ck_assert_int_eq(results->squares[i], i * i);
    ck_assert_int_ne(results->pids[i], getpid());
    ck_assert_mem_eq(&results->ids[i], &results->ids[0],
                     sizeof results->ids[0]);
    for (int j = 0; j < i; j++)
      ck_assert_int_ne(results->pids[i], results->pids[j]);
  }
  toolSharedFree(results, sizeof *results);
}
END_TEST

static char (*devices)[100];

static enum toolExit noteDevice(const struct toolRank *self) {
  const char *device = getenv("CUDA_VISIBLE_DEVICES");
  snprintf(devices[self->rank], sizeof devices[0], "%s",
           device ? device : "none");
  return toolGood;
}

static void checkDevices(const char *first, const char *second,
                         const char *third) {
  const char *const expected[] = {first, second, third};
  ck_assert_int_eq(toolRanksRun(3, noteDevice, NULL, NULL, &error), toolGood);
  for (int i = 0; i < 3; i++)
    ck_assert_str_eq(devices[i], expected[i]);
}

/* On the ranks' own environment: NCCL is not at hand here. */
START_TEST(aDeviceEach) {
  devices = toolSharedAlloc(3 * sizeof devices[0]);
  ck_assert_ptr_nonnull(devices);
  unsetenv("LRMOE_BACKEND");
  setenv("CUDA_VISIBLE_DEVICES", "4,2", 1);
  checkDevices("4,2", "4,2", "4,2");
  unsetenv("CUDA_VISIBLE_DEVICES");
  checkDevices("none", "none", "none");
  toolSharedFree(devices, 3 * sizeof devices[0]);
}
END_TEST

START_TEST(theDeviceOfARank) {
  setenv("LRMOE_BACKEND", "cuda", 1);
  static const char *const lists[] = {"4,2", "GPU-12,MIG-7", "3"};
  static const char *const expected[] = {"4", "GPU-12", "3", "2", "MIG-7", "3"};
  for (int i = 0; i < 6; i++) {
    setenv("CUDA_VISIBLE_DEVICES", lists[i % 3], 1);
    toolDeviceChoose(i < 3 ? 2 : 5);
    ck_assert_str_eq(getenv("CUDA_VISIBLE_DEVICES"), expected[i]);
  }
}
END_TEST

/* Rank 2 does what the test says; the others wait as if for a peer. */
static _Noreturn void hang(void) {
  for (;;)
    pause();
}

static enum toolExit crash(const struct toolRank *self) {
  if (self->rank != 2) hang();
  signal(SIGSEGV, SIG_DFL); /* a sanitizer would make it an exit */
  raise(SIGSEGV);
  return toolGood;
}

static enum toolExit failHere(const struct toolRank *self) {
  if (self->rank != 2) hang();
  return toolRankFail(self, lrmoeSuccess, "row %d is wrong", 17);
}

static enum toolExit exitSilently(const struct toolRank *self) {
  if (self->rank != 2) hang();
  _exit(42);
}

/* The library's own error, with its text. */
static enum toolExit failInLibrary(const struct toolRank *self) {
  if (self->rank != 2) hang();
  lrmoeTopology_t topology = NULL;
  TOOL_RANK_OK(self, lrmoeTopologyCreate(-1, &topology));
  return toolGood;
}

static enum toolExit notInstalled(const struct toolRank *self) {
  if (self->rank != 2) hang();
  return toolRankFail(self, lrmoeNotInstalled, "no module");
}

/* The others notice first and blame the peer; rank 2 is still the one. */
static enum toolExit failLate(const struct toolRank *self) {
  if (self->rank != 2)
    return toolRankFail(self, lrmoeRemoteError, "lost a peer");
  usleep(200000);
  return toolRankFail(self, lrmoeInvalidArgument, "the cause");
}

static const struct {
  toolRankBody body;
  enum toolExit code;
  const char *text;
} failures[] = {
    {crash, toolRunFailed, "rank 2 of 4 died of signal 11"},
    {failHere, toolRunFailed, "rank 2 of 4: row 17 is wrong"},
    {exitSilently, (enum toolExit)42, "rank 2 of 4 ended with status 42"},
    {failInLibrary, toolRunFailed,
     "rank 2 of 4: lrmoeTopologyCreate(-1, &topology): invalid argument: "
     "numRanks is -1"},
    {notInstalled, toolNotInstalled, "rank 2 of 4: no module: not installed"},
    {failLate, toolRunFailed, "rank 2 of 4: the cause: invalid argument"},
};

START_TEST(oneFails) {
  ck_assert_int_eq(toolRanksRun(4, failures[_i].body, NULL, NULL, &error),
                   failures[_i].code);
  ck_assert_msg(strstr(error.text, failures[_i].text) == error.text,
                "\"%s\", not \"%s\"", error.text, failures[_i].text);
  /* No rank is left. */
  ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
  ck_assert_int_eq(errno, ECHILD);
}
END_TEST

/* Wrong data is a result, not an accident: the others run to their end. */
static enum toolExit wrongData(const struct toolRank *self) {
  int64_t *numDone = self->user;
  if (self->rank == 1) return toolWrongData;
  usleep(100000);
  __atomic_fetch_add(numDone, 1, __ATOMIC_SEQ_CST);
  return toolGood;
}

START_TEST(wrongDataLetsOthersFinish) {
  int64_t *numDone = toolSharedAlloc(sizeof *numDone);
  ck_assert_int_eq(toolRanksRun(3, wrongData, numDone, NULL, &error),
                   toolWrongData);
  ck_assert_str_eq(error.text, "rank 1 of 3 ended with status 7");
  ck_assert_int_eq(*numDone, 2);
  toolSharedFree(numDone, sizeof *numDone);
}
END_TEST

static enum toolExit waitForever(const struct toolRank *self) {
  struct results *results = self->user;
  results->pids[self->rank] = getpid();
  hang();
}

/* Killing the program ends its ranks. */
START_TEST(ranksDieWithTheParent) {
  struct results *results = toolSharedAlloc(sizeof *results);
  fflush(NULL);
  pid_t parent = fork();
  if (parent == 0) {
    toolRanksRun(3, waitForever, results, NULL, &error);
    _exit(0);
  }
  volatile pid_t *pids = results->pids;
  while (!pids[0] || !pids[1] || !pids[2])
    usleep(1000);
  kill(parent, SIGKILL);
  waitpid(parent, NULL, 0);
  for (int i = 0; i < 3; i++) /* the test's time-out is the limit */
    while (kill(pids[i], 0) == 0) {
      char path[40], state = 0;
      snprintf(path, sizeof path, "/proc/%d/stat", (int)pids[i]);
      FILE *file = fopen(path, "r");
      if (file && fscanf(file, "%*d %*s %c", &state) != 1) state = 0;
      if (file) fclose(file);
      if (state == 'Z') break; /* dead, and nobody has reaped it yet */
      usleep(1000);
    }
  toolSharedFree(results, sizeof *results);
}
END_TEST

START_TEST(badCounts) {
  ck_assert_int_eq(toolRanksRun(0, square, NULL, NULL, &error), toolBadInput);
  ck_assert_str_eq(error.text, "0 ranks, not 1..1024");
  ck_assert_int_eq(toolRanksRun(1025, square, NULL, NULL, &error),
                   toolBadInput);
}
END_TEST

START_TEST(bufferedOutputIsPrintedOnce) {
  FILE *file = tmpfile();
  struct results *results = toolSharedAlloc(sizeof *results);
  fputs("once", file);
  ck_assert_int_eq(toolRanksRun(7, square, results, NULL, &error), toolGood);
  fflush(file);
  ck_assert_int_eq(ftell(file), 4);
  fseek(file, 0, SEEK_END);
  ck_assert_int_eq(ftell(file), 4);
  fclose(file);
  toolSharedFree(results, sizeof *results);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ranks");
  TCase *tcase = tcase_create("ranks");
  tcase_set_timeout(tcase, 60);
  tcase_add_test(tcase, allGood);
  tcase_add_test(tcase, aDeviceEach);
  tcase_add_test(tcase, theDeviceOfARank);
  tcase_add_loop_test(tcase, oneFails, 0,
                      (int)(sizeof failures / sizeof *failures));
  tcase_add_test(tcase, wrongDataLetsOthersFinish);
  tcase_add_test(tcase, ranksDieWithTheParent);
  tcase_add_test(tcase, badCounts);
  tcase_add_test(tcase, bufferedOutputIsPrintedOnce);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
