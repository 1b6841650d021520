/* The kernels of a route, on random flags: see routes.h. */
#include "routes.h"

#include <stdlib.h>

/* What the kernels of a route have of some tokens' pairs. */
struct routeArrays {
  const struct routeShape *shape;
  int64_t numPairs;
  int64_t numMarks;
  struct mirror *tables; /* flagFirsts, itemFirsts, counts, placeFirsts, wanted
                          */
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
  made.tables = mirrorRoom((size_t)(5 * numLists) * each);
  int64_t *tables = made.tables->at[onHost];
  for (int64_t l = 0; l < numLists; l++) {
    tables[l] = numPairs * l / numLists;
    tables[numLists + l] = tables[l];
    tables[2 * numLists + l] = numPairs * (l + 1) / numLists - tables[l];
    tables[3 * numLists + l] = 0;
    tables[4 * numLists + l] = LRMOE_WANT(lrmoeLabelStayed, 1);
  }
  mirrorPut(made.tables);
  made.flags = mirrorRoom((size_t)numPairs);
  for (int64_t i = 0; i < numPairs; i++)
    ((uint8_t *)made.flags->at[onHost])[i] =
        naiveRandomBelow(random, 10) < shape->keptOfTen;
  mirrorPut(made.flags);
  made.places = mirrorRoom((size_t)numPairs * sizeof(int32_t));
  for (int64_t i = 0; i < numPairs; i++)
    ((int32_t *)made.places->at[onHost])[i] =
        (int32_t)naiveRandomBelow(random, numMarks);
  mirrorPut(made.places);
  made.marks = mirrorRoom((size_t)(numMarks + 3) / 4 * 4); /* whole words */
  made.offsets = mirrorRoom((size_t)(numLists + 1) * each);
  made.numbers = mirrorRoom((size_t)(numMarks + 1) * each);
  return made;
}

/* Counts, numbers and lists of one side; how many pairs are listed.
 * listPlaces: or NULL. */
static int64_t runLists(const struct routeArrays *arrays, void *keys,
                        int64_t *list, int64_t *listPlaces) {
  const int64_t *tables = arrays->tables->at[onDevice];
  const int64_t numLists = arrays->shape->numLists;
  const struct mirror *dropped = mirrorRoom((size_t)numLists * sizeof(int64_t));
  const struct lrmoeFlagCount count = {
      .lists = {.numLists = numLists,
                .maxItems = arrays->numPairs / numLists + 1,
                .flagFirsts = tables,
                .itemFirsts = tables + numLists,
                .counts = tables + 2 * numLists,
                .wanted = tables + 4 * numLists,
                .flags = arrays->flags->at[onDevice],
                .places = arrays->places->at[onDevice],
                .placeFirsts = tables + 3 * numLists,
                .offsets = arrays->offsets->at[onDevice],
                .list = list,
                .listPlaces = listPlaces},
      .marked = tables + 4 * numLists,
      .marks = arrays->marks->at[onDevice],
      .keys = keys,
      .dropped = dropped->at[onDevice]};
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
  const int64_t numMarks = shape->numTokens * shape->numRanks;
  struct routeArrays own = routeArrays(random, shape, numMarks);
  struct routeArrays local = routeArrays(random, shape, numMarks);
  const struct mirror *keys = mirrorRoom((size_t)numPairs * sizeof(uint32_t));
  const struct mirror *alpha = mirrorRoom((size_t)numPairs * sizeof(float));
  const struct mirror *lists =
      mirrorRoom((size_t)(6 * numPairs + 3 * numMarks + 3) * each);
  struct mirror *sorted = mirrorRandomIndices(random, numPairs, numPairs, 0);
  int64_t *at = lists->at[onDevice];
  int64_t *rows = at + numPairs;
  int64_t *rest = at + 4 * numPairs; /* of the lists of rows */
  simtResetCounters();
  int64_t kept = runLists(&own, keys->at[onDevice], at, NULL);
  ASSERT_RUN(onDevice, gatherIndices, kept, at, sorted->at[onDevice], at, NULL);
  kept = runLists(&local, NULL, at, rows);
  const struct lrmoeHandoffLists handoff = {
      .numRows = kept,
      .numLocal = numPairs,
      .items = at,
      .places = rows,
      .gNumbers = local.numbers->at[onDevice],
      .xRow = sorted->at[onDevice],
      .alpha = alpha->at[onDevice],
      .xRows = at + 2 * numPairs,
      .weights = (float *)(at + 3 * numPairs)};
  const struct lrmoeColumns columns = {shape->numRanks,
                                       shape->numTokens,
                                       own.numbers->at[onDevice],
                                       0,
                                       rest,
                                       rest + numMarks + 1,
                                       rest + 2 * numMarks + 1};
  const struct lrmoeInversion inversion = {kept,
                                           rows,
                                           numMarks,
                                           rest,
                                           rest + numMarks + 1,
                                           rest + numMarks + 1 + numPairs};
  ASSERT_RUN(onDevice, listHandoff, &handoff, NULL);
  ASSERT_RUN(onDevice, listColumns, &columns, NULL);
  ASSERT_RUN(onDevice, invert, &inversion, NULL);
}
