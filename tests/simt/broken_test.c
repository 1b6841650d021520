/* Broken kernels: each must be found, with words that say what it is. */
#include "broken.h"
#include "device.h"
#include "support/simt/simt.h"

#include <stdio.h>
#include <string.h>

static unsigned *newData(void) {
  unsigned words[BROKEN_WORDS];
  for (unsigned i = 0; i < BROKEN_WORDS; i++)
    words[i] = i;
  return deviceCopyOf(words, sizeof words);
}

static void assertSays(const char *text, const char *words) {
  ck_assert_msg(strstr(text, words) != NULL, "\"%s\" is not in \"%.2000s\"",
                words, text);
}

/* ---- Reports ------------------------------------------------------------- */

struct reported {
  const char *kernel;
  const char *words;
};

static const struct reported reports[] = {
    {"divergentBarrierKernel", "divergent barrier: "},
    {"deadlockKernel", "deadlock: "},
    {"shuffleFromOutsideKernel", "reads from lane 20, which does not take"},
    {"maskMismatchKernel", "mask mismatch: "},
    {"maskWithoutSelfKernel", "bad mask: "},
    {"differentOperationsKernel", "divergent warp operation: "},
    {"misalignedLoadKernel", "misaligned access of 16 bytes"},
    {"misalignedStoreKernel", "misaligned access of 8 bytes"},
    {"littleSharedKernel", "too little shared memory: "},
    {"earlyExitKernel", "a thread exits while "},
    {"endlessSpinKernel", "endless: "},
    {"endlessLoadKernel", "endless: "},
    {"blocksWaitKernel", "endless: "},
    {"trapKernel", "the kernel trapped"},
};
#define NUM_REPORTS ((int)(sizeof reports / sizeof *reports))

static void configureStrictly(void) {
  struct simtConfig config;
  simtGetConfig(&config);
  config.quiet = 1;
  config.strictExit = 1;
  config.maxSteps = 100000;
  simtSetConfig(&config);
}

START_TEST(faultsOfKernelsAreReported) {
  const struct reported *expected = &reports[_i % NUM_REPORTS];
  chooseOrder(_i / NUM_REPORTS);
  configureStrictly();
  unsigned *data = newData();
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(brokenLaunch(expected->kernel, data, NULL));
  ck_assert_int_eq(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  const char *report = simtLastReport();
  assertSays(report, expected->words);
  assertSays(report, expected->kernel);
  assertSays(report, "block (");
  assertSays(report, "thread (");
  assertSays(report, "broken_report.cu:");

  /* The device stays broken until it is reset, and then works again. */
  ck_assert_int_eq(cudaGetLastError(), cudaErrorLaunchFailure);
  ck_assert_int_eq(brokenLaunch("syncwarpKernel", data, NULL),
                   cudaErrorLaunchFailure);
  ASSERT_CUDA(cudaDeviceReset());
  ASSERT_CUDA(cudaGetLastError());
  data = newData();
  ASSERT_CUDA(brokenLaunch("syncwarpKernel", data, NULL));
  unsigned words[BROKEN_WORDS];
  deviceTake(data, words, sizeof words);
  for (unsigned i = 0; i < 64; i++)
    ck_assert_uint_eq(words[i], i ^ 1);
}
END_TEST

START_TEST(badShapesAreRefusedAtTheLaunch) {
  static const char *const names[] = {"manyThreads", "noThreads", "muchShared"};
  configureStrictly();
  unsigned *data = newData();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    ck_assert_int_eq(brokenLaunch(names[i], data, NULL),
                     cudaErrorInvalidConfiguration);
    assertSays(simtLastReport(), "bad launch: ");
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidConfiguration);
    ASSERT_CUDA(cudaGetLastError());
  }
  ASSERT_CUDA(cudaFree(data));
}
END_TEST

/* ---- Orders -------------------------------------------------------------- */

#if !defined(TEST_HAS_TSAN) /* which has its own word for these */
/* How many of the orders give another result than the first one. */
static int countDifferences(const char *kernel) {
  unsigned first[BROKEN_WORDS];
  int differences = 0;
  for (int order = 0; order < NUM_ORDERS; order++) {
    chooseOrder(order);
    unsigned words[BROKEN_WORDS];
    unsigned *data = newData();
    ASSERT_CUDA(brokenLaunch(kernel, data, NULL));
    deviceTake(data, words, sizeof words);
    if (order == 0)
      memcpy(first, words, sizeof first);
    else
      differences += memcmp(first, words, sizeof words) != 0;
  }
  return differences;
}

START_TEST(resultsThatDependOnTheOrderDiffer) {
  ck_assert_int_ge(countDifferences("missingBarrierKernel"), 5);
  ck_assert_int_ge(countDifferences("missingBroadcastKernel"), 5);
  ck_assert_int_ge(countDifferences("blockRaceKernel"), 3);
  ck_assert_int_ge(countDifferences("arrivalOrderKernel"), 5);
  ck_assert_int_eq(countDifferences("syncwarpKernel"), 0);
}
END_TEST
#endif

START_TEST(sharedMemoryStartsAsPoison) {
  unsigned *data = newData();
  ASSERT_CUDA(brokenLaunch("uninitialisedKernel", data, NULL));
  unsigned words[BROKEN_WORDS];
  deviceTake(data, words, sizeof words);
  for (unsigned i = 0; i < 64; i++)
    ck_assert_uint_eq(words[i], i % 2 ? 0 : 0xCBCBCBCBu);
}
END_TEST

