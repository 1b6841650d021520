/* Exact router gradients: d(alpha) of all pairs, dropped ones too. */
#ifndef LRMOE_COLLECTIVES_ALPHA_H
#define LRMOE_COLLECTIVES_ALPHA_H

#include "collectives/step.h"

/* Owner, as source: y from the rows that came home, each weighed. */
lrmoeResult_t lrmoeAlphaCombine(struct lrmoeStep *step, void *y);

/* Owner, as source: exactAlpha = <g, row>.  Nothing with another mode. */
lrmoeResult_t lrmoeAlphaOwner(struct lrmoeStep *step, const void *g);

/* Executor: runs on the pairs that backward did not run on here, and gives
 * d(alpha) of all, in wire order, and room for those of this rank's pairs;
 * device pointers. */
lrmoeResult_t lrmoeAlphaExecutor(struct lrmoeStep *step, float **send,
                                 float **recv);

#endif
