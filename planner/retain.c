/* The largest retention that fits, on the instances of a plan (Algorithm 1,
 * lines 2 to 8).
 *
 * With forward fixed, memory leaves every rank a capacity of kept pairs, and
 * whether quotas fit is a flow (split.c), answered exactly.  Quotas grow with
 * the rate, so the largest rate of `uniform` is found by bisection in
 * millionths; `overload` raises the rates until cuts hold them (water.c).
 *
 * Worst-case moves cost memory too, and which pairs move depends on the split:
 * capacities shrink by what the moves took and the search is repeated, at the
 * last with every kept pair charged as one that moves.  So the result is the
 * largest where moves cost nothing (savedState none, or one instance of every
 * expert), and otherwise one that fits.  A window that is too short lowers the
 * ceiling of all rates, by bisection.
 *
 * Departure from the paper, whose planner tries C0, C10, C20 and C30: that
 * grid is the choice lrmoeRetainGrid. */
#include "planner/retain.h"

#include "base/alloc.h"
#include "planner/carve.h"
#include "planner/model.h"
#include "planner/scale.h"
#include "planner/split.h"

#include <string.h>

enum {
  maxRounds = 6 /* of capacities that shrink by moves */
};

static const int64_t grid[] = {1000000, 900000, 800000, 700000};

lrmoeResult_t lrmoeRetainRoomCreate(const struct lrmoePlanner *planner,
                                    struct lrmoeRetainRoom **room) {
  int64_t ranks = planner->numRanks, experts = planner->numExperts;
  int64_t instances = experts + ranks * planner->work->slots;
  int64_t wide = 3 * ranks + experts + instances;
  size_t bytes = sizeof **room + (size_t)wide * sizeof(int64_t) +
                 (size_t)experts * sizeof(int32_t);
  char *block = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(bytes, &block));
  struct lrmoeRetainRoom *made = (struct lrmoeRetainRoom *)(void *)block;
  char *next = block + sizeof *made;
  made->caps = lrmoeCarve64(&next, (size_t)ranks);
  made->base = lrmoeCarve64(&next, (size_t)ranks);
  made->oldLoads = lrmoeCarve64(&next, (size_t)ranks);
  made->levels = lrmoeCarve64(&next, (size_t)experts);
  made->oldShares = lrmoeCarve64(&next, (size_t)instances);
  made->isOpen = lrmoeCarve32(&next, (size_t)experts);
  *room = made;
  return lrmoeSuccess;
}

void lrmoeRetainRoomDestroy(struct lrmoeRetainRoom *room) {
  lrmoeFree(room);
}

struct fit {
  const struct lrmoePlanner *planner;
  struct lrmoePlan *plan;
  struct lrmoeRetainSearch search;
  struct lrmoeUnitBytes unit;
};

/* ---- Capacities --------------------------------------------------------- */

/* Most kept pairs of rank g where `moveBytes` of it are taken by moves; what
 * is over of the budget may be negative. */
static int64_t capOf(const struct fit *fit, int32_t g, int64_t unitBytes,
                     int64_t moveBytes) {
  const lrmoePlannerConfig_t *config = &fit->planner->config;
  const lrmoeRankMemory_t *m = &fit->plan->memory[g];
  int64_t forward = fit->plan->rankForward[g];
  int64_t used = lrmoeAddBytes(m->replicaBytes, m->savedBytes);
  used = lrmoeAddBytes(used, moveBytes);
  if (config->routerGrad == lrmoeRouterGradOwner)
    used = lrmoeAddBytes(used, m->routerBytes);
  used = lrmoeAddBytes(used, lrmoeTimesBytes(forward, fit->unit.dropped));
  int64_t budget = config->memoryBytes - used;
  if (!config->memoryBytes) return fit->plan->pairs;
  if (budget < 0) return -1;
  int64_t cap = budget / (unitBytes - fit->unit.dropped);
  if (cap <= forward || !fit->unit.dropped) return cap;
  budget -= forward * (unitBytes - fit->unit.dropped);
  return forward + budget / unitBytes;
}

static void setCap(struct fit *fit, int32_t g, int64_t cap) {
  int64_t most = fit->planner->config.maxPairs;
  if (cap > fit->plan->pairs) cap = fit->plan->pairs;
  if (most && cap > most) cap = most;
  fit->search.room->caps[g] = cap;
}

