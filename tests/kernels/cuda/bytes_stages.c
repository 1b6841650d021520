/* Stages of a backward, counted: see bytes_stages.h. */
#include "bytes_stages.h"

#include <stdlib.h>

static void addUp(const char *kernel, const struct simtCounters *what,
                  void *user) {
  (void)kernel;
  *(int64_t *)user += what->bytesLoaded + what->bytesStored;
}

/* Bytes of all kernels since the last call. */
double countBytes(void) {
  int64_t bytes = 0;
  ASSERT_SYNCHRONIZED();
  simtVisitCounters(addUp, &bytes);
  simtResetCounters();
  ck_assert_int_gt(bytes, 0);
  return (double)bytes;
}

static struct mirror *randomRows(struct naiveRandom *random, int64_t numRows,
                                 int64_t width) {
  return mirrorRows(random, lrmoeBfloat16, numRows * width, 0);
}

double normsOfToken(struct naiveRandom *random) {
  const struct mirror *g = randomRows(random, sample, hidden);
  const struct mirror *out = mirrorRoom(sample * sizeof(float));
  const struct lrmoeNorms args = {
      {g->at[onDevice], NULL, lrmoeBfloat16, hidden},
      sample,
      0,
      out->at[onDevice]};
  ASSERT_RUN(onDevice, norms, &args, NULL);
  return countBytes() / sample;
}

double scoresOfPair(struct naiveRandom *random) {
  const int64_t count = 4096;
  const struct mirror *floats = mirrorRows(random, lrmoeFloat32, count, 0);
  const struct mirror *tokens = mirrorRandomIndices(random, count, count, 0);
  const struct mirror *keys = mirrorRoom((size_t)count * sizeof(uint32_t));
  const struct lrmoeScores args = {
      .metric = lrmoeMetricLrm,
      .numPairs = count,
      .weights = floats->at[onDevice],
      .phiNorms = floats->at[onDevice],
      .tokens = tokens->at[onDevice],
      .gNorms = floats->at[onDevice],
      .keys = keys->at[onDevice],
  };
  ASSERT_RUN(onDevice, scores, &args, NULL);
  return countBytes() / (double)count;
}

/* Keys of all ranks into expert order, and the selection, per key. */
double selectionOfKey(struct naiveRandom *random) {
  const int64_t count = 16384;
  const int64_t none[] = {0};
  const int64_t whole[] = {0, 16384};
  const int64_t quota[] = {16384 * keptOfTen / 10};
  const struct mirror *keys = mirrorRows(random, lrmoeFloat32, count, 0);
  const struct mirror *moved = mirrorRoom((size_t)count * sizeof(uint32_t));
  const struct mirror *flags = mirrorRoom((size_t)count);
  const struct mirror *start = mirrorIndices(none, 1);
  const struct mirror *offsets = mirrorIndices(whole, 2);
  const struct mirror *quotas = mirrorIndices(quota, 1);
  const struct lrmoePieces pieces = {1,
                                     count,
                                     start->at[onDevice],
                                     start->at[onDevice],
                                     (const int64_t *)offsets->at[onDevice] + 1,
                                     keys->at[onDevice],
                                     moved->at[onDevice]};
  const struct lrmoeSelection selection = {1,
                                           count,
                                           offsets->at[onDevice],
                                           quotas->at[onDevice],
                                           moved->at[onDevice],
                                           flags->at[onDevice]};
  ASSERT_RUN(onDevice, copyPieces, &pieces, NULL);
  ASSERT_RUN(onDevice, selectTop, &selection, NULL);
  return countBytes() / (double)count;
}

/* Tokens that are spread to numRows rows. */
double packOf(struct naiveRandom *random, int64_t tokens, int64_t numRows) {
  int64_t *lists = malloc((size_t)(tokens + 1 + numRows) * sizeof *lists);
  ck_assert_ptr_nonnull(lists);
  for (int64_t t = 0; t <= tokens; t++)
    lists[t] = numRows * t / tokens;
  for (int64_t i = 0; i < numRows; i++)
    lists[tokens + 1 + i] = numRows - 1 - i;
  const struct mirror *g = randomRows(random, tokens, hidden);
  const struct mirror *device = mirrorIndices(lists, tokens + 1 + numRows);
  const struct mirror *out = mirrorRoom((size_t)numRows * rowBytes);
  const int64_t *offsets = device->at[onDevice];
  const struct lrmoeSpread args = {
      {g->at[onDevice], NULL, lrmoeBfloat16, hidden},
      tokens,
      offsets,
      offsets + tokens + 1,
      out->at[onDevice]};
  free(lists);
  ASSERT_RUN(onDevice, spread, &args, NULL);
  return countBytes();
}

