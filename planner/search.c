/* The search for a placement with a low peak, bounded by counts.
 *
 * 1. Export to the mean (export.c).  This nearly always gets there, and then
 *    nothing can be better.
 * 2. Otherwise work out what the slots allow (bound.c) and bisect on the
 *    target.  Each pass, also one that got stuck, leaves a placement, of which
 *    the exact split (split.c) gives the true peak.
 * 3. While the peak is not close to the bound, passes with seeds. */
#include "planner/search.h"

#include "planner/bound.h"
#include "planner/export.h"
#include "planner/split.h"

enum {
  maxBisections = 10,
  maxRestarts = 64,
  closeParts = 2000 /* a peak is close within a 2000th of the bound */
};

struct search {
  struct lrmoeWork *work;
  const int64_t *weights;
  int64_t limit;
  struct lrmoeInstances *instances;
  struct lrmoePeak found;
  int hasFound;
};

int lrmoePeakIsClose(struct lrmoePeak peak) {
  return peak.peak - peak.bound <= peak.bound / closeParts;
}

static int isGood(const struct search *search) {
  int64_t limit = search->limit;
  return lrmoePeakIsClose(search->found) &&
         (search->found.peak <= limit || search->found.bound > limit);
}

/* Keeps the placement of one pass if it is the best so far.  Returns whether
 * the pass got to the target. */
static int tryTarget(struct search *search, int64_t target, uint64_t seed) {
  struct lrmoeWork *work = search->work;
  int64_t peak = lrmoeExport(work, search->weights, target, seed);
  int reached = peak <= target;
  if (peak > search->found.bound) {
    struct lrmoeInstances *instances = search->instances;
    lrmoeInstancesBuild(work, &work->trial, search->weights, instances,
                        instances->kept);
    peak = lrmoeSplit(work, instances, instances->kept, search->found.bound);
  }
  if (search->hasFound && peak >= search->found.peak) return reached;
  search->hasFound = 1;
  search->found.peak = peak;
  lrmoePlacementCopy(work, &work->trial, &work->best);
  return reached;
}

/* The target rises in small steps first: the mean is nearly always missed by
 * little. */
static void bisect(struct search *search) {
  int64_t low = search->found.bound, high = search->found.peak;
  for (int i = 0; i < maxBisections && !isGood(search); i++) {
    int64_t middle = low + (high - low) / (i < 3 ? 8 : 2);
    if (tryTarget(search, middle, 0))
      high = middle;
    else
      low = middle;
    if (high > search->found.peak) high = search->found.peak;
    if (high <= low + 1) break;
  }
}

struct lrmoePeak lrmoePlacementSearch(struct lrmoeWork *work,
                                      const int64_t *weights, int64_t limit,
                                      struct lrmoeInstances *instances) {
  struct search search = {
      .work = work,
      .weights = weights,
      .limit = limit,
      .instances = instances,
      .found = {0, lrmoeMeanBound(work, weights)},
  };
  if (tryTarget(&search, search.found.bound, 0)) return search.found;
  search.found.bound = lrmoeSlotBound(work, weights);
  bisect(&search);
  for (int i = 0; i < maxRestarts && !isGood(&search); i++) {
    int64_t gap = search.found.peak - search.found.bound;
    tryTarget(&search, search.found.bound + gap / 8 * (i % 4), i + 1);
  }
  return search.found;
}
