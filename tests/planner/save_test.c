/* Saved plans: round trip, and no damage passes. */
#include "base/alloc.h"
#include "planner/checks.h"
#include "planner/forge.h"
#include "planner/plan.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

static lrmoePlan_t somePlan(int numRanks, int numExperts, uint64_t seed) {
  struct testRandom random = {seed};
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = numExperts;
  config.retainPpm = 600000;
  config.slots = (int32_t)(seed % 3);
  config.policy = config.slots ? lrmoePolicyLrmoe : lrmoePolicyFixed;
  lrmoePlanner_t planner = makePlanner(numRanks, &config);
  int64_t *demand = makeDemand(&random, numRanks, numExperts);
  lrmoePlan_t plan = makePlan(planner, demand);
  free(demand);
  lrmoePlannerDestroy(planner);
  return plan;
}

static char *save(lrmoePlan_t plan, size_t *bytes) {
  *bytes = 0;
  ASSERT_OK(lrmoePlanSave(plan, NULL, bytes));
  char *buffer = malloc(*bytes);
  ck_assert_ptr_nonnull(buffer);
  ASSERT_OK(lrmoePlanSave(plan, buffer, bytes));
  return buffer;
}

/* From a block of exactly that length, so that ASan sees a read past it. */
static lrmoeResult_t loadCopy(const char *data, size_t bytes,
                              lrmoePlan_t *plan) {
  char *copy = malloc(bytes ? bytes : 1);
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, data, bytes);
  lrmoeResult_t result = lrmoePlanLoad(copy, bytes, plan);
  free(copy);
  return result;
}

START_TEST(roundTrip) {
  lrmoePlan_t plan = somePlan(1 + _i % 7, 1 + _i * 3, (uint64_t)_i);
  size_t bytes;
  char *saved = save(plan, &bytes);
  lrmoePlan_t loaded = NULL;
  ASSERT_OK(loadCopy(saved, bytes, &loaded));
  checkSamePlan(plan, loaded);
  ASSERT_OK(lrmoePlanVerify(loaded));
  lrmoePlanDestroy(loaded);
  lrmoePlanDestroy(plan);
  free(saved);
}
END_TEST

START_TEST(saveAsksForRoom) {
  lrmoePlan_t plan = somePlan(2, 4, 1);
  size_t bytes, room = 10;
  char *saved = save(plan, &bytes);
  ASSERT_RESULT(lrmoePlanSave(plan, saved, &room), lrmoeInvalidArgument);
  ck_assert_uint_eq(room, 10);
  room = bytes + 100;
  char *large = calloc(1, room);
  ASSERT_OK(lrmoePlanSave(plan, large, &room));
  ck_assert_uint_eq(room, bytes);
  ck_assert_mem_eq(large, saved, bytes);
  ASSERT_RESULT(lrmoePlanSave(NULL, saved, &room), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoePlanSave(plan, saved, NULL), lrmoeInvalidArgument);
  free(large);
  free(saved);
  lrmoePlanDestroy(plan);
}
END_TEST

START_TEST(everyTruncationIsRefused) {
  lrmoePlan_t plan = somePlan(2, 3, 2), loaded = NULL;
  size_t bytes;
  char *saved = save(plan, &bytes);
  for (size_t length = 0; length < bytes; length++)
    ASSERT_RESULT(loadCopy(saved, length, &loaded), lrmoeCorrupt);
  char *longer = calloc(1, bytes + 8);
  memcpy(longer, saved, bytes);
  ASSERT_RESULT(loadCopy(longer, bytes + 1, &loaded), lrmoeCorrupt);
  ASSERT_RESULT(loadCopy(longer, bytes + 8, &loaded), lrmoeCorrupt);
  ck_assert_ptr_null(loaded);
  free(longer);
  free(saved);
  lrmoePlanDestroy(plan);
}
END_TEST

