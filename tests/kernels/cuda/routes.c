/* The kernels of a route, on random flags: see routes.h. */
#include "routes.h"

#include <stdlib.h>

/* What the kernels of a route have of some tokens' pairs. */
struct routeArrays {
  const struct routeShape *shape;
  int64_t numPairs;
  int64_t numMarks;
  struct mirror *tables; /* flagFirsts, itemFirsts, counts, placeFirsts */
  struct mirror *flags;
  struct mirror *places;
  struct mirror *marks;
  struct mirror *offsets;
  struct mirror *numbers;
};

/* Pairs in equal ranges, as of a source's instances or of an executor's
 * (instance, source); keptOfTen of ten are flagged. */
static struct routeArrays routeArrays(struct naiveRandom *random,
                                      const struct routeShape *shape,
                                      int64_t numMarks) {
  const size_t each = sizeof(int64_t);
  const int64_t numLists = shape->numLists;
  const int64_t numPairs = shape->numTokens * shape->topk;
  struct routeArrays made = {
      .shape = shape, .numPairs = numPairs, .numMarks = numMarks};
  made.tables = mirrorRoom((size_t)(4 * numLists) * each);
  int64_t *tables = made.tables->at[onHost];
  for (int64_t l = 0; l < numLists; l++) {
    tables[l] = numPairs * l / numLists;
    tables[numLists + l] = tables[l];
    tables[2 * numLists + l] = numPairs * (l + 1) / numLists - tables[l];
    tables[3 * numLists + l] = 0;
  }
  mirrorPut(made.tables);
  made.flags = mirrorRoom((size_t)numPairs);
  for (int64_t i = 0; i < numPairs; i++)
    ((uint8_t *)made.flags->at[onHost])[i] =
        naiveRandomBelow(random, 10) < shape->keptOfTen;
  mirrorPut(made.flags);
  made.places = mirrorRandomIndices(random, numPairs, numMarks, 0);
  made.marks = mirrorRoom((size_t)(numMarks + 3) / 4 * 4); /* whole words */
  made.offsets = mirrorRoom((size_t)(numLists + 1) * each);
  made.numbers = mirrorRoom((size_t)(numMarks + 1) * each);
  return made;
}

/* Counts, numbers and lists of one side; how many pairs are listed. */
static int64_t runLists(const struct routeArrays *arrays, void *keys,
                        void *list) {
  const int64_t *tables = arrays->tables->at[onDevice];
  const int64_t numLists = arrays->shape->numLists;
  const struct mirror *dropped = mirrorRoom((size_t)numLists * sizeof(int64_t));
  const struct lrmoeFlagCount count = {
      {numLists, arrays->numPairs / numLists + 1, tables, tables + numLists,
       tables + 2 * numLists, arrays->flags->at[onDevice],
       arrays->offsets->at[onDevice], list},
      arrays->places->at[onDevice],
      tables + 3 * numLists,
      arrays->marks->at[onDevice],
      keys,
      dropped->at[onDevice]};
  ASSERT_RUN(onDevice, clear, arrays->marks->at[onDevice],
             (size_t)arrays->numMarks, NULL);
  ASSERT_RUN(onDevice, countFlagged, &count, NULL);
  ASSERT_RUN(onDevice, numberMarks, arrays->numMarks,
             arrays->marks->at[onDevice], arrays->numbers->at[onDevice], NULL);
  ASSERT_RUN(onDevice, listFlagged, &count.lists, NULL);
  int64_t *offsets = mirrorDevice(arrays->offsets);
  int64_t numListed = offsets[numLists];
  free(offsets);
  return numListed;
}

void routeRun(struct naiveRandom *random, const struct routeShape *shape) {
  const size_t each = sizeof(int64_t);
  const int64_t numPairs = shape->numTokens * shape->topk;
  struct routeArrays own =
      routeArrays(random, shape, shape->numTokens * shape->numRanks);
  struct routeArrays local = routeArrays(random, shape, shape->numRows);
  const struct mirror *keys = mirrorRoom((size_t)numPairs * sizeof(uint32_t));
  const struct mirror *alpha = mirrorRoom((size_t)numPairs * sizeof(float));
  const struct mirror *lists = mirrorRoom((size_t)(8 * numPairs) * each);
  int64_t *at = lists->at[onDevice];
  int64_t *rows = at + 2 * numPairs;
  simtResetCounters();
  int64_t kept = runLists(&own, keys->at[onDevice], at);
  ASSERT_RUN(onDevice, gatherIndices, kept, at, own.places->at[onDevice], at,
             NULL);
  kept = runLists(&local, NULL, at);
  ASSERT_RUN(onDevice, gatherIndices, kept, at, local.places->at[onDevice],
             at + numPairs, NULL);
  ASSERT_RUN(onDevice, gatherIndices, kept, at + numPairs,
             local.numbers->at[onDevice], rows, NULL);
  ASSERT_RUN(onDevice, gatherWords, kept, at, alpha->at[onDevice],
             at + 3 * numPairs, NULL);
  const struct lrmoeColumns columns = {
      shape->numRanks,   shape->numTokens,  own.numbers->at[onDevice], NULL,
      at + 4 * numPairs, at + 5 * numPairs, at + 6 * numPairs};
  const struct lrmoeInversion inversion = {
      kept,         rows, shape->numRows, at + 4 * numPairs, at + 6 * numPairs,
      at + numPairs};
  ASSERT_RUN(onDevice, listColumns, &columns, NULL);
  ASSERT_RUN(onDevice, invert, &inversion, NULL);
}
