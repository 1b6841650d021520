/* What a placement gives: the exact splits of both directions, and the order
 * in which two placements are compared. */
#include "planner/outcome.h"

#include "planner/forward.h"
#include "planner/split.h"

#include <string.h>

int lrmoeOutcomeIsBetter(const struct lrmoeOutcome *a,
                         const struct lrmoeOutcome *b) {
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

int lrmoeKeepsAll(const struct lrmoeWork *work) {
  return !memcmp(work->quotas, work->pairs,
                 (size_t)work->numExperts * sizeof *work->pairs);
}

struct lrmoeOutcome lrmoePlacementEvaluate(const struct lrmoePlanner *planner,
                                           const int64_t *weights,
                                           const struct lrmoeBounds *bounds,
                                           struct lrmoeInstances *instances) {
  struct lrmoeWork *work = planner->work;
  struct lrmoeOutcome outcome = {0};
  int64_t *shares =
      weights == work->quotas ? instances->kept : instances->forward;
  lrmoeInstancesBuild(work, &work->best, weights, instances, shares);
  if (weights != work->quotas)
    lrmoeSharesScale(work, instances, weights, work->quotas, shares,
                     instances->kept);
  outcome.peakKept = lrmoeSplit(work, instances, instances->kept, bounds->kept);
  if (lrmoeKeepsAll(work)) { /* then both directions are one */
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

int64_t lrmoePeakOf(struct lrmoeWork *work,
                    const struct lrmoeInstances *instances,
                    const int64_t *shares) {
  int64_t most = 0;
  memset(work->loads, 0, (size_t)work->numRanks * sizeof *work->loads);
  for (int32_t i = 0; i < instances->count; i++) {
    int64_t *load = &work->loads[instances->ranks[i]];
    *load += shares[i];
    if (*load > most) most = *load;
  }
  return most;
}
