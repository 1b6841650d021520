/* Policy lrmoe: homes stay, and the spare slots of each rank hold replicas
 * that level the ranks, first in backward, then in forward.
 *
 * One placement serves both directions, because a kept pair should stay where
 * its forward ran.  It is searched for the quotas; where forward then misses
 * its bound (quotas are rounded, or nothing is kept), a second one is searched
 * for all pairs, and the better of the two is taken: one that fits maxPairs,
 * then the lower peak of kept pairs, of forward pairs, then fewer moves in the
 * worst case, then fewer replicas.
 *
 * The paper asks for replicas and a split (3.3) without saying how they are
 * found; its planner is a search under a time limit.  This one is bounded by
 * counts, so that every rank makes the same plan. */
#include "planner/bound.h"
#include "planner/knobs.h"
#include "planner/outcome.h"
#include "planner/search.h"

#include <string.h>

/* The better placement of the two; bounds are filled. */
static struct lrmoeInstances *choose(const struct lrmoePlanner *planner,
                                     struct lrmoeBounds *bounds) {
  struct lrmoeWork *work = planner->work;
  struct lrmoeInstances *first = &work->instances[0];
  struct lrmoeInstances *second = &work->instances[1];
  int all = lrmoeKeepsAll(work);
  int64_t limit = planner->config.maxPairs;
  const struct lrmoeSearchAim aim = {limit ? limit : INT64_MAX,
                                     planner->config.tolerancePpm};
  const struct lrmoeSearchAim keptAim = {all ? aim.limit : INT64_MAX,
                                         aim.tolerancePpm};
  bounds->kept =
      lrmoePlacementSearch(work, work->quotas, &keptAim, first).bound;
  bounds->forward = all ? bounds->kept : lrmoeMeanBound(work, work->pairs);
  struct lrmoeOutcome byQuotas =
      lrmoePlacementEvaluate(planner, work->quotas, bounds, first);
  const struct lrmoePeak forward = {byQuotas.peakForward, bounds->forward};
  if (all || (lrmoePeakIsClose(forward) && !byQuotas.over)) return first;
  bounds->forward = lrmoePlacementSearch(work, work->pairs, &aim, second).bound;
  struct lrmoeOutcome byPairs =
      lrmoePlacementEvaluate(planner, work->pairs, bounds, second);
  return lrmoeOutcomeIsBetter(&byPairs, &byQuotas) ? second : first;
}

static int isUsed(const struct lrmoeWork *work,
                  const struct lrmoeInstances *instances, int32_t i) {
  return instances->ranks[i] == work->homes[instances->experts[i]] ||
         instances->forward[i] > 0 || instances->kept[i] > 0 ||
         lrmoeIsPinned(work, instances->experts[i], instances->ranks[i]);
}

static int32_t countUsed(const struct lrmoeWork *work,
                         const struct lrmoeInstances *instances) {
  int32_t count = 0;
  for (int32_t i = 0; i < instances->count; i++)
    count += isUsed(work, instances, i);
  return count;
}

static void copyUsed(const struct lrmoeWork *work,
                     const struct lrmoeInstances *instances,
                     struct lrmoePlan *plan) {
  int32_t count = 0;
  for (int32_t i = 0; i < instances->count; i++) {
    if (!isUsed(work, instances, i)) continue;
    plan->instanceRanks[count] = instances->ranks[i];
    plan->forwardPairs[count] = instances->forward[i];
    plan->keptPairs[count] = instances->kept[i];
    plan->instanceOffsets[instances->experts[i] + 1] = ++count;
  }
}

lrmoeResult_t lrmoePlaceReplicas(const struct lrmoePlanner *planner,
                                 const struct lrmoeLoad *load,
                                 struct lrmoePlan **plan) {
  const struct lrmoeWork *work = planner->work;
  size_t experts = (size_t)planner->numExperts;
  struct lrmoeBounds bounds;
  const struct lrmoeInstances *chosen;
  LRMOE_CHECK(lrmoePreviousCheck(planner, load->previous));
  chosen = lrmoePreviousIsBalanced(planner, load->previous, &bounds);
  if (!chosen) {
    struct lrmoeInstances *found = choose(planner, &bounds);
    lrmoeReplicasPrune(planner, &bounds, found);
    chosen = lrmoePreviousIsClose(planner, load->previous, &bounds, found);
  }
  const struct lrmoePlanShape shape = {planner->numRanks, planner->numExperts,
                                       countUsed(work, chosen), load->demand,
                                       load->use};
  struct lrmoePlan *made = NULL;
  LRMOE_CHECK(lrmoePlanAllocate(&shape, &made));
  made->policy = lrmoePolicyLrmoe;
  made->boundKept = bounds.kept;
  made->boundForward = bounds.forward;
  memcpy(made->quotas, load->quotas, experts * sizeof(int64_t));
  memcpy(made->homes, planner->homes, experts * sizeof(int32_t));
  copyUsed(work, chosen, made);
  *plan = made;
  return lrmoeSuccess;
}
