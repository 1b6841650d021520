/* What ranks and homes tell each other: see device_homes.h. */
#include "collectives/device_homes.h"

#include "collectives/select.h"

#include <string.h>

static int64_t wordsOf(int64_t numFlags) {
  return (numFlags + 31) / 32;
}

static int64_t demandOf(const struct lrmoeStep *step, int32_t e, int32_t s) {
  return step->demand[(int64_t)s * step->plan->numExperts + e];
}

static int64_t baseOf(const struct lrmoeStep *step, int32_t e, int32_t s) {
  return step->sourceBase[(int64_t)s * step->plan->numExperts + e];
}

static int isHome(const struct lrmoeStep *step, int32_t e, int32_t r) {
  return step->plan->homes[e] == r;
}

int lrmoeHomeTellsAll(const struct lrmoeStep *step, int32_t e, int32_t r) {
  return isHome(step, e, r) || lrmoeSelectTellsAll(step, e, r);
}

static int64_t numFlags(const struct lrmoeStep *step, int32_t e, int32_t r) {
  if (!lrmoeHomeTellsAll(step, e, r)) return demandOf(step, e, r);
  return lrmoeSelectNumPairs(step, e);
}

int64_t lrmoeHomeNumTokens(const struct lrmoeStep *step, int32_t e, int32_t r) {
  return lrmoeSelectTellsTokens(step, e, r) ? lrmoeSelectNumPairs(step, e) : 0;
}

static void countHome(const struct lrmoeStep *step, struct lrmoeHomes *h) {
  for (int32_t e = 0; e < step->plan->numExperts; e++)
    if (isHome(step, e, step->layer->comm->rank)) {
      h->numHome++;
      h->numSegments += lrmoeSelectNumStretches(step, e);
    }
}

/* Takes `count` words of the table. */
static int64_t *take(int64_t **at, int64_t count) {
  int64_t *taken = *at;
  *at += count;
  return taken;
}

static lrmoeResult_t reserveTable(struct lrmoeStep *step,
                                  struct lrmoeHomes *h) {
  int64_t numExperts = step->plan->numExperts;
  int64_t cells = h->numHome * h->numRanks;
  const int64_t most[lrmoeNumHomeLists] = {
      numExperts, numExperts, cells, cells, cells, cells, numExperts};
  h->words = 2 * h->numSegments + 1;
  for (int i = 0; i < lrmoeNumHomeLists; i++)
    h->words += 3 * most[i];
  int64_t words = h->words + lrmoeNumHomeMessages * (h->numRanks + 1);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayHomes, words, &h->table));
  memset(h->table, 0, (size_t)words * sizeof *h->table);
  int64_t *at = h->table;
  h->segments = take(&at, h->numSegments + 1);
  h->quotas = take(&at, h->numSegments);
  for (int i = 0; i < lrmoeNumHomeLists; i++) {
    h->lists[i].from = take(&at, most[i]);
    h->lists[i].to = take(&at, most[i]);
    h->lists[i].counts = take(&at, most[i]);
  }
  for (int i = 0; i < lrmoeNumHomeMessages; i++)
    h->messages[i] = take(&at, h->numRanks + 1);
  return LRMOE_RESERVE(step, lrmoeArrayTokenFirsts, h->numRanks * numExperts,
                       &h->tokenFirsts);
}

static void addPiece(struct lrmoeHomes *h, enum lrmoeHomeList list,
                     int64_t from, int64_t to, int64_t count) {
  struct lrmoeHomePieces *pieces = &h->lists[list];
  pieces->from[pieces->count] = from;
  pieces->to[pieces->count] = to;
  pieces->counts[pieces->count++] = count;
  if (count > pieces->most) pieces->most = count;
}

/* Gives a message of rank r `count` more words; where they begin. */
static int64_t addWords(struct lrmoeHomes *h, enum lrmoeHomeMessage message,
                        int32_t r, int64_t count) {
  int64_t *end = &h->messages[message][r + 1];
  int64_t at = *end;
  *end += count;
  return at;
}

/* A message to or from the next rank begins where the last one ends. */
static void beginRank(struct lrmoeHomes *h, int32_t r) {
  for (int i = 0; i < lrmoeNumHomeMessages; i++)
    h->messages[i][r + 1] = h->messages[i][r];
}

