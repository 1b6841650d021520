/* What ranks and homes tell each other where selection is on a device: how
 * much, and where it lies; all of it follows from demand and plan. */
#ifndef LRMOE_COLLECTIVES_DEVICE_HOMES_H
#define LRMOE_COLLECTIVES_DEVICE_HOMES_H

#include "collectives/step.h"

/* What goes out and comes in, by rank. */
enum lrmoeHomeMessage {
  lrmoeHomeKeysOut,
  lrmoeHomeTokensOut,
  lrmoeHomeKeysIn,
  lrmoeHomeTokensIn,
  lrmoeHomeBitsOut,
  lrmoeHomeMovedOut, /* tokens to executors */
  lrmoeHomeBitsIn,
  lrmoeHomeMovedIn,
  lrmoeHomeTagsIn,
  lrmoeNumHomeMessages
};

/* Pieces of words, or of flags and their bits. */
enum lrmoeHomeList {
  lrmoeHomeListKeysOut,
  lrmoeHomeListTokensOut,
  lrmoeHomeListKeysIn,
  lrmoeHomeListTokensIn,
  lrmoeHomeListMovedOut,
  lrmoeHomeListBitsOut,
  lrmoeHomeListBitsIn,
  lrmoeNumHomeLists
};

struct lrmoeHomePieces {
  int64_t count;
  int64_t most; /* words or flags of a piece */
  int64_t *from;
  int64_t *to;
  int64_t *counts;
};

struct lrmoeHomes {
  int64_t numRanks;
  int64_t numHome; /* experts whose home is here */
  int64_t numSegments;
  int64_t *table; /* all that follows; its first words are uploaded */
  int64_t words;
  int64_t *device;
  int64_t *segments; /* offsets [numSegments + 1] */
  int64_t *quotas;   /* [numSegments] */
  int64_t mostPairs; /* of a segment */
  struct lrmoeHomePieces lists[lrmoeNumHomeLists];
  int64_t *messages[lrmoeNumHomeMessages]; /* [G + 1] offsets each */
  int64_t *tokenFirsts; /* [G, E] among the tokens that come */
};

/* Fills `homes` in, whose tables are then on the device, too. */
lrmoeResult_t lrmoeHomesLayOut(struct lrmoeStep *step,
                               struct lrmoeHomes *homes);

/* Whether rank r is told of all pairs of e: as source or executor of an expert
 * with replicas, or as its home; and how many tokens go to it with them. */
int lrmoeHomeTellsAll(const struct lrmoeStep *step, int32_t e, int32_t r);
int64_t lrmoeHomeNumTokens(const struct lrmoeStep *step, int32_t e, int32_t r);

/* Where the device has a part of the table. */
static inline const int64_t *lrmoeHomeThere(const struct lrmoeHomes *h,
                                            const int64_t *at) {
  return h->device + (at - h->table);
}

#endif
