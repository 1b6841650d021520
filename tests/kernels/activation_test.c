/* Activations against double, at every level: accuracy over the whole range,
 * equal bits, backward's phi equal to forward's. */
#include "base/hash.h"
#include "naive.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const levelNames[] = {"v1", "v3", "v4"};
static const lrmoeActivation_t activations[] = {lrmoeSwiglu, lrmoeGelu};
enum {
  numLevels = 3,
  maxFfn = 600,
  numRows = 3
};

/* One run of both kernels on random rows. */
struct run {
  lrmoeActivation_t activation;
  lrmoeDataType_t type;
  lrmoeDataType_t operand;
  int64_t ffn;
  int64_t fc1Width;
  float *fc1;
  float *gPhi;
  float *weights;
  /* Results. */
  void *saved;
  void *phi;
  float phiNorm[numRows];
  void *scaledPhi;
  void *dFc1;
  float dWeights[numRows];
};

static struct run runMake(struct naiveRandom *random, int which) {
  struct run made = {.activation = activations[which % 2],
                     .type = naiveTypes[which / 2 % 3]};
  made.operand = which / 6 % 2 ? lrmoeFloat32 : made.type;
  made.ffn = 8 * (1 + naiveRandomBelow(random, maxFfn / 8));
  made.fc1Width = lrmoeFc1Width(made.activation, made.ffn);
  int64_t fc1Count = numRows * made.fc1Width;
  int64_t phiCount = numRows * made.ffn;
  made.fc1 = naiveRandomArray(random, lrmoeFloat32, fc1Count, 6);
  made.gPhi = naiveRandomArray(random, lrmoeFloat32, phiCount, 1);
  made.weights = naiveRandomArray(random, lrmoeFloat32, numRows, 1);
  made.saved = calloc((size_t)fc1Count, 4);
  made.phi = calloc((size_t)phiCount, 4);
  made.scaledPhi = calloc((size_t)phiCount, 4);
  made.dFc1 = calloc((size_t)fc1Count, 4);
  return made;
}

static void runFree(struct run *run) {
  void *arrays[] = {run->fc1, run->gPhi,      run->weights, run->saved,
                    run->phi, run->scaledPhi, run->dFc1};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    free(arrays[i]);
}

static void runKernels(struct run *run, const struct lrmoeRowKernels *kernels) {
  const struct lrmoeActivationForward forward = {
      run->activation, run->type,  run->operand, run->ffn,    numRows,
      run->fc1,        run->saved, run->phi,     run->phiNorm};
  const struct lrmoeActivationBackward backward = {
      .activation = run->activation,
      .type = run->type,
      .operand = run->operand,
      .ffn = run->ffn,
      .numRows = numRows,
      .saved = {run->saved, NULL, run->type, run->fc1Width},
      .weights = run->weights,
      .gPhi = run->gPhi,
      .phi = run->scaledPhi,
      .dFc1 = run->dFc1,
      .dWeights = run->dWeights,
  };
  kernels->activationForward(&forward);
  kernels->activationBackward(&backward);
}

/* Half a unit in the last place of the type, relative. */
static double roundingOf(lrmoeDataType_t type) {
  if (type == lrmoeFloat32) return 0x1p-24;
  return type == lrmoeBfloat16 ? 0x1p-8 : 0x1p-11;
}

static void assertNear(double got, double expected, double tolerance,
                       const char *what) {
  ck_assert_msg(fabs(got - expected) <= tolerance, "%s: %g, expected %g", what,
                got, expected);
}

/* gate (and up) that was saved, and what follows from it in double. */
static struct naiveActivation expectedAt(const struct run *run, int64_t row,
                                         int64_t column) {
  int64_t at = row * run->fc1Width + column;
  double gate = naiveGet(run->type, run->saved, at);
  double up = run->activation == lrmoeSwiglu
                  ? naiveGet(run->type, run->saved, at + run->ffn)
                  : 0;
  return naiveActivate(run->activation, gate, up);
}