/* What this rank sends to home r, and is told by it. */
static void talkToHome(const struct lrmoeStep *step, struct lrmoeHomes *h,
                       int32_t r, const int64_t *flagFirsts) {
  int32_t rank = step->layer->comm->rank;
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    if (!isHome(step, e, r)) continue;
    int64_t first = step->expertOffsets[e];
    int64_t count = demandOf(step, e, rank);
    int64_t numMoving = lrmoeSelectMayMove(step, e) ? count : 0;
    int64_t flags = numFlags(step, e, rank);
    int64_t flagFirst =
        flagFirsts[e] +
        (lrmoeHomeTellsAll(step, e, rank) ? 0 : baseOf(step, e, rank));
    addPiece(h, lrmoeHomeListKeysOut, first,
             addWords(h, lrmoeHomeKeysOut, r, count), count);
    addPiece(h, lrmoeHomeListTokensOut, first,
             addWords(h, lrmoeHomeTokensOut, r, numMoving), numMoving);
    addPiece(h, lrmoeHomeListBitsIn, flagFirst,
             addWords(h, lrmoeHomeBitsIn, r, wordsOf(flags)), flags);
    int64_t tokens =
        addWords(h, lrmoeHomeMovedIn, r, lrmoeHomeNumTokens(step, e, rank));
    for (int32_t s = 0; s < step->plan->numRanks; s++)
      h->tokenFirsts[(int64_t)s * step->plan->numExperts + e] =
          tokens + baseOf(step, e, s);
  }
}

/* What comes from rank r to the experts of this home, and what it is told. */
static void talkToRank(const struct lrmoeStep *step, struct lrmoeHomes *h,
                       int32_t r) {
  int64_t first = 0;
  int64_t token = 0;
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    if (!isHome(step, e, step->layer->comm->rank)) continue;
    int64_t base = baseOf(step, e, r);
    int64_t count = demandOf(step, e, r);
    int64_t numPairs = lrmoeSelectNumPairs(step, e);
    int mayMove = lrmoeSelectMayMove(step, e);
    int64_t numMoving = mayMove ? count : 0;
    int64_t flags = numFlags(step, e, r);
    int64_t moved = lrmoeHomeNumTokens(step, e, r);
    addPiece(h, lrmoeHomeListKeysIn, addWords(h, lrmoeHomeKeysIn, r, count),
             first + base, count);
    addPiece(h, lrmoeHomeListTokensIn,
             addWords(h, lrmoeHomeTokensIn, r, numMoving), token + base,
             numMoving);
    addPiece(h, lrmoeHomeListBitsOut,
             first + (lrmoeHomeTellsAll(step, e, r) ? 0 : base),
             addWords(h, lrmoeHomeBitsOut, r, wordsOf(flags)), flags);
    addPiece(h, lrmoeHomeListMovedOut, token,
             addWords(h, lrmoeHomeMovedOut, r, moved), moved);
    first += numPairs;
    token += mayMove ? numPairs : 0;
  }
}

static void addSegments(const struct lrmoeStep *step, struct lrmoeHomes *h) {
  int64_t at = 0;
  for (int32_t e = 0; e < step->plan->numExperts; e++)
    for (int32_t i = 0; isHome(step, e, step->layer->comm->rank) &&
                        i < lrmoeSelectNumStretches(step, e);
         i++, at++) {
      struct lrmoeStretch stretch = lrmoeSelectStretch(step, e, i);
      h->segments[at + 1] = h->segments[at] + stretch.numPairs;
      h->quotas[at] = stretch.quota;
      if (stretch.numPairs > h->mostPairs) h->mostPairs = stretch.numPairs;
    }
}

lrmoeResult_t lrmoeHomesLayOut(struct lrmoeStep *step, struct lrmoeHomes *h) {
  const struct lrmoePlan *plan = step->plan;
  int64_t *flagFirsts = NULL;
  h->numRanks = plan->numRanks;
  countHome(step, h);
  LRMOE_CHECK(reserveTable(step, h));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch, plan->numExperts + 1,
                            &flagFirsts));
  flagFirsts[0] = 0;
  for (int32_t e = 0; e < plan->numExperts; e++)
    flagFirsts[e + 1] = flagFirsts[e] + lrmoeSelectNumPairs(step, e);
  for (int32_t r = 0; r < plan->numRanks; r++) {
    beginRank(h, r);
    talkToHome(step, h, r, flagFirsts);
    talkToRank(step, h, r);
    h->messages[lrmoeHomeTagsIn][r + 1] = (r + 1) * (int64_t)sizeof(uint64_t);
  }
  addSegments(step, h);
  return LRMOE_UPLOAD(step, lrmoeArrayHomes, h->words, h->table, &h->device);
}