START_TEST(everyFlippedBitIsRefused) {
  lrmoePlan_t plan = somePlan(2, 3, 3), loaded = NULL;
  size_t bytes;
  char *saved = save(plan, &bytes);
  for (size_t bit = 0; bit < 8 * bytes; bit++) {
    saved[bit / 8] ^= (char)(1 << bit % 8);
    lrmoeResult_t result = loadCopy(saved, bytes, &loaded);
    ck_assert_msg(result == lrmoeCorrupt || result == lrmoeUnsupported,
                  "bit %zu of %zu: %s", bit, 8 * bytes,
                  lrmoeGetErrorString(result));
    saved[bit / 8] ^= (char)(1 << bit % 8);
  }
  ck_assert_ptr_null(loaded);
  free(saved);
  lrmoePlanDestroy(plan);
}
END_TEST

/* The check sum is no secret: with it forged, random words must still give an
 * error, or a plan that keeps every invariant. */
START_TEST(forgedDataNeverBreaksInvariants) {
  lrmoePlan_t plan = somePlan(3, 4, 4);
  size_t bytes;
  char *saved = save(plan, &bytes);
  char *forged = malloc(bytes);
  ck_assert_ptr_nonnull(forged);
  struct testRandom random = {(uint64_t)_i};
  static const int64_t values[] = {0,  1,  2,         3,         -1,
                                   99, 64, INT32_MAX, INT64_MAX, INT64_MIN};
  int numRefused = 0;
  for (int round = 0; round < 2000; round++) {
    memcpy(forged, saved, bytes);
    size_t at = (size_t)randomBelow(&random, (int64_t)bytes / 4 - 1) * 4;
    int64_t value = values[randomBelow(&random, 10)];
    memcpy(forged + at, &value, randomBelow(&random, 2) ? 4 : 8);
    if (memcmp(forged, saved, bytes) == 0) continue;
    forgeSum(forged, bytes);
    lrmoePlan_t loaded = NULL;
    lrmoeResult_t result = loadCopy(forged, bytes, &loaded);
    ck_assert(result == lrmoeCorrupt || result == lrmoeUnsupported ||
              result == lrmoeSuccess);
    numRefused += result != lrmoeSuccess;
    if (loaded) ASSERT_OK(lrmoePlanVerify(loaded));
    lrmoePlanDestroy(loaded);
  }
  ck_assert_int_gt(numRefused, 1000);
  free(forged);
  free(saved);
  lrmoePlanDestroy(plan);
}
END_TEST

/* Bounds do not follow from the arrays: what they may be is checked. */
START_TEST(boundsMustBePossible) {
  lrmoePlan_t plan = somePlan(4, 9, 8), loaded = NULL;
  ck_assert_int_gt(plan->numInstances, plan->numExperts);
  size_t bytes;
  char *saved = save(plan, &bytes);
  int64_t mean = (plan->kept + 3) / 4;
  const int64_t bad[] = {mean - 1, plan->peakKept + 1, -1, INT64_MAX};
  for (int i = 0; i < 4; i++) {
    memcpy(saved + forgeBoundKeptOffset, &bad[i], sizeof *bad);
    forgeSum(saved, bytes);
    ASSERT_RESULT(loadCopy(saved, bytes, &loaded), lrmoeCorrupt);
    ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "bounds kept pairs"));
  }
  memcpy(saved + forgeBoundKeptOffset, &plan->boundKept, sizeof *bad);
  memcpy(saved + forgeBoundForwardOffset, bad + 3, sizeof *bad);
  forgeSum(saved, bytes);
  ASSERT_RESULT(loadCopy(saved, bytes, &loaded), lrmoeCorrupt);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "bounds forward pairs"));
  free(saved);
  lrmoePlanDestroy(plan);
}
END_TEST

