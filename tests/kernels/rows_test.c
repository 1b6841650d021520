/* Row kernels against naive spellings, at every level that runs here. */
#include "naive.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const levelNames[] = {"v1", "v3", "v4"};
enum {
  numLevels = 3,
  numShapes = 40,
  maxWidth = 1000,
  maxRows = 9
};

struct shape {
  int64_t width;
  int64_t numRows;
  int64_t numStored;
};

static struct shape randomShape(struct naiveRandom *random) {
  struct shape shape;
  shape.width = 8 * (1 + naiveRandomBelow(random, maxWidth / 8));
  shape.numRows = naiveRandomBelow(random, maxRows);
  shape.numStored = 1 + naiveRandomBelow(random, maxRows);
  return shape;
}

/* Half of the time an index with repeats and -1; otherwise NULL. */
static int64_t *randomIndex(struct naiveRandom *random, struct shape *shape) {
  if (naiveRandomBelow(random, 2)) {
    shape->numStored = shape->numRows + 1;
    return NULL;
  }
  int64_t *index = malloc((size_t)(shape->numRows + 1) * sizeof *index);
  ck_assert_ptr_nonnull(index);
  for (int64_t i = 0; i < shape->numRows; i++)
    index[i] = naiveRandomBelow(random, shape->numStored + 1) - 1;
  return index;
}

struct rowsCase {
  struct shape shape;
  int64_t *index;
  void *data;
  struct lrmoeRows rows;
};

static struct rowsCase makeCase(struct naiveRandom *random, int which) {
  struct rowsCase made;
  made.shape = randomShape(random);
  made.index = randomIndex(random, &made.shape);
  lrmoeDataType_t type = naiveTypes[which % 3];
  made.data = naiveRandomArray(random, type,
                               made.shape.numStored * made.shape.width, 3);
  made.rows = (struct lrmoeRows){made.data, made.index, type, made.shape.width};
  return made;
}

static void freeCase(struct rowsCase *rowsCase) {
  free(rowsCase->index);
  free(rowsCase->data);
}

static void assertSameBits(const void *got, const void *expected, size_t bytes,
                           const char *what) {
  ck_assert_msg(!bytes || !memcmp(got, expected, bytes), "%s: bits differ",
                what);
}

static void naiveSums(const struct lrmoeRows *rows, int64_t row,
                      float sums[2]) {
  float squares[maxWidth], absolutes[maxWidth];
  for (int64_t j = 0; j < rows->width; j++) {
    float value = (float)naiveRowGet(rows, row, j);
    squares[j] = value * value;
    absolutes[j] = fabsf(value);
  }
  sums[0] = naiveLaneSum(squares, rows->width);
  sums[1] = naiveLaneSum(absolutes, rows->width);
}

/* The sums must equal the rule of invariant 4 bit by bit. */
START_TEST(sumsFollowTheRule) {
  struct naiveRandom random = {(uint64_t)_i};
  struct rowsCase given = makeCase(&random, _i);
  for (int level = 0; level < numLevels; level++) {
    const struct lrmoeRowKernels *kernels =
        lrmoeRowKernelsFind(levelNames[level]);
    if (!kernels) continue;
    float squares[maxRows], sums[maxRows];
    kernels->sumSquares(&given.rows, given.shape.numRows, squares);
    kernels->sumAbs(&given.rows, given.shape.numRows, sums);
    for (int64_t i = 0; i < given.shape.numRows; i++) {
      float expected[2];
      naiveSums(&given.rows, i, expected);
      assertSameBits(&squares[i], &expected[0], 4, kernels->isa);
      assertSameBits(&sums[i], &expected[1], 4, kernels->isa);
    }
  }
  freeCase(&given);
}
END_TEST

