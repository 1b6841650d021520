/* Selection at the experts' homes (two rounds).
 *
 * Out: the tag, then for each expert of the home the sender's keys by ordinal
 * and, if the expert's pairs may move, their tokens.  Back, for each expert of
 * the home: one bit for each pair of the asking rank.  An expert with replicas
 * has executors away from home, and which pairs move to them depends on all of
 * its kept pairs: then the bits of all pairs go to every rank that is a source
 * or an executor of the expert, and to executors all tokens, so that each works
 * the moves out as after the other way of selection.  Lengths follow from
 * demand and plan on both ends.
 *
 * This is for a host's memory; devices do the same in device_home.c. */
#include "collectives/device_route.h"
#include "collectives/reroute.h"
#include "collectives/select.h"

#include <string.h>

struct homes {
  int64_t *keysOut; /* [G + 1] byte offsets of messages to the homes */
  int64_t *keysIn;  /* [G + 1] and, as home, of those from the sources */
  int64_t *bitsOut; /* [G + 1] as home, of the answers */
  int64_t *bitsIn;  /* [G + 1] */
  int64_t *cursors; /* [G + 1] */
  unsigned char *out;
  unsigned char *in;
  uint32_t *keys;  /* of one expert */
  int32_t *tokens; /* the same */
  int32_t *work;
  uint8_t *flags;
};

enum {
  numHomeOffsets = 5,
  tagBytes = 8,
  /* A key, a token, a place in the assignment, and a flag. */
  bytesPerPair = 13
};

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t bitBytes(int64_t count) {
  return (count + 7) / 8;
}

static int64_t demandOf(const struct lrmoeStep *step, int32_t e, int32_t s) {
  return step->demand[(int64_t)s * step->plan->numExperts + e];
}

/* What source s sends to the home of e ... */
static int64_t keyBytes(const struct lrmoeStep *step, int32_t e, int32_t s) {
  int64_t each = lrmoeSelectMayMove(step, e) ? 8 : 4;
  return demandOf(step, e, s) * each;
}

/* ... and what comes back. */
static int64_t answerBytes(const struct lrmoeStep *step, int32_t e, int32_t r) {
  if (!lrmoeSelectTellsAll(step, e, r)) return bitBytes(demandOf(step, e, r));
  int64_t count = lrmoeSelectNumPairs(step, e);
  int64_t tokenBytes =
      lrmoeSelectTellsTokens(step, e, r) ? count * (int64_t)sizeof(int32_t) : 0;
  return bitBytes(count) + tokenBytes;
}

static void addUp(int64_t *offsets, int64_t numRanks, int64_t headBytes) {
  for (int64_t r = 0; r < numRanks; r++)
    offsets[r + 1] += offsets[r] + headBytes;
}

static void countBytes(const struct lrmoeStep *step, struct homes *h) {
  const struct lrmoePlan *plan = step->plan;
  int32_t rank = step->layer->comm->rank;
  memset(h->keysOut, 0,
         (size_t)(numHomeOffsets * (plan->numRanks + 1)) * sizeof(int64_t));
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int32_t home = plan->homes[e];
    h->keysOut[home + 1] += keyBytes(step, e, rank);
    h->bitsIn[home + 1] += answerBytes(step, e, rank);
    for (int32_t r = 0; r < plan->numRanks && home == rank; r++) {
      h->keysIn[r + 1] += keyBytes(step, e, r);
      h->bitsOut[r + 1] += answerBytes(step, e, r);
    }
  }
  addUp(h->keysOut, plan->numRanks, tagBytes);
  addUp(h->keysIn, plan->numRanks, tagBytes);
  addUp(h->bitsOut, plan->numRanks, 0);
  addUp(h->bitsIn, plan->numRanks, 0);
}

