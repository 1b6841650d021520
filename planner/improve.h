/* Placements made better: see improve.c. */
#ifndef LRMOE_PLANNER_IMPROVE_H
#define LRMOE_PLANNER_IMPROVE_H

#include "planner/search.h"

/* Lowers the peak of work->best, until it is at most `goal`, by as many tries
 * as are allowed; returns it. */
int64_t lrmoePlacementImprove(struct lrmoeWork *work, const int64_t *weights,
                              struct lrmoePeak found, int64_t goal,
                              struct lrmoeInstances *instances);

#endif