START_TEST(gatherConverts) {
  struct naiveRandom random = {(uint64_t)_i};
  struct rowsCase given = makeCase(&random, _i);
  lrmoeDataType_t outType = naiveTypes[naiveRandomBelow(&random, 3)];
  int64_t count = given.shape.numRows * given.shape.width;
  size_t bytes = (size_t)count * naiveTypeBytes(outType);
  void *expected = malloc(bytes + 1);
  void *got = malloc(bytes + 1);
  for (int64_t i = 0; i < count; i++)
    naivePut(outType, expected, i,
             naiveRound(outType, naiveRowGet(&given.rows, i / given.shape.width,
                                             i % given.shape.width)));
  for (int level = 0; level < numLevels; level++) {
    const struct lrmoeRowKernels *kernels =
        lrmoeRowKernelsFind(levelNames[level]);
    if (!kernels) continue;
    memset(got, 0x5a, bytes + 1);
    kernels->gather(&given.rows, given.shape.numRows, outType, got);
    assertSameBits(got, expected, bytes, kernels->isa);
    ck_assert_int_eq(((char *)got)[bytes], 0x5a);
  }
  free(expected);
  free(got);
  freeCase(&given);
}
END_TEST

START_TEST(scaleRowsRoundsOnce) {
  struct naiveRandom random = {(uint64_t)_i};
  struct shape shape = randomShape(&random);
  lrmoeDataType_t type = naiveTypes[_i % 3];
  int64_t count = shape.numRows * shape.width;
  size_t bytes = (size_t)count * naiveTypeBytes(type);
  float *rows = naiveRandomArray(&random, lrmoeFloat32, count, 2);
  float *scale = naiveRandomArray(&random, lrmoeFloat32, shape.numRows, 2);
  void *expected = malloc(bytes + 1);
  void *got = malloc(bytes + 1);
  const float *given = _i % 2 ? scale : NULL;
  for (int64_t i = 0; i < count; i++) {
    volatile float product = (given ? scale[i / shape.width] : 1) * rows[i];
    naivePut(type, expected, i, naiveRound(type, product));
  }
  for (int level = 0; level < numLevels; level++) {
    const struct lrmoeRowKernels *kernels =
        lrmoeRowKernelsFind(levelNames[level]);
    if (!kernels) continue;
    memset(got, 0x5a, bytes + 1);
    kernels->scaleRows(shape.width, shape.numRows, rows, given, type, got);
    assertSameBits(got, expected, bytes, kernels->isa);
    ck_assert_int_eq(((char *)got)[bytes], 0x5a);
  }
  free(rows);
  free(scale);
  free(expected);
  free(got);
}
END_TEST

/* Sums in list order in fp32, rounded once. */
static void naiveGatherSum(const struct lrmoeRows *rows, int64_t numOut,
                           const int64_t *offsets, const int64_t *list,
                           const float *weights, void *out) {
  for (int64_t t = 0; t < numOut; t++)
    for (int64_t j = 0; j < rows->width; j++) {
      float sum = 0;
      for (int64_t entry = offsets[t]; entry < offsets[t + 1]; entry++) {
        volatile float term = (float)naiveGet(rows->type, rows->data,
                                              list[entry] * rows->width + j);
        if (weights) term *= weights[list[entry]];
        volatile float next = sum + term;
        sum = next;
      }
      naivePut(rows->type, out, t * rows->width + j,
               naiveRound(rows->type, sum));
    }
}

START_TEST(gatherSumRoundsOnce) {
  struct naiveRandom random = {(uint64_t)_i};
  struct rowsCase given = makeCase(&random, _i);
  int64_t numOut = given.shape.numRows;
  int64_t offsets[maxRows + 1] = {0};
  int64_t list[maxRows * 9];
  for (int64_t t = 0; t < numOut; t++) {
    offsets[t + 1] = offsets[t] + naiveRandomBelow(&random, 9);
    for (int64_t entry = offsets[t]; entry < offsets[t + 1]; entry++)
      list[entry] = naiveRandomBelow(&random, given.shape.numStored);
  }
  size_t bytes =
      (size_t)(numOut * given.shape.width) * naiveTypeBytes(given.rows.type);
  void *expected = malloc(bytes + 1);
  void *got = malloc(bytes + 1);
  float *all =
      naiveRandomArray(&random, lrmoeFloat32, given.shape.numStored, 2);
  const float *weights = _i % 2 ? all : NULL;
  naiveGatherSum(&given.rows, numOut, offsets, list, weights, expected);
  for (int level = 0; level < numLevels; level++) {
    const struct lrmoeRowKernels *kernels =
        lrmoeRowKernelsFind(levelNames[level]);
    if (!kernels) continue;
    memset(got, 0x5a, bytes + 1);
    kernels->gatherSum(&given.rows, numOut, offsets, list, weights, got);
    assertSameBits(got, expected, bytes, kernels->isa);
    ck_assert_int_eq(((char *)got)[bytes], 0x5a);
  }
  free(all);
  free(expected);
  free(got);
  freeCase(&given);
}
END_TEST

