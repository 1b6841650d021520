/* Correct kernels give the same bits in every order: those of a plain
 * reference. */
#include "device.h"
#include "good.h"
#include "support/simt/simt.h"

#include <stdlib.h>
#include <string.h>

#define ROWS  5
#define WIDTH 700

static const size_t bytesOfRows = sizeof(float) * ROWS * WIDTH;

START_TEST(sumsOfRowsDoNotDependOnTheOrder) {
  chooseOrder(_i);
  static float rows[ROWS][WIDTH];
  uint64_t random = 1;
  /* Small integers: every order of additions is exact. */
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < WIDTH; i++)
      rows[r][i] = (float)(nextNumber(&random) % 1000);
  float *in = deviceCopyOf(rows, bytesOfRows);
  float *out = deviceCopyOf(NULL, sizeof(float) * ROWS);
  ASSERT_CUDA(goodReduce(in, out, ROWS, WIDTH, NULL));
  float sums[ROWS];
  deviceTake(out, sums, sizeof sums);
  ASSERT_CUDA(cudaFree(in));
  for (int r = 0; r < ROWS; r++) {
    float expected = 0;
    for (int i = 0; i < WIDTH; i++)
      expected += rows[r][i];
    ck_assert_float_eq(sums[r], expected);
  }
}
END_TEST

START_TEST(scansAreExclusivePrefixSums) {
  chooseOrder(_i);
  static unsigned rows[ROWS][WIDTH];
  static unsigned scanned[ROWS][WIDTH];
  uint64_t random = 2;
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < WIDTH; i++)
      rows[r][i] = nextNumber(&random) % 100;
  unsigned *device = deviceCopyOf(rows, sizeof rows);
  ASSERT_CUDA(goodScan(device, ROWS, WIDTH, NULL));
  deviceTake(device, scanned, sizeof scanned);
  for (int r = 0; r < ROWS; r++) {
    unsigned sum = 0;
    for (int i = 0; i < WIDTH; i++) {
      ck_assert_uint_eq(scanned[r][i], sum);
      sum += rows[r][i];
    }
  }
}
END_TEST

START_TEST(histogramsCountEveryKey) {
  chooseOrder(_i);
  static unsigned rows[ROWS][WIDTH];
  static unsigned expected[ROWS][256];
  static unsigned counts[ROWS][256];
  memset(expected, 0, sizeof expected);
  uint64_t random = 3;
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < WIDTH; i++) {
      rows[r][i] = nextNumber(&random) % (r ? 256 : 3);
      expected[r][rows[r][i]]++;
    }
  unsigned *in = deviceCopyOf(rows, sizeof rows);
  unsigned *out = deviceCopyOf(NULL, sizeof counts);
  ASSERT_CUDA(goodHistogram(in, out, ROWS, WIDTH, NULL));
  deviceTake(out, counts, sizeof counts);
  ASSERT_CUDA(cudaFree(in));
  ck_assert_mem_eq(counts, expected, sizeof counts);
}
END_TEST

/* Marks by hand: the largest not yet marked, the first of equals. */
static void markLargest(const unsigned *row, int quota, unsigned *marks) {
  memset(marks, 0, sizeof *marks * WIDTH);
  for (int k = 0; k < quota; k++) {
    int best = -1;
    for (int i = 0; i < WIDTH; i++)
      if (!marks[i] && (best < 0 || row[i] > row[best])) best = i;
    marks[best] = 1;
  }
}

START_TEST(selectionIsTheStableTop) {
  chooseOrder(_i);
  static const int quotas[ROWS] = {0, 1, WIDTH / 2, WIDTH - 1, WIDTH};
  static unsigned rows[ROWS][WIDTH];
  static unsigned marks[ROWS][WIDTH];
  uint64_t random = 4;
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < WIDTH; i++)
      rows[r][i] = r % 2 ? nextNumber(&random) << 1 : nextNumber(&random) % 5;
  unsigned *in = deviceCopyOf(rows, sizeof rows);
  int *quota = deviceCopyOf(quotas, sizeof quotas);
  unsigned *out = deviceCopyOf(NULL, sizeof marks);
  ASSERT_CUDA(goodSelect(in, quota, out, ROWS, WIDTH, NULL));
  deviceTake(out, marks, sizeof marks);
  ASSERT_CUDA(cudaFree(in));
  ASSERT_CUDA(cudaFree(quota));
  for (int r = 0; r < ROWS; r++) {
    unsigned expected[WIDTH];
    markLargest(rows[r], quotas[r], expected);
    ck_assert_mem_eq(marks[r], expected, sizeof expected);
  }
}
END_TEST

