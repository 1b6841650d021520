/* The layout of the handoff, which both ways of working a route out share. */
#ifndef LRMOE_COLLECTIVES_HANDOFF_H
#define LRMOE_COLLECTIVES_HANDOFF_H

#include "collectives/step.h"

/* From the lengths of the handoff's lists [numInstances, stayed or moved, G]:
 * where each begins, how many pairs come from each source, and what the handoff
 * says of its instances. */
lrmoeResult_t lrmoeHandoffLayOut(struct lrmoeStep *step,
                                 const int64_t *lengths);

/* The latter alone: rows of each local instance, and how many of them
 * stayed. */
lrmoeResult_t lrmoeHandoffSegments(struct lrmoeStep *step, const int64_t *kept,
                                   const int64_t *stayed);

#endif