static void checkColumn(const struct run *run, int64_t row, int64_t column) {
  struct naiveActivation expected = expectedAt(run, row, column);
  int64_t at = row * run->ffn + column;
  int64_t fc1At = row * run->fc1Width + column;
  double rounding = 1.01 * roundingOf(run->type);
  double operandRounding = 1.01 * roundingOf(run->operand);
  double phi = naiveGet(run->operand, run->phi, at);
  double weight = run->weights[row];
  double g = (double)run->gPhi[at] * weight;
  assertNear(phi, expected.phi, rounding * fabs(expected.phi) + 2e-6, "phi");
  assertNear(naiveGet(run->operand, run->scaledPhi, at), weight * phi,
             operandRounding * fabs(weight * phi) + 1e-6, "alpha phi");
  assertNear(naiveGet(run->operand, run->dFc1, fc1At), g * expected.dGate,
             operandRounding * fabs(g * expected.dGate) + 4e-6, "dGate");
  if (run->activation == lrmoeSwiglu)
    assertNear(naiveGet(run->operand, run->dFc1, fc1At + run->ffn),
               g * expected.dUp,
               operandRounding * fabs(g * expected.dUp) + 2e-6, "dUp");
}

/* The reproducible sums, from the phi that forward wrote. */
static void checkSums(const struct run *run, int64_t row) {
  float squares[maxFfn], products[maxFfn];
  for (int64_t j = 0; j < run->ffn; j++) {
    int64_t at = row * run->ffn + j;
    float phi = (float)naiveGet(run->operand, run->phi, at);
    squares[j] = phi * phi;
    products[j] = run->gPhi[at] * phi;
  }
  ck_assert_float_eq(run->phiNorm[row], sqrtf(naiveLaneSum(squares, run->ffn)));
  ck_assert_float_eq(run->dWeights[row], naiveLaneSum(products, run->ffn));
}

START_TEST(equalsTheFormulas) {
  struct naiveRandom random = {(uint64_t)_i};
  struct run run = runMake(&random, _i);
  for (int level = 0; level < numLevels; level++) {
    const struct lrmoeRowKernels *kernels =
        lrmoeRowKernelsFind(levelNames[level]);
    if (!kernels) continue;
    runKernels(&run, kernels);
    for (int64_t i = 0; i < numRows * run.fc1Width; i++)
      ck_assert_double_eq(naiveGet(run.type, run.saved, i),
                          naiveRound(run.type, run.fc1[i]));
    for (int64_t i = 0; i < numRows; i++) {
      for (int64_t j = 0; j < run.ffn; j++)
        checkColumn(&run, i, j);
      checkSums(&run, i);
    }
  }
  runFree(&run);
}
END_TEST

START_TEST(levelsGiveTheSameBits) {
  struct naiveRandom random = {(uint64_t)_i + 100};
  struct run base = runMake(&random, _i);
  runKernels(&base, lrmoeRowKernelsFind("v1"));
  for (int level = 1; level < numLevels; level++) {
    const struct lrmoeRowKernels *kernels =
        lrmoeRowKernelsFind(levelNames[level]);
    if (!kernels) continue;
    struct naiveRandom again = {(uint64_t)_i + 100};
    struct run other = runMake(&again, _i);
    runKernels(&other, kernels);
    size_t phiBytes = (size_t)(numRows * base.ffn) * 4;
    size_t fc1Bytes = (size_t)(numRows * base.fc1Width) * 4;
    ck_assert_mem_eq(other.saved, base.saved, fc1Bytes);
    ck_assert_mem_eq(other.phi, base.phi, phiBytes);
    ck_assert_mem_eq(other.scaledPhi, base.scaledPhi, phiBytes);
    ck_assert_mem_eq(other.dFc1, base.dFc1, fc1Bytes);
    ck_assert_mem_eq(other.phiNorm, base.phiNorm, sizeof base.phiNorm);
    ck_assert_mem_eq(other.dWeights, base.dWeights, sizeof base.dWeights);
    runFree(&other);
  }
  runFree(&base);
}
END_TEST

/* What other compilers and machines must give, bit by bit: a check sum of one
 * run.  It changes only when the formulas do. */
START_TEST(bitsAreTheKnownOnes) {
  static const uint64_t known[] = {0xafa48fccbd7da115, 0xf8a4623edd80020b};
  struct naiveRandom random = {77};
  struct run run = runMake(&random, _i);
  size_t phiBytes = (size_t)(numRows * run.ffn) * 4;
  size_t fc1Bytes = (size_t)(numRows * run.fc1Width) * 4;
  runKernels(&run, lrmoeRowKernelsFind("v1"));
  uint64_t sum = lrmoeHash(0, run.saved, fc1Bytes);
  sum = lrmoeHash(sum, run.phi, phiBytes);
  sum = lrmoeHash(sum, run.dFc1, fc1Bytes);
  sum = lrmoeHash(sum, run.phiNorm, sizeof run.phiNorm);
  sum = lrmoeHash(sum, run.dWeights, sizeof run.dWeights);
  ck_assert_msg(sum == known[_i], "0x%016llx", (unsigned long long)sum);
  runFree(&run);
}
END_TEST