/* ---- Crashes, each in a child -------------------------------------------- */

static void launchAndWait(void *user) {
  struct simtConfig config;
  simtGetConfig(&config);
  config.quiet = 0;
  simtSetConfig(&config);
  chooseOrder(0);
  unsigned *data = newData();
  if (brokenLaunch(user, data, NULL) != cudaSuccess) return;
  cudaDeviceSynchronize();
}

static void launchOnFreed(void *user) {
  (void)user;
  unsigned *data = newData();
  ASSERT_CUDA(cudaFree(data));
  ASSERT_CUDA(brokenLaunch("storeKernel", data, NULL));
  cudaDeviceSynchronize();
}

static void touchFromHost(void *user) {
  (void)user;
  volatile unsigned *data = newData();
  data[3] = 1;
}

static void assertDies(void (*body)(void *user), const char *kernel,
                       const char *words) {
  char name[64];
  snprintf(name, sizeof name, "%s", kernel);
  int endedWell;
  const char *text = childErrors(body, name, &endedWell);
  assertSays(text, words);
  assertSays(text, kernel);
  ck_assert(!endedWell);
}

START_TEST(memoryFaultsNameTheMemory) {
  assertDies(launchAndWait, "loadPastEndKernel",
             "out of bounds: 0 bytes past the end of device memory of 1024");
  assertDies(launchAndWait, "storePastEndKernel",
             "out of bounds: 0 bytes past the end of device memory of 1024");
  assertDies(launchAndWait, "storeBeforeStartKernel",
             "out of bounds: 4000 bytes before the start of device memory");
  assertDies(launchOnFreed, "storeKernel",
             "use after free: byte 0 of freed device memory of 1024 bytes");
  assertDies(touchFromHost, "",
             "host code touches byte 12 of device memory of 1024 bytes");
}
END_TEST

#if !defined(TEST_HAS_TSAN) /* which warns of the handler, a deep stack long */
START_TEST(fullStacksAreNamed) {
  assertDies(launchAndWait, "deepStackKernel",
             "the stack of a CUDA thread is full");
}
END_TEST
#endif

static void storeIntoSlack(void *user) {
  (void)user;
  unsigned *data = deviceCopyOf(NULL, sizeof(unsigned) * 60);
  ASSERT_CUDA(brokenLaunch("storeKernel", data, NULL));
  cudaDeviceSynchronize();
  cudaFree(data);
}

/* Between the end and the guard: ASan sees the store, else cudaFree does. */
START_TEST(storesIntoTheSlackAreSeen) {
  int endedWell;
  const char *text = childErrors(storeIntoSlack, NULL, &endedWell);
  if (strstr(text, "AddressSanitizer"))
    assertSays(text, "storeKernel");
  else
    assertSays(text, "out of bounds: something wrote past the end of device "
                     "memory of 240 bytes");
}
END_TEST

#if defined(TEST_HAS_ASAN)
START_TEST(sharedMemoryHasExactBounds) {
  assertDies(launchAndWait, "sharedPastEndKernel", "heap-buffer-overflow");
}
END_TEST
#endif

/* ---- Races, which TSan builds see ---------------------------------------- */

#if defined(TEST_HAS_TSAN)
START_TEST(racesAreReported) {
  static const char *const names[] = {
      "missingBarrierKernel", "missingBroadcastKernel", "lockstepKernel",
      "blockRaceKernel", "blockRaceWithBarrierKernel"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    assertDies(launchAndWait, names[i], "WARNING: ThreadSanitizer: data race");
  }
}
END_TEST

START_TEST(orderedKernelsHaveNoRace) {
  char name[] = "syncwarpKernel";
  int endedWell;
  const char *text = childErrors(launchAndWait, name, &endedWell);
  ck_assert_msg(endedWell, "%s", text);
  ck_assert_str_eq(text, "");
}
END_TEST
#endif

static void addTest(Suite *suite, const TTest *test, int count) {
  TCase *group = tcase_create(test->name);
  tcase_set_timeout(group, 120);
  tcase_add_loop_test(group, test, 0, count);
  suite_add_tcase(suite, group);
}

int main(void) {
  Suite *suite = suite_create("simt_broken");
  addTest(suite, faultsOfKernelsAreReported, 3 * NUM_REPORTS);
  addTest(suite, badShapesAreRefusedAtTheLaunch, 1);
#if !defined(TEST_HAS_TSAN)
  addTest(suite, resultsThatDependOnTheOrderDiffer, 1);
  addTest(suite, fullStacksAreNamed, 1);
#endif
  addTest(suite, sharedMemoryStartsAsPoison, 1);
  addTest(suite, memoryFaultsNameTheMemory, 1);
  addTest(suite, storesIntoTheSlackAreSeen, 1);
#if defined(TEST_HAS_ASAN)
  addTest(suite, sharedMemoryHasExactBounds, 1);
#endif
#if defined(TEST_HAS_TSAN)
  addTest(suite, racesAreReported, 1);
  addTest(suite, orderedKernelsHaveNoRace, 1);
#endif
  return suiteRun(suite);
}
