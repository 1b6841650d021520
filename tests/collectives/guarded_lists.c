/* The guarded device's lists: see guarded.h. */
#include "guarded_lists.h"

static void check(const void *pointer, int64_t count) {
  guardedMustBeDevice(pointer, count, "a route's array in host memory");
}

static lrmoeResult_t gatherIndices(int64_t count, const int64_t *index,
                                   const int64_t *from, int64_t *to,
                                   lrmoeStream_t stream) {
  check(index, count);
  check(from, count);
  check(to, count);
  GUARDED_INSIDE(lrmoeCpuBackend.gatherIndices(count, index, from, to, stream));
}

static lrmoeResult_t selectTop(const struct lrmoeSelection *args,
                               lrmoeStream_t stream) {
  check(args->offsets, args->maxPairs);
  check(args->quotas, args->maxPairs);
  check(args->keys, args->maxPairs);
  check(args->flags, args->maxPairs);
  GUARDED_INSIDE(lrmoeCpuBackend.selectTop(args, stream));
}

static void checkFlagged(const struct lrmoeFlagged *args) {
  check(args->flagFirsts, args->numLists);
  check(args->itemFirsts, args->numLists);
  check(args->counts, args->numLists);
  check(args->wanted, args->numLists);
  check(args->flags, args->maxItems);
  check(args->places, args->maxItems);
  check(args->placeFirsts, args->numLists);
  check(args->offsets, 1);
}

static lrmoeResult_t countFlagged(const struct lrmoeFlagCount *args,
                                  lrmoeStream_t stream) {
  checkFlagged(&args->lists);
  check(args->marked, args->lists.numLists);
  check(args->xMarks, args->lists.maxItems);
  check(args->marks, args->lists.maxItems);
  check(args->keys, args->lists.maxItems);
  check(args->dropped, args->lists.numLists);
  GUARDED_INSIDE(lrmoeCpuBackend.countFlagged(args, stream));
}

static lrmoeResult_t listFlagged(const struct lrmoeFlagged *args,
                                 lrmoeStream_t stream) {
  checkFlagged(args);
  check(args->list, args->maxItems);
  check(args->listPlaces, args->maxItems);
  GUARDED_INSIDE(lrmoeCpuBackend.listFlagged(args, stream));
}

static lrmoeResult_t numberMarks(int64_t count, const uint8_t *marks,
                                 int64_t *numbers, lrmoeStream_t stream) {
  check(marks, count);
  check(numbers, 1);
  GUARDED_INSIDE(lrmoeCpuBackend.numberMarks(count, marks, numbers, stream));
}

static lrmoeResult_t listColumns(const struct lrmoeColumns *args,
                                 lrmoeStream_t stream) {
  check(args->numbers, 1);
  check(args->offsets, 1);
  check(args->list, args->numColumns);
  check(args->columns, args->numColumns);
  GUARDED_INSIDE(lrmoeCpuBackend.listColumns(args, stream));
}

static lrmoeResult_t invert(const struct lrmoeInversion *args,
                            lrmoeStream_t stream) {
  check(args->targets, args->numItems);
  check(args->offsets, 1);
  check(args->list, args->numItems);
  check(args->work, args->numLists);
  GUARDED_INSIDE(lrmoeCpuBackend.invert(args, stream));
}

static lrmoeResult_t shiftLists(const struct lrmoeShifts *args,
                                lrmoeStream_t stream) {
  check(args->offsets, args->numLists);
  check(args->begins, args->numRanks);
  check(args->values, args->numLists);
  GUARDED_INSIDE(lrmoeCpuBackend.shiftLists(args, stream));
}

static lrmoeResult_t spoilDropped(const struct lrmoeSpoils *args,
                                  lrmoeStream_t stream) {
  const struct lrmoeFlagged *lists = &args->lists;
  check(lists->flagFirsts, lists->numLists);
  check(lists->itemFirsts, lists->numLists);
  check(lists->counts, lists->numLists);
  check(lists->flags, lists->maxItems);
  check(lists->places, lists->maxItems);
  check(args->keys, lists->maxItems);
  check(args->rows, lists->maxItems);
  GUARDED_INSIDE(lrmoeCpuBackend.spoilDropped(args, stream));
}

static lrmoeResult_t listHandoff(const struct lrmoeHandoffLists *args,
                                 lrmoeStream_t stream) {
  check(args->items, args->numRows);
  check(args->places, args->numRows);
  check(args->gNumbers, args->numRows);
  check(args->xNumbers, args->numRows);
  check(args->xRow, args->numRows);
  check(args->alpha, args->numRows);
  check(args->xRows, args->numRows);
  check(args->weights, args->numRows);
  GUARDED_INSIDE(lrmoeCpuBackend.listHandoff(args, stream));
}

static lrmoeResult_t labelPairs(const struct lrmoeLabels *args,
                                lrmoeStream_t stream) {
  check(args->cellFirsts, args->numCells);
  check(args->instanceFirsts, args->numExperts);
  check(args->shares, args->numInstances);
  check(args->domains, args->numRanks);
  check(args->flags, args->maxPairs);
  check(args->missing, args->numExperts);
  check(args->work, args->numExperts);
  GUARDED_INSIDE(lrmoeCpuBackend.labelPairs(args, stream));
}

static void checkBits(const struct lrmoeBits *args) {
  check(args->flagFirsts, args->numPieces);
  check(args->wordFirsts, args->numPieces);
  check(args->counts, args->numPieces);
  check(args->flags, args->maxFlags);
  check(args->words, args->maxFlags);
}

static lrmoeResult_t packBits(const struct lrmoeBits *args,
                              lrmoeStream_t stream) {
  checkBits(args);
  GUARDED_INSIDE(lrmoeCpuBackend.packBits(args, stream));
}

static lrmoeResult_t unpackBits(const struct lrmoeBits *args,
                                lrmoeStream_t stream) {
  checkBits(args);
  GUARDED_INSIDE(lrmoeCpuBackend.unpackBits(args, stream));
}

void guardedListsAdd(struct lrmoeBackend *backend) {
  backend->gatherIndices = gatherIndices;
  backend->selectTop = selectTop;
  backend->countFlagged = countFlagged;
  backend->listFlagged = listFlagged;
  backend->numberMarks = numberMarks;
  backend->listColumns = listColumns;
  backend->invert = invert;
  backend->shiftLists = shiftLists;
  backend->spoilDropped = spoilDropped;
  backend->listHandoff = listHandoff;
  backend->labelPairs = labelPairs;
  backend->packBits = packBits;
  backend->unpackBits = unpackBits;
}
