/* Row kernels: bit for bit what the CPU's give, in every order of threads. */
#include "mirror.h"

#include <stdlib.h>
#include <string.h>

/* A chunk; less and more than a warp's turn; the paper's; many turns. */
static const int64_t widths[] = {8, 24, 248, 256, 264, 776, 2048};
enum {
  numWidths = sizeof widths / sizeof *widths,
  numCases = 3 * numWidths
};

/* A case has a width and a type, and the order changes with it. */
struct rowCase {
  struct naiveRandom random;
  lrmoeDataType_t type;
  int64_t width;
  int64_t numRows;
  int64_t numSources;
};

static struct rowCase makeCase(int number) {
  static const int64_t rowCounts[] = {1, 7, 8, 9, 33};
  struct rowCase made = {.random = {(uint64_t)number + 1}};
  made.type = naiveTypes[number % 3];
  made.width = widths[number / 3 % numWidths];
  made.numRows = rowCounts[number % 5];
  made.numSources = 1 + naiveRandomBelow(&made.random, 12);
  chooseOrder(number % numOrders);
  return made;
}

static struct mirror *sourceRows(struct rowCase *rows, int isSpecial) {
  return mirrorRows(&rows->random, rows->type, rows->numSources * rows->width,
                    isSpecial);
}

static struct lrmoeRows rowsAt(const struct rowCase *rows, enum side side,
                               const struct mirror *data,
                               const struct mirror *index) {
  return (struct lrmoeRows){data->at[side], index ? index->at[side] : NULL,
                            rows->type, rows->width};
}

