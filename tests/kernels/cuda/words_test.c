/* Words, pieces and scores: the CPU's bits. */
#include "kernels/select.h"
#include "mirror.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Around a vector, a warp and a block. */
static const int64_t counts[] = {0, 1, 3, 4, 31, 255, 256, 257, 1000};
enum {
  numCounts = sizeof counts / sizeof *counts
};

static struct mirror *randomWords(struct naiveRandom *random, int64_t count) {
  uint32_t *words = malloc((size_t)count * sizeof *words + 1);
  ck_assert_ptr_nonnull(words);
  for (int64_t i = 0; i < count; i++)
    words[i] = (uint32_t)naiveRandomBits(random);
  return mirrorOf(words, (size_t)count * sizeof *words);
}

static void checkAdd(struct naiveRandom *random, int64_t count, int64_t skip) {
  struct mirror *from = mirrorRows(random, lrmoeFloat32, count + skip, 1);
  struct mirror *to = mirrorRows(random, lrmoeFloat32, count + skip, 1);
  for (enum side side = onHost; side < numSides; side++)
    ASSERT_RUN(side, addFloats, count, (float *)from->at[side] + skip,
               (float *)to->at[side] + skip, NULL);
  ASSERT_SYNCHRONIZED();
  assertSameElements(to, lrmoeFloat32, "addFloats");
}

START_TEST(floatsAreAdded) {
  struct naiveRandom random = {(uint64_t)_i};
  chooseOrder(_i % numOrders);
  checkAdd(&random, counts[_i], 0);
  checkAdd(&random, counts[_i], 1); /* not at a 16-byte boundary */
  mirrorFreeAll();
}
END_TEST

/* A random order of 0 .. count - 1. */
static int64_t *shuffled(struct naiveRandom *random, int64_t count) {
  int64_t *order = malloc((size_t)count * sizeof *order + 1);
  ck_assert_ptr_nonnull(order);
  for (int64_t i = 0; i < count; i++) {
    int64_t j = naiveRandomBelow(random, i + 1);
    order[i] = order[j];
    order[j] = i;
  }
  return order;
}