/* Products of rows follow the rule of invariant 4, as sums do. */
START_TEST(productsFollowTheContract) {
  struct naiveRandom random = {(uint64_t)_i};
  struct rowsCase given = makeCase(&random, _i);
  lrmoeDataType_t type = naiveTypes[_i / 3 % 3];
  int64_t width = given.shape.width;
  void *data =
      naiveRandomArray(&random, type, (given.shape.numRows + 1) * width, 3);
  const struct lrmoeRows other = {data, NULL, type, width};
  float got[maxRows];
  float terms[maxWidth];
  for (int level = 0; level < numLevels; level++) {
    const struct lrmoeRowKernels *kernels =
        lrmoeRowKernelsFind(levelNames[level]);
    if (!kernels) continue;
    kernels->sumProducts(&given.rows, &other, given.shape.numRows, got);
    for (int64_t i = 0; i < given.shape.numRows; i++) {
      for (int64_t j = 0; j < width; j++)
        terms[j] = (float)naiveRowGet(&given.rows, i, j) *
                   (float)naiveRowGet(&other, i, j);
      float expected = naiveLaneSum(terms, width);
      assertSameBits(&got[i], &expected, sizeof expected, kernels->isa);
    }
  }
  free(data);
  freeCase(&given);
}
END_TEST

/* NaN and infinity reach the sums; one row must not touch another. */
START_TEST(specialValuesReachTheSums) {
  for (int level = 0; level < numLevels; level++) {
    const struct lrmoeRowKernels *kernels =
        lrmoeRowKernelsFind(levelNames[level]);
    if (!kernels) continue;
    float data[4][264] = {{0}};
    data[0][263] = NAN;
    data[1][0] = INFINITY;
    data[1][1] = 1;
    data[2][8] = 3e38f;
    data[3][100] = -2;
    const struct lrmoeRows rows = {data, NULL, lrmoeFloat32, 264};
    float squares[4], sums[4];
    kernels->sumSquares(&rows, 4, squares);
    kernels->sumAbs(&rows, 4, sums);
    ck_assert_float_nan(squares[0]);
    ck_assert_float_nan(sums[0]);
    ck_assert_float_infinite(squares[1]);
    ck_assert_float_infinite(sums[1]);
    ck_assert_float_infinite(squares[2]);
    ck_assert_float_eq(sums[2], 3e38f);
    ck_assert_float_eq(squares[3], 4);
    ck_assert_float_eq(sums[3], 2);
  }
}
END_TEST

START_TEST(levelsAreChosen) {
  const struct lrmoeRowKernels *kernels = NULL;
  unsetenv("LRMOE_ISA");
  ASSERT_OK(lrmoeRowKernelsGet(&kernels));
  ck_assert_ptr_eq(kernels, lrmoeRowKernelsFind(kernels->isa));
  setenv("LRMOE_ISA", "v1", 1);
  ASSERT_OK(lrmoeRowKernelsGet(&kernels));
  ck_assert_str_eq(kernels->isa, "v1");
  kernels = NULL;
  setenv("LRMOE_ISA", "v2", 1);
  ASSERT_RESULT(lrmoeRowKernelsGet(&kernels), lrmoeInvalidArgument);
  ck_assert_ptr_null(kernels);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "LRMOE_ISA=v2"));
  ck_assert_ptr_null(lrmoeRowKernelsFind("v2"));
  ck_assert_ptr_null(lrmoeRowKernelsFind(""));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("row kernels");
  TCase *tests = tcase_create("rows");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, sumsFollowTheRule, 0, numShapes);
  tcase_add_loop_test(tests, gatherConverts, 0, numShapes);
  tcase_add_loop_test(tests, scaleRowsRoundsOnce, 0, numShapes);
  tcase_add_loop_test(tests, productsFollowTheContract, 0, numShapes);
  tcase_add_loop_test(tests, gatherSumRoundsOnce, 0, numShapes);
  tcase_add_test(tests, specialValuesReachTheSums);
  tcase_add_test(tests, levelsAreChosen);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
