/* Plans that stay as they were: moving replicas costs, so the previous plan's
 * instances stand while they are balanced (balancedPpm) or while new ones gain
 * little (hysteresisPpm).  What changed is only how many pairs each takes: the
 * exact split. */
#include "planner/bound.h"
#include "planner/knobs.h"
#include "planner/search.h"

#include <string.h>

lrmoeResult_t lrmoePreviousCheck(const struct lrmoePlanner *planner,
                                 const struct lrmoePlan *previous) {
  if (!previous) return lrmoeSuccess;
  int32_t *used = planner->work->best.used;
  memset(used, 0, (size_t)planner->numRanks * sizeof *used);
  for (int32_t e = 0; e < planner->numExperts; e++) {
    LRMOE_REQUIRE(previous->homes[e] == planner->homes[e],
                  "the previous plan has expert %d at home on rank %d, not %d",
                  e, previous->homes[e], planner->homes[e]);
    for (int32_t i = previous->instanceOffsets[e];
         i < previous->instanceOffsets[e + 1]; i++)
      if (previous->instanceRanks[i] != planner->homes[e])
        used[previous->instanceRanks[i]]++;
  }
  for (int32_t g = 0; g < planner->numRanks; g++)
    LRMOE_REQUIRE(used[g] <= planner->config.slots,
                  "the previous plan has %d replicas on rank %d of %d slots",
                  used[g], g, planner->config.slots);
  return lrmoeSuccess;
}

static int isAllowed(const struct lrmoePlanner *planner, int64_t numReplicas) {
  return !planner->config.maxReplicas ||
         numReplicas <= planner->config.maxReplicas;
}

/* Fills work->best; 0 if what stood does not serve any more. */
static int placePrevious(const struct lrmoePlanner *planner,
                         const struct lrmoePlan *previous) {
  struct lrmoeWork *work = planner->work;
  int64_t numReplicas = work->numPinned;
  lrmoePlacementClear(work, &work->best);
  for (int32_t e = 0; previous && e < work->numExperts; e++)
    for (int32_t i = previous->instanceOffsets[e];
         i < previous->instanceOffsets[e + 1]; i++) {
      int32_t rank = previous->instanceRanks[i];
      if (rank == work->homes[e] || lrmoeIsPinned(work, e, rank)) continue;
      if (work->best.used[rank] == work->slots) return 0;
      int64_t slot = (int64_t)rank * work->slots + work->best.used[rank]++;
      work->best.experts[slot] = e;
      work->best.pairs[slot] = 0;
      numReplicas++;
    }
  return isAllowed(planner, numReplicas);
}

static int servesEnough(const struct lrmoePlanner *planner,
                        const struct lrmoeInstances *instances) {
  const struct lrmoeWork *work = planner->work;
  for (int32_t i = 0; i < instances->count; i++) {
    int32_t e = instances->experts[i], rank = instances->ranks[i];
    if (rank == work->homes[e] || lrmoeIsPinned(work, e, rank)) continue;
    if (instances->forward[i] > 0 &&
        instances->forward[i] < planner->config.minReplicaPairs)
      return 0;
  }
  return 1;
}

const struct lrmoeInstances *
lrmoePreviousIsBalanced(const struct lrmoePlanner *planner,
                        const struct lrmoePlan *previous,
                        struct lrmoeBounds *bounds) {
  struct lrmoeWork *work = planner->work;
  int64_t ppm = planner->config.balancedPpm;
  if (!ppm || !placePrevious(planner, previous)) return NULL;
  bounds->kept = lrmoeMeanBound(work, work->quotas);
  bounds->forward = lrmoeMeanBound(work, work->pairs);
  struct lrmoeOutcome outcome =
      lrmoePlacementEvaluate(planner, work->pairs, bounds, &work->instances[0]);
  if (outcome.over || outcome.peakKept > lrmoePartAbove(bounds->kept, ppm) ||
      outcome.peakForward > lrmoePartAbove(bounds->forward, ppm) ||
      !servesEnough(planner, &work->instances[0]))
    return NULL;
  return &work->instances[0];
}

const struct lrmoeInstances *lrmoePreviousIsClose(
    const struct lrmoePlanner *planner, const struct lrmoePlan *previous,
    const struct lrmoeBounds *bounds, struct lrmoeInstances *found) {
  struct lrmoeWork *work = planner->work;
  int64_t ppm = planner->config.hysteresisPpm;
  if (!ppm || !previous || !placePrevious(planner, previous)) return found;
  struct lrmoeInstances *other = &work->instances[found == work->instances];
  int64_t peakForward = lrmoePeakOf(work, found, found->forward);
  int64_t peakKept = lrmoePeakOf(work, found, found->kept);
  struct lrmoeOutcome old =
      lrmoePlacementEvaluate(planner, work->pairs, bounds, other);
  int isLower =
      peakKept <
          old.peakKept - (lrmoePartAbove(old.peakKept, ppm) - old.peakKept) ||
      peakForward < old.peakForward - (lrmoePartAbove(old.peakForward, ppm) -
                                       old.peakForward);
  return isLower || old.over || !servesEnough(planner, other) ? found : other;
}