static void checkNorms(struct rowCase *rows, int isAbs, int isSpecial) {
  struct mirror *data = sourceRows(rows, isSpecial);
  struct mirror *index =
      mirrorRandomIndices(&rows->random, rows->numRows, rows->numSources, 1);
  struct mirror *out = mirrorRoom((size_t)rows->numRows * sizeof(float));
  struct mirror *dense = mirrorRoom((size_t)rows->numSources * sizeof(float));
  for (enum side side = onHost; side < numSides; side++) {
    struct lrmoeNorms args = {rowsAt(rows, side, data, index), rows->numRows,
                              isAbs, out->at[side]};
    ASSERT_RUN(side, norms, &args, NULL);
    args = (struct lrmoeNorms){rowsAt(rows, side, data, NULL), rows->numSources,
                               isAbs, dense->at[side]};
    ASSERT_RUN(side, norms, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameElements(out, lrmoeFloat32, "norms");
  assertSameElements(dense, lrmoeFloat32, "norms without index");
}

START_TEST(normsAreTheCpus) {
  struct rowCase rows = makeCase(_i);
  checkNorms(&rows, 0, 0);
  checkNorms(&rows, 1, 0);
  checkNorms(&rows, _i & 1, 1);
  mirrorFreeAll();
}
END_TEST

static void checkGather(struct rowCase *rows, lrmoeDataType_t outType) {
  struct mirror *data = sourceRows(rows, 1);
  struct mirror *index =
      mirrorRandomIndices(&rows->random, rows->numRows, rows->numSources, 1);
  struct mirror *out = mirrorRoom((size_t)(rows->numRows * rows->width) *
                                  naiveTypeBytes(outType));
  for (enum side side = onHost; side < numSides; side++) {
    const struct lrmoeGather args = {rowsAt(rows, side, data, index),
                                     rows->numRows, outType, out->at[side]};
    ASSERT_RUN(side, gather, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  if (outType == rows->type)
    assertSameBytes(out, "gather");
  else
    assertSameElements(out, outType, "gather");
}

START_TEST(gatherConverts) {
  struct rowCase rows = makeCase(_i);
  for (int type = 0; type < 3; type++)
    checkGather(&rows, naiveTypes[type]);
  mirrorFreeAll();
}
END_TEST

/* Lists of 0 to maxEntries entries. */
static struct mirror *listOffsets(struct rowCase *rows, int64_t maxEntries) {
  int64_t *offsets = calloc((size_t)rows->numRows + 1, sizeof *offsets);
  ck_assert_ptr_nonnull(offsets);
  for (int64_t i = 0; i < rows->numRows; i++)
    offsets[i + 1] =
        offsets[i] + naiveRandomBelow(&rows->random, maxEntries + 1);
  return mirrorOf(offsets, (size_t)(rows->numRows + 1) * sizeof *offsets);
}

static void checkGatherSum(struct rowCase *rows, int64_t maxEntries,
                           int isWeighted, int isSpecial) {
  struct mirror *data = sourceRows(rows, isSpecial);
  struct mirror *offsets = listOffsets(rows, maxEntries);
  int64_t numEntries = ((int64_t *)offsets->at[onHost])[rows->numRows];
  struct mirror *list =
      mirrorRandomIndices(&rows->random, numEntries, rows->numSources, 0);
  struct mirror *weights =
      mirrorRows(&rows->random, lrmoeFloat32, rows->numSources, isSpecial);
  struct mirror *out = mirrorRoom((size_t)(rows->numRows * rows->width) *
                                  naiveTypeBytes(rows->type));
  for (enum side side = onHost; side < numSides; side++) {
    const struct lrmoeGatherSum args = {
        rowsAt(rows, side, data, NULL),
        rows->numRows,
        offsets->at[side],
        list->at[side],
        isWeighted ? weights->at[side] : NULL,
        out->at[side],
    };
    ASSERT_RUN(side, gatherSum, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameElements(out, rows->type, "gatherSum");
}

/* Up to a batch of lanes and beyond; one entry keeps -0. */
/* Rows of a list of their own length each, to places in a random order. */
START_TEST(spreadWritesEveryPlace) {
  struct naiveRandom random = {(uint64_t)_i + 900};
  lrmoeDataType_t type = naiveTypes[_i % 3];
  int64_t width = 8 * (1 + naiveRandomBelow(&random, 40));
  int64_t numRows = naiveRandomBelow(&random, 20);
  int64_t lists[20 + 1 + 20 * 6];
  int64_t *list = lists + numRows + 1;
  chooseOrder(_i % numOrders);
  lists[0] = 0;
  for (int64_t t = 0; t < numRows; t++)
    lists[t + 1] = lists[t] + naiveRandomBelow(&random, 6);
  int64_t numOut = lists[numRows];
  for (int64_t i = 0; i < numOut; i++) {
    int64_t other = naiveRandomBelow(&random, i + 1);
    list[i] = list[other];
    list[other] = i;
  }
  size_t outBytes = (size_t)(numOut * width) * naiveTypeBytes(type);
  const struct mirror *rows = mirrorRows(&random, type, numRows * width, 1);
  const struct mirror *indices = mirrorIndices(lists, numRows + 1 + numOut);
  const struct mirror *out = mirrorRoom(outBytes);
  for (int side = 0; side < numSides; side++) {
    const int64_t *offsets = indices->at[side];
    const struct lrmoeSpread args = {{rows->at[side], NULL, type, width},
                                     numRows,
                                     offsets,
                                     offsets + numRows + 1,
                                     out->at[side]};
    ASSERT_RUN(side, spread, &args, NULL);
  }
  assertSameBytes(out, "spread");
  mirrorFreeAll();
}
END_TEST

START_TEST(gatherSumKeepsTheOrder) {
  static const int64_t maxEntries[] = {1, 5, 8, 70};
  struct rowCase rows = makeCase(_i);
  for (int i = 0; i < 4; i++)
    checkGatherSum(&rows, maxEntries[i], (_i + i) & 1, i < 2);
  checkGatherSum(&rows, 0, 0, 0);
  mirrorFreeAll();
}
END_TEST

static void checkDots(struct rowCase *rows, int hasDivisors, int isSpecial) {
  struct mirror *data = sourceRows(rows, isSpecial);
  struct mirror *a =
      mirrorRandomIndices(&rows->random, rows->numRows, rows->numSources, 1);
  struct mirror *b =
      mirrorRandomIndices(&rows->random, rows->numRows, rows->numSources, 1);
  struct mirror *divisors =
      mirrorRows(&rows->random, lrmoeFloat32, rows->numRows, isSpecial);
  ((float *)divisors->at[onHost])[0] = 0;
  mirrorPut(divisors);
  struct mirror *out = mirrorRoom((size_t)rows->numRows * sizeof(float));
  for (enum side side = onHost; side < numSides; side++) {
    const struct lrmoeDotRows args = {
        rowsAt(rows, side, data, a), rowsAt(rows, side, data, b), rows->numRows,
        hasDivisors ? divisors->at[side] : NULL, out->at[side]};
    ASSERT_RUN(side, dotRows, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameElements(out, lrmoeFloat32, "dotRows");
}

START_TEST(dotsAreTheCpus) {
  struct rowCase rows = makeCase(_i);
  checkDots(&rows, 0, 0);
  checkDots(&rows, 1, 0);
  checkDots(&rows, 1, 1);
  mirrorFreeAll();
}
END_TEST

START_TEST(spoiledRowsAreNan) {
  struct rowCase rows = makeCase(_i);
  struct mirror *data = sourceRows(&rows, 0);
  int64_t *indices = malloc((size_t)rows.numSources * sizeof *indices);
  ck_assert_ptr_nonnull(indices);
  int64_t count = 0;
  for (int64_t i = 0; i < rows.numSources; i++)
    if (naiveRandomBelow(&rows.random, 2)) indices[count++] = i;
  struct mirror *index = mirrorOf(indices, (size_t)count * sizeof *indices);
  int64_t rowBytes = rows.width * (int64_t)naiveTypeBytes(rows.type);
  for (enum side side = onHost; side < numSides; side++)
    ASSERT_RUN(side, spoilRows, count, index->at[side], rowBytes,
               data->at[side], NULL);
  ASSERT_SYNCHRONIZED();
  assertSameBytes(data, "spoilRows");
  mirrorFreeAll();
}
END_TEST

/* Rows of zeros, of one bit anywhere, and of -0.0. */
START_TEST(rowsWithABitAreMarked) {
  struct rowCase rows = makeCase(_i);
  int64_t count = 40, rowBytes = 16 * (rows.width / 8 + _i % 70);
  uint8_t *bytes = calloc((size_t)(count * rowBytes), 1);
  uint8_t *given = calloc((size_t)count, 1);
  ck_assert(bytes && given);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = naiveRandomBelow(&rows.random, rowBytes);
    if (i % 2) bytes[i * rowBytes + at] = i % 4 == 1 ? 0x80 : 1;
    given[i] = 0x55;
  }
  struct mirror *data = mirrorOf(bytes, (size_t)(count * rowBytes));
  struct mirror *marks = mirrorOf(given, (size_t)count);
  for (enum side side = onHost; side < numSides; side++)
    ASSERT_RUN(side, markRows, count, rowBytes, data->at[side],
               (uint8_t *)marks->at[side], NULL);
  ASSERT_SYNCHRONIZED();
  assertSameBytes(marks, "markRows");
  for (int64_t i = 0; i < count; i++)
    ck_assert_int_eq(((const uint8_t *)marks->at[onHost])[i], i % 2);
  mirrorFreeAll();
}
END_TEST

/* Nothing is launched, so that no pointer matters. */
START_TEST(noRowsAreLegal) {
  const struct lrmoeRows rows = {NULL, NULL, lrmoeBfloat16, 8};
  const struct lrmoeNorms norms = {rows, 0, 0, NULL};
  const struct lrmoeGather gather = {rows, 0, lrmoeFloat32, NULL};
  const struct lrmoeGatherSum sum = {rows, 0, NULL, NULL, NULL, NULL};
  const struct lrmoeDotRows dots = {rows, rows, 0, NULL, NULL};
  ASSERT_RUN(onDevice, norms, &norms, NULL);
  ASSERT_RUN(onDevice, gather, &gather, NULL);
  ASSERT_RUN(onDevice, gatherSum, &sum, NULL);
  ASSERT_RUN(onDevice, dotRows, &dots, NULL);
  ASSERT_RUN(onDevice, spoilRows, 0, NULL, 16, NULL, NULL);
  ASSERT_RUN(onDevice, markRows, 0, 16, NULL, NULL, NULL);
  ASSERT_SYNCHRONIZED();
}
END_TEST

/* Each row is loaded once and stored once: what perf/README.md counts on. */
START_TEST(rowsAreReadOnce) {
  if (!isEmulated()) return;
  struct rowCase rows = makeCase(18); /* 2048 */
  int64_t rowBytes = rows.width * (int64_t)naiveTypeBytes(rows.type);
  simtResetCounters();
  checkGather(&rows, rows.type);
  struct simtCounters counters;
  simtGetCounters("copyRowsKernel", &counters);
  ck_assert_int_eq(counters.launches, 1);
  ck_assert_int_eq(counters.bytesStored, rows.numRows * rowBytes);
  ck_assert_int_le(counters.bytesLoaded, rows.numRows * (rowBytes + 8));
  simtResetCounters();
  checkNorms(&rows, 0, 0);
  simtGetCounters("normsKernel", &counters);
  ck_assert_int_le(counters.bytesLoaded,
                   rows.numRows * (rowBytes + 8) + rows.numSources * rowBytes);
  mirrorFreeAll();
}
END_TEST

START_TEST(wrongRowsAreRefused) {
  const struct lrmoeRows odd = {NULL, NULL, lrmoeFloat32, 12};
  const struct lrmoeRows bytes = {NULL, NULL, lrmoeInt8, 8};
  const struct lrmoeNorms oddNorms = {odd, 1, 0, NULL};
  const struct lrmoeNorms byteNorms = {bytes, 1, 0, NULL};
  const struct lrmoeBackend *cuda = backendOf(onDevice);
  ck_assert_int_eq(cuda->norms(&oddNorms, NULL), lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(cuda->lastError(), "12"));
  ck_assert_int_eq(cuda->norms(&byteNorms, NULL), lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(cuda->lastError(), "data type 0"));
  const struct lrmoeNorms offNorms = {
      {(void *)8, NULL, lrmoeFloat32, 8}, 1, 0, NULL};
  ck_assert_int_eq(cuda->norms(&offNorms, NULL), lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(cuda->lastError(), "boundaries"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_rows");
  TCase *tests = tcase_create("rows");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, normsAreTheCpus, 0, numCases);
  tcase_add_loop_test(tests, gatherConverts, 0, numCases);
  tcase_add_loop_test(tests, spreadWritesEveryPlace, 0, 18);
  tcase_add_loop_test(tests, gatherSumKeepsTheOrder, 0, numCases);
  tcase_add_loop_test(tests, dotsAreTheCpus, 0, numCases);
  tcase_add_loop_test(tests, spoiledRowsAreNan, 0, numCases);
  tcase_add_loop_test(tests, rowsWithABitAreMarked, 0, numCases);
  tcase_add_test(tests, noRowsAreLegal);
  tcase_add_test(tests, rowsAreReadOnce);
  tcase_add_test(tests, wrongRowsAreRefused);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
