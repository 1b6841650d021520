/* Expert forward and backward against double, and against finite differences
 * of the forward pass alone. */
#include "problem.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const gemmNames[] = {"reference", "openblas", "onednn"};
static const lrmoeActivation_t activations[] = {lrmoeSwiglu, lrmoeGelu};

/* 0 if this build has no such module. */
static int contextMake(const char *gemm, const struct lrmoeExpertShape *shape,
                       struct lrmoeExpertContext **context) {
  lrmoeResult_t result = lrmoeExpertCpuOpen(shape, gemm, context);
  if (result == lrmoeNotInstalled) return 0;
  ck_assert_msg(result == lrmoeSuccess, "%s", lrmoeGetLastError());
  return 1;
}

/* Largest error relative to the largest expected value. */
static void assertClose(const float *got, const double *expected, int64_t count,
                        double tolerance, const char *what) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++)
    largest = fmax(largest, fabs(expected[i]));
  for (int64_t i = 0; i < count; i++)
    ck_assert_msg(fabs(got[i] - expected[i]) <= tolerance * largest,
                  "%s[%lld] = %g, expected %g (largest %g)", what, (long long)i,
                  (double)got[i], expected[i], largest);
}

static double toleranceOf(lrmoeDataType_t type) {
  if (type == lrmoeFloat32) return 1e-5;
  return type == lrmoeFloat16 ? 2e-3 : 2e-2;
}

static void checkProblem(struct problem *problem,
                         struct lrmoeExpertContext *context) {
  int64_t hidden = problem->shape.hidden;
  double tolerance = toleranceOf(problem->shape.type);
  struct naiveResults naive = problemNaive(problem);
  ASSERT_OK(problemForward(problem, context));
  ASSERT_OK(problemBackward(problem, context));
  assertClose(problem->y, naive.y, problem->numTokens * hidden, tolerance, "y");
  assertClose(problem->phiNorm, naive.phiNorm, problem->numRows, tolerance,
              "phiNorm");
  assertClose(problem->dx, naive.dx, problem->numRows * hidden, tolerance,
              "dx");
  assertClose(problem->dAlpha, naive.dAlpha, problem->numRows, tolerance,
              "dAlpha");
  assertClose(problem->dw1, naive.dw1, problem->fc1Width * hidden, tolerance,
              "dw1");
  assertClose(problem->dw2, naive.dw2, problem->shape.ffn * hidden, tolerance,
              "dw2");
  naiveResultsFree(&naive);
}

/* Every module, type and activation; row counts around the tile's. */
START_TEST(equalsTheNaivePasses) {
  struct naiveRandom random = {(uint64_t)_i};
  const int64_t tileRows = 16;
  const int64_t rowCounts[] = {0, 1, 15, 16, 17, 32, 45};
  struct lrmoeExpertShape shape = {
      .hidden = 8 * (1 + naiveRandomBelow(&random, 9)),
      .ffn = 8 * (1 + naiveRandomBelow(&random, 9)),
      .type = naiveTypes[_i / 3 % 3],
      .activation = activations[_i / 9],
  };
  struct lrmoeExpertContext *context = NULL;
  if (!contextMake(gemmNames[_i % 3], &shape, &context)) return;
  context->tileRows = tileRows;
  for (size_t r = 0; r < sizeof rowCounts / sizeof *rowCounts; r++) {
    struct problem problem = problemMake(&random, &shape, rowCounts[r]);
    checkProblem(&problem, context);
    problemFree(&problem);
  }
  lrmoeExpertCpuClose(context);
}
END_TEST

/* The tile that the library chooses, once across its boundary. */
START_TEST(chosenTileRuns) {
  struct naiveRandom random = {3};
  struct lrmoeExpertShape shape = {16, 24, lrmoeFloat32, lrmoeSwiglu};
  struct lrmoeExpertContext *context = NULL;
  ASSERT_OK(lrmoeExpertCpuOpen(&shape, "reference", &context));
  ck_assert_int_ge(context->tileRows, 16);
  struct problem problem = problemMake(&random, &shape, context->tileRows + 1);
  checkProblem(&problem, context);
  ck_assert_int_ge((int64_t)context->scratch.bytes,
                   lrmoeExpertCpuScratchBytes(context));
  problemFree(&problem);
  lrmoeExpertCpuClose(context);
}
END_TEST

