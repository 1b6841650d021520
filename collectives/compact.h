/* What the way out (compact.c) and the way back (return.c) share. */
#ifndef LRMOE_COLLECTIVES_COMPACT_H
#define LRMOE_COLLECTIVES_COMPACT_H

#include "collectives/route.h"
#include "collectives/step.h"

/* Works out which rows cross and lays the handoff out.  Local. */
lrmoeResult_t lrmoeCompactRoute(struct lrmoeStep *step);

/* Rows of g that leave this rank, and of dx that come back, of each token. */
struct lrmoeLists lrmoeCompactTokenLists(const struct lrmoeStep *step);

/* Whether a kept pair's executor needs its row of x, and its alpha, again. */
int lrmoeCompactComesWithX(const struct lrmoeStep *step, int64_t pair);

/* Rows of a region that belong to one peer when peers write into it. */
int64_t lrmoeWindowStride(const struct lrmoeRegion *region, int numRanks);

#endif
