/* The search for a placement: see search.c. */
#ifndef LRMOE_PLANNER_SEARCH_H
#define LRMOE_PLANNER_SEARCH_H

#include "planner/work.h"

/* What is proven about the highest load, and what was reached. */
struct lrmoePeak {
  int64_t peak;
  int64_t bound;
};

/* Peaks this near to their bound are not improved on: half a per mille. */
int lrmoePeakIsClose(struct lrmoePeak peak);

/* Leaves in work->best the best placement found for load `weights` [E], with a
 * split that lrmoeSplit brings to the peak returned.  A peak above `limit` is
 * improved on even if it is close, unless the bound is above it too.
 * Overwrites work->trial and instances. */
struct lrmoePeak lrmoePlacementSearch(struct lrmoeWork *work,
                                      const int64_t *weights, int64_t limit,
                                      struct lrmoeInstances *instances);

#endif
