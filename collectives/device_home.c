/* Selection at the experts' homes on a device (select_home.c is the host's).
 *
 * The same two rounds, of words of 4 bytes: keys, and tokens of pairs that may
 * move, to the homes in order of experts; bits and tokens back.  A home answers
 * itself, too, with all flags of its experts.  Where everything lies follows
 * from demand and plan, so pieces that are copied are all that is said, and the
 * host waits once, for tags and counts. */
#include "collectives/device_homes.h"
#include "collectives/device_route.h"
#include "collectives/select.h"

/* Device memory of one selection. */
struct rooms {
  uint32_t *keysIn;
  uint32_t *keys; /* by (expert of this home, source, ordinal) */
  int32_t *tokensOut;
  int32_t *tokensIn;
  int32_t *tokens; /* by (expert of this home, source, ordinal) */
  int32_t *movedOut;
  uint32_t *keysOut;
  uint32_t *bitsOut;
  uint32_t *bitsIn;
  uint8_t *flags; /* of all pairs, then of this home's */
  unsigned char *tags;
};

static const int64_t word = sizeof(uint32_t);

/* ---- Room ---- */

static int64_t totalOf(const struct lrmoeHomes *h,
                       enum lrmoeHomeMessage message) {
  return h->messages[message][h->numRanks];
}

static lrmoeResult_t reserveRooms(struct lrmoeStep *step,
                                  const struct lrmoeHomes *h,
                                  struct rooms *rooms) {
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  int64_t keyWords =
      2 * totalOf(h, lrmoeHomeKeysIn) + totalOf(h, lrmoeHomeKeysOut);
  int64_t tokenWords = totalOf(h, lrmoeHomeTokensOut) +
                       2 * totalOf(h, lrmoeHomeTokensIn) +
                       totalOf(h, lrmoeHomeMovedOut);
  int64_t bitWords = totalOf(h, lrmoeHomeBitsOut) + totalOf(h, lrmoeHomeBitsIn);
  int64_t localWords = numLocal + totalOf(h, lrmoeHomeMovedIn);
  int64_t flagBytes = step->plan->pairs + totalOf(h, lrmoeHomeKeysIn);
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockAllKeys, keyWords * word,
                                    &rooms->keysIn));
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockTokensOut,
                                    tokenWords * word, &rooms->tokensOut));
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockBits, bitWords * word,
                                    &rooms->bitsOut));
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockTokens, localWords * word,
                                    &step->route.tokens));
  LRMOE_CHECK(
      lrmoeStepReserveBlock(step, lrmoeBlockFlags, flagBytes, &rooms->flags));
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockHeads,
                                    totalOf(h, lrmoeHomeTagsIn), &rooms->tags));
  rooms->keys = rooms->keysIn + totalOf(h, lrmoeHomeKeysIn);
  rooms->keysOut = rooms->keys + totalOf(h, lrmoeHomeKeysIn);
  rooms->tokensIn = rooms->tokensOut + totalOf(h, lrmoeHomeTokensOut);
  rooms->tokens = rooms->tokensIn + totalOf(h, lrmoeHomeTokensIn);
  rooms->movedOut = rooms->tokens + totalOf(h, lrmoeHomeTokensIn);
  rooms->bitsIn = rooms->bitsOut + totalOf(h, lrmoeHomeBitsOut);
  lrmoeMeterAdd(&step->meter,
                (keyWords + tokenWords + bitWords + localWords) * word +
                    flagBytes + h->words * (int64_t)sizeof *h->table);
  return lrmoeSuccess;
}

/* ---- Rounds ---- */

static lrmoeResult_t copyList(struct lrmoeStep *step,
                              const struct lrmoeHomes *h,
                              enum lrmoeHomeList list, const void *from,
                              void *to) {
  const struct lrmoeHomePieces *pieces = &h->lists[list];
  const struct lrmoePieces copy = {pieces->count,
                                   pieces->most,
                                   lrmoeHomeThere(h, pieces->from),
                                   lrmoeHomeThere(h, pieces->to),
                                   lrmoeHomeThere(h, pieces->counts),
                                   from,
                                   to};
  LRMOE_RUN(step->layer->backend, copyPieces, &copy, step->stream);
  return lrmoeSuccess;
}

