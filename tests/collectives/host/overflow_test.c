/* Gradients that are not finite: nothing is updated, and the caller is told. */
#include "fixture.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is pushed at one element, and with which scale. */
struct overflow {
  float values[2]; /* one push each */
  double scale;
};

static const struct overflow overflows[] = {
    {{NAN, 0}, 1},
    {{INFINITY, 0}, 1},
    {{-INFINITY, 0}, 1},
    {{INFINITY, -INFINITY}, 1},
    {{FLT_MAX, FLT_MAX}, 1e-30}, /* the sum */
    {{FLT_MAX, 0}, 1},           /* the square */
    {{-1.9e19f, 0}, 1},
    {{1e10f, 0}, 1e30}, /* the product */
};

static const struct overflow harmless[] = {
    {{FLT_MAX, 0}, 1e-30},  {{FLT_MAX, -FLT_MAX}, 1}, {{1.8e19f, 0}, 1},
    {{-1e-30f, 1e-45f}, 1}, {{1e-10f, 0}, 1e28},
};

enum {
  numOverflows = sizeof overflows / sizeof *overflows,
  numHarmless = sizeof harmless / sizeof *harmless
};

static void pushOverflow(lrmoeHostOptimizer_t optimizer,
                         const struct overflow *overflow, int64_t element) {
  int64_t count = optimizer->state.numElements;
  float *gradients = calloc((size_t)count, sizeof *gradients);
  ck_assert_ptr_nonnull(gradients);
  for (int push = 0; push < 2; push++) {
    gradients[element] = overflow->values[push];
    fixturePush(optimizer, gradients);
  }
  free(gradients);
}

static void pushOrdinary(lrmoeHostOptimizer_t optimizer, uint64_t seed) {
  struct naiveRandom random = {seed};
  float *gradients =
      naiveRandomArray(&random, lrmoeFloat32, optimizer->state.numElements, 1);
  fixturePush(optimizer, gradients);
  free(gradients);
}

/* At the first element, the last, and between. */
static int64_t elementOf(lrmoeHostOptimizer_t optimizer, int place) {
  return place * (optimizer->state.numElements - 1) / 2;
}

/* Two optimizers make the same steps; one meets an overflow between. */
START_TEST(skipsTheStepAndGoesOn) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  config.numThreads = 1 + _i % 3;
  const struct overflow *overflow = &overflows[_i / 3];
  lrmoeHostOptimizer_t met = fixtureRandom(&config);
  lrmoeHostOptimizer_t spared = fixtureRandom(&config);
  pushOrdinary(met, 1);
  pushOrdinary(spared, 1);
  fixtureStep(met, 0.01, 1);
  fixtureStep(spared, 0.01, 1);

  pushOrdinary(met, 2);
  pushOverflow(met, overflow, elementOf(met, _i % 3));
  int32_t isFinite = -1, isSkipped = -1;
  ASSERT_OK(lrmoeHostOptimizerCheck(met, overflow->scale, &isFinite));
  ck_assert_int_eq(isFinite, 0);
  ASSERT_OK(lrmoeHostOptimizerStep(met, 0.01, overflow->scale, &isSkipped));
  ck_assert_int_eq(isSkipped, 1);
  fixtureSame(met, spared);
  lrmoeHostOptimizerStats_t stats = fixtureStats(met);
  ck_assert_int_eq(stats.steps, 1);
  ck_assert_int_eq(stats.skippedSteps, 1);

  pushOrdinary(met, 3);
  pushOrdinary(spared, 3);
  fixtureStep(met, 0.01, 1);
  fixtureStep(spared, 0.01, 1);
  fixtureSame(met, spared);
  lrmoeHostOptimizerDestroy(met);
  lrmoeHostOptimizerDestroy(spared);
}
END_TEST

/* What is large or small but in range is no overflow, and leaves the state
 * finite. */
START_TEST(takesWhatIsInRange) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  const struct overflow *overflow = &harmless[_i];
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  pushOverflow(optimizer, overflow, 5);
  int32_t isFinite = -1;
  ASSERT_OK(lrmoeHostOptimizerCheck(optimizer, overflow->scale, &isFinite));
  ck_assert_int_eq(isFinite, 1);
  fixtureStep(optimizer, 0.01, overflow->scale);
  ck_assert(isfinite(optimizer->state.weights[5]));
  ck_assert(isfinite(optimizer->state.first[5]));
  ck_assert(isfinite(optimizer->state.second[5]));
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

START_TEST(updatesWhenToldTo) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  config.skipNonFinite = 0;
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  pushOverflow(optimizer, &overflows[0], 5);
  int32_t isSkipped = -1;
  ASSERT_OK(lrmoeHostOptimizerStep(optimizer, 0.01, 1, &isSkipped));
  ck_assert_int_eq(isSkipped, 1);
  ck_assert_int_eq(fixtureStats(optimizer).steps, 1);
  ck_assert_int_eq(fixtureStats(optimizer).skippedSteps, 0);
  float *weights = fixturePull(optimizer, lrmoeFloat32);
  for (int64_t i = 0; i < optimizer->state.numElements; i++)
    ck_assert_int_eq(isnan(weights[i]) != 0, i == 5);
  free(weights);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

/* Another rank's overflow: this one discards gradients that are in order. */
START_TEST(discardForgetsGradients) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  lrmoeHostOptimizer_t spared = fixtureRandom(&config);
  ASSERT_OK(lrmoeHostOptimizerDiscard(optimizer)); /* of nothing */
  pushOrdinary(optimizer, 1);
  ASSERT_OK(lrmoeHostOptimizerDiscard(optimizer));
  fixtureSame(optimizer, spared);
  fixtureStep(optimizer, 0.01, 1);
  fixtureStep(spared, 0.01, 1);
  fixtureSame(optimizer, spared);
  lrmoeHostOptimizerDestroy(optimizer);
  lrmoeHostOptimizerDestroy(spared);
}
END_TEST

/* A check changes nothing, and nothing pushed is finite. */
START_TEST(checkOnlyLooks) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  lrmoeHostOptimizer_t unchecked = fixtureRandom(&config);
  int32_t isFinite = -1;
  ASSERT_OK(lrmoeHostOptimizerCheck(optimizer, 1, &isFinite));
  ck_assert_int_eq(isFinite, 1);
  pushOrdinary(optimizer, 1);
  pushOrdinary(unchecked, 1);
  ASSERT_OK(lrmoeHostOptimizerCheck(optimizer, 1, &isFinite));
  fixtureStep(optimizer, 0.01, 1);
  fixtureStep(unchecked, 0.01, 1);
  fixtureSame(optimizer, unchecked);
  lrmoeHostOptimizerDestroy(optimizer);
  lrmoeHostOptimizerDestroy(unchecked);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("host overflow");
  TCase *tests = tcase_create("overflow");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, skipsTheStepAndGoesOn, 0, 3 * numOverflows);
  tcase_add_loop_test(tests, takesWhatIsInRange, 0, numHarmless);
  tcase_add_test(tests, updatesWhenToldTo);
  tcase_add_test(tests, discardForgetsGradients);
  tcase_add_test(tests, checkOnlyLooks);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