static lrmoeResult_t layOut(struct lrmoeStep *step, struct homes *h) {
  int64_t length = step->plan->numRanks + 1;
  int64_t words = numHomeOffsets * length;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch2, words, &h->keysOut));
  h->keysIn = h->keysOut + length;
  h->bitsOut = h->keysIn + length;
  h->bitsIn = h->bitsOut + length;
  h->cursors = h->bitsIn + length;
  countBytes(step, h);
  int64_t most = 0;
  for (int32_t e = 0; e < step->plan->numExperts; e++)
    most = larger(most, lrmoeSelectNumPairs(step, e));
  /* Answers take the place of keys, and a rank with few tokens may be the
   * home of many. */
  int64_t numOut = larger(h->keysOut[length - 1], h->bitsOut[length - 1]);
  int64_t numIn = larger(h->keysIn[length - 1], h->bitsIn[length - 1]);
  int64_t bytes = numOut + numIn + most * bytesPerPair;
  LRMOE_CHECK(lrmoeStepReserve(step, lrmoeArrayScratch, bytes, 1, &h->keys));
  h->tokens = (int32_t *)(h->keys + most);
  h->work = h->tokens + most;
  h->out = (unsigned char *)(h->work + most);
  h->in = h->out + numOut;
  h->flags = h->in + numIn;
  lrmoeMeterAdd(&step->meter, bytes + words * (int64_t)sizeof(int64_t));
  return lrmoeSuccess;
}

/* Begins to walk over the experts: cursors[r] is the place in the message of
 * or for rank r. */
static void startAt(const struct lrmoeStep *step, struct homes *h,
                    const int64_t *offsets, int64_t headBytes) {
  for (int32_t r = 0; r < step->plan->numRanks; r++)
    h->cursors[r] = offsets[r] + headBytes;
}

static void writeKeys(const struct lrmoeStep *step, struct homes *h,
                      uint64_t tag) {
  for (int32_t r = 0; r < step->plan->numRanks; r++)
    memcpy(h->out + h->keysOut[r], &tag, tagBytes);
  startAt(step, h, h->keysOut, tagBytes);
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    int64_t *cursor = &h->cursors[step->plan->homes[e]];
    int64_t first = step->expertOffsets[e];
    int64_t count = step->expertOffsets[e + 1] - first;
    if (count)
      memcpy(h->out + *cursor, step->keys + first,
             (size_t)count * sizeof *step->keys);
    unsigned char *tokens = h->out + *cursor + count * 4;
    for (int64_t o = 0; o < count && lrmoeSelectMayMove(step, e); o++) {
      int32_t token = (int32_t)step->sortedTokens[first + o];
      memcpy(tokens + o * 4, &token, sizeof token);
    }
    *cursor += keyBytes(step, e, step->layer->comm->rank);
  }
}

/* Keys to their homes. */
static lrmoeResult_t exchangeKeys(struct lrmoeStep *step, struct homes *h) {
  uint64_t tag = lrmoeSelectTag(step);
  writeKeys(step, h, tag);
  const struct lrmoeExchange exchange = {h->out,    h->keysOut, h->in,
                                         h->keysIn, 1,          0};
  LRMOE_CHECK(lrmoeExchangeHost(step->layer->comm, &exchange, step->stream,
                                &step->stats.selectBytes));
  return lrmoeSelectCheckTags(step, h->in, h->keysIn);
}

/* Keys and tokens of one of this home's experts, by (source, ordinal). */
static void collect(const struct lrmoeStep *step, struct homes *h, int32_t e) {
  int64_t numPairs = 0;
  for (int32_t s = 0; s < step->plan->numRanks; s++) {
    int64_t count = demandOf(step, e, s);
    const unsigned char *at = h->in + h->cursors[s];
    memcpy(h->keys + numPairs, at, (size_t)count * 4);
    if (lrmoeSelectMayMove(step, e))
      memcpy(h->tokens + numPairs, at + count * 4, (size_t)count * 4);
    h->cursors[s] += keyBytes(step, e, s);
    numPairs += count;
  }
}

static void writeBits(const uint8_t *flags, int64_t count,
                      unsigned char *bits) {
  memset(bits, 0, (size_t)bitBytes(count));
  for (int64_t i = 0; i < count; i++)
    bits[i >> 3] |= (unsigned char)(flags[i] << (i & 7));
}

static void readBits(const unsigned char *bits, int64_t count, uint8_t *flags) {
  for (int64_t i = 0; i < count; i++)
    flags[i] = bits[i >> 3] >> (i & 7) & 1;
}

