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
#include "planner/forward.h"
#include "planner/planner.h"
#include "planner/search.h"
#include "planner/split.h"

#include <string.h>

/* What two placements are compared by, in this order. */
struct outcome {
  int64_t over; /* forward pairs that do not fit the fullest rank */
  int64_t peakKept;
  int64_t peakForward;
  int64_t moves;
  int64_t instances;
};

static int isBetter(const struct outcome *a, const struct outcome *b) {
  if (a->over != b->over) return a->over < b->over;
  if (a->peakKept != b->peakKept) return a->peakKept < b->peakKept;
  if (a->peakForward != b->peakForward) return a->peakForward < b->peakForward;
  if (a->moves != b->moves) return a->moves < b->moves;
  return a->instances < b->instances;
}

static int64_t sumMoves(const struct lrmoeWork *work,
                        const struct lrmoeInstances *instances) {
  int64_t sum = 0;
  for (int32_t i = 0; i < instances->count; i++) {
    int32_t e = instances->experts[i];
    sum += lrmoeMovesIn(instances->forward[i], instances->kept[i],
                        work->pairs[e] - work->quotas[e]);
  }
  return sum;
}

static int keepsAll(const struct lrmoeWork *work) {
  return !memcmp(work->quotas, work->pairs,
                 (size_t)work->numExperts * sizeof *work->pairs);
}

struct bounds {
  int64_t kept;
  int64_t forward;
};

/* Both splits on work->best, which holds a split of `weights`. */
static struct outcome evaluate(const struct lrmoePlanner *planner,
                               const int64_t *weights,
                               const struct bounds *bounds,
                               struct lrmoeInstances *instances) {
  struct lrmoeWork *work = planner->work;
  struct outcome outcome = {0};
  int64_t *shares =
      weights == work->quotas ? instances->kept : instances->forward;
  lrmoeInstancesBuild(work, &work->best, weights, instances, shares);
  if (weights != work->quotas)
    lrmoeSharesScale(work, instances, weights, work->quotas, shares,
                     instances->kept);
  outcome.peakKept = lrmoeSplit(work, instances, instances->kept, bounds->kept);
  if (keepsAll(work)) { /* then both directions are one */
    memcpy(instances->forward, instances->kept,
           (size_t)instances->count * sizeof *instances->forward);
    outcome.peakForward = outcome.peakKept;
  } else {
    outcome.peakForward = lrmoeForwardFill(work, instances, bounds->forward);
  }
  if (planner->config.maxPairs &&
      outcome.peakForward > planner->config.maxPairs)
    outcome.over = outcome.peakForward - planner->config.maxPairs;
  outcome.moves = sumMoves(work, instances);
  outcome.instances = instances->count;
  return outcome;
}

/* The better placement of the two; bounds are filled. */
static struct lrmoeInstances *choose(const struct lrmoePlanner *planner,
                                     struct bounds *bounds) {
  struct lrmoeWork *work = planner->work;
  struct lrmoeInstances *first = &work->instances[0];
  struct lrmoeInstances *second = &work->instances[1];
  int all = keepsAll(work);
  int64_t limit =
      planner->config.maxPairs ? planner->config.maxPairs : INT64_MAX;
  bounds->kept =
      lrmoePlacementSearch(work, work->quotas, all ? limit : INT64_MAX, first)
          .bound;
  bounds->forward = all ? bounds->kept : lrmoeMeanBound(work, work->pairs);
  struct outcome byQuotas = evaluate(planner, work->quotas, bounds, first);
  const struct lrmoePeak forward = {byQuotas.peakForward, bounds->forward};
  if (all || (lrmoePeakIsClose(forward) && !byQuotas.over)) return first;
  bounds->forward =
      lrmoePlacementSearch(work, work->pairs, limit, second).bound;
  struct outcome byPairs = evaluate(planner, work->pairs, bounds, second);
  return isBetter(&byPairs, &byQuotas) ? second : first;
}

static int isUsed(const struct lrmoeWork *work,
                  const struct lrmoeInstances *instances, int32_t i) {
  return instances->forward[i] > 0 || instances->kept[i] > 0 ||
         instances->ranks[i] == work->homes[instances->experts[i]];
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
  size_t ranks = (size_t)planner->numRanks;
  struct bounds bounds;
  const struct lrmoeInstances *chosen = choose(planner, &bounds);
  struct lrmoePlan *made = NULL;
  LRMOE_CHECK(lrmoePlanAllocate(planner->numRanks, planner->numExperts,
                                countUsed(work, chosen), &made));
  made->policy = lrmoePolicyLrmoe;
  made->boundKept = bounds.kept;
  made->boundForward = bounds.forward;
  memcpy(made->demand, load->demand, ranks * experts * sizeof(int64_t));
  memcpy(made->quotas, load->quotas, experts * sizeof(int64_t));
  memcpy(made->homes, planner->homes, experts * sizeof(int32_t));
  copyUsed(work, chosen, made);
  *plan = made;
  return lrmoeSuccess;
}
