/* Calibration through a communicator: all ranks end with the same figures, in
 * bounded time, and those that disagree are told. */
#include "base/alloc.h"
#include "collectives/comm.h"
#include "collectives/transport.h"
#include "support/ranks.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct setting {
  int64_t minBytes;
  int64_t maxBytes;
  int64_t budgetMs;
  int numRounds;
  int oddRank;  /* gives another config; -1: none */
  int failCall; /* of rank 1's transport, 0: none */
};

struct handles {
  lrmoeComm_t comm;
  lrmoeTopology_t topology;
};

static int openHandles(const struct testRank *self, struct handles *handles) {
  RANK_OK(self, lrmoeTopologyCreate(self->numRanks, &handles->topology));
  RANK_OK(self, lrmoeCommInitRank(self->numRanks, &self->id, self->rank, NULL,
                                  &handles->comm));
  return 0;
}

static void closeHandles(struct handles *handles) {
  lrmoeCommDestroy(handles->comm);
  lrmoeTopologyDestroy(handles->topology);
}

struct watch {
  int64_t lastPpm;
  int numCalls;
  int isOdd; /* went back, or out of range */
};

static void watchProgress(void *user, int64_t donePpm) {
  struct watch *watch = user;
  watch->isOdd |= donePpm < watch->lastPpm || donePpm > 1000000;
  watch->lastPpm = donePpm;
  watch->numCalls++;
}

static lrmoeResult_t calibrate(const struct testRank *self,
                               const struct handles *handles,
                               struct watch *watch) {
  const struct setting *setting = self->user;
  lrmoeCalibrationConfig_t config = LRMOE_CALIBRATION_CONFIG_INITIALIZER;
  config.minBytes = setting->minBytes;
  config.maxBytes = setting->maxBytes;
  config.budgetMs = setting->budgetMs;
  config.numRounds = setting->numRounds;
  config.progress = watchProgress;
  config.user = watch;
  if (self->rank == setting->oddRank) config.maxBytes *= 2;
  if (self->rank == 1) lrmoeCpuFailAt(setting->failCall);
  lrmoeResult_t result =
      lrmoeTopologyCalibrate(handles->topology, handles->comm, &config, NULL);
  lrmoeCpuFailAt(0);
  return result;
}

/* All fits of this rank as words. */
static int listFits(const struct testRank *self, const struct handles *handles,
                    int64_t words[64]) {
  int numFits = 0;
  lrmoeTopologyFit_t fit = LRMOE_TOPOLOGY_FIT_INITIALIZER;
  while (numFits < 8 && lrmoeTopologyGetFit(handles->topology, numFits, &fit) ==
                            lrmoeSuccess) {
    int64_t *at = words + 8 * (ptrdiff_t)numFits++;
    memcpy(at,
           (int64_t[]){fit.pattern, fit.linkClass, fit.latencyNs,
                       fit.bytesPerSecond, fit.medianErrorPpm,
                       fit.worstErrorPpm, fit.numSamples, 1},
           8 * sizeof *at);
    RANK_TRUE(self, fit.latencyNs >= 0 && fit.bytesPerSecond >= 1 &&
                        fit.medianErrorPpm <= fit.worstErrorPpm);
  }
  RANK_TRUE(self, numFits == (self->numRanks > 1 ? 5 : 1));
  return 0;
}

/* The least that any rank has, of each word. */
static int leastWords(const struct testRank *self,
                      const struct handles *handles, const int64_t words[64],
                      int64_t least[64]) {
  const size_t bytes = 64 * sizeof *words;
  int64_t *shared = NULL;
  RANK_OK(self, lrmoeMemAlloc(bytes, (void **)&shared));
  RANK_OK(self, lrmoeMemWrite(shared, words, bytes));
  RANK_OK(self, lrmoeAllReduce(shared, shared, 64, lrmoeInt64, lrmoeMin,
                               handles->comm, NULL));
  RANK_OK(self, lrmoeMemRead(least, shared, bytes));
  RANK_OK(self, lrmoeMemFree(shared));
  return 0;
}

/* They are the same on all ranks. */
static int checkFits(const struct testRank *self,
                     const struct handles *handles) {
  int64_t words[64] = {0}, least[64];
  if (listFits(self, handles, words)) return 1;
  if (leastWords(self, handles, words, least)) return 1;
  RANK_TRUE(self, memcmp(words, least, sizeof words) == 0);
  return 0;
}

