/* What is refused, by name, and that a refusal changes nothing. */
#include "base/alloc.h"
#include "fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Configurations --------------------------------------------------- */

enum field {
  fieldExperts,
  fieldTensors,
  fieldThreads,
  fieldSkip,
  fieldQueue,
  fieldBeta1,
  fieldBeta2,
  fieldEpsilon,
  fieldDecay,
  fieldElements
};

static const struct {
  enum field field;
  double value;
  const char *said;
} wrongs[] = {
    {fieldExperts, 0, "numExperts is 0"},
    {fieldExperts, -1, "numExperts is -1"},
    {fieldExperts, 1 << 21, "numExperts is"},
    {fieldTensors, 0, "numTensors is 0"},
    {fieldTensors, 5000, "numTensors is 5000"},
    {fieldThreads, 0, "numThreads is 0"},
    {fieldThreads, 65, "numThreads is 65"},
    {fieldSkip, 2, "skipNonFinite is 2"},
    {fieldQueue, 0, "queueBytes is 0"},
    {fieldQueue, -5, "queueBytes is -5"},
    {fieldQueue, 0x1p41, "queueBytes is"},
    {fieldBeta1, 1, "beta1 is 1"},
    {fieldBeta1, -0.1, "beta1 is -0.1"},
    {fieldBeta1, NAN, "beta1 is"},
    {fieldBeta2, 1, "beta2 is 1"},
    {fieldBeta2, -1, "beta2 is -1"},
    {fieldEpsilon, 0, "epsilon is 0"},
    {fieldEpsilon, 1e-40, "epsilon is 1e-40"},
    {fieldEpsilon, INFINITY, "epsilon is inf"},
    {fieldDecay, -1, "weightDecay is -1"},
    {fieldDecay, NAN, "weightDecay is"},
    {fieldElements, 0, "tensor 1 has 0 elements"},
    {fieldElements, -7, "tensor 1 has -7 elements"},
    {fieldElements, 0x1p40, "up to tensor 1, 3 experts have more than"},
    {fieldElements, 0x1p62, "up to tensor 1, 3 experts have more than"},
};

static void spoil(lrmoeHostOptimizerConfig_t *config, int64_t *elements,
                  enum field field, double value) {
  switch (field) {
  case fieldExperts:
    config->numExperts = (int32_t)value;
    break;
  case fieldTensors:
    config->numTensors = (int32_t)value;
    break;
  case fieldThreads:
    config->numThreads = (int32_t)value;
    break;
  case fieldSkip:
    config->skipNonFinite = (int32_t)value;
    break;
  case fieldQueue:
    config->queueBytes = (int64_t)value;
    break;
  case fieldBeta1:
    config->beta1 = value;
    break;
  case fieldBeta2:
    config->beta2 = value;
    break;
  case fieldEpsilon:
    config->epsilon = value;
    break;
  case fieldDecay:
    config->weightDecay = value;
    break;
  case fieldElements:
    elements[1] = (int64_t)value;
    break;
  }
}

static const float someWeights[1024];
static const void *const somePointers[9] = {
    someWeights, someWeights, someWeights, someWeights, someWeights,
    someWeights, someWeights, someWeights, someWeights};

START_TEST(configErrorsOneByOne) {
  struct fixtureShape shape = smallShape;
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&shape);
  spoil(&config, shape.elements, wrongs[_i].field, wrongs[_i].value);
  lrmoeHostOptimizer_t optimizer = NULL;
  ASSERT_RESULT(
      lrmoeHostOptimizerCreate(&config, lrmoeFloat32, somePointers, &optimizer),
      lrmoeInvalidArgument);
  ck_assert_ptr_null(optimizer);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), wrongs[_i].said));
}
END_TEST

