/* Lists and numbers of a route: the CPU's, whatever the order of threads. */
#include "kernels/labels.h"
#include "kernels/select.h"
#include "mirror.h"

#include <stdlib.h>
#include <string.h>

/* Around a warp, a warp's part, a tile, and the change of block. */
static const int64_t lengths[] = {0, 1, 31, 33, 257, 2048, 2049, 4096, 9000};
enum {
  numLengths = sizeof lengths / sizeof *lengths,
  maxLists = 7
};

static struct mirror *marksOf(struct naiveRandom *random, int64_t count,
                              int ofTen) {
  struct mirror *made = mirrorRoom((size_t)count);
  uint8_t *marks = made->at[onHost];
  for (int64_t i = 0; i < count; i++)
    marks[i] = naiveRandomBelow(random, 10) < ofTen;
  mirrorPut(made);
  return made;
}

/* Ranges whose flags and items lie in other orders, some of them empty. */
struct ranges {
  int64_t numLists;
  int64_t maxItems;
  int64_t numItems;
  struct mirror *tables; /* flagFirsts, itemFirsts, counts, placeFirsts, wanted,
                            marked */
  struct mirror *flags;
};

/* Of labels 0 to 3, and more than there are. */
static int64_t randomWanted(struct naiveRandom *random) {
  return LRMOE_WANT(
      naiveRandomBelow(random, 4),
      naiveRandomBelow(random, 5) ? naiveRandomBelow(random, 4) + 1 : 255);
}

static struct mirror *randomLabels(struct naiveRandom *random, int64_t count) {
  struct mirror *made = mirrorRoom((size_t)count);
  uint8_t *labels = made->at[onHost];
  for (int64_t i = 0; i < count; i++)
    labels[i] = (uint8_t)naiveRandomBelow(random, 4);
  mirrorPut(made);
  return made;
}

static struct ranges makeRanges(struct naiveRandom *random, int64_t longest) {
  struct ranges made = {1 + naiveRandomBelow(random, maxLists), 0, 0, 0, 0};
  int64_t n = made.numLists;
  made.tables = mirrorRoom((size_t)(6 * n) * sizeof(int64_t));
  int64_t *firsts = made.tables->at[onHost];
  int64_t *items = firsts + n;
  int64_t *counts = items + n;
  for (int64_t l = 0; l < n; l++) {
    counts[l] = l == 0 ? longest : naiveRandomBelow(random, longest + 1);
    items[l] = made.numItems;
    made.numItems += counts[l];
    if (counts[l] > made.maxItems) made.maxItems = counts[l];
  }
  for (int64_t l = n - 1, at = 0; l >= 0; l--) {
    firsts[l] = at;
    at += counts[l];
    counts[n + l] = 10 * (l / 2); /* placeFirsts */
    counts[2 * n + l] = randomWanted(random);
    counts[3 * n + l] = randomWanted(random);
  }
  mirrorPut(made.tables);
  made.flags = randomLabels(random, made.numItems);
  return made;
}

static struct lrmoeFlagged flaggedOf(const struct ranges *ranges,
                                     enum side side) {
  const int64_t *tables = ranges->tables->at[side];
  return (struct lrmoeFlagged){
      .numLists = ranges->numLists,
      .maxItems = ranges->maxItems,
      .flagFirsts = tables,
      .itemFirsts = tables + ranges->numLists,
      .counts = tables + 2 * ranges->numLists,
      .placeFirsts = tables + 3 * ranges->numLists,
      .wanted = tables + 4 * ranges->numLists,
      .flags = ranges->flags->at[side],
  };
}

static struct mirror *randomKeys(struct naiveRandom *random, int64_t count) {
  struct mirror *made = mirrorRoom((size_t)count * sizeof(uint32_t));
  uint32_t *keys = made->at[onHost];
  for (int64_t i = 0; i < count; i++)
    keys[i] = naiveRandomBelow(random, 5) ? (uint32_t)i : LRMOE_KEY_NON_FINITE;
  mirrorPut(made);
  return made;
}

static struct mirror *randomPlaces(struct naiveRandom *random, int64_t count,
                                   int64_t limit) {
  struct mirror *made = mirrorRoom((size_t)count * sizeof(int32_t));
  for (int64_t i = 0; i < count; i++)
    ((int32_t *)made->at[onHost])[i] = (int32_t)naiveRandomBelow(random, limit);
  mirrorPut(made);
  return made;
}