/* What a calibrated topology says. */
static int checkTopology(const struct testRank *self,
                         const struct handles *handles) {
  lrmoeLink_t link;
  lrmoeTopologyInfo_t info = LRMOE_TOPOLOGY_INFO_INITIALIZER;
  RANK_OK(self, lrmoeTopologyGetInfo(handles->topology, &info));
  RANK_TRUE(self, info.calibrated == 1);
  for (int to = 0; to < self->numRanks; to++) {
    RANK_OK(self,
            lrmoeTopologyGetLink(handles->topology, self->rank, to, &link));
    RANK_TRUE(self, link.guessed == 0 && link.bytesPerSecond >= 1);
  }
  int64_t traffic[64] = {0}; /* up to 8 ranks */
  int64_t few = 0, many = 0;
  traffic[0] = 1 << 20;
  RANK_OK(self, lrmoeTopologyTrafficNs(handles->topology, traffic, &few));
  traffic[0] = 1 << 28;
  RANK_OK(self, lrmoeTopologyTrafficNs(handles->topology, traffic, &many));
  RANK_TRUE(self, few > 0 && many > few);
  return 0;
}

static int runGood(const struct testRank *self) {
  struct handles handles = {0};
  struct watch watch = {0};
  int isBad = openHandles(self, &handles);
  if (!isBad) RANK_OK(self, calibrate(self, &handles, &watch));
  if (!isBad) isBad = checkFits(self, &handles);
  if (!isBad) isBad = checkTopology(self, &handles);
  RANK_TRUE(self, watch.lastPpm == 1000000 && watch.numCalls >= 4);
  RANK_TRUE(self, !watch.isOdd);
  /* Again, over the old figures. */
  watch = (struct watch){0};
  if (!isBad) RANK_OK(self, calibrate(self, &handles, &watch));
  if (!isBad) isBad = checkFits(self, &handles);
  closeHandles(&handles);
  return isBad;
}

START_TEST(sameOnAllRanks) {
  struct setting setting = {4096, 262144, 60000, 3, -1, 0};
  ck_assert_int_eq(testRanksRun(_i, runGood, &setting), 0);
}
END_TEST

/* The smallest size is done whatever the budget. */
START_TEST(smallBudget) {
  struct setting setting = {64, 1 << 22, 1, 1000, -1, 0};
  ck_assert_int_eq(testRanksRun(3, runGood, &setting), 0);
}
END_TEST

START_TEST(oneSize) {
  struct setting setting = {1000, 1000, 60000, 1, -1, 0};
  ck_assert_int_eq(testRanksRun(2, runGood, &setting), 0);
}
END_TEST

static int runDisagree(const struct testRank *self) {
  struct handles handles = {0};
  struct watch watch = {0};
  int isBad = openHandles(self, &handles);
  RANK_TRUE(self, !isBad);
  RANK_TRUE(self, calibrate(self, &handles, &watch) == lrmoeInvalidUsage);
  RANK_TRUE(self, strstr(lrmoeGetLastError(), "differ") != NULL);
  RANK_TRUE(self, watch.numCalls == 0);
  lrmoeTopologyFit_t fit = LRMOE_TOPOLOGY_FIT_INITIALIZER;
  RANK_TRUE(self, lrmoeTopologyGetFit(handles.topology, 0, &fit) ==
                      lrmoeInvalidArgument);
  int64_t words[64] = {self->rank + 1}, least[64];
  int isBroken = leastWords(self, &handles, words, least);
  RANK_TRUE(self, !isBroken && least[0] == 1);
  closeHandles(&handles);
  return 0;
}

START_TEST(disagreement) {
  struct setting setting = {4096, 65536, 60000, 1, 2, 0};
  ck_assert_int_eq(testRanksRun(3, runDisagree, &setting), 0);
}
END_TEST

/* A rank whose transport fails in the middle: an error on all, no hang, and
 * the topology as it was. */
static int runFail(const struct testRank *self) {
  struct handles handles = {0};
  struct watch watch = {0};
  int isBad = openHandles(self, &handles);
  RANK_TRUE(self, !isBad);
  lrmoeResult_t result = calibrate(self, &handles, &watch);
  RANK_TRUE(self, result != lrmoeSuccess);
#ifndef TEST_RANKS_ARE_THREADS /* which share the count of calls */
  RANK_TRUE(self, self->rank == 1 || result == lrmoeRemoteError);
#endif
  lrmoeTopologyFit_t fit = LRMOE_TOPOLOGY_FIT_INITIALIZER;
  RANK_TRUE(self, lrmoeTopologyGetFit(handles.topology, 0, &fit) ==
                      lrmoeInvalidArgument);
  closeHandles(&handles);
  return 0;
}

