/* Conversions against the definition of the types, at every level: all fp16
 * and bf16 patterns, and fp32 values of every exponent. */
#include "naive.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const levelNames[] = {"v1", "v3", "v4"};
static const lrmoeDataType_t halfTypes[] = {lrmoeBfloat16, lrmoeFloat16};
enum {
  numLevels = 3,
  numPatterns = 65536,
  patternWidth = 256
};

static const struct lrmoeRowKernels *levelOf(int test) {
  return lrmoeRowKernelsFind(levelNames[test % numLevels]);
}

static uint32_t bitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static void convert(const struct lrmoeRowKernels *kernels, const void *from,
                    lrmoeDataType_t type, lrmoeDataType_t outType, void *out) {
  const struct lrmoeRows rows = {from, NULL, type, patternWidth};
  kernels->gather(&rows, numPatterns / patternWidth, outType, out);
}

/* Widening is exact; narrowing again gives the same bits, NaN stays NaN. */
START_TEST(allPatternsSurvive) {
  const struct lrmoeRowKernels *kernels = levelOf(_i);
  if (!kernels) return;
  lrmoeDataType_t type = halfTypes[_i / numLevels];
  uint16_t *patterns = malloc(numPatterns * sizeof *patterns);
  uint16_t *back = malloc(numPatterns * sizeof *back);
  float *values = malloc(numPatterns * sizeof *values);
  for (int i = 0; i < numPatterns; i++)
    patterns[i] = (uint16_t)i;
  convert(kernels, patterns, type, lrmoeFloat32, values);
  convert(kernels, values, lrmoeFloat32, type, back);
  for (int i = 0; i < numPatterns; i++) {
    double expected = naiveDecode(type, patterns[i]);
    if (isnan(expected)) {
      ck_assert_float_nan(values[i]);
      ck_assert_double_nan(naiveDecode(type, back[i]));
      continue;
    }
    ck_assert_uint_eq(bitsOf(values[i]), bitsOf((float)expected));
    ck_assert_uint_eq(back[i], patterns[i]);
  }
  free(patterns);
  free(back);
  free(values);
}
END_TEST

/* fp32 values of every exponent and sign, and those next to the middle
 * between two values of the type, where rounding turns. */
static void fillValues(struct naiveRandom *random, lrmoeDataType_t type,
                       float *values) {
  static const float special[] = {
      0,          -0.0f,           INFINITY,      -INFINITY,    NAN,
      -NAN,       65504,           65519.996f,    65520,        65536,
      -65520,     3.4e38f,         3.3961775e38f, 0x1p-24f,     0x1p-25f,
      0x1.8p-25f, 0x1.000002p-25f, 0x1p-14f,      0x1.ffcp-15f, 0x1p-149f,
      0x1p-133f,  0x1.8p-134f,     0x1p-134f,     1e-45f,       -1e-45f};
  enum {
    numSpecial = sizeof special / sizeof *special
  };
  int lowBits = type == lrmoeBfloat16 ? 16 : 13;
  for (int i = 0; i < numPatterns; i++) {
    uint32_t bits = (uint32_t)naiveRandomBits(random);
    if (i % 3 == 1) /* a tie, or one above or below it */
      bits = (bits >> lowBits << lowBits) + (1u << (lowBits - 1)) +
             (uint32_t)naiveRandomBelow(random, 3) - 1;
    if (i % 3 == 2) /* the range of fp16, subnormals included */
      bits = (bits & 0x807fffff) |
             (uint32_t)(100 + naiveRandomBelow(random, 45)) << 23;
    memcpy(&values[i], &bits, sizeof bits);
  }
  memcpy(values, special, sizeof special);
}

START_TEST(narrowingRoundsToNearestEven) {
  const struct lrmoeRowKernels *kernels = levelOf(_i);
  if (!kernels) return;
  lrmoeDataType_t type = halfTypes[_i / numLevels];
  struct naiveRandom random = {(uint64_t)_i};
  float *values = malloc(numPatterns * sizeof *values);
  uint16_t *got = malloc(numPatterns * sizeof *got);
  for (int round = 0; round < 2; round++) {
    fillValues(&random, type, values);
    convert(kernels, values, lrmoeFloat32, type, got);
    for (int i = 0; i < numPatterns; i++) {
      double value = naiveDecode(type, got[i]);
      double expected = naiveRound(type, values[i]);
      int same = isnan(expected)
                     ? isnan(value)
                     : value == expected && signbit(value) == signbit(expected);
      ck_assert_msg(same, "%s to %s: %a (%08x) gave %a, expected %a",
                    kernels->isa, naiveTypeName(type), (double)values[i],
                    bitsOf(values[i]), value, expected);
    }
  }
  free(values);
  free(got);
}
END_TEST

/* A NaN that is stored is quiet: its top mantissa bit is set. */
START_TEST(narrowedNansAreQuiet) {
  const struct lrmoeRowKernels *kernels = levelOf(_i);
  if (!kernels) return;
  lrmoeDataType_t type = halfTypes[_i / numLevels];
  uint16_t quiet = type == lrmoeBfloat16 ? 0x7fc0 : 0x7e00;
  const uint32_t patterns[8] = {0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fffffff,
                                0xff800001, 0xffbfffff, 0xffc00000, 0xffffffff};
  const struct lrmoeRows rows = {patterns, NULL, lrmoeFloat32, 8};
  uint16_t got[8];
  kernels->gather(&rows, 1, type, got);
  for (int i = 0; i < 8; i++) {
    ck_assert_uint_eq(got[i] & quiet, quiet);
    ck_assert_uint_eq(got[i] >> 15, patterns[i] >> 31);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("conversions");
  TCase *tests = tcase_create("convert");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, allPatternsSurvive, 0, 2 * numLevels);
  tcase_add_loop_test(tests, narrowingRoundsToNearestEven, 0, 2 * numLevels);
  tcase_add_loop_test(tests, narrowedNansAreQuiet, 0, 2 * numLevels);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