/* d(loss)/d(value) of one fp32 parameter by central differences. */
static double slopeOf(struct problem *problem, float *value) {
  const float step = 1e-2f;
  float kept = *value;
  float above = kept + step;
  float below = kept - step;
  *value = above;
  double lossAbove = problemLoss(problem);
  *value = below;
  double lossBelow = problemLoss(problem);
  *value = kept;
  return (lossAbove - lossBelow) / ((double)above - below);
}

static void assertSlope(struct problem *problem, float *value, double got,
                        const char *what) {
  double slope = slopeOf(problem, value);
  ck_assert_msg(fabs(got - slope) <= 2e-3 * (1 + fabs(slope)),
                "%s: %g, the difference quotient is %g", what, got, slope);
}

START_TEST(equalsFiniteDifferences) {
  struct naiveRandom random = {(uint64_t)_i + 40};
  struct lrmoeExpertShape shape = {8, 16, lrmoeFloat32, activations[_i]};
  struct lrmoeExpertContext *context = NULL;
  ASSERT_OK(lrmoeExpertCpuOpen(&shape, "reference", &context));
  struct problem problem = problemMake(&random, &shape, 10);
  /* One row per token, so that dx of a row is that of its token. */
  problem.numRows = problem.numTokens;
  for (int64_t i = 0; i < problem.numRows; i++)
    problem.token[i] = i;
  ASSERT_OK(problemForward(&problem, context));
  ASSERT_OK(problemBackward(&problem, context));
  float *x = problem.x;
  float *w1 = problem.w1;
  float *w2 = problem.w2;
  for (int64_t i = 0; i < problem.numRows; i++)
    assertSlope(&problem, &problem.alpha[i], problem.dAlpha[i], "dAlpha");
  for (int64_t i = 0; i < problem.numRows * shape.hidden; i++)
    assertSlope(&problem, &x[i], problem.dx[i], "dx");
  for (int64_t i = 0; i < problem.fc1Width * shape.hidden; i += 3)
    assertSlope(&problem, &w1[i], problem.dw1[i], "dw1");
  for (int64_t i = 0; i < shape.ffn * shape.hidden; i += 2)
    assertSlope(&problem, &w2[i], problem.dw2[i], "dw2");
  problemFree(&problem);
  lrmoeExpertCpuClose(context);
}
END_TEST

/* alpha 0: no gradient, but d(alpha) all the same. */
START_TEST(zeroWeightGivesNoGradient) {
  struct naiveRandom random = {5};
  struct lrmoeExpertShape shape = {16, 8, naiveTypes[_i], lrmoeSwiglu};
  struct lrmoeExpertContext *context = NULL;
  ASSERT_OK(lrmoeExpertCpuOpen(&shape, "reference", &context));
  struct problem problem = problemMake(&random, &shape, 20);
  for (int64_t i = 0; i < problem.numRows; i++)
    problem.alpha[i] = 0;
  checkProblem(&problem, context);
  for (int64_t i = 0; i < problem.numRows * shape.hidden; i++)
    ck_assert_float_eq(problem.dx[i], 0);
  for (int64_t i = 0; i < shape.ffn * shape.hidden; i++)
    ck_assert_float_eq(problem.dw2[i], 0);
  ck_assert_float_ne(problem.dAlpha[0], 0);
  problemFree(&problem);
  lrmoeExpertCpuClose(context);
}
END_TEST

/* A NaN in one row of g reaches its own dx and d(alpha) and all of dw2's row,
 * and no other row. */