/* Keys, tokens and the tag to the homes; there into order. */
static lrmoeResult_t sendKeys(struct lrmoeStep *step,
                              const struct lrmoeHomes *h,
                              const struct rooms *rooms) {
  uint64_t tag = lrmoeSelectTag(step);
  unsigned char *head = NULL;
  LRMOE_CHECK(lrmoeStepUpload(step, lrmoeArrayHeads, &tag, sizeof tag, &head));
  LRMOE_CHECK(copyList(step, h, lrmoeHomeListKeysOut, step->deviceKeys,
                       rooms->keysOut));
  LRMOE_CHECK(copyList(step, h, lrmoeHomeListTokensOut, step->device.tokens,
                       rooms->tokensOut));
  const struct lrmoeExchange exchanges[] = {
      {head, NULL, rooms->tags, h->messages[lrmoeHomeTagsIn], 1, sizeof tag},
      {rooms->keysOut, h->messages[lrmoeHomeKeysOut], rooms->keysIn,
       h->messages[lrmoeHomeKeysIn], word, 0},
      {rooms->tokensOut, h->messages[lrmoeHomeTokensOut], rooms->tokensIn,
       h->messages[lrmoeHomeTokensIn], word, 0}};
  LRMOE_CHECK(lrmoeExchangeRun(step->layer->comm, exchanges,
                               lrmoeStepMayMove(step) ? 3 : 2, step->stream,
                               &step->stats.selectBytes));
  LRMOE_CHECK(
      copyList(step, h, lrmoeHomeListKeysIn, rooms->keysIn, rooms->keys));
  return copyList(step, h, lrmoeHomeListTokensIn, rooms->tokensIn,
                  rooms->tokens);
}

static struct lrmoeBits bitsOf(const struct lrmoeHomes *h,
                               enum lrmoeHomeList list, uint8_t *flags,
                               uint32_t *words) {
  const struct lrmoeHomePieces *pieces = &h->lists[list];
  return (struct lrmoeBits){pieces->count,
                            pieces->most,
                            lrmoeHomeThere(h, pieces->from),
                            lrmoeHomeThere(h, pieces->to),
                            lrmoeHomeThere(h, pieces->counts),
                            flags,
                            words};
}

static lrmoeResult_t selectHere(struct lrmoeStep *step,
                                const struct lrmoeHomes *h,
                                const struct rooms *rooms) {
  struct lrmoeSelection selection = {h->numSegments,
                                     h->mostPairs,
                                     lrmoeHomeThere(h, h->segments),
                                     lrmoeHomeThere(h, h->quotas),
                                     rooms->keys,
                                     rooms->flags + step->plan->pairs,
                                     NULL};
  LRMOE_CHECK(lrmoeSelectReserveWork(step, &selection));
  LRMOE_RUN(step->layer->backend, selectTop, &selection, step->stream);
  return lrmoeSuccess;
}

/* Bits and tokens back; flags that nobody told are 0. */
static lrmoeResult_t sendBits(struct lrmoeStep *step,
                              const struct lrmoeHomes *h,
                              const struct rooms *rooms) {
  const struct lrmoeBackend *backend = step->layer->backend;
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  struct lrmoeBits out =
      bitsOf(h, lrmoeHomeListBitsOut, rooms->flags + step->plan->pairs,
             rooms->bitsOut);
  struct lrmoeBits in =
      bitsOf(h, lrmoeHomeListBitsIn, rooms->flags, rooms->bitsIn);
  LRMOE_RUN(backend, packBits, &out, step->stream);
  LRMOE_CHECK(
      copyList(step, h, lrmoeHomeListMovedOut, rooms->tokens, rooms->movedOut));
  const struct lrmoeExchange exchanges[] = {
      {rooms->bitsOut, h->messages[lrmoeHomeBitsOut], rooms->bitsIn,
       h->messages[lrmoeHomeBitsIn], word, 0},
      {rooms->movedOut, h->messages[lrmoeHomeMovedOut],
       step->route.tokens + numLocal, h->messages[lrmoeHomeMovedIn], word, 0}};
  LRMOE_CHECK(lrmoeExchangeRun(step->layer->comm, exchanges,
                               lrmoeStepMayMove(step) ? 2 : 1, step->stream,
                               &step->stats.selectBytes));
  LRMOE_RUN(backend, clear, rooms->flags, (size_t)step->plan->pairs,
            step->stream);
  LRMOE_RUN(backend, unpackBits, &in, step->stream);
  return lrmoeSuccess;
}