/* Distance in units of the last place of the expected value. */
static double unitsOff(float got, double expected) {
  int exponent = expected != 0 ? ilogb(expected) : -126;
  if (exponent < -126) exponent = -126;
  return fabs(got - expected) / ldexp(1, exponent - 23);
}

enum {
  sweepFfn = 4096,
  numSweeps = 28
};

/* phi of one long fp32 row; GELU, or SwiGLU with up = 1. */
static void activateRow(const struct lrmoeRowKernels *kernels,
                        lrmoeActivation_t activation, const float *gates,
                        float *phi) {
  static float fc1[2 * sweepFfn];
  static float saved[2 * sweepFfn];
  float norm;
  memcpy(fc1, gates, sweepFfn * sizeof *fc1);
  for (int j = 0; j < sweepFfn; j++)
    fc1[sweepFfn + j] = 1;
  const struct lrmoeActivationForward forward = {
      activation, lrmoeFloat32, lrmoeFloat32, sweepFfn, 1,
      fc1,        saved,        phi,          &norm};
  kernels->activationForward(&forward);
}

/* silu stays within 3 units in the last place; below -87, where the sigmoid is
 * subnormal, within one unit of that. */
START_TEST(siluIsAccurate) {
  const struct lrmoeRowKernels *kernels = lrmoeRowKernelsFind(levelNames[_i]);
  if (!kernels) return;
  static float gates[sweepFfn], phi[sweepFfn];
  struct naiveRandom random = {21};
  for (int sweep = 0; sweep < numSweeps; sweep++) {
    double scale = ldexp(1, sweep % 28 - 20);
    for (int j = 0; j < sweepFfn; j++)
      gates[j] = (float)(scale * naiveRandomUnit(&random));
    activateRow(kernels, lrmoeSwiglu, gates, phi);
    for (int j = 0; j < sweepFfn; j++) {
      double gate = gates[j];
      double expected = gate / (1 + exp(-gate));
      double units = unitsOff(phi[j], expected);
      ck_assert_msg(
          units <= 3 || fabs(phi[j] - expected) <= fabs(gate) * 0x1p-149,
          "silu(%a) = %a is %g units off", gate, (double)phi[j], units);
    }
  }
}
END_TEST

START_TEST(extremesAreHandled) {
  const struct lrmoeRowKernels *kernels = lrmoeRowKernelsFind(levelNames[_i]);
  if (!kernels) return;
  static float gates[sweepFfn], silu[sweepFfn], gelu[sweepFfn];
  static const float given[] = {0,        -0.0f, 1e4f, -1e4f,  3e38f,
                                -3e38f,   200,   -200, 1e-45f, NAN,
                                INFINITY, -20,   20,   -103,   -104.5f};
  memcpy(gates, given, sizeof given);
  activateRow(kernels, lrmoeSwiglu, gates, silu);
  activateRow(kernels, lrmoeGelu, gates, gelu);
  size_t count = sizeof given / sizeof *given;
  for (size_t i = 0; i < count; i++) {
    double gate = given[i];
    if (isnan(gate)) {
      ck_assert_float_nan(silu[i]);
      ck_assert_float_nan(gelu[i]);
    } else if (gate >= 20) {
      ck_assert_float_eq(silu[i],
                         i == 12 ? (float)(20 / (1 + exp(-20))) : given[i]);
      ck_assert_float_eq(gelu[i], given[i]);
    } else if (gate <= -20) {
      assertNear(silu[i], gate / (1 + exp(-gate)),
                 -gate * (1e-6 * exp(gate) + 0x1p-149), "silu");
      assertNear(gelu[i], 0, 1e-30, "gelu");
    } else {
      assertNear(silu[i], gate / 2, 1e-45, "silu");
      assertNear(gelu[i], gate / 2, 1e-45, "gelu");
    }
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("activations");
  TCase *tests = tcase_create("activation");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, equalsTheFormulas, 0, 24);
  tcase_add_loop_test(tests, levelsGiveTheSameBits, 0, 24);
  tcase_add_loop_test(tests, bitsAreTheKnownOnes, 0, 2);
  tcase_add_loop_test(tests, siluIsAccurate, 0, numLevels);
  tcase_add_loop_test(tests, extremesAreHandled, 0, numLevels);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