START_TEST(transportFails) {
  static const int calls[] = {1, 7, 40, 200};
  struct setting setting = {4096, 65536, 60000, 3, -1, calls[_i]};
  ck_assert_int_eq(testRanksRun(3, runFail, &setting), 0);
}
END_TEST

static lrmoeCalibrationConfig_t wrongConfig(int which) {
  lrmoeCalibrationConfig_t config = LRMOE_CALIBRATION_CONFIG_INITIALIZER;
  switch (which) {
  case 0:
    config.minBytes = 63;
    break;
  case 1:
    config.maxBytes = config.minBytes - 1;
    break;
  case 2:
    config.maxBytes = (int64_t)(1 << 30) + 1;
    break;
  case 3:
    config.budgetMs = 0;
    break;
  case 4:
    config.numRounds = 0;
    break;
  case 5:
    config.numRounds = 1001;
    break;
  default:
    config.magic = 0;
    break;
  }
  return config;
}

static int runMisuse(const struct testRank *self) {
  struct handles handles = {0};
  lrmoeTopology_t larger = NULL;
  int isBad = openHandles(self, &handles);
  RANK_TRUE(self, !isBad);
  RANK_OK(self, lrmoeTopologyCreate(self->numRanks + 1, &larger));
  RANK_TRUE(self, lrmoeTopologyCalibrate(larger, handles.comm, NULL, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeTopologyCalibrate(NULL, handles.comm, NULL, NULL) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeTopologyCalibrate(handles.topology, NULL, NULL, NULL) ==
                      lrmoeInvalidArgument);
  for (int i = 0; i <= 6; i++) {
    lrmoeCalibrationConfig_t config = wrongConfig(i);
    RANK_TRUE(self,
              lrmoeTopologyCalibrate(handles.topology, handles.comm, &config,
                                     NULL) == lrmoeInvalidArgument);
  }
  lrmoeTopologyDestroy(larger);
  closeHandles(&handles);
  return 0;
}

START_TEST(misuse) {
  ck_assert_int_eq(testRanksRun(2, runMisuse, NULL), 0);
}
END_TEST

/* Ranks of a CPU communicator share memory.  A GPU of the emulator is at an
 * address where this machine has none, which all ranks are told of. */
static int runPlaces(const struct testRank *self) {
  struct handles handles;
  lrmoeTopology_t found = NULL;
  lrmoeLink_t link;
  RANK_TRUE(self, !openHandles(self, &handles));
  lrmoeResult_t result = lrmoeTopologyOfComm(handles.comm, &found);
  if (handles.comm->backend->busAddress) {
    RANK_TRUE(self, result == lrmoeUnsupported);
    RANK_TRUE(self, strstr(lrmoeGetLastError(), "the GPU at 0000:01:00.0"));
  } else {
    RANK_OK(self, result);
    RANK_OK(self, lrmoeTopologyGetLink(found, 0, 1, &link));
    RANK_TRUE(self, link.linkClass == lrmoeLinkMemory);
  }
  RANK_TRUE(self, lrmoeTopologyOfComm(NULL, &found) == lrmoeInvalidArgument &&
                      lrmoeTopologyOfComm(handles.comm, NULL) ==
                          lrmoeInvalidArgument);
  lrmoeTopologyDestroy(found);
  closeHandles(&handles);
  return 0;
}

START_TEST(placesOfRanks) {
  ck_assert_int_eq(testRanksRun(2, runPlaces, NULL), 0);
}
END_TEST

int main(void) {
  const char *backend = getenv("LRMOE_BACKEND");
  int isCpu = !backend || strcmp(backend, "cpu") == 0;
  Suite *suite = suite_create("calibrate");
  TCase *tcase = tcase_create("calibrate");
  tcase_set_timeout(tcase, 300);
  tcase_add_loop_test(tcase, sameOnAllRanks, 1, 5);
  tcase_add_test(tcase, smallBudget);
  tcase_add_test(tcase, oneSize);
  tcase_add_test(tcase, disagreement);
  /* Faults are the CPU transport's. */
  if (isCpu) tcase_add_loop_test(tcase, transportFails, 0, 4);
  tcase_add_test(tcase, misuse);
  tcase_add_test(tcase, placesOfRanks);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
