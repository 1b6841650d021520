/* The search for a placement with a low peak, bounded by counts.
 *
 * 1. Export to the mean (export.c).  This nearly always gets there, and then
 *    nothing can be better.
 * 2. Otherwise work out what the slots allow (bound.c) and bisect on the
 *    target.  Each pass, also one that got stuck, leaves a placement, of which
 *    the exact split (split.c) gives the true peak.
 * 3. While the peak is not close to the bound, passes with seeds, and last
 *    changes of single slots (improve.c). */
#include "planner/search.h"

#include "planner/bound.h"
#include "planner/export.h"
#include "planner/improve.h"
#include "planner/scale.h"
#include "planner/split.h"

enum {
  maxBisections = 10,
  maxRestarts = 16,
  closeParts = 1000 /* a peak is close within a thousandth of the bound */
};

struct search {
  struct lrmoeWork *work;
  const int64_t *weights;
  int64_t limit;
  int64_t goal; /* peaks up to this are as good as the bound */
  struct lrmoeInstances *instances;
  struct lrmoePeak found;
  int hasFound;
};

int64_t lrmoePartAbove(int64_t value, int64_t ppm) {
  int64_t rest, part = ppm / 1000000;
  int64_t more = lrmoeScale(ppm % 1000000, value, 1000000, &rest);
  if (part && value > (INT64_MAX - more) / part) return INT64_MAX;
  more += part * value;
  return more > INT64_MAX - value ? INT64_MAX : value + more;
}

int lrmoePeakIsClose(struct lrmoePeak peak) {
  return peak.peak - peak.bound <= peak.bound / closeParts;
}

static int isGood(const struct search *search) {
  int64_t limit = search->limit;
  return (lrmoePeakIsClose(search->found) ||
          search->found.peak <= search->goal) &&
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

/* Rows that stay on their host cost least, where the peak allows it. */
static int tryNear(struct search *search, int64_t target) {
  if (!search->work->hosts) return 0;
  search->work->nearFirst = 1;
  int reached = tryTarget(search, target, 0);
  search->work->nearFirst = 0;
  return reached;
}

/* Slot by slot, down to a peak that is good. */
static void improve(struct search *search) {
  struct lrmoePeak *found = &search->found;
  int64_t goal = found->bound + found->bound / closeParts;
  if (goal < search->goal) goal = search->goal;
  if (goal > search->limit) goal = search->limit;
  if (goal < found->bound) goal = found->bound;
  found->peak = lrmoePlacementImprove(search->work, search->weights, *found,
                                      goal, search->instances);
}

struct lrmoePeak lrmoePlacementSearch(struct lrmoeWork *work,
                                      const int64_t *weights,
                                      const struct lrmoeSearchAim *aim,
                                      struct lrmoeInstances *instances) {
  struct search search = {
      .work = work,
      .weights = weights,
      .limit = aim->limit,
      .instances = instances,
      .found = {0, lrmoeMeanBound(work, weights)},
  };
  search.goal = lrmoePartAbove(search.found.bound, aim->tolerancePpm);
  if (tryNear(&search, search.goal) || tryTarget(&search, search.goal, 0))
    return search.found;
  search.found.bound = lrmoeSlotBound(work, weights);
  bisect(&search);
  for (int i = 0; i < maxRestarts && !isGood(&search); i++) {
    int64_t gap = search.found.peak - search.found.bound;
    tryTarget(&search, search.found.bound + gap / 8 * (i % 4), i + 1);
  }
  if (!isGood(&search)) improve(&search);
  return search.found;
}
