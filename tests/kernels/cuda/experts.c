/* Random experts on both sides: see experts.h. */
#include "experts.h"

#include <stdlib.h>

static size_t rowBytes(const struct experts *experts, int64_t width) {
  return (size_t)width * naiveTypeBytes(experts->shape.type);
}

static struct mirror *zeroGradient(int64_t count) {
  float *values = calloc((size_t)count + 1, sizeof *values);
  ck_assert_ptr_nonnull(values);
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)(i % 7) - 3; /* is added to */
  return mirrorOf(values, (size_t)count * sizeof *values);
}

static void makeExpert(struct naiveRandom *random, struct experts *experts,
                       int i) {
  const struct lrmoeExpertShape *shape = &experts->shape;
  int64_t size1 = experts->fc1Width * shape->hidden;
  int64_t size2 = shape->hidden * shape->ffn;
  experts->w1[i] = mirrorOf(naiveRandomArray(random, shape->type, size1, 0.5),
                            (size_t)size1 * naiveTypeBytes(shape->type));
  experts->w2[i] = mirrorOf(naiveRandomArray(random, shape->type, size2, 0.5),
                            (size_t)size2 * naiveTypeBytes(shape->type));
  experts->dw1[i] = zeroGradient(size1);
  experts->dw2[i] = zeroGradient(size2);
}

static struct entry makeEntry(struct naiveRandom *random,
                              const struct experts *experts, int64_t numRows) {
  size_t floats = (size_t)numRows * sizeof(float);
  int64_t hidden = experts->shape.hidden;
  struct entry made = {.numRows = numRows};
  made.isUnscaled = (int)naiveRandomBelow(random, 2);
  made.isRecomputed = naiveRandomBelow(random, 3) == 0;
  made.isDense =
      numRows <= experts->numTokens && naiveRandomBelow(random, 4) == 0;
  made.rows = mirrorRandomIndices(random, numRows, experts->numTokens, 1);
  made.saved =
      mirrorRoom((size_t)numRows * rowBytes(experts, experts->fc1Width));
  made.savedIndex = naiveRandomBelow(random, 2) && numRows
                        ? mirrorRandomIndices(random, numRows, numRows, 1)
                        : NULL;
  made.alpha = mirrorRows(random, lrmoeFloat32, numRows, 0);
  made.phiNorm = mirrorRoom(floats);
  made.y = mirrorRoom((size_t)numRows * rowBytes(experts, hidden));
  made.dx = mirrorRoom((size_t)numRows * rowBytes(experts, hidden));
  made.dAlpha = mirrorRoom(floats);
  return made;
}

static void openContexts(struct experts *experts, const char *gemm) {
  ASSERT_RUN(onHost, expertOpen, &experts->shape, "reference",
             &experts->contexts[onHost]);
  ASSERT_RUN(onDevice, expertOpen, &experts->shape, gemm,
             &experts->contexts[onDevice]);
}

struct experts expertsMake(struct naiveRandom *random,
                           const struct lrmoeExpertShape *shape,
                           int64_t maxRows, const char *gemm) {
  struct experts made = {.shape = *shape, .hasGradients = 1};
  made.fc1Width = lrmoeFc1Width(shape->activation, shape->ffn);
  made.numTokens = 1 + maxRows / 2;
  made.numExperts = 1 + (int)naiveRandomBelow(random, maxExperts);
  int64_t count = made.numTokens * shape->hidden;
  made.x = mirrorRows(random, shape->type, count, 0);
  made.g = mirrorRows(random, shape->type, count, 0);
  for (int i = 0; i < made.numExperts; i++)
    makeExpert(random, &made, i);
  /* Stayed rows of all experts, then moved rows of some. */
  for (int i = 0; i < 2 * made.numExperts; i++) {
    if (i >= made.numExperts && naiveRandomBelow(random, 2)) continue;
    struct entry *entry = &made.entries[made.numEntries++];
    *entry = makeEntry(random, &made, naiveRandomBelow(random, maxRows + 1));
    entry->expert = i % made.numExperts;
  }
  openContexts(&made, gemm);
  return made;
}

void expertsClose(struct experts *experts) {
  for (enum side side = onHost; side < numSides; side++)
    backendOf(side)->expertClose(experts->contexts[side]);
  mirrorFreeAll();
}

static struct lrmoeExpertWeights weightsOf(const struct experts *experts,
                                           enum side side, int expert) {
  return (struct lrmoeExpertWeights){
      experts->w1[expert]->at[side],
      experts->w2[expert]->at[side],
      experts->hasGradients ? experts->dw1[expert]->at[side] : NULL,
      experts->hasGradients ? experts->dw2[expert]->at[side] : NULL,
  };
}

static struct lrmoeRows tokenRows(const struct experts *experts, enum side side,
                                  const struct mirror *tokens,
                                  const struct entry *entry) {
  return (struct lrmoeRows){tokens->at[side],
                            entry->isDense ? NULL : entry->rows->at[side],
                            experts->shape.type, experts->shape.hidden};
}

static struct lrmoeRows savedRows(const struct experts *experts, enum side side,
                                  const struct entry *entry) {
  return (struct lrmoeRows){entry->saved->at[side],
                            entry->savedIndex ? entry->savedIndex->at[side]
                                              : NULL,
                            experts->shape.type, experts->fc1Width};
}