/* Policy fixed has one placement, so its bounds are its peaks. */
START_TEST(boundsOfFixedAreItsPeaks) {
  lrmoePlan_t plan = somePlan(4, 9, 9), loaded = NULL;
  ck_assert_int_eq(plan->policy, lrmoePolicyFixed);
  size_t bytes;
  char *saved = save(plan, &bytes);
  int64_t mean = (plan->kept + 3) / 4;
  ck_assert_int_lt(mean, plan->peakKept);
  memcpy(saved + forgeBoundKeptOffset, &mean, sizeof mean);
  forgeSum(saved, bytes);
  ASSERT_RESULT(loadCopy(saved, bytes, &loaded), lrmoeCorrupt);
  ck_assert_msg(strstr(lrmoeGetLastError(), "not its peaks") != NULL, "%s",
                lrmoeGetLastError());
  free(saved);
  lrmoePlanDestroy(plan);
}
END_TEST

/* forgeSum itself is right: otherwise the test above tests nothing. */
START_TEST(forgedSumOfWholeDataIsTheSum) {
  lrmoePlan_t plan = somePlan(3, 4, 5), loaded = NULL;
  size_t bytes;
  char *saved = save(plan, &bytes);
  memset(saved + forgeSumOffset, 0, sizeof(uint64_t));
  ASSERT_RESULT(loadCopy(saved, bytes, &loaded), lrmoeCorrupt);
  forgeSum(saved, bytes);
  ASSERT_OK(loadCopy(saved, bytes, &loaded));
  lrmoePlanDestroy(loaded);
  lrmoePlanDestroy(plan);
  free(saved);
}
END_TEST

START_TEST(badArguments) {
  lrmoePlan_t plan = NULL;
  char byte = 0;
  ASSERT_RESULT(lrmoePlanLoad(NULL, 10, &plan), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoePlanLoad(&byte, 1, NULL), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoePlanLoad(&byte, 0, &plan), lrmoeCorrupt);
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  ASSERT_RESULT(lrmoePlanGetView(NULL, &view), lrmoeInvalidArgument);
}
END_TEST

START_TEST(shorterViewIsWrittenByPrefix) {
  lrmoePlan_t plan = somePlan(2, 3, 6);
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  view.size = offsetof(lrmoePlanView_t, demand);
  view.numRanks = 12345;
  ASSERT_OK(lrmoePlanGetView(plan, &view));
  ck_assert_uint_eq(view.hash, plan->hash);
  ck_assert_int_eq(view.pairs, plan->pairs);
  ck_assert_ptr_null(view.demand);
  ck_assert_int_eq(view.numRanks, 12345);
  view.magic = 0;
  ASSERT_RESULT(lrmoePlanGetView(plan, &view), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoePlanGetView(plan, NULL), lrmoeInvalidArgument);
  lrmoePlanDestroy(plan);
}
END_TEST

START_TEST(allocationFault) {
  lrmoePlan_t plan = somePlan(2, 3, 7), loaded = NULL;
  size_t bytes;
  char *saved = save(plan, &bytes);
  lrmoeAllocFailAt(1);
  ASSERT_RESULT(lrmoePlanLoad(saved, bytes, &loaded), lrmoeOutOfMemory);
  lrmoeAllocFailAt(0);
  ck_assert_ptr_null(loaded);
  free(saved);
  lrmoePlanDestroy(plan);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("plan save");
  TCase *tcase = tcase_create("save");
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, roundTrip, 0, 20);
  tcase_add_test(tcase, saveAsksForRoom);
  tcase_add_test(tcase, everyTruncationIsRefused);
  tcase_add_test(tcase, everyFlippedBitIsRefused);
  tcase_add_loop_test(tcase, forgedDataNeverBreaksInvariants, 0, 6);
  tcase_add_test(tcase, boundsMustBePossible);
  tcase_add_test(tcase, boundsOfFixedAreItsPeaks);
  tcase_add_test(tcase, forgedSumOfWholeDataIsTheSum);
  tcase_add_test(tcase, badArguments);
  tcase_add_test(tcase, shorterViewIsWrittenByPrefix);
  tcase_add_test(tcase, allocationFault);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
