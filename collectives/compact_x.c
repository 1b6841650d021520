/* What comes again for pairs that moved, or for all kept pairs with saved state
 * none: rows of x and alphas. */
#include "collectives/compact.h"
#include "collectives/device_route.h"

lrmoeResult_t lrmoeCompactWords(struct lrmoeStep *step, int isMovedOnly,
                                struct lrmoeWords *words) {
  int64_t numRanks = step->plan->numRanks;
  int64_t first = isMovedOnly ? 1 : 0;
  int64_t each = isMovedOnly ? 1 : 2; /* lists of an instance and a source */
  int64_t most = numRanks * step->numInstances * each;
  /* A second upload of one array waits for the first. */
  enum lrmoeStepArray array =
      isMovedOnly ? lrmoeArrayMovedWords : lrmoeArrayWordPieces;
  int64_t *from = NULL;
  int64_t count = 0;
  int64_t wire = 0;
  *words = (struct lrmoeWords){.numPieces = most};
  LRMOE_CHECK(LRMOE_RESERVE(step, array, 3 * most, &from));
  for (int64_t s = 0; s < numRanks; s++)
    for (int64_t j = first; j < 2 * (int64_t)step->numInstances;
         j += 2 / each, count++) {
      const int64_t *list = &step->keptSegments[j * numRanks + s];
      int64_t length = list[1] - list[0];
      from[count] = list[0];
      from[most + count] = wire;
      from[2 * most + count] = length;
      wire += length;
      if (length > words->maxWords) words->maxWords = length;
    }
  LRMOE_CHECK(LRMOE_UPLOAD(step, array, 3 * most, from, &words->handoff));
  words->wire = words->handoff + most;
  words->counts = words->wire + most;
  return lrmoeSuccess;
}

/* Device: tokens of the rows of x that this rank sends. */
static lrmoeResult_t uploadXTokens(struct lrmoeStep *step, int64_t **tokens) {
  if (step->route.flags) return lrmoeDeviceRouteXTokens(step, tokens);
  return LRMOE_UPLOAD(step, lrmoeArrayXTokens,
                      step->xOffsets[step->plan->numRanks], step->xTokens,
                      tokens);
}

lrmoeResult_t lrmoeCompactPackX(struct lrmoeStep *step, const void *x,
                                int64_t first) {
  struct lrmoeLayer *layer = step->layer;
  int64_t numSent = step->xOffsets[step->plan->numRanks];
  int64_t numReceived = step->xRecvOffsets[step->plan->numRanks];
  int64_t *tokens = NULL;
  LRMOE_CHECK(lrmoeBlockReserve(layer->backend,
                                (size_t)(numReceived * layer->rowBytes),
                                step->stream, &layer->movedX));
  LRMOE_CHECK(uploadXTokens(step, &tokens));
  const struct lrmoeGather pack = {{x, tokens, layer->type, layer->hidden},
                                   numSent,
                                   layer->type,
                                   (char *)layer->send.data +
                                       first * layer->rowBytes};
  LRMOE_RUN(layer->backend, gather, &pack, step->stream);
  lrmoeMeterAdd(&step->meter, (numSent + numReceived) * layer->rowBytes);
  step->handoff.movedX = layer->movedX.data;
  return lrmoeSuccess;
}

/* Alphas of pairs that come with x, into `send`. */
static lrmoeResult_t gatherAlpha(struct lrmoeStep *step, float *send) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numSent = step->alphaOffsets[numRanks];
  int64_t *places = NULL;
  int64_t *device = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayWordsOut, numSent, &places));
  int64_t count = 0;
  for (int64_t i = 0; i < step->keptOffsets[numRanks] && numSent; i++)
    if (lrmoeCompactComesWithX(step, step->sorted[step->keptWire[i]]))
      places[count++] = step->keptWire[i];
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayWordsOut, count, places, &device));
  LRMOE_RUN(step->layer->backend, gatherWords, count, device,
            step->device.sortedWeights, send, step->stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCompactPackAlpha(struct lrmoeStep *step, float **send,
                                    float **recv) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numSent = step->alphaOffsets[numRanks];
  int64_t numReceived = step->alphaRecvOffsets[numRanks];
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockWords, (numSent + numReceived) * (int64_t)sizeof(float),
      send));
  *recv = *send + numSent;
  if (step->route.flags) return lrmoeDeviceRouteAlphas(step, *send);
  return gatherAlpha(step, *send);
}

lrmoeResult_t lrmoeCompactPlaceAlpha(struct lrmoeStep *step, const float *recv,
                                     float *weights) {
  struct lrmoeWords words;
  if (!step->alphaRecvOffsets[step->plan->numRanks]) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeCompactWords(step, 1, &words));
  const struct lrmoePieces pieces = {
      words.numPieces, words.maxWords, words.wire, words.handoff,
      words.counts,    recv,           weights};
  LRMOE_RUN(step->layer->backend, copyPieces, &pieces, step->stream);
  return lrmoeSuccess;
}