/* The answers about expert e to all ranks, at bitsOut[r] + done[r]. */
static void answer(const struct lrmoeStep *step, struct homes *h, int32_t e) {
  int64_t numPairs = lrmoeSelectNumPairs(step, e);
  const uint8_t *own = h->flags;
  for (int32_t r = 0; r < step->plan->numRanks; r++) {
    int isAll = lrmoeSelectTellsAll(step, e, r);
    int64_t count = isAll ? numPairs : demandOf(step, e, r);
    unsigned char *at = h->out + h->bitsOut[r];
    writeBits(isAll ? h->flags : own, count, at);
    if (lrmoeSelectTellsTokens(step, e, r))
      memcpy(at + bitBytes(count), h->tokens, (size_t)count * 4);
    h->bitsOut[r] += answerBytes(step, e, r);
    own += demandOf(step, e, r);
  }
}

/* Selects this home's experts and writes the answers over the keys it sent,
 * which are no longer needed.  An expert without replicas is executed here:
 * its flags stay. */
static void selectExperts(struct lrmoeStep *step, struct homes *h) {
  int32_t numRanks = step->plan->numRanks;
  startAt(step, h, h->keysIn, tagBytes);
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    if (step->plan->homes[e] != step->layer->comm->rank) continue;
    collect(step, h, e);
    lrmoeSelectExpert(step, e, h->keys, h->flags);
    answer(step, h, e);
    if (lrmoeSelectHasReplicas(step, e)) continue;
    int64_t local = step->instanceOffsets[lrmoeStepInstanceOf(step, e)];
    int64_t count = lrmoeSelectNumPairs(step, e);
    if (count) memcpy(step->keptLocal + local, h->flags, (size_t)count);
  }
  /* The offsets were cursors; each is where the next begins. */
  for (int32_t r = numRanks; r > 0; r--)
    h->bitsOut[r] = h->bitsOut[r - 1];
  h->bitsOut[0] = 0;
}

/* The answer about one expert, at the home's cursor. */
static lrmoeResult_t takeAnswer(struct lrmoeStep *step, struct homes *h,
                                int32_t e) {
  int32_t rank = step->layer->comm->rank;
  int32_t home = step->plan->homes[e];
  const unsigned char *at = h->in + h->cursors[home];
  h->cursors[home] += answerBytes(step, e, rank);
  if (!lrmoeSelectHasReplicas(step, e)) {
    readBits(at, demandOf(step, e, rank), h->flags);
    lrmoeSelectTakeOwn(step, e, h->flags);
    if (home == rank) lrmoeRerouteLocal(step, lrmoeStepInstanceOf(step, e));
    return lrmoeSuccess;
  }
  if (!lrmoeSelectTellsAll(step, e, rank)) return lrmoeSuccess;
  int64_t count = lrmoeSelectNumPairs(step, e);
  struct lrmoeMoves moves = {e, h->flags, NULL, h->work};
  readBits(at, count, h->flags);
  if (lrmoeSelectTellsTokens(step, e, rank)) {
    memcpy(h->tokens, at + bitBytes(count), (size_t)count * 4);
    moves.tokens = h->tokens;
  }
  return lrmoeSelectTake(step, &moves);
}

lrmoeResult_t lrmoeSelectHome(struct lrmoeStep *step) {
  struct homes h;
  if (!step->layer->backend->isHost) return lrmoeDeviceSelectHome(step);
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayKeys, step->deviceKeys,
                                step->numPairs * (int64_t)sizeof *step->keys,
                                &step->keys));
  LRMOE_CHECK(lrmoeStepSynchronize(step));
  LRMOE_CHECK(layOut(step, &h));
  LRMOE_CHECK(exchangeKeys(step, &h));
  selectExperts(step, &h);
  const struct lrmoeExchange exchange = {h.out,    h.bitsOut, h.in,
                                         h.bitsIn, 1,         0};
  LRMOE_CHECK(lrmoeExchangeHost(step->layer->comm, &exchange, step->stream,
                                &step->stats.selectBytes));
  startAt(step, &h, h.bitsIn, 0);
  for (int32_t e = 0; e < step->plan->numExperts; e++)
    LRMOE_CHECK(takeAnswer(step, &h, e));
  return lrmoeSuccess;
}
