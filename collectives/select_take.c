/* What a selection means for this rank, an expert at a time: see select.h. */
#include "collectives/reroute.h"
#include "collectives/select.h"

#include <string.h>

int lrmoeSelectHasReplicas(const struct lrmoeStep *step, int32_t expert) {
  const int32_t *offsets = step->plan->instanceOffsets + expert;
  return offsets[1] - offsets[0] > 1;
}

int lrmoeSelectHasInstance(const struct lrmoeStep *step, int32_t expert,
                           int32_t rank) {
  const struct lrmoePlan *plan = step->plan;
  for (int32_t i = plan->instanceOffsets[expert];
       i < plan->instanceOffsets[expert + 1]; i++)
    if (plan->instanceRanks[i] == rank) return 1;
  return 0;
}

int lrmoeSelectMayMove(const struct lrmoeStep *step, int32_t expert) {
  return lrmoeStepMayMove(step) && lrmoeSelectHasReplicas(step, expert);
}

int lrmoeSelectTellsAll(const struct lrmoeStep *step, int32_t expert,
                        int32_t r) {
  int64_t cell = (int64_t)r * step->plan->numExperts + expert;
  return lrmoeSelectHasReplicas(step, expert) &&
         (step->demand[cell] || lrmoeSelectHasInstance(step, expert, r));
}

int lrmoeSelectTellsTokens(const struct lrmoeStep *step, int32_t expert,
                           int32_t r) {
  return lrmoeSelectMayMove(step, expert) &&
         lrmoeSelectHasInstance(step, expert, r);
}