START_TEST(createArguments) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  lrmoeHostOptimizer_t optimizer = NULL;
  const void *holed[9];
  memcpy(holed, somePointers, sizeof holed);
  holed[7] = NULL;
  ASSERT_RESULT(
      lrmoeHostOptimizerCreate(NULL, lrmoeFloat32, somePointers, &optimizer),
      lrmoeInvalidArgument);
  ASSERT_RESULT(
      lrmoeHostOptimizerCreate(&config, lrmoeFloat32, somePointers, NULL),
      lrmoeInvalidArgument);
  ASSERT_RESULT(
      lrmoeHostOptimizerCreate(&config, lrmoeFloat32, NULL, &optimizer),
      lrmoeInvalidArgument);
  ASSERT_RESULT(
      lrmoeHostOptimizerCreate(&config, lrmoeInt32, somePointers, &optimizer),
      lrmoeInvalidArgument);
  ASSERT_RESULT(
      lrmoeHostOptimizerCreate(&config, lrmoeFloat32, holed, &optimizer),
      lrmoeInvalidArgument);
  ck_assert_str_eq(lrmoeGetLastError(),
                   "the weights of expert 2, tensor 1 are NULL");
  config.tensorElements = NULL;
  ASSERT_RESULT(
      lrmoeHostOptimizerCreate(&config, lrmoeFloat32, somePointers, &optimizer),
      lrmoeInvalidArgument);
  ck_assert_ptr_null(optimizer);
}
END_TEST

/* A program built against a header with fewer fields. */
START_TEST(shorterConfigGetsDefaults) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  config.numThreads = 55;
  config.skipNonFinite = 55;
  config.size = offsetof(lrmoeHostOptimizerConfig_t, numThreads);
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  ck_assert_int_eq(optimizer->team.numWorkers, 1);
  ck_assert_int_eq(optimizer->skipNonFinite, 1);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

START_TEST(shorterStatsAreWrittenByPrefix) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  fixtureStep(optimizer, 0.1, 1);
  lrmoeHostOptimizerStats_t stats = LRMOE_HOST_OPTIMIZER_STATS_INITIALIZER;
  stats.size = offsetof(lrmoeHostOptimizerStats_t, stateBytes);
  stats.stateBytes = 12345;
  ASSERT_OK(lrmoeHostOptimizerGetStats(optimizer, &stats));
  ck_assert_int_eq(stats.steps, 1);
  ck_assert_int_eq(stats.stateBytes, 12345);
  ASSERT_RESULT(lrmoeHostOptimizerGetStats(optimizer, NULL),
                lrmoeInvalidArgument);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

/* ---- Calls ------------------------------------------------------------ */

START_TEST(nullOptimizer) {
  int32_t flag;
  float number = 0;
  size_t bytes = 0;
  lrmoeHostOptimizerStats_t stats = LRMOE_HOST_OPTIMIZER_STATS_INITIALIZER;
  ASSERT_OK(lrmoeHostOptimizerDestroy(NULL));
  const lrmoeResult_t results[] = {
      lrmoeHostOptimizerPush(NULL, 0, 0, &number, 1),
      lrmoeHostOptimizerTryPush(NULL, 0, 0, &number, 1),
      lrmoeHostOptimizerFlush(NULL),
      lrmoeHostOptimizerCheck(NULL, 1, &flag),
      lrmoeHostOptimizerDiscard(NULL),
      lrmoeHostOptimizerStep(NULL, 0.1, 1, &flag),
      lrmoeHostOptimizerPull(NULL, 0, 0, lrmoeFloat32, &number),
      lrmoeHostOptimizerSave(NULL, NULL, &bytes),
      lrmoeHostOptimizerLoad(NULL, &number, 1),
      lrmoeHostOptimizerGetStats(NULL, &stats)};
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    ck_assert_int_eq(results[i], lrmoeInvalidArgument);
}
END_TEST

