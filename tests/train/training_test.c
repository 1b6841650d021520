/* Updates of a tiny model: the loss falls, ranks and replicas change nothing
 * but rounding, and dropped pairs change something. */
#include "perf/train/optimizer.h"
#include "support/suite.h"
#include "tiny.h"

#include <math.h>
#include <string.h>

/* Losses of ten updates on one batch, in memory that ranks share. */
struct curve {
  struct trainConfig config;
  double losses[10];
};

static enum toolExit runCurve(const struct toolRank *self) {
  struct curve *curve = self->user;
  struct trainModel model;
  struct trainOptimizer optimizer = {0};
  struct trainMoeFigures figures = {0};
  enum toolExit code = trainModelOpen(self, &curve->config, &model);
  if (code == toolGood) code = trainOptimizerOpen(&model, &optimizer);
  if (code == toolGood) tinySet(&model);
  for (int i = 0; i < 10 && code == toolGood; i++) {
    double loss = 0, norm = 0;
    code = tinyLoss(&model, &loss);
    if (self->rank == 0) curve->losses[i] = loss;
    if (code == toolGood) code = trainModelForward(&model);
    if (code) break;
    trainModelScore(&model, tinyTokens(&model));
    code = trainModelBackward(&model, tinyTokens(&model), 1, &figures);
    trainModelEnd(&model);
    if (code == toolGood) code = trainOptimizerStep(&optimizer, 1e-2, &norm);
  }
  trainOptimizerClose(&optimizer);
  trainModelClose(&model);
  return code;
}

static void runCurveOn(int numRanks, const struct trainConfig *config,
                       double losses[10]) {
  struct curve *curve = toolSharedAlloc(sizeof *curve);
  struct toolError error = {""};
  ck_assert_ptr_nonnull(curve);
  curve->config = *config;
  int code = toolRanksRun(numRanks, runCurve, curve, NULL, &error);
  ck_assert_msg(code == 0, "%d ranks: %s", numRanks, error.text);
  memcpy(losses, curve->losses, sizeof curve->losses);
  toolSharedFree(curve, sizeof *curve);
}

/* The loss falls from that of the uniform distribution; twice the same is the
 * same to the last bit; other numbers of ranks, and replicas, differ by
 * rounding only. */
START_TEST(ranksChangeNothing) {
  struct trainConfig config = tinyConfig();
  config.clip = 1;
  double one[10], again[10], other[10];
  runCurveOn(1, &config, one);
  runCurveOn(1, &config, again);
  ck_assert_mem_eq(one, again, sizeof one);
  ck_assert_double_eq_tol(one[0], log(256) + 2 * 0.05, 0.1);
  ck_assert(one[9] < 0.7 * one[0]);
  for (int numRanks = 2; numRanks <= 4; numRanks++) {
    runCurveOn(numRanks, &config, other);
    for (int i = 0; i < 10; i++)
      ck_assert_double_eq_tol(other[i], one[i], 2e-3);
  }
  config.policy = lrmoePolicyLrmoe;
  config.numSlots = 1;
  runCurveOn(2, &config, other);
  for (int i = 0; i < 10; i++)
    ck_assert_double_eq_tol(other[i], one[i], 2e-3);
}
END_TEST

/* Half of the pairs in backward: another curve, which falls too. */
START_TEST(halfOfThePairs) {
  struct trainConfig config = tinyConfig();
  double whole[10], half[10];
  runCurveOn(2, &config, whole);
  config.retain = 0.5;
  runCurveOn(2, &config, half);
  ck_assert(half[0] == whole[0]);
  ck_assert(half[9] != whole[9]);
  ck_assert(half[9] < 0.75 * half[0]);
}
END_TEST

/* A line up, a cosine down to a tenth. */
START_TEST(learningRate) {
  struct trainConfig config = {
      .numSteps = 110, .warmup = 10, .learningRate = 2};
  ck_assert_double_eq_tol(trainLearningRate(&config, 0), 0.2, 1e-12);
  ck_assert_double_eq_tol(trainLearningRate(&config, 9), 2, 1e-12);
  ck_assert_double_eq_tol(trainLearningRate(&config, 10), 2, 1e-12);
  ck_assert_double_eq_tol(trainLearningRate(&config, 60), 1.1, 1e-12);
  ck_assert_double_eq_tol(trainLearningRate(&config, 110), 0.2, 1e-12);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {ranksChangeNothing, halfOfThePairs,
                                learningRate};
  return suiteRunTests("training", tests, sizeof tests / sizeof *tests, 240);
}