START_TEST(nonFiniteGradientsPropagate) {
  struct naiveRandom random = {6};
  struct lrmoeExpertShape shape = {16, 8, naiveTypes[_i], lrmoeSwiglu};
  struct lrmoeExpertContext *context = NULL;
  ASSERT_OK(lrmoeExpertCpuOpen(&shape, "reference", &context));
  struct problem problem = problemMake(&random, &shape, 12);
  problem.token[0] = 0;
  for (int64_t i = 1; i < problem.numRows; i++)
    if (problem.token[i] == 0) problem.token[i] = 1;
  naivePut(shape.type, problem.g, 3, NAN);
  ASSERT_OK(problemForward(&problem, context));
  ASSERT_OK(problemBackward(&problem, context));
  ck_assert_float_nan(problem.dAlpha[0]);
  for (int64_t h = 0; h < shape.hidden; h++)
    ck_assert_float_nan(problem.dx[h]);
  for (int64_t i = shape.hidden; i < problem.numRows * shape.hidden; i++)
    ck_assert_float_finite(problem.dx[i]);
  for (int64_t i = 0; i < shape.ffn * shape.hidden; i++)
    ck_assert_int_eq(!isnan(problem.dw2[i]), i / shape.ffn != 3);
  problemFree(&problem);
  lrmoeExpertCpuClose(context);
}
END_TEST

/* Without dw1 and dw2 the rest is the same. */
START_TEST(weightGradientsAreOptional) {
  struct naiveRandom random = {7};
  struct lrmoeExpertShape shape = {24, 16, lrmoeBfloat16, lrmoeSwiglu};
  struct lrmoeExpertContext *context = NULL;
  ASSERT_OK(lrmoeExpertCpuOpen(&shape, "reference", &context));
  struct problem problem = problemMake(&random, &shape, 9);
  ASSERT_OK(problemForward(&problem, context));
  ASSERT_OK(problemBackward(&problem, context));
  size_t bytes = (size_t)(problem.numRows * shape.hidden) * sizeof(float);
  float *dx = malloc(bytes);
  memcpy(dx, problem.dx, bytes);
  memset(problem.dx, 0, bytes);
  struct problem without = problem;
  without.dw1 = NULL;
  without.dw2 = NULL;
  ASSERT_OK(problemBackward(&without, context));
  ck_assert_mem_eq(problem.dx, dx, bytes);
  free(dx);
  problemFree(&problem);
  lrmoeExpertCpuClose(context);
}
END_TEST

/* Every allocation of a run fails once; the context stays usable. */
START_TEST(allocationFailuresAreReported) {
  struct naiveRandom random = {9};
  struct lrmoeExpertShape shape = {8, 8, lrmoeBfloat16, lrmoeSwiglu};
  struct lrmoeExpertContext *context = NULL;
  ASSERT_OK(lrmoeExpertCpuOpen(&shape, "reference", &context));
  struct problem problem = problemMake(&random, &shape, 5);
  lrmoeAllocFailAt(1);
  ASSERT_RESULT(problemForward(&problem, context), lrmoeOutOfMemory);
  ASSERT_OK(problemForward(&problem, context));
  /* The first run reserves all: no later one allocates. */
  lrmoeAllocFailAt(1);
  ASSERT_OK(problemForward(&problem, context));
  ASSERT_OK(problemBackward(&problem, context));
  ck_assert_int_eq(lrmoeAllocFailAt(0), 0);
  problemFree(&problem);
  lrmoeExpertCpuClose(context);
  lrmoeExpertCpuClose(NULL);
}
END_TEST

START_TEST(wrongShapesAreRefused) {
  static const struct lrmoeExpertShape wrong[] = {
      {0, 8, lrmoeFloat32, lrmoeSwiglu},
      {8, -8, lrmoeFloat32, lrmoeSwiglu},
      {8, 8, lrmoeFloat64, lrmoeSwiglu},
      {8, 8, lrmoeFloat32, (lrmoeActivation_t)7},
  };
  struct lrmoeExpertContext *context = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ASSERT_RESULT(lrmoeExpertCpuOpen(&wrong[i], "reference", &context),
                  lrmoeInvalidArgument);
  ck_assert_ptr_null(context);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("expert");
  TCase *tests = tcase_create("expert");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, equalsTheNaivePasses, 0, 18);
  tcase_add_test(tests, chosenTileRuns);
  tcase_add_loop_test(tests, equalsFiniteDifferences, 0, 2);
  tcase_add_loop_test(tests, zeroWeightGivesNoGradient, 0, 3);
  tcase_add_loop_test(tests, nonFiniteGradientsPropagate, 0, 3);
  tcase_add_test(tests, weightGradientsAreOptional);
  tcase_add_test(tests, allocationFailuresAreReported);
  tcase_add_test(tests, wrongShapesAreRefused);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
