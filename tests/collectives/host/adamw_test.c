/* AdamW against a naive computation in double, and what goes in and out. */
#include "fixture.h"

#include <math.h>
#include <stdlib.h>

/* ---- The reference ---------------------------------------------------- */

/* Algorithm 2 of the paper "Decoupled Weight Decay Regularization", one
 * parameter, with its schedule multiplier as lr and alpha = 1. */
struct reference {
  double weight;
  double first;
  double second;
};

static void referenceStep(struct reference *r,
                          const lrmoeHostOptimizerConfig_t *config, int t,
                          double lr, double g) {
  r->first = config->beta1 * r->first + (1 - config->beta1) * g;
  r->second = config->beta2 * r->second + (1 - config->beta2) * g * g;
  double first = r->first / (1 - pow(config->beta1, t));
  double second = r->second / (1 - pow(config->beta2, t));
  r->weight -= lr * (first / (sqrt(second) + config->epsilon) +
                     config->weightDecay * r->weight);
}

struct training {
  lrmoeHostOptimizerConfig_t config;
  struct reference *references;
  lrmoeHostOptimizer_t optimizer;
  int64_t count;
  struct naiveRandom random;
};

static struct training begin(const lrmoeHostOptimizerConfig_t *config) {
  struct training run = {.config = *config, .random = {7}};
  run.optimizer = fixtureRandom(config);
  run.count = run.optimizer->state.numElements;
  run.references = calloc((size_t)run.count, sizeof *run.references);
  ck_assert_ptr_nonnull(run.references);
  float *weights = fixturePull(run.optimizer, lrmoeFloat32);
  for (int64_t i = 0; i < run.count; i++)
    run.references[i].weight = (double)weights[i];
  free(weights);
  return run;
}

/* One step: some pushes, of very different sizes from element to element, some
 * of them all zero. */
static void train(struct training *run, int t) {
  int numPushes = (int)naiveRandomBelow(&run->random, 4);
  double lr = 0.01 / (1 + t % 7), scale = 1.0 / (1 << t % 11);
  double *sums = calloc((size_t)run->count, sizeof *sums);
  float *gradients = malloc((size_t)run->count * sizeof *gradients);
  for (int push = 0; push < numPushes; push++) {
    for (int64_t i = 0; i < run->count; i++) {
      double size = i % 5 ? ldexp(1, (int)(i % 23) - 11) : 0;
      gradients[i] = (float)(size * naiveRandomUnit(&run->random));
      sums[i] += (double)gradients[i];
    }
    fixturePush(run->optimizer, gradients);
  }
  fixtureStep(run->optimizer, lr, scale);
  for (int64_t i = 0; i < run->count; i++)
    referenceStep(&run->references[i], &run->config, t, lr, sums[i] * scale);
  free(gradients);
  free(sums);
}

static void compare(struct training *run, int t) {
  float *weights = fixturePull(run->optimizer, lrmoeFloat32);
  for (int64_t i = 0; i < run->count; i++) {
    double expected = run->references[i].weight;
    double error = fabs((double)weights[i] - expected);
    ck_assert_msg(error <= 5e-6 * (1 + fabs(expected)),
                  "step %d, element %lld: %.9g, expected %.9g", t, (long long)i,
                  (double)weights[i], expected);
  }
  free(weights);
}

START_TEST(followsTheReference) {
  static const struct {
    double beta1, beta2, epsilon, weightDecay;
    int32_t numThreads;
  } cases[] = {{0.9, 0.999, 1e-8, 0.01, 1},
               {0.9, 0.95, 1e-8, 0.1, 3},
               {0, 0.999, 1e-8, 0, 2},
               {0.5, 0.6, 1e-3, 1, 1}};
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  config.beta1 = cases[_i].beta1;
  config.beta2 = cases[_i].beta2;
  config.epsilon = cases[_i].epsilon;
  config.weightDecay = cases[_i].weightDecay;
  config.numThreads = cases[_i].numThreads;
  struct training run = begin(&config);
  for (int t = 1; t <= 200; t++) {
    train(&run, t);
    compare(&run, t);
  }
  ck_assert_int_eq(fixtureStats(run.optimizer).steps, 200);
  lrmoeHostOptimizerDestroy(run.optimizer);
  free(run.references);
}
END_TEST

/* ---- By hand ---------------------------------------------------------- */

static const struct fixtureShape one = {1, 1, {1}};

static float stepOne(lrmoeHostOptimizer_t optimizer, float g, double lr) {
  float weight = 0;
  ASSERT_OK(lrmoeHostOptimizerPush(optimizer, 0, 0, &g, 1));
  fixtureStep(optimizer, lr, 1);
  ASSERT_OK(lrmoeHostOptimizerPull(optimizer, 0, 0, lrmoeFloat32, &weight));
  return weight;
}

/* With both biases corrected the first update is lr in the direction of the
 * gradient, whatever its size. */