/* Every place outside the tensors, for all that names one. */
START_TEST(placesThatAreNone) {
  static const int32_t places[][2] = {
      {-1, 0}, {3, 0}, {0, -1}, {0, 3}, {INT32_MAX, INT32_MIN}};
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  float numbers[256] = {0};
  int32_t e = places[_i][0], t = places[_i][1];
  ASSERT_RESULT(lrmoeHostOptimizerPush(optimizer, e, t, numbers, 37),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeHostOptimizerTryPush(optimizer, e, t, numbers, 37),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeHostOptimizerPull(optimizer, e, t, lrmoeFloat32, numbers),
                lrmoeInvalidArgument);
  ck_assert_int_eq(fixtureStats(optimizer).pushes, 0);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

START_TEST(callArguments) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  lrmoeHostOptimizer_t untouched = fixtureRandom(&config);
  float numbers[256] = {0};
  int32_t flag = -1;
  const lrmoeResult_t results[] = {
      lrmoeHostOptimizerPush(optimizer, 0, 0, NULL, 37),
      lrmoeHostOptimizerPush(optimizer, 0, 0, numbers, 36),
      lrmoeHostOptimizerPush(optimizer, 0, 0, numbers, 38),
      lrmoeHostOptimizerPush(optimizer, 0, 0, numbers, -37),
      lrmoeHostOptimizerTryPush(optimizer, 0, 0, numbers, 0),
      lrmoeHostOptimizerTryPush(optimizer, 0, 0, NULL, 37),
      lrmoeHostOptimizerPull(optimizer, 0, 0, lrmoeFloat32, NULL),
      lrmoeHostOptimizerPull(optimizer, 0, 0, lrmoeFloat64, numbers),
      lrmoeHostOptimizerCheck(optimizer, 1, NULL),
      lrmoeHostOptimizerCheck(optimizer, 0, &flag),
      lrmoeHostOptimizerCheck(optimizer, INFINITY, &flag),
      lrmoeHostOptimizerStep(optimizer, 0.1, 1, NULL),
      lrmoeHostOptimizerStep(optimizer, 0.1, 0, &flag),
      lrmoeHostOptimizerStep(optimizer, 0.1, -1, &flag),
      lrmoeHostOptimizerStep(optimizer, 0.1, 1e-40, &flag),
      lrmoeHostOptimizerStep(optimizer, 0.1, NAN, &flag),
      lrmoeHostOptimizerStep(optimizer, -0.1, 1, &flag),
      lrmoeHostOptimizerStep(optimizer, NAN, 1, &flag),
      lrmoeHostOptimizerStep(optimizer, INFINITY, 1, &flag),
      lrmoeHostOptimizerStep(optimizer, 1e38, 1, &flag), /* / (1 - beta1) */
      lrmoeHostOptimizerSave(optimizer, numbers, NULL),
      lrmoeHostOptimizerLoad(optimizer, NULL, 100)};
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    ck_assert_msg(results[i] == lrmoeInvalidArgument, "call %zu: %s", i,
                  lrmoeGetErrorString(results[i]));
  ck_assert_int_eq(flag, -1);
  fixtureSame(optimizer, untouched);
  lrmoeHostOptimizerDestroy(optimizer);
  lrmoeHostOptimizerDestroy(untouched);
}
END_TEST

/* ---- Memory ----------------------------------------------------------- */

/* Creation survives the failure of each allocation; later calls have none. */
START_TEST(allocationFaults) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  lrmoeHostOptimizer_t optimizer = NULL;
  int numFaults = 0;
  for (; !optimizer; numFaults++) {
    lrmoeAllocFailAt(numFaults + 1);
    lrmoeResult_t result = lrmoeHostOptimizerCreate(&config, lrmoeFloat32,
                                                    somePointers, &optimizer);
    lrmoeAllocFailAt(0);
    ck_assert_int_eq(result, optimizer ? lrmoeSuccess : lrmoeOutOfMemory);
  }
  /* Handle, offsets, state, workers, pieces and their room. */
  ck_assert_int_eq(numFaults - 1, 6);
  ASSERT_OK(lrmoeHostOptimizerPush(optimizer, 0, 0, someWeights, 37));
  fixtureStep(optimizer, 0.1, 1);
  size_t bytes;
  char *saved = fixtureSave(optimizer, &bytes);
  ASSERT_OK(lrmoeHostOptimizerLoad(optimizer, saved, bytes));
  free(saved);
  ck_assert_int_eq(lrmoeAllocFailAt(0), 0);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("host misuse");
  TCase *tests = tcase_create("misuse");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, configErrorsOneByOne, 0,
                      sizeof wrongs / sizeof *wrongs);
  tcase_add_test(tests, createArguments);
  tcase_add_test(tests, shorterConfigGetsDefaults);
  tcase_add_test(tests, shorterStatsAreWrittenByPrefix);
  tcase_add_test(tests, nullOptimizer);
  tcase_add_loop_test(tests, placesThatAreNone, 0, 5);
  tcase_add_test(tests, callArguments);
  tcase_add_test(tests, allocationFaults);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
