/* What the way out (compact.c) and the way back (return.c) share. */
#ifndef LRMOE_COLLECTIVES_COMPACT_H
#define LRMOE_COLLECTIVES_COMPACT_H

#include "collectives/step.h"

/* Rows of a region that belong to one peer when peers write into it. */
int64_t lrmoeWindowStride(const struct lrmoeRegion *region, int numRanks);

/* Tells every rank how many rows were written into its window, and checks what
 * the others say: rows sent = rows received (design invariant 6).  Orders the
 * writes before the reads. */
lrmoeResult_t lrmoeCompactArrived(struct lrmoeStep *step, const int64_t *sent,
                                  const int64_t *expected);

#endif