START_TEST(wordsAreGatheredAndScattered) {
  struct naiveRandom random = {(uint64_t)_i};
  int64_t count = counts[_i];
  chooseOrder(_i % numOrders);
  struct mirror *from = randomWords(&random, count + 5);
  struct mirror *index = mirrorRandomIndices(&random, count, count + 5, 0);
  int64_t *order = shuffled(&random, count);
  for (int64_t i = 0; i < count; i++)
    if (naiveRandomBelow(&random, 5) == 0) order[i] = -1;
  struct mirror *places = mirrorOf(order, (size_t)count * sizeof *order);
  struct mirror *gathered = mirrorRoom((size_t)count * 4);
  struct mirror *scattered = mirrorRoom((size_t)count * 4);
  for (enum side side = onHost; side < numSides; side++) {
    ASSERT_RUN(side, gatherWords, count, index->at[side], from->at[side],
               gathered->at[side], NULL);
    ASSERT_RUN(side, scatterWords, count, places->at[side], from->at[side],
               scattered->at[side], NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(gathered, "gatherWords");
  assertSameBytes(scattered, "scatterWords");
  mirrorFreeAll();
}
END_TEST

/* Pieces of up to maxWords words, empty ones among them, that change their
 * order. */
static void checkPieces(struct naiveRandom *random, int64_t numPieces,
                        int64_t maxWords) {
  size_t bytes = (size_t)numPieces * sizeof(int64_t);
  struct mirror *lists[3];
  for (int i = 0; i < 3; i++)
    lists[i] = mirrorRoom(bytes);
  int64_t *source = lists[0]->at[onHost];
  int64_t *target = lists[1]->at[onHost];
  int64_t *sizes = lists[2]->at[onHost];
  int64_t total = 0;
  for (int64_t i = 0; i < numPieces; i++) {
    sizes[i] = naiveRandomBelow(random, maxWords + 1);
    if (naiveRandomBelow(random, 4) == 0) sizes[i] = 0;
    source[i] = total;
    total += sizes[i];
  }
  for (int64_t i = numPieces - 1, at = 0; i >= 0; i--) {
    target[i] = at;
    at += sizes[i];
  }
  for (int i = 0; i < 3; i++)
    mirrorPut(lists[i]);
  struct mirror *from = randomWords(random, total);
  struct mirror *to = mirrorRoom((size_t)total * 4);
  for (enum side side = onHost; side < numSides; side++) {
    const struct lrmoePieces args = {numPieces,          maxWords,
                                     lists[0]->at[side], lists[1]->at[side],
                                     lists[2]->at[side], from->at[side],
                                     to->at[side]};
    ASSERT_RUN(side, copyPieces, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(to, "copyPieces");
}

START_TEST(piecesAreCopied) {
  struct naiveRandom random = {(uint64_t)_i};
  chooseOrder(_i);
  checkPieces(&random, 0, 10);
  checkPieces(&random, 3, 0);
  checkPieces(&random, 1, 1);
  checkPieces(&random, 40, 33);
  checkPieces(&random, 5, 1000);
  mirrorFreeAll();
}
END_TEST

static void checkScores(struct naiveRandom *random, lrmoeMetric_t metric,
                        int64_t count, int hasWeights) {
  const int64_t numTokens = 37;
  struct mirror *weights = mirrorRows(random, lrmoeFloat32, count, 1);
  struct mirror *phiNorms = mirrorRows(random, lrmoeFloat32, count, 1);
  struct mirror *gNorms = mirrorRows(random, lrmoeFloat32, numTokens, 1);
  struct mirror *tokens = mirrorRandomIndices(random, count, numTokens, 0);
  struct mirror *pairs =
      mirrorRandomIndices(random, count, (int64_t)1 << 45, 0);
  struct mirror *keys = mirrorRoom((size_t)count * sizeof(uint32_t));
  for (enum side side = onHost; side < numSides; side++) {
    const struct lrmoeScores args = {
        .metric = metric,
        .numPairs = count,
        .weights = hasWeights ? weights->at[side] : NULL,
        .phiNorms = phiNorms->at[side],
        .tokens = tokens->at[side],
        .gNorms = gNorms->at[side],
        .pairs = pairs->at[side],
        .salt = 0x123456789abcdef0u,
        .keys = keys->at[side],
    };
    ASSERT_RUN(side, scores, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(keys, "scores");
}

START_TEST(scoresAreTheCpus) {
  struct naiveRandom random = {(uint64_t)_i};
  chooseOrder(_i % numOrders);
  checkScores(&random, lrmoeMetricLrm, counts[_i], 1);
  checkScores(&random, lrmoeMetricLrm, counts[_i], 0);
  checkScores(&random, lrmoeMetricGrad1, counts[_i], 0);
  checkScores(&random, lrmoeMetricGrad2, counts[_i], 0);
  checkScores(&random, lrmoeMetricRandom, counts[_i], 0);
  mirrorFreeAll();
}
END_TEST

START_TEST(unknownMetricsAreRefused) {
  const struct lrmoeScores args = {.metric = lrmoeMetricAll, .numPairs = 1};
  const struct lrmoeBackend *cuda = backendOf(onDevice);
  ck_assert_int_eq(cuda->scores(&args, NULL), lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(cuda->lastError(), "metric 4"));
}
END_TEST

/* Three ranges, the middle one empty, whose flags lie apart from their
 * items. */
START_TEST(lostOverflowsShow) {
  const int64_t numItems = 1300;
  const int64_t numPlaces = 200;
  const int64_t rowBytes = 16 * (1 + _i % 3 * 33);
  const int64_t tables[] = {300, 0, 0, 0, 1000, 1000, 1000, 0, 300};
  struct naiveRandom random = {(uint64_t)_i + 1};
  chooseOrder(_i);
  struct mirror *ranges = mirrorIndices(tables, 9);
  struct mirror *flags = mirrorRoom((size_t)numItems);
  struct mirror *places = mirrorRoom((size_t)numItems * sizeof(int32_t));
  struct mirror *keys = randomWords(&random, numItems);
  struct mirror *rows = mirrorRoom((size_t)(numPlaces * rowBytes));
  for (int64_t i = 0; i < numItems; i++) {
    ((uint8_t *)flags->at[onHost])[i] = (uint8_t)naiveRandomBelow(&random, 3);
    ((int32_t *)places->at[onHost])[i] =
        (int32_t)naiveRandomBelow(&random, numPlaces);
    if (naiveRandomBelow(&random, 9) == 0)
      ((uint32_t *)keys->at[onHost])[i] = LRMOE_KEY_NON_FINITE;
  }
  mirrorPut(flags);
  mirrorPut(places);
  mirrorPut(keys);
  for (enum side side = onHost; side < numSides; side++) {
    const int64_t *table = ranges->at[side];
    const struct lrmoeSpoils args = {{.numLists = 3,
                                      .maxItems = 1000,
                                      .flagFirsts = table,
                                      .itemFirsts = table + 3,
                                      .counts = table + 6,
                                      .flags = flags->at[side],
                                      .places = places->at[side]},
                                     keys->at[side],
                                     rowBytes,
                                     rows->at[side]};
    ASSERT_RUN(side, spoilDropped, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(rows, "spoilt rows");
  mirrorFreeAll();
}
END_TEST

/* Of three items one is kept and one did not overflow. */
START_TEST(lostOverflowsAreKnown) {
  const uint8_t flags[] = {0, 1, 0};
  const int64_t first = 0;
  const int64_t item = 1;
  const int64_t count = 3;
  const int32_t places[] = {0, 2, 0, 1};
  const uint32_t keys[] = {LRMOE_KEY_NON_FINITE, 5, LRMOE_KEY_NON_FINITE,
                           LRMOE_KEY_NON_FINITE};
  unsigned char rows[3 * 16] = {0};
  const struct lrmoeSpoils none = {.rowBytes = 16};
  const struct lrmoeSpoils args = {{.numLists = 1,
                                    .maxItems = 3,
                                    .flagFirsts = &first,
                                    .itemFirsts = &item,
                                    .counts = &count,
                                    .flags = flags,
                                    .places = places},
                                   keys,
                                   16,
                                   rows};
  lrmoeSpoilDropped(&args);
  for (int i = 0; i < 48; i++)
    ck_assert_int_eq(rows[i], i / 16 == 1 ? 0xff : 0);
  ASSERT_RUN(onDevice, spoilDropped, &none, NULL);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_words");
  TCase *tests = tcase_create("words");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, floatsAreAdded, 0, numCounts);
  tcase_add_loop_test(tests, wordsAreGatheredAndScattered, 0, numCounts);
  tcase_add_loop_test(tests, piecesAreCopied, 0, numOrders);
  tcase_add_loop_test(tests, scoresAreTheCpus, 0, numCounts);
  tcase_add_test(tests, unknownMetricsAreRefused);
  tcase_add_loop_test(tests, lostOverflowsShow, 0, numOrders);
  tcase_add_test(tests, lostOverflowsAreKnown);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