START_TEST(transposesHaveRaggedEdges) {
  chooseOrder(_i);
  enum {
    height = 37,
    width = 50
  };
  static float in[height][width];
  static float out[width][height];
  for (int y = 0; y < height; y++)
    for (int x = 0; x < width; x++)
      in[y][x] = (float)(y * 100 + x);
  float *from = deviceCopyOf(in, sizeof in);
  float *to = deviceCopyOf(NULL, sizeof out);
  ASSERT_CUDA(goodTranspose(from, to, height, width, NULL));
  deviceTake(to, out, sizeof out);
  ASSERT_CUDA(cudaFree(from));
  for (int y = 0; y < height; y++)
    for (int x = 0; x < width; x++)
      ck_assert_float_eq(out[x][y], in[y][x]);
}
END_TEST

START_TEST(theLastBlockSeesTheOthers) {
  chooseOrder(_i);
  enum {
    numBlocks = 9
  };
  float values[numBlocks * 32];
  float expected = 0;
  for (int i = 0; i < numBlocks * 32; i++)
    expected += values[i] = (float)(i % 7);
  float *in = deviceCopyOf(values, sizeof values);
  float *parts = deviceCopyOf(NULL, sizeof(float) * numBlocks);
  unsigned *ticket = deviceCopyOf(NULL, sizeof(unsigned));
  float *out = deviceCopyOf(NULL, sizeof(float));
  ASSERT_CUDA(goodLastBlock(in, parts, ticket, out, numBlocks, NULL));
  float sum;
  deviceTake(out, &sum, sizeof sum);
  ck_assert_float_eq(sum, expected);
  ASSERT_CUDA(cudaFree(in));
  ASSERT_CUDA(cudaFree(parts));
  ASSERT_CUDA(cudaFree(ticket));
}
END_TEST

START_TEST(builtinsGiveTheAnswersOfTheManual) {
  chooseOrder(_i);
  int *failures = deviceCopyOf(NULL, sizeof(int));
  ASSERT_CUDA(goodBuiltins(failures, NULL));
  int count;
  deviceTake(failures, &count, sizeof count);
  ck_assert_int_eq(count, 0);
}
END_TEST

START_TEST(aPollingThreadLetsOthersRun) {
  chooseOrder(_i);
  unsigned *flag = deviceCopyOf(NULL, sizeof(unsigned));
  ASSERT_CUDA(goodPoll(flag, NULL));
  unsigned value;
  deviceTake(flag, &value, sizeof value);
  ck_assert_uint_eq(value, 1);
}
END_TEST

START_TEST(bytesAreCounted) {
  enum {
    numRows = 3,
    width = 264
  };
  uint16_t rows[numRows * width];
  uint16_t copied[numRows * width];
  for (int i = 0; i < numRows * width; i++)
    rows[i] = (uint16_t)i;
  simtResetCounters();
  uint16_t *in = deviceCopyOf(rows, sizeof rows);
  uint16_t *out = deviceCopyOf(NULL, sizeof copied);
  ASSERT_CUDA(goodCopy(in, out, numRows, width, NULL));
  ASSERT_CUDA(goodCopy(in, out, numRows, width, NULL));
  deviceTake(out, copied, sizeof copied);
  ASSERT_CUDA(cudaFree(in));
  ck_assert_mem_eq(copied, rows, sizeof rows);
  struct simtCounters counters;
  simtGetCounters("copyKernel", &counters);
  ck_assert_int_eq(counters.launches, 2);
  ck_assert_int_eq(counters.bytesLoaded, 2 * (int64_t)sizeof rows);
  ck_assert_int_eq(counters.bytesStored, 2 * (int64_t)sizeof rows);
  simtGetCounters("addKernel", &counters);
  ck_assert_int_eq(counters.launches, 0);
}
END_TEST

int main(void) {
  static const TTest *const *tests[] = {
      &sumsOfRowsDoNotDependOnTheOrder,   &scansAreExclusivePrefixSums,
      &histogramsCountEveryKey,           &selectionIsTheStableTop,
      &transposesHaveRaggedEdges,         &theLastBlockSeesTheOthers,
      &builtinsGiveTheAnswersOfTheManual, &aPollingThreadLetsOthersRun,
  };
  Suite *suite = suite_create("simt_good");
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    TCase *group = tcase_create((*tests[i])->name);
    tcase_set_timeout(group, 60);
    tcase_add_loop_test(group, *tests[i], 0, NUM_ORDERS);
    suite_add_tcase(suite, group);
  }
  TCase *counters = tcase_create("counters");
  tcase_add_test(counters, bytesAreCounted);
  suite_add_tcase(suite, counters);
  return suiteRun(suite);
}
