/* The search for a placement: see search.c. */
#ifndef LRMOE_PLANNER_SEARCH_H
#define LRMOE_PLANNER_SEARCH_H

#include "planner/work.h"

/* What is proven about the highest load, and what was reached. */
struct lrmoePeak {
  int64_t peak;
  int64_t bound;
};

/* Peaks this near to their bound are not improved on: one per mille. */
int lrmoePeakIsClose(struct lrmoePeak peak);

/* value (1 + ppm / 10^6), rounded down, at most INT64_MAX. */
int64_t lrmoePartAbove(int64_t value, int64_t ppm);

/* A peak above `limit` is improved on even if it is close, unless the bound is
 * above it too; one up to tolerancePpm above the mean is as good as the
 * mean. */
struct lrmoeSearchAim {
  int64_t limit;
  int64_t tolerancePpm;
};

/* Leaves in work->best the best placement found for load `weights` [E], with a
 * split that lrmoeSplit brings to the peak returned.  Overwrites work->trial
 * and instances. */
struct lrmoePeak lrmoePlacementSearch(struct lrmoeWork *work,
                                      const int64_t *weights,
                                      const struct lrmoeSearchAim *aim,
                                      struct lrmoeInstances *instances);

#endif