/* A rank with nothing left keeps nothing: its cap of -1 fails every split. */
static void setBases(struct fit *fit) {
  struct lrmoeRetainRoom *room = fit->search.room;
  int64_t most = 0;
  for (int32_t g = 0; g < fit->plan->numRanks; g++)
    if (room->caps[g] > most) most = room->caps[g];
  for (int32_t g = 0; g < fit->plan->numRanks; g++)
    room->base[g] = most - room->caps[g];
  fit->search.limit = most;
}

static void fillCaps(struct fit *fit) {
  for (int32_t g = 0; g < fit->plan->numRanks; g++)
    setCap(fit, g, capOf(fit, g, fit->unit.backward, 0));
  setBases(fit);
}

/* Where the moves of the split at hand did not fit, less next time. */
static void shrinkCaps(struct fit *fit, int isLast) {
  int64_t all = fit->unit.backward + fit->unit.move;
  for (int32_t g = 0; g < fit->plan->numRanks; g++) {
    int64_t least = capOf(fit, g, all, 0);
    int64_t cap =
        capOf(fit, g, fit->unit.backward, fit->plan->memory[g].moveBytes);
    if (isLast || cap < least) cap = least;
    if (cap < fit->search.room->caps[g]) setCap(fit, g, cap);
  }
  setBases(fit);
}

/* ---- Splits of quotas --------------------------------------------------- */

/* Shares as forward has them, for the flow to begin at. */
static void beginShares(const struct lrmoeRetainSearch *search) {
  const struct lrmoeInstances *instances = search->instances;
  for (int32_t e = 0; e < search->work->numExperts; e++) {
    int32_t first = instances->offsets[e];
    int64_t pairs = search->work->pairs[e], left = search->quotas[e], rest;
    for (int32_t i = first + 1; i < instances->offsets[e + 1]; i++) {
      instances->kept[i] = pairs ? lrmoeScale(instances->forward[i],
                                              search->quotas[e], pairs, &rest)
                                 : 0;
      left -= instances->kept[i];
    }
    instances->kept[first] = left;
  }
}

int lrmoeRetainSplit(const struct lrmoeRetainSearch *search) {
  beginShares(search);
  return lrmoeSplitFits(search->work, search->instances,
                        search->instances->kept, search->room->base,
                        search->limit);
}

static void setRate(const struct lrmoeRetainSearch *search, int64_t ppm) {
  for (int32_t e = 0; e < search->work->numExperts; e++)
    search->quotas[e] = lrmoeRetained(search->work->pairs[e], ppm);
}

static int rateFits(const struct lrmoeRetainSearch *search, int64_t ppm) {
  setRate(search, ppm);
  return lrmoeRetainSplit(search);
}

/* The largest rate up to the ceiling; 0 if not even `least` fits. */
static int largestRate(const struct lrmoeRetainSearch *search) {
  int64_t low = search->least, high = search->ceiling;
  if (rateFits(search, high)) return 1;
  if (!rateFits(search, low)) return 0;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (rateFits(search, middle))
      low = middle;
    else
      high = middle;
  }
  return rateFits(search, low);
}

static int search(const struct fit *fit) {
  const lrmoePlannerConfig_t *config = &fit->planner->config;
  if (config->quota != lrmoeQuotaUniform && config->quota != lrmoeQuotaOverload)
    return lrmoeRetainSplit(&fit->search);
  if (config->retain != lrmoeRetainLargest)
    return rateFits(&fit->search, fit->search.ceiling);
  return config->quota == lrmoeQuotaUniform ? largestRate(&fit->search)
                                            : lrmoeRetainWater(&fit->search);
}

/* ---- The plan ----------------------------------------------------------- */

static lrmoeResult_t apply(struct fit *fit) {
  struct lrmoePlan *plan = fit->plan;
  memcpy(plan->quotas, fit->search.quotas,
         (size_t)plan->numExperts * sizeof *plan->quotas);
  memcpy(plan->keptPairs, fit->search.instances->kept,
         (size_t)plan->numInstances * sizeof *plan->keptPairs);
  lrmoePlanSum(plan);
  return lrmoePlanMeasure(fit->planner, plan);
}