/* numRows rows that are added into numOut. */
double sumOf(struct naiveRandom *random, int64_t numRows, int64_t numOut) {
  int64_t *offsets = malloc((size_t)(numOut + 1) * sizeof *offsets);
  ck_assert_ptr_nonnull(offsets);
  for (int64_t t = 0; t <= numOut; t++)
    offsets[t] = numRows * t / numOut;
  const struct mirror *rows = randomRows(random, numRows, hidden);
  const struct mirror *firsts = mirrorIndices(offsets, numOut + 1);
  const struct mirror *list = mirrorRandomIndices(random, numRows, numRows, 0);
  const struct mirror *out = mirrorRoom((size_t)numOut * rowBytes);
  const struct lrmoeGatherSum args = {
      {rows->at[onDevice], NULL, lrmoeBfloat16, hidden},
      numOut,
      firsts->at[onDevice],
      list->at[onDevice],
      NULL,
      out->at[onDevice]};
  free(offsets);
  ASSERT_RUN(onDevice, gatherSum, &args, NULL);
  return countBytes();
}

/* The same where the rows lie in windows: one here, as many as there are ranks
 * would be stored to in the same way. */
struct puts {
  const struct mirror *targets;
  const struct mirror *gate;
  const struct mirror *out;
};

static struct puts makePuts(int64_t numRows) {
  const int64_t isOpen = 1;
  struct puts made = {NULL, mirrorIndices(&isOpen, 1),
                      mirrorRoom((size_t)numRows * rowBytes)};
  const int64_t address = (int64_t)(intptr_t)made.out->at[onDevice];
  made.targets = mirrorIndices(&address, 1);
  return made;
}

double putOf(struct naiveRandom *random, int64_t tokens, int64_t numRows) {
  int64_t *lists = malloc((size_t)(tokens + 1 + numRows) * sizeof *lists);
  ck_assert_ptr_nonnull(lists);
  for (int64_t t = 0; t <= tokens; t++)
    lists[t] = numRows * t / tokens;
  for (int64_t i = 0; i < numRows; i++)
    lists[tokens + 1 + i] = lrmoePlaceOf(0, numRows - 1 - i);
  const struct mirror *g = randomRows(random, tokens, hidden);
  const struct mirror *device = mirrorIndices(lists, tokens + 1 + numRows);
  const struct puts puts = makePuts(numRows);
  const int64_t *offsets = device->at[onDevice];
  const struct lrmoePut args = {{g->at[onDevice], NULL, lrmoeBfloat16, hidden},
                                tokens,
                                offsets,
                                offsets + tokens + 1,
                                puts.targets->at[onDevice],
                                puts.gate->at[onDevice]};
  free(lists);
  ASSERT_RUN(onDevice, putRows, &args, NULL);
  return countBytes();
}

double copyOfOwn(struct naiveRandom *random) {
  const struct mirror *x = randomRows(random, sample, hidden);
  const struct mirror *index = mirrorRandomIndices(random, sample, sample, 0);
  const struct mirror *out = mirrorRoom((size_t)sample * rowBytes);
  const struct puts puts = makePuts(1);
  const struct lrmoePut args = {
      .rows = {x->at[onDevice], NULL, lrmoeBfloat16, hidden},
      .targets = puts.targets->at[onDevice],
      .gate = puts.gate->at[onDevice],
      .own = {{x->at[onDevice], index->at[onDevice], lrmoeBfloat16, hidden},
              sample,
              index->at[onDevice],
              out->at[onDevice]}};
  ASSERT_RUN(onDevice, putRows, &args, NULL);
  return countBytes() / sample;
}

