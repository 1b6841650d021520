/* Quotas of `overload`: max-min fair rates under the capacities of ranks.
 *
 * All rates rise together until one millionth more does not fit.  The flow
 * then shows a cut: ranks that hold too much, all of it of experts that stand
 * nowhere else.  These experts stay at their rate and the others rise on; each
 * round closes one expert at least.  Below a millionth, pairs are added expert
 * by expert while a path leads to room.  What fits is a polymatroid (loads of
 * a flow), so that quotas none of which can grow have the largest sum of all.
 */
#include "planner/planner.h"
#include "planner/retain.h"
#include "planner/split.h"

#include <string.h>

static void setQuotas(const struct lrmoeRetainSearch *search) {
  for (int32_t e = 0; e < search->work->numExperts; e++)
    search->quotas[e] =
        lrmoeRetained(search->work->pairs[e], search->room->levels[e]);
}

static int levelFits(const struct lrmoeRetainSearch *search, int64_t level) {
  for (int32_t e = 0; e < search->work->numExperts; e++)
    if (search->room->isOpen[e]) search->room->levels[e] = level;
  setQuotas(search);
  return lrmoeRetainSplit(search);
}

/* The highest level of the open experts; `low` is one that fits. */
static int64_t raise(const struct lrmoeRetainSearch *search, int64_t low) {
  int64_t high = search->ceiling;
  if (low == high || levelFits(search, high)) return high;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (levelFits(search, middle))
      low = middle;
    else
      high = middle;
  }
  return low;
}

static int isHeld(const struct lrmoeRetainSearch *search, int32_t e) {
  const struct lrmoeInstances *instances = search->instances;
  for (int32_t i = instances->offsets[e]; i < instances->offsets[e + 1]; i++)
    if (search->work->rankStamps[instances->ranks[i]] != search->work->stamp)
      return 0;
  return 1;
}

/* Closes the experts of the cut that the last split was stopped by, at
 * `level`; returns how many. */
static int32_t closeHeld(const struct lrmoeRetainSearch *search,
                         int64_t level) {
  int32_t count = 0;
  for (int32_t e = 0; e < search->work->numExperts; e++) {
    if (!search->room->isOpen[e] || !isHeld(search, e)) continue;
    search->room->isOpen[e] = 0;
    search->room->levels[e] = level;
    count++;
  }
  return count;
}

/* Adds `pairs` of expert e, or nothing. */
static int add(const struct lrmoeRetainSearch *search, int32_t e,
               int64_t pairs) {
  struct lrmoeInstances *instances = search->instances;
  struct lrmoeRetainRoom *room = search->room;
  size_t shares = (size_t)instances->count * sizeof(int64_t);
  size_t loads = (size_t)search->work->numRanks * sizeof(int64_t);
  const struct lrmoeSplitMore more = {instances->offsets[e], pairs,
                                      search->limit};
  memcpy(room->oldShares, instances->kept, shares);
  memcpy(room->oldLoads, search->work->loads, loads);
  if (lrmoeSplitAdd(search->work, instances, instances->kept, &more)) {
    search->quotas[e] += pairs;
    return 1;
  }
  memcpy(instances->kept, room->oldShares, shares);
  memcpy(search->work->loads, room->oldLoads, loads);
  return 0;
}

/* As many pairs of expert e as fit, up to a quota of `most`. */
static void addMost(const struct lrmoeRetainSearch *search, int32_t e,
                    int64_t most) {
  int64_t chunk = most - search->quotas[e];
  if (chunk <= 0 || !add(search, e, 1)) return;
  for (chunk--; chunk > 0;) {
    if (!add(search, e, chunk)) chunk /= 2;
    if (chunk > most - search->quotas[e]) chunk = most - search->quotas[e];
  }
}

int lrmoeRetainWater(const struct lrmoeRetainSearch *search) {
  struct lrmoeRetainRoom *room = search->room;
  int32_t numExperts = search->work->numExperts, numOpen = numExperts;
  for (int32_t e = 0; e < numExperts; e++)
    room->isOpen[e] = 1;
  if (!levelFits(search, search->least)) return 0;
  for (int64_t level = search->least; numOpen > 0;) {
    level = raise(search, level);
    if (level == search->ceiling || levelFits(search, level + 1)) break;
    numOpen -= closeHeld(search, level);
  }
  setQuotas(search);
  if (!lrmoeRetainSplit(search)) return 0;
  for (int32_t e = 0; e < numExperts; e++) {
    int64_t next = room->levels[e] + (room->levels[e] < search->ceiling);
    addMost(search, e, lrmoeRetained(search->work->pairs[e], next));
  }
  for (int32_t e = 0; e < numExperts; e++)
    addMost(search, e, lrmoeRetained(search->work->pairs[e], search->ceiling));
  return 1;
}