/* The nearest miss: quotas stay, ranks are over by as little as can be. */
static lrmoeResult_t applyNearest(struct fit *fit) {
  const lrmoePlannerConfig_t *config = &fit->planner->config;
  if (config->retain == lrmoeRetainLargest)
    setRate(&fit->search, fit->search.least);
  beginShares(&fit->search);
  lrmoeSplitOver(fit->search.work, fit->search.instances,
                 fit->search.instances->kept, fit->search.room->base,
                 fit->search.limit);
  return apply(fit);
}

/* The most under rates up to `ceiling`, in the plan. */
static lrmoeResult_t settle(struct fit *fit, int64_t ceiling, int *fits) {
  fit->search.ceiling = ceiling;
  fillCaps(fit);
  for (int round = 0; round <= maxRounds; round++) {
    *fits = search(fit);
    if (!*fits) return applyNearest(fit);
    LRMOE_CHECK(apply(fit));
    *fits = lrmoePlanBackwardFits(fit->planner, fit->plan);
    if (*fits || !fit->unit.move ||
        lrmoePlanMemoryFits(fit->planner, fit->plan))
      return lrmoeSuccess;
    shrinkCaps(fit, round + 1 == maxRounds);
  }
  return lrmoeSuccess;
}

static lrmoeResult_t settleGrid(struct fit *fit) {
  const lrmoePlannerConfig_t *config = &fit->planner->config;
  int fits = 0;
  for (size_t i = 0; i < sizeof grid / sizeof *grid && !fits; i++)
    if (grid[i] <= config->retainPpm && grid[i] >= config->minRetainPpm)
      LRMOE_CHECK(settle(fit, grid[i], &fits));
  return lrmoeSuccess;
}

static lrmoeResult_t settleLargest(struct fit *fit) {
  int64_t low = fit->search.least, high = fit->planner->config.retainPpm;
  int fits;
  LRMOE_CHECK(settle(fit, high, &fits));
  if (fits) return lrmoeSuccess;
  LRMOE_CHECK(settle(fit, low, &fits));
  if (!fits) return lrmoeSuccess;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    LRMOE_CHECK(settle(fit, middle, &fits));
    if (fits)
      low = middle;
    else
      high = middle;
  }
  return settle(fit, low, &fits);
}

/* The plan's instances, with those of experts that have several by rank. */
static void listInstances(const struct lrmoePlan *plan,
                          struct lrmoeInstances *instances) {
  size_t count = (size_t)plan->numInstances;
  instances->count = plan->numInstances;
  memcpy(instances->offsets, plan->instanceOffsets,
         ((size_t)plan->numExperts + 1) * sizeof(int32_t));
  memcpy(instances->ranks, plan->instanceRanks, count * sizeof(int32_t));
  memcpy(instances->forward, plan->forwardPairs, count * sizeof(int64_t));
  memcpy(instances->kept, plan->keptPairs, count * sizeof(int64_t));
  memset(instances->rankOffsets, 0,
         ((size_t)plan->numRanks + 1) * sizeof(int32_t));
  for (int32_t e = 0; e < plan->numExperts; e++)
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++) {
      instances->experts[i] = e;
      instances->rankOffsets[plan->instanceRanks[i]]++;
    }
  for (int32_t g = 0; g < plan->numRanks; g++)
    instances->rankOffsets[g + 1] += instances->rankOffsets[g];
  for (int32_t i = plan->numInstances - 1; i >= 0; i--)
    instances->ofRank[--instances->rankOffsets[plan->instanceRanks[i]]] = i;
}

lrmoeResult_t lrmoeRetainFit(const struct lrmoePlanner *planner,
                             struct lrmoePlan *plan) {
  const lrmoePlannerConfig_t *config = &planner->config;
  struct fit fit = {
      .planner = planner,
      .plan = plan,
      .search = {.work = planner->work,
                 .instances = &planner->work->instances[0],
                 .room = planner->room,
                 .quotas = planner->work->quotas,
                 .least = config->minRetainPpm},
      .unit = lrmoeUnitBytesOf(config),
  };
  int fits;
  listInstances(plan, fit.search.instances);
  if (config->retain == lrmoeRetainLargest)
    LRMOE_CHECK(settleLargest(&fit));
  else if (config->retain == lrmoeRetainGrid)
    LRMOE_CHECK(settleGrid(&fit));
  else
    LRMOE_CHECK(settle(&fit, config->retainPpm, &fits));
  lrmoePlanBoundKept(planner, plan);
  return lrmoeSuccess;
}