double putSumOf(struct naiveRandom *random, int64_t numRows, int64_t numOut) {
  const int64_t ends[] = {0, numOut};
  int64_t *offsets = malloc((size_t)(numOut + 1) * sizeof *offsets);
  ck_assert_ptr_nonnull(offsets);
  for (int64_t t = 0; t <= numOut; t++)
    offsets[t] = numRows * t / numOut;
  const struct mirror *rows = randomRows(random, numRows, hidden);
  const struct mirror *firsts = mirrorIndices(offsets, numOut + 1);
  const struct mirror *list = mirrorRandomIndices(random, numRows, numRows, 0);
  const struct mirror *bounds = mirrorIndices(ends, 2);
  const struct puts puts = makePuts(numOut);
  const struct lrmoePutSums args = {
      .rows = {rows->at[onDevice], NULL, lrmoeBfloat16, hidden},
      .offsets = firsts->at[onDevice],
      .list = list->at[onDevice],
      .numRanks = 1,
      .maxOut = numOut,
      .bounds = bounds->at[onDevice],
      .targets = puts.targets->at[onDevice],
      .gate = puts.gate->at[onDevice],
  };
  free(offsets);
  ASSERT_RUN(onDevice, putSums, &args, NULL);
  return countBytes();
}

/* An expert's backward with what it reads and writes. */
static struct lrmoeExpertBackward expertOf(struct naiveRandom *random,
                                           int hasGradients) {
  const int64_t w1Count = 2 * (int64_t)ffn * hidden;
  const int64_t w2Count = (int64_t)ffn * hidden;
  const struct mirror *g = randomRows(random, sample, hidden);
  const struct mirror *x = randomRows(random, sample, hidden);
  const struct mirror *saved = randomRows(random, sample, 2 * ffn);
  const struct mirror *index = mirrorRandomIndices(random, sample, sample, 0);
  const struct mirror *alpha = mirrorRows(random, lrmoeFloat32, sample, 0);
  const struct mirror *dAlpha = mirrorRoom(sample * sizeof(float));
  const struct mirror *dx = mirrorRoom((size_t)sample * rowBytes);
  const struct mirror *w1 = mirrorRows(random, lrmoeBfloat16, w1Count, 0);
  const struct mirror *w2 = mirrorRows(random, lrmoeBfloat16, w2Count, 0);
  const struct mirror *dw1 = mirrorRows(random, lrmoeFloat32, w1Count, 0);
  const struct mirror *dw2 = mirrorRows(random, lrmoeFloat32, w2Count, 0);
  return (struct lrmoeExpertBackward){
      .weights = {w1->at[onDevice], w2->at[onDevice],
                  hasGradients ? dw1->at[onDevice] : NULL,
                  hasGradients ? dw2->at[onDevice] : NULL},
      .numRows = sample,
      .g = {g->at[onDevice], index->at[onDevice], lrmoeBfloat16, hidden},
      .x = {x->at[onDevice], index->at[onDevice], lrmoeBfloat16, hidden},
      .saved = {saved->at[onDevice], index->at[onDevice], lrmoeBfloat16,
                2 * ffn},
      .alpha = alpha->at[onDevice],
      .dx = dx->at[onDevice],
      .dAlpha = dAlpha->at[onDevice],
  };
}

static struct lrmoeExpertContext *openExpert(void) {
  const struct lrmoeExpertShape shape = {hidden, ffn, lrmoeBfloat16,
                                         lrmoeSwiglu, lrmoeWeightPost};
  struct lrmoeExpertContext *context = NULL;
  ASSERT_RUN(onDevice, expertOpen, &shape, NULL, &context);
  simtResetCounters();
  return context;
}

double expertOfPair(struct naiveRandom *random, int isXPacked) {
  struct lrmoeExpertBackward args = expertOf(random, 1);
  if (isXPacked) args.x.index = NULL;
  struct lrmoeExpertContext *context = openExpert();
  ASSERT_RUN(onDevice, expertBackward, context, 1, &args, NULL);
  double bytes = countBytes();
  backendOf(onDevice)->expertClose(context);
  return bytes / sample;
}

/* Both phases, or without gradients the first alone. */
static double splitBytes(struct naiveRandom *random, int hasGradients) {
  const struct lrmoeExpertBackward args = expertOf(random, hasGradients);
  struct lrmoeExpertContext *context = openExpert();
  void *event = NULL;
  ASSERT_RUN(onDevice, eventCreate, &event);
  ASSERT_RUN(onDevice, expertBackwardSplit, context, 1, &args, event, NULL);
  ASSERT_RUN(onDevice, eventWait, event);
  double bytes = countBytes();
  ASSERT_RUN(onDevice, eventDestroy, event);
  backendOf(onDevice)->expertClose(context);
  return bytes / sample;
}

struct expertPhases expertPhasesOfPair(struct naiveRandom *random) {
  struct expertPhases phases = {splitBytes(random, 0), 0};
  phases.later = splitBytes(random, 1) - phases.first;
  return phases;
}
