/* Scores of this rank's pairs. */
#ifndef LRMOE_COLLECTIVES_SCORE_H
#define LRMOE_COLLECTIVES_SCORE_H

#include "collectives/step.h"

/* Fills in step->deviceKeys with the metric of step->config. */
lrmoeResult_t lrmoeScorePairs(struct lrmoeStep *step, const void *g);

#endif