lrmoeResult_t lrmoeSelectPackTokens(struct lrmoeStep *step, int32_t **tokens,
                                    int64_t *count) {
  int64_t numExperts = step->plan->numExperts;
  struct lrmoePieces pieces = {.from = step->device.tokens};
  int64_t *table = NULL; /* source, target, counts */
  int64_t *device = NULL;
  *count = 0;
  if (!lrmoeStepMayMove(step)) return lrmoeSuccess;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayTokenPieces, 3 * numExperts, &table));
  for (int32_t e = 0; e < numExperts; e++) {
    int64_t first = step->expertOffsets[e];
    int64_t length = step->expertOffsets[e + 1] - first;
    if (!lrmoeSelectMayMove(step, e)) length = 0;
    table[e] = first;
    table[numExperts + e] = *count;
    table[2 * numExperts + e] = length;
    *count += length;
    if (length > pieces.maxWords) pieces.maxWords = length;
  }
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockTokensOut,
                                    *count * (int64_t)sizeof **tokens, tokens));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayTokenPieces, 3 * numExperts, table,
                           &device));
  pieces.numPieces = numExperts;
  pieces.source = device;
  pieces.target = device + numExperts;
  pieces.counts = device + 2 * numExperts;
  pieces.to = *tokens;
  LRMOE_RUN(step->layer->backend, copyPieces, &pieces, step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeSelectCheckTags(const struct lrmoeStep *step,
                                   const unsigned char *bytes,
                                   const int64_t *offsets) {
  uint64_t tag = lrmoeSelectTag(step);
  for (int32_t s = 0; s < step->plan->numRanks; s++)
    if (memcmp(bytes + offsets[s], &tag, sizeof tag) != 0)
      return LRMOE_FAIL(lrmoeInvalidUsage,
                        "rank %d is at another step, plan or backward config",
                        s);
  return lrmoeSuccess;
}

int64_t lrmoeSelectNumPairs(const struct lrmoeStep *step, int32_t expert) {
  const struct lrmoePlan *plan = step->plan;
  int64_t last = (int64_t)(plan->numRanks - 1) * plan->numExperts + expert;
  return step->sourceBase[last] + step->demand[last];
}

static lrmoeResult_t checkTokens(const struct lrmoeStep *step,
                                 const struct lrmoeMoves *moves) {
  int64_t numPairs = lrmoeSelectNumPairs(step, moves->expert);
  for (int64_t i = 0; i < numPairs && moves->tokens; i++)
    if (moves->tokens[i] < 0 || moves->tokens[i] >= step->layer->maxTokens)
      return LRMOE_FAIL(lrmoeInternalError, "expert %d names token %d",
                        moves->expert, moves->tokens[i]);
  return lrmoeSuccess;
}

/* Flags of this rank's instance of the expert, among those of all its pairs. */
static void takeInstance(struct lrmoeStep *step, int32_t expert, int32_t j,
                         const uint8_t *flags) {
  const struct lrmoePlan *plan = step->plan;
  int64_t first = 0;
  for (int32_t i = plan->instanceOffsets[expert]; i < step->instances[j]; i++)
    first += plan->forwardPairs[i];
  int64_t local = step->instanceOffsets[j];
  int64_t count = step->instanceOffsets[j + 1] - local;
  if (count) memcpy(step->keptLocal + local, flags + first, (size_t)count);
}

void lrmoeSelectTakeOwn(struct lrmoeStep *step, int32_t expert,
                        const uint8_t *flags) {
  const int64_t *sorted = step->sorted + step->expertOffsets[expert];
  int64_t count = step->expertOffsets[expert + 1] - step->expertOffsets[expert];
  for (int64_t o = 0; o < count; o++) {
    step->kept[sorted[o]] = flags[o];
    step->backDest[sorted[o]] = flags[o] ? step->dest[sorted[o]] : -1;
  }
}

lrmoeResult_t lrmoeSelectTake(struct lrmoeStep *step,
                              const struct lrmoeMoves *moves) {
  int32_t e = moves->expert;
  int64_t mine = (int64_t)step->layer->comm->rank * step->plan->numExperts + e;
  lrmoeSelectTakeOwn(step, e, moves->flags + step->sourceBase[mine]);
  if (lrmoeSelectMayMove(step, e)) {
    LRMOE_CHECK(checkTokens(step, moves));
    return lrmoeRerouteMoves(step, moves);
  }
  int32_t j = lrmoeStepInstanceOf(step, e);
  if (j < 0) return lrmoeSuccess;
  takeInstance(step, e, j, moves->flags);
  lrmoeRerouteLocal(step, j);
  return lrmoeSuccess;
}

int32_t lrmoeSelectNumStretches(const struct lrmoeStep *step, int32_t expert) {
  const int32_t *offsets = step->plan->instanceOffsets + expert;
  return step->config.scope == lrmoeScopeInstance ? offsets[1] - offsets[0] : 1;
}

struct lrmoeStretch lrmoeSelectStretch(const struct lrmoeStep *step,
                                       int32_t expert, int32_t i) {
  const struct lrmoePlan *plan = step->plan;
  if (step->config.scope != lrmoeScopeInstance)
    return (struct lrmoeStretch){lrmoeSelectNumPairs(step, expert),
                                 plan->quotas[expert]};
  int32_t instance = plan->instanceOffsets[expert] + i;
  int64_t numPairs = plan->forwardPairs[instance];
  int64_t quota = plan->keptPairs[instance];
  return (struct lrmoeStretch){numPairs, quota < numPairs ? quota : numPairs};
}

void lrmoeSelectExpert(const struct lrmoeStep *step, int32_t expert,
                       uint32_t *keys, uint8_t *flags) {
  int64_t first = 0;
  for (int32_t i = 0; i < lrmoeSelectNumStretches(step, expert); i++) {
    struct lrmoeStretch stretch = lrmoeSelectStretch(step, expert, i);
    lrmoeSelectTop(stretch.numPairs, keys + first, stretch.quota,
                   flags + first);
    first += stretch.numPairs;
  }
}

lrmoeResult_t lrmoeSelectReserveWork(struct lrmoeStep *step,
                                     struct lrmoeSelection *selection) {
  int64_t bytes =
      lrmoeSelectionWords(selection->numSegments, selection->maxPairs) *
      (int64_t)sizeof *selection->work;
  if (step->layer->backend->isHost) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockSelection, bytes,
                                    &selection->work));
  lrmoeMeterAdd(&step->meter, bytes);
  return lrmoeSuccess;
}
