/* Policies balanced and local: what a step would cost if routing itself were
 * changed.  They are bounds to compare with and are not executed.
 *
 * balanced  every expert gets as many pairs: what the assignment of BASE layers
 *           and the experts' own choice (Expert Choice) amount to.  The pairs
 *           of all sources are dealt out in turn, so that every source keeps
 *           its number.
 * local     pairs go to experts on the rank of their token, without any
 *           exchange: a step of Gating Dropout in which the gate is dropped.
 *           Which experts they go to is for the router to say; here those of
 *           the rank share them as its own demand for them is shared, evenly
 *           if it has none.  Where no expert is at home the tokens skip the
 *           layer. */
#include "planner/rivals/modes.h"

#include "planner/scale.h"

#include <string.h>

/* Numbers i of [first, first + count) with i mod `experts` = e. */
static int64_t turns(int64_t first, int64_t count, int32_t e, int32_t experts) {
  int64_t offset = (e - first % experts + experts) % experts;
  return count > offset ? (count - 1 - offset) / experts + 1 : 0;
}

void lrmoeModeBalanced(const struct lrmoeModeShape *shape,
                       const int64_t *demand, int64_t *changed) {
  int32_t numExperts = shape->numExperts;
  int64_t first = 0;
  for (int32_t s = 0; s < shape->numRanks; s++) {
    const int64_t *row = demand + (int64_t)s * numExperts;
    int64_t count = 0;
    for (int32_t e = 0; e < numExperts; e++)
      count += row[e];
    for (int32_t e = 0; e < numExperts; e++)
      changed[(int64_t)s * numExperts + e] = turns(first, count, e, numExperts);
    first += count;
  }
}

/* One source: `count` pairs over its experts, of which its demand is `own`. */
static void keepLocal(const struct lrmoeModeShape *shape, int32_t s,
                      const int64_t sums[2], const int64_t *row,
                      int64_t *changed) {
  int64_t count = sums[0], own = sums[1], left = count, rest, numHomes = 0;
  for (int32_t e = 0; e < shape->numExperts; e++)
    numHomes += shape->homes[e] == s;
  if (!numHomes) return;
  for (int32_t e = 0; e < shape->numExperts; e++) {
    if (shape->homes[e] != s) continue;
    changed[e] = own ? lrmoeScale(row[e], count, own, &rest) : count / numHomes;
    left -= changed[e];
  }
  for (int32_t e = 0; e < shape->numExperts && left > 0; e++)
    if (shape->homes[e] == s && (row[e] > 0 || !own)) {
      changed[e]++;
      left--;
    }
}

void lrmoeModeLocal(const struct lrmoeModeShape *shape, const int64_t *demand,
                    int64_t *changed) {
  int32_t numExperts = shape->numExperts;
  memset(changed, 0,
         (size_t)shape->numRanks * (size_t)numExperts * sizeof *changed);
  for (int32_t s = 0; s < shape->numRanks; s++) {
    const int64_t *row = demand + (int64_t)s * numExperts;
    int64_t sums[2] = {0, 0};
    for (int32_t e = 0; e < numExperts; e++) {
      sums[0] += row[e];
      if (shape->homes[e] == s) sums[1] += row[e];
    }
    keepLocal(shape, s, sums, row, changed + (int64_t)s * numExperts);
  }
}
