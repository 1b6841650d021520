/* Replicas that go again: too many, too small, or not worth their cost.
 *
 * One pass over the replicas of the placement found, the smallest first; each
 * is taken out and both splits are made anew, exactly.  It stays out if the
 * config does not allow it (maxReplicas, minReplicaPairs), if the peaks remain
 * within the tolerance of the mean, or if the time that the higher peak costs
 * is less than bringing its weights and its gradient (break-even).  A second
 * pass takes out what fell below minReplicaPairs meanwhile, a quarter of them
 * at a time, so that both passes are bounded by the number of replicas. */
#include "planner/knobs.h"

#include "planner/search.h"

struct pruning {
  const struct lrmoePlanner *planner;
  const struct lrmoeBounds *bounds;
  struct lrmoeInstances *instances;
  struct lrmoeOutcome now;
  int64_t numReplicas;
};

/* Replicas and their forward pairs, into work->best. */
static void toPlacement(struct lrmoeWork *work,
                        const struct lrmoeInstances *instances) {
  for (int32_t g = 0; g < work->numRanks; g++)
    work->best.used[g] = 0;
  for (int32_t i = 0; i < instances->count; i++) {
    int32_t e = instances->experts[i], rank = instances->ranks[i];
    if (rank == work->homes[e]) continue;
    if (!instances->forward[i] && !instances->kept[i] &&
        !lrmoeIsPinned(work, e, rank))
      continue;
    int64_t slot = (int64_t)rank * work->slots + work->best.used[rank]++;
    work->best.experts[slot] = e;
    work->best.pairs[slot] = instances->forward[i];
  }
}

static void refresh(struct pruning *pruning) {
  struct lrmoeWork *work = pruning->planner->work;
  pruning->now = lrmoePlacementEvaluate(pruning->planner, work->pairs,
                                        pruning->bounds, pruning->instances);
  toPlacement(work, pruning->instances);
  pruning->numReplicas = 0;
  for (int32_t g = 0; g < work->numRanks; g++)
    pruning->numReplicas += work->best.used[g];
}

/* The smallest replica with at least `from` pairs after (pairs, slot) in that
 * order; -1 if there is none. */
static int64_t nextSmallest(const struct lrmoeWork *work, int64_t pairs,
                            int64_t after) {
  int64_t found = -1;
  for (int32_t g = 0; g < work->numRanks; g++)
    for (int32_t i = 0; i < work->best.used[g]; i++) {
      int64_t slot = (int64_t)g * work->slots + i;
      int64_t share = work->best.pairs[slot];
      if (share < pairs || (share == pairs && slot <= after)) continue;
      if (lrmoeIsPinned(work, work->best.experts[slot], g)) continue;
      if (found < 0 || share < work->best.pairs[found]) found = slot;
    }
  return found;
}

/* The last of the rank takes its place. */
static void takeOut(struct lrmoeWork *work, int64_t slot) {
  int32_t rank = (int32_t)(slot / work->slots);
  int64_t last = (int64_t)rank * work->slots + --work->best.used[rank];
  work->best.experts[slot] = work->best.experts[last];
  work->best.pairs[slot] = work->best.pairs[last];
}

static int isTolerated(const struct pruning *pruning,
                       const struct lrmoeOutcome *without) {
  const lrmoePlannerConfig_t *config = &pruning->planner->config;
  int64_t rise = without->peakForward - pruning->now.peakForward;
  int64_t costNs = config->materialiseNs + config->reduceNs;
  if (without->over > pruning->now.over) return 0;
  if (config->tolerancePpm &&
      without->peakForward <=
          lrmoePartAbove(pruning->bounds->forward, config->tolerancePpm) &&
      without->peakKept <=
          lrmoePartAbove(pruning->bounds->kept, config->tolerancePpm))
    return 1;
  return config->pairNs &&
         (rise <= 0 || rise < costNs / config->pairNs ||
          (rise == costNs / config->pairNs && costNs % config->pairNs != 0));
}

/* Takes a replica out for good if that is due; returns whether it did. */
static int tryWithout(struct pruning *pruning, int64_t slot) {
  const lrmoePlannerConfig_t *config = &pruning->planner->config;
  struct lrmoeWork *work = pruning->planner->work;
  int isDue =
      work->best.pairs[slot] < config->minReplicaPairs ||
      (config->maxReplicas && pruning->numReplicas > config->maxReplicas);
  lrmoePlacementCopy(work, &work->best, &work->trial);
  takeOut(work, slot);
  struct lrmoeOutcome without = lrmoePlacementEvaluate(
      pruning->planner, work->pairs, pruning->bounds, pruning->instances);
  if (isDue || isTolerated(pruning, &without)) {
    refresh(pruning);
    return 1;
  }
  lrmoePlacementCopy(work, &work->trial, &work->best);
  return 0;
}

/* Those that are too small now, at least one of them; 0 if there is none. */
static int takeOutSmall(struct pruning *pruning) {
  struct lrmoeWork *work = pruning->planner->work;
  int64_t least = pruning->planner->config.minReplicaPairs, numSmall = 0;
  for (int64_t slot = -1, pairs = 0;
       (slot = nextSmallest(work, pairs, slot)) >= 0; numSmall++) {
    pairs = work->best.pairs[slot];
    if (pairs >= least) break;
  }
  for (int64_t k = 0; k < (numSmall + 3) / 4; k++)
    takeOut(work, nextSmallest(work, 0, -1));
  if (numSmall) refresh(pruning);
  return numSmall > 0;
}

void lrmoeReplicasPrune(const struct lrmoePlanner *planner,
                        const struct lrmoeBounds *bounds,
                        struct lrmoeInstances *instances) {
  const lrmoePlannerConfig_t *config = &planner->config;
  struct pruning pruning = {planner, bounds, instances, {0}, 0};
  if (!config->tolerancePpm && !config->minReplicaPairs &&
      !config->maxReplicas && !config->pairNs)
    return;
  toPlacement(planner->work, instances);
  refresh(&pruning);
  int64_t slot = -1, pairs = 0, tries = pruning.numReplicas;
  while (tries-- > 0 &&
         (slot = nextSmallest(planner->work, pairs, slot)) >= 0) {
    pairs = planner->work->best.pairs[slot];
    if (tryWithout(&pruning, slot)) slot = -1, pairs = 0;
  }
  while (config->minReplicaPairs && takeOutSmall(&pruning)) {
  }
  refresh(&pruning);
}
