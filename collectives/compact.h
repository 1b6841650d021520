/* What the way out (compact.c) and the way back (return.c) share. */
#ifndef LRMOE_COLLECTIVES_COMPACT_H
#define LRMOE_COLLECTIVES_COMPACT_H

#include "collectives/route.h"
#include "collectives/step.h"

/* Where kept pairs' words lie, device: pieces for copyPieces. */
struct lrmoeWords {
  int64_t numPieces;
  int64_t maxWords;
  int64_t *handoff; /* [numPieces] where each begins in the handoff ... */
  int64_t *wire;    /* [numPieces] ... and on the wire */
  int64_t *counts;  /* [numPieces] */
};

/* Works out which rows cross and lays the handoff out.  Local. */
lrmoeResult_t lrmoeCompactRoute(struct lrmoeStep *step);

/* Makes step->tokenLists: rows of g that leave this rank, and of dx that come
 * back, of each token. */
lrmoeResult_t lrmoeCompactTokenLists(struct lrmoeStep *step);

/* Whether a kept pair's executor needs its row of x, and its alpha, again. */
int lrmoeCompactComesWithX(const struct lrmoeStep *step, int64_t pair);

/* The kept pairs' words as one piece per list of this rank's handoff, in the
 * handoff and by (source, instance, stayed before moved); those that come with
 * x alone, or all. */
lrmoeResult_t lrmoeCompactWords(struct lrmoeStep *step, int isMovedOnly,
                                struct lrmoeWords *words);

/* Rows of x that are needed again, into the send region from row `first` on,
 * and room for those that come. */
lrmoeResult_t lrmoeCompactPackX(struct lrmoeStep *step, const void *x,
                                int64_t first);

/* Device: alphas of pairs that come with x, and room for those that come ... */
lrmoeResult_t lrmoeCompactPackAlpha(struct lrmoeStep *step, float **send,
                                    float **recv);

/* ... which this puts, by (source, instance), into the handoff. */
lrmoeResult_t lrmoeCompactPlaceAlpha(struct lrmoeStep *step, const float *recv,
                                     float *weights);

/* Rows of a region that belong to one peer when peers write into it. */
int64_t lrmoeWindowStride(const struct lrmoeRegion *region, int numRanks);

#endif