START_TEST(firstStepIsTheLearningRate) {
  static const float gradients[] = {1e-4f, 0.5f, 100, -3, -1e9f};
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&one);
  config.weightDecay = 0.1;
  float weight = 1;
  lrmoeHostOptimizer_t optimizer =
      fixtureCreate(&config, lrmoeFloat32, &weight);
  double expected = 1 - 0.01 * copysign(1, (double)gradients[_i]) - 0.001;
  double got = (double)stepOne(optimizer, gradients[_i], 0.01);
  ck_assert_double_eq_tol(got, expected, 2e-6);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

START_TEST(learningRateZeroChangesNoWeight) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&one);
  float weight = 1.25f;
  lrmoeHostOptimizer_t optimizer =
      fixtureCreate(&config, lrmoeFloat32, &weight);
  ck_assert_float_eq(stepOne(optimizer, 3, 0), 1.25f);
  ck_assert_float_eq(optimizer->state.first[0], 0.3f);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

START_TEST(withoutGradientOnlyDecays) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&one);
  config.weightDecay = 0.5;
  float weight = 3, got = 0;
  lrmoeHostOptimizer_t optimizer =
      fixtureCreate(&config, lrmoeFloat32, &weight);
  for (int t = 0; t < 100; t++)
    fixtureStep(optimizer, 0.01, 1);
  ASSERT_OK(lrmoeHostOptimizerPull(optimizer, 0, 0, lrmoeFloat32, &got));
  ck_assert_double_eq_tol((double)got, 3 * pow(1 - 0.005, 100), 1e-5);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

/* ---- In and out ------------------------------------------------------- */

START_TEST(weightsOfEveryTypeComeBack) {
  lrmoeDataType_t type = naiveTypes[_i];
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  struct naiveRandom random = {3};
  int64_t count = fixtureElements(&smallShape);
  void *weights = naiveRandomArray(&random, type, count, 5);
  lrmoeHostOptimizer_t optimizer = fixtureCreate(&config, type, weights);
  void *same = fixturePull(optimizer, type);
  float *wide = fixturePull(optimizer, lrmoeFloat32);
  ck_assert_mem_eq(same, weights, (size_t)count * naiveTypeBytes(type));
  for (int64_t i = 0; i < count; i++)
    ck_assert_double_eq((double)wide[i], naiveGet(type, weights, i));
  lrmoeHostOptimizerDestroy(optimizer);
  free(weights);
  free(same);
  free(wide);
}
END_TEST

/* Random weights, and values halfway between two of the type. */
START_TEST(pullRoundsToNearestEven) {
  lrmoeDataType_t type = naiveTypes[_i];
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  int64_t count = fixtureElements(&smallShape);
  struct naiveRandom random = {4};
  float *weights = naiveRandomArray(&random, lrmoeFloat32, count, 70000);
  for (int64_t i = 0; i < count; i += 2)
    weights[i] = 1 + ldexpf((float)i, type == lrmoeBfloat16 ? -8 : -11);
  lrmoeHostOptimizer_t optimizer =
      fixtureCreate(&config, lrmoeFloat32, weights);
  void *got = fixturePull(optimizer, type);
  for (int64_t i = 0; i < count; i++) {
    double expected = type == lrmoeFloat32
                          ? (double)weights[i]
                          : naiveRound(type, (double)weights[i]);
    ck_assert_double_eq(naiveGet(type, got, i), expected);
  }
  lrmoeHostOptimizerDestroy(optimizer);
  free(weights);
  free(got);
}
END_TEST

/* A gradient goes to its own tensor, and neither to its neighbours nor to
 * other experts. */
START_TEST(tensorsAreApart) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&smallShape);
  config.weightDecay = 0;
  int32_t expert = _i / smallShape.numTensors,
          tensor = _i % smallShape.numTensors;
  int64_t first = fixtureFirst(&smallShape, expert, tensor);
  int64_t end = first + smallShape.elements[tensor];
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  float *before = fixturePull(optimizer, lrmoeFloat32);
  float *gradient = malloc((size_t)(end - first) * sizeof *gradient);
  for (int64_t i = 0; i < end - first; i++)
    gradient[i] = 1;
  ASSERT_OK(
      lrmoeHostOptimizerPush(optimizer, expert, tensor, gradient, end - first));
  fixtureStep(optimizer, 0.1, 1);
  float *after = fixturePull(optimizer, lrmoeFloat32);
  for (int64_t i = 0; i < fixtureElements(&smallShape); i++) {
    double moved = (double)before[i] - (double)after[i];
    if (i >= first && i < end)
      ck_assert_double_eq_tol(moved, 0.1, 1e-6);
    else
      ck_assert_double_eq(moved, 0);
  }
  lrmoeHostOptimizerDestroy(optimizer);
  free(gradient);
  free(before);
  free(after);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("host adamw");
  TCase *tests = tcase_create("adamw");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, followsTheReference, 0, 4);
  tcase_add_loop_test(tests, firstStepIsTheLearningRate, 0, 5);
  tcase_add_test(tests, learningRateZeroChangesNoWeight);
  tcase_add_test(tests, withoutGradientOnlyDecays);
  tcase_add_loop_test(tests, weightsOfEveryTypeComeBack, 0, 3);
  tcase_add_loop_test(tests, pullRoundsToNearestEven, 0, 3);
  tcase_add_loop_test(tests, tensorsAreApart, 0, 9);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