/* ---- What it means ---- */

/* Waits for what has been downloaded, and checks the tags. */
static lrmoeResult_t await(struct lrmoeStep *step, const struct lrmoeHomes *h,
                           const struct rooms *rooms) {
  unsigned char *tags = NULL;
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayScratch2, rooms->tags,
                                totalOf(h, lrmoeHomeTagsIn), &tags));
  LRMOE_CHECK(lrmoeStepSynchronize(step));
  return lrmoeSelectCheckTags(step, tags, h->messages[lrmoeHomeTagsIn]);
}

static lrmoeResult_t routeHere(struct lrmoeStep *step,
                               const struct lrmoeHomes *h,
                               const struct rooms *rooms) {
  const struct lrmoeDeviceSelected selected = {rooms->flags, step->route.tokens,
                                               h->tokenFirsts};
  LRMOE_CHECK(lrmoeDeviceRouteCount(step, &selected));
  LRMOE_CHECK(await(step, h, rooms));
  return lrmoeDeviceRouteTake(step);
}

/* Flags of every expert that this rank is told of, on the host. */
static lrmoeResult_t takeExperts(struct lrmoeStep *step,
                                 const struct lrmoeHomes *h,
                                 const uint8_t *flags, const int32_t *tokens) {
  int32_t rank = step->layer->comm->rank;
  int32_t *work = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch, step->plan->pairs, &work));
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    struct lrmoeMoves moves = {e, flags, NULL, work};
    if (lrmoeHomeNumTokens(step, e, rank))
      moves.tokens = tokens + h->tokenFirsts[e];
    if (!lrmoeSelectHasReplicas(step, e) || lrmoeHomeTellsAll(step, e, rank))
      LRMOE_CHECK(lrmoeSelectTake(step, &moves));
    flags += lrmoeSelectNumPairs(step, e);
  }
  return lrmoeSuccess;
}

/* The host works the route out. */
static lrmoeResult_t takeOnHost(struct lrmoeStep *step,
                                const struct lrmoeHomes *h,
                                const struct rooms *rooms) {
  uint8_t *flags = NULL;
  int32_t *tokens = NULL;
  const int32_t *brought =
      step->route.tokens + step->instanceOffsets[step->numInstances];
  step->route = (struct lrmoeDeviceRoute){0};
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayFlags, rooms->flags,
                                step->plan->pairs, &flags));
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayAllKeys, brought,
                                totalOf(h, lrmoeHomeMovedIn) * word, &tokens));
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayKeys, step->deviceKeys,
                                step->numPairs * word, &step->keys));
  LRMOE_CHECK(await(step, h, rooms));
  return takeExperts(step, h, flags, tokens);
}

lrmoeResult_t lrmoeDeviceSelectHome(struct lrmoeStep *step) {
  struct lrmoeHomes h = {0};
  struct rooms rooms;
  LRMOE_CHECK(lrmoeHomesLayOut(step, &h));
  LRMOE_CHECK(reserveRooms(step, &h, &rooms));
  LRMOE_CHECK(sendKeys(step, &h, &rooms));
  LRMOE_CHECK(selectHere(step, &h, &rooms));
  LRMOE_CHECK(sendBits(step, &h, &rooms));
  if (lrmoeDeviceRouteIsPossible(step)) return routeHere(step, &h, &rooms);
  return takeOnHost(step, &h, &rooms);
}