void expertsForward(struct experts *experts, enum side side,
                    lrmoeStream_t stream) {
  struct lrmoeExpertForward args[maxEntries];
  for (int i = 0; i < experts->numEntries; i++) {
    const struct entry *entry = &experts->entries[i];
    args[i] = (struct lrmoeExpertForward){
        .weights = weightsOf(experts, side, entry->expert),
        .numRows = entry->numRows,
        .x = tokenRows(experts, side, experts->x, entry),
        .alpha = entry->alpha->at[side],
        .saved = entry->isRecomputed ? NULL : entry->saved->at[side],
        .phiNorm = entry->phiNorm->at[side],
        .y = entry->y->at[side],
        .isUnscaled = entry->isUnscaled,
    };
  }
  ASSERT_RUN(side, expertForward, experts->contexts[side], experts->numEntries,
             args, stream);
}

static void fillBackward(const struct experts *experts, enum side side,
                         struct lrmoeExpertBackward *args) {
  for (int i = 0; i < experts->numEntries; i++) {
    const struct entry *entry = &experts->entries[i];
    args[i] = (struct lrmoeExpertBackward){
        .weights = weightsOf(experts, side, entry->expert),
        .numRows = entry->numRows,
        .g = tokenRows(experts, side, experts->g, entry),
        .x = tokenRows(experts, side, experts->x, entry),
        .saved = savedRows(experts, side, entry),
        .alpha = entry->alpha->at[side],
        .dx = entry->dx->at[side],
        .dAlpha = entry->dAlpha->at[side],
    };
    if (entry->isRecomputed) args[i].saved.data = NULL;
  }
}

lrmoeResult_t expertsTrySplit(struct experts *experts, void *event,
                              lrmoeStream_t stream) {
  struct lrmoeExpertBackward args[maxEntries];
  fillBackward(experts, onDevice, args);
  return backendOf(onDevice)->expertBackwardSplit(
      experts->contexts[onDevice], experts->numEntries, args, event, stream);
}

void expertsBackwardSplit(struct experts *experts, void *event,
                          lrmoeStream_t stream) {
  lrmoeResult_t got = expertsTrySplit(experts, event, stream);
  ck_assert_msg(got == lrmoeSuccess, "%s", backendOf(onDevice)->lastError());
}

void expertsBackward(struct experts *experts, enum side side,
                     lrmoeStream_t stream) {
  struct lrmoeExpertBackward args[maxEntries];
  fillBackward(experts, side, args);
  ASSERT_RUN(side, expertBackward, experts->contexts[side], experts->numEntries,
             args, stream);
}

void expertsAlpha(struct experts *experts, enum side side,
                  lrmoeStream_t stream) {
  struct lrmoeExpertAlpha args[maxEntries];
  for (int i = 0; i < experts->numEntries; i++) {
    const struct entry *entry = &experts->entries[i];
    args[i] = (struct lrmoeExpertAlpha){
        .w2 = experts->w2[entry->expert]->at[side],
        .numRows = entry->numRows,
        .g = tokenRows(experts, side, experts->g, entry),
        .saved = savedRows(experts, side, entry),
        .dAlpha = entry->dAlpha->at[side],
    };
  }
  ASSERT_RUN(side, expertAlpha, experts->contexts[side], experts->numEntries,
             args, stream);
}

void expertsShareSaved(struct experts *experts) {
  for (int i = 0; i < experts->numEntries; i++)
    mirrorPut(experts->entries[i].saved);
}

/* The device rounds what lies between GEMMs to the layer's type. */
static double toleranceOf(lrmoeDataType_t type) {
  if (type == lrmoeFloat32) return 1e-5;
  return type == lrmoeFloat16 ? 4e-3 : 3e-2;
}

void assertForward(const struct experts *experts) {
  lrmoeDataType_t type = experts->shape.type;
  double tolerance = toleranceOf(type);
  ASSERT_SYNCHRONIZED();
  for (int i = 0; i < experts->numEntries; i++) {
    const struct entry *entry = &experts->entries[i];
    assertCloseElements(entry->y, type, tolerance, "y");
    assertCloseElements(entry->saved, type, tolerance, "saved");
    assertCloseElements(entry->phiNorm, lrmoeFloat32, tolerance, "phiNorm");
  }
}

void assertBackward(const struct experts *experts) {
  lrmoeDataType_t type = experts->shape.type;
  double tolerance = toleranceOf(type);
  ASSERT_SYNCHRONIZED();
  for (int i = 0; i < experts->numEntries; i++)
    assertCloseElements(experts->entries[i].dx, type, tolerance, "dx");
  assertAlpha(experts);
  for (int i = 0; i < experts->numExperts; i++) {
    assertCloseElements(experts->dw1[i], lrmoeFloat32, tolerance, "dw1");
    assertCloseElements(experts->dw2[i], lrmoeFloat32, tolerance, "dw2");
  }
}

/* Of sums that may cancel. */
void assertAlpha(const struct experts *experts) {
  double tolerance = 5 * toleranceOf(experts->shape.type);
  ASSERT_SYNCHRONIZED();
  for (int i = 0; i < experts->numEntries; i++)
    assertCloseElements(experts->entries[i].dAlpha, lrmoeFloat32, tolerance,
                        "dAlpha");
}