static void checkFlagged(struct naiveRandom *random, int64_t longest,
                         int hasKeys) {
  const int64_t numPlaces = 40;
  const size_t numMarks = 10 * (maxLists / 2) + 40;
  struct ranges ranges = makeRanges(random, longest);
  size_t listBytes = (size_t)ranges.numItems * sizeof(int64_t);
  size_t bytes = (size_t)(ranges.numLists + 1) * sizeof(int64_t);
  struct mirror *places = randomPlaces(random, ranges.numItems, numPlaces);
  struct mirror *keys = randomKeys(random, ranges.numItems);
  struct mirror *marks = mirrorRoom((numMarks + 3) / 4 * 4);
  struct mirror *xMarks = mirrorRoom((numMarks + 3) / 4 * 4);
  struct mirror *offsets = mirrorRoom(bytes);
  struct mirror *dropped = mirrorRoom(bytes);
  struct mirror *list = mirrorRoom(listBytes);
  struct mirror *listPlaces = mirrorRoom(listBytes);
  for (enum side side = onHost; side < numSides; side++) {
    struct lrmoeFlagCount args = {.lists = flaggedOf(&ranges, side)};
    args.lists.offsets = offsets->at[side];
    args.lists.list = list->at[side];
    args.lists.listPlaces = hasKeys ? listPlaces->at[side] : NULL;
    args.lists.places = places->at[side];
    args.marked = args.lists.wanted + ranges.numLists;
    args.xMarks = hasKeys ? xMarks->at[side] : NULL;
    args.marks = marks->at[side];
    args.keys = hasKeys ? keys->at[side] : NULL;
    args.dropped = dropped->at[side];
    ASSERT_RUN(side, clear, marks->at[side], marks->bytes, NULL);
    ASSERT_RUN(side, clear, xMarks->at[side], xMarks->bytes, NULL);
    ASSERT_RUN(side, countFlagged, &args, NULL);
    ASSERT_RUN(side, listFlagged, &args.lists, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(offsets, "offsets");
  assertSameBytes(list, "list");
  assertSameBytes(listPlaces, "places of the list");
  assertSameBytes(marks, "marks");
  assertSameBytes(xMarks, "marks of x");
  assertSameBytes(dropped, "dropped");
}

START_TEST(flaggedItemsAreListed) {
  struct naiveRandom random = {(uint64_t)_i + 1};
  chooseOrder(_i % numOrders);
  checkFlagged(&random, lengths[_i % numLengths], 1);
  checkFlagged(&random, lengths[_i % numLengths], 0);
  mirrorFreeAll();
}
END_TEST

/* Ranges whose lists are known. */
START_TEST(listsAreWhatTheySay) {
  uint8_t flags[] = {3, 0, 1, 3, 0};
  int64_t tables[] = {2, 0, 10, 20, 3, 2};
  int64_t wanted[] = {LRMOE_WANT(lrmoeLabelStayed, 255), LRMOE_WANT(3, 1)};
  int64_t marked[] = {LRMOE_WANT(1, 1), LRMOE_WANT(0, 1)};
  int64_t offsets[3];
  int64_t list[3];
  int64_t listPlaces[3];
  uint8_t marks[8] = {0};
  uint8_t xMarks[8] = {0};
  const int32_t places[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3,
                            2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0};
  const int64_t placeFirsts[] = {0, 4};
  uint32_t keys[22] = {[12] = LRMOE_KEY_NON_FINITE};
  int64_t dropped[2];
  const struct lrmoeFlagCount args = {{2, 3, tables, tables + 2, tables + 4,
                                       wanted, flags, places, placeFirsts,
                                       offsets, list, listPlaces},
                                      marked,
                                      marks,
                                      xMarks,
                                      keys,
                                      dropped};
  lrmoeCountFlagged(&args);
  lrmoeListFlagged(&args.lists);
  ck_assert_mem_eq(offsets, ((int64_t[]){0, 2, 3}), sizeof offsets);
  ck_assert_mem_eq(list, ((int64_t[]){10, 11, 20}), sizeof list);
  ck_assert_mem_eq(listPlaces, ((int64_t[]){3, 2, 5}), sizeof listPlaces);
  ck_assert_mem_eq(marks, ((uint8_t[]){0, 0, 0, 1, 1, 0, 0, 0}), 8);
  ck_assert_mem_eq(xMarks, ((uint8_t[]){0, 0, 1, 0, 0, 1, 0, 0}), 8);
  ck_assert_mem_eq(dropped, ((int64_t[]){1, 0}), sizeof dropped);
}
END_TEST

/* Items and places of a handoff, of which those from 40 on come with x. */
START_TEST(handoffsAreListed) {
  const int64_t numRows = 300;
  const size_t longs = sizeof(int64_t);
  struct naiveRandom random = {(uint64_t)_i + 1};
  chooseOrder(_i % numOrders);
  struct mirror *items = mirrorRandomIndices(&random, numRows, 80, 0);
  struct mirror *places = mirrorRandomIndices(&random, numRows, 50, 0);
  struct mirror *numbers = mirrorRandomIndices(&random, 100, 1000, 0);
  struct mirror *xRow = mirrorRandomIndices(&random, 40, 1000, 0);
  struct mirror *alpha = mirrorRows(&random, lrmoeFloat32, 40, 0);
  struct mirror *xRows = mirrorRoom((size_t)numRows * longs);
  struct mirror *weights = mirrorRoom((size_t)numRows * sizeof(float));
  for (enum side side = onHost; side < numSides; side++) {
    const int64_t *at = numbers->at[side];
    const struct lrmoeHandoffLists args = {numRows,
                                           40,
                                           items->at[side],
                                           places->at[side],
                                           at,
                                           at + 50,
                                           xRow->at[side],
                                           alpha->at[side],
                                           xRows->at[side],
                                           weights->at[side]};
    ASSERT_RUN(side, listHandoff, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(items, "fwdRow");
  assertSameBytes(places, "gRow");
  assertSameBytes(xRows, "xRow");
  assertSameBytes(weights, "weights");
  mirrorFreeAll();
}
END_TEST

/* Pieces of flags whose bits come back as they were. */
START_TEST(bitsAreFlags) {
  static const int64_t firsts[] = {0, 1, 33, 98, 98};
  static const int64_t words[] = {4, 0, 1, 9, 9};
  static const int64_t counts[] = {1, 32, 65, 0, 700};
  struct naiveRandom random = {(uint64_t)_i + 1};
  chooseOrder(_i % numOrders);
  struct mirror *flags = marksOf(&random, 798, 5);
  struct mirror *back = mirrorRoom(798);
  struct mirror *bits = mirrorRoom(31 * sizeof(uint32_t));
  struct mirror *at[] = {mirrorIndices(firsts, 5), mirrorIndices(words, 5),
                         mirrorIndices(counts, 5)};
  for (enum side side = onHost; side < numSides; side++) {
    struct lrmoeBits args = {5,
                             700,
                             at[0]->at[side],
                             at[1]->at[side],
                             at[2]->at[side],
                             flags->at[side],
                             bits->at[side]};
    ASSERT_RUN(side, packBits, &args, NULL);
    args.flags = back->at[side];
    ASSERT_RUN(side, unpackBits, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(bits, "bits");
  assertSameBytes(back, "flags of bits");
  ck_assert_mem_eq(back->at[onHost], flags->at[onHost], 798);
  mirrorFreeAll();
}
END_TEST

static void checkColumns(struct naiveRandom *random, int64_t numRows,
                         int64_t numColumns, int isShifted) {
  int64_t count = numRows * numColumns;
  size_t longs = sizeof(int64_t);
  struct mirror *marks = marksOf(random, count, 4);
  struct mirror *numbers = mirrorRoom((size_t)(count + 1) * longs);
  ASSERT_RUN(onHost, numberMarks, count, marks->at[onHost], numbers->at[onHost],
             NULL);
  size_t numMarks = (size_t)((int64_t *)numbers->at[onHost])[count];
  struct mirror *offsets = mirrorRoom((size_t)(numColumns + 1) * longs);
  struct mirror *list = mirrorRoom(numMarks * longs);
  struct mirror *columns = mirrorRoom(numMarks * longs);
  for (enum side side = onHost; side < numSides; side++) {
    const struct lrmoeColumns args = {numRows,
                                      numColumns,
                                      numbers->at[side],
                                      isShifted ? 100000 : 0,
                                      offsets->at[side],
                                      list->at[side],
                                      isShifted ? NULL : columns->at[side]};
    ASSERT_RUN(side, numberMarks, count, marks->at[side], numbers->at[side],
               NULL);
    ASSERT_RUN(side, listColumns, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(numbers, "numbers");
  assertSameBytes(offsets, "offsets of columns");
  assertSameBytes(list, "list of columns");
  assertSameBytes(columns, "columns");
}

START_TEST(marksAreNumberedAndListed) {
  struct naiveRandom random = {(uint64_t)_i + 1};
  chooseOrder(_i % numOrders);
  for (int64_t rows = 1; rows <= 3; rows++)
    checkColumns(&random, rows, lengths[_i % numLengths], _i % 2);
  mirrorFreeAll();
}
END_TEST

static void checkInversion(struct naiveRandom *random, int64_t numItems,
                           int64_t numLists) {
  size_t longs = sizeof(int64_t);
  struct mirror *targets = mirrorRandomIndices(random, numItems, numLists, 0);
  struct mirror *offsets = mirrorRoom((size_t)(numLists + 1) * longs);
  struct mirror *list = mirrorRoom((size_t)numItems * longs);
  struct mirror *work = mirrorRoom((size_t)numLists * longs);
  for (enum side side = onHost; side < numSides; side++) {
    const struct lrmoeInversion args = {numItems,       targets->at[side],
                                        numLists,       offsets->at[side],
                                        list->at[side], work->at[side]};
    ASSERT_RUN(side, invert, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(offsets, "offsets of lists");
  assertSameBytes(list, "inverted list");
}

START_TEST(listsAreInverted) {
  struct naiveRandom random = {(uint64_t)_i + 1};
  int64_t count = lengths[_i % numLengths];
  chooseOrder(_i % numOrders);
  checkInversion(&random, count, count + 1);
  checkInversion(&random, count, count / 4 + 1);
  checkInversion(&random, 0, count);
  mirrorFreeAll();
}
END_TEST

/* Lists of two ranks in turn, and indices gathered where they lie. */
START_TEST(listsAreShifted) {
  static const int64_t ends[] = {0, 0, 5, 300, 1000};
  struct naiveRandom random = {(uint64_t)_i + 1};
  chooseOrder(_i % numOrders);
  struct mirror *offsets = mirrorIndices(ends, 5);
  struct mirror *begins = mirrorIndices((int64_t[]){0, 400}, 2);
  struct mirror *values = mirrorRandomIndices(&random, 1000, 500, 0);
  struct mirror *from = mirrorRandomIndices(&random, 1500, 99, 0);
  for (enum side side = onHost; side < numSides; side++) {
    const struct lrmoeShifts args = {
        4, 2, 500, offsets->at[side], begins->at[side], values->at[side]};
    ASSERT_RUN(side, shiftLists, &args, NULL);
    ASSERT_RUN(side, gatherIndices, 1000, values->at[side], from->at[side],
               values->at[side], NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(values, "shifted and gathered");
  mirrorFreeAll();
}
END_TEST

START_TEST(noListsAreLegal) {
  struct mirror *offset = mirrorRoom(sizeof(int64_t));
  const struct lrmoeFlagCount none = {
      .lists = {.offsets = offset->at[onDevice]}};
  const struct lrmoeShifts shifts = {0};
  ASSERT_RUN(onDevice, countFlagged, &none, NULL);
  ASSERT_RUN(onDevice, listFlagged, &none.lists, NULL);
  ASSERT_RUN(onDevice, shiftLists, &shifts, NULL);
  int64_t *got = mirrorDevice(offset);
  ck_assert_int_eq(*got, 0);
  free(got);
  mirrorFreeAll();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_lists");
  TCase *tests = tcase_create("lists");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, flaggedItemsAreListed, 0, 2 * numLengths);
  tcase_add_test(tests, listsAreWhatTheySay);
  tcase_add_loop_test(tests, handoffsAreListed, 0, numOrders);
  tcase_add_loop_test(tests, bitsAreFlags, 0, numOrders);
  tcase_add_loop_test(tests, marksAreNumberedAndListed, 0, 2 * numLengths);
  tcase_add_loop_test(tests, listsAreInverted, 0, numLengths);
  tcase_add_loop_test(tests, listsAreShifted, 0, numOrders);
  tcase_add_test(tests, noListsAreLegal);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
