/* The largest retention that fits, on the instances of a plan (Algorithm 1,
 * lines 2 to 8).
 *
 * With forward fixed, memory leaves every rank a capacity of kept pairs, and
 * whether quotas fit is a flow (split.c), answered exactly.  Quotas grow with
 * the rate, so the largest rate of `uniform` is found by bisection in
 * millionths; `overload` raises the rates until cuts hold them (water.c).
 *
 * Worst-case moves cost memory too, and which pairs move depends on the split:
 * then the flow is a generalised one (moving.c), overload is a search over the
 * quotas of experts with replicas (trade.c), and duality proves what is left
 * open (price.c).  A window that is too short lowers the ceiling of all rates,
 * by bisection; with replicas that is where the search for a larger rate begins
 * (rate.c), and of overload for more, which
 * maximises what a MILP solver is asked for in perf/milp: the sum of K[e] over
 * all quotas from the least to the ceiling and all splits of them whose T_comm
 * and memory fit (fill.c).
 *
 * Departure from the paper, whose planner tries C0, C10, C20 and C30: that
 * grid is the choice lrmoeRetainGrid. */
#include "planner/retain.h"

#include "base/alloc.h"
#include "planner/carve.h"
#include "planner/model.h"
#include "planner/port.h"
#include "planner/price.h"
#include "planner/scale.h"
#include "planner/split.h"

#include <string.h>

static const int64_t grid[] = {1000000, 900000, 800000, 700000};

lrmoeResult_t lrmoeRetainRoomCreate(const struct lrmoePlanner *planner,
                                    struct lrmoeRetainRoom **room) {
  int64_t ranks = planner->numRanks, experts = planner->numExperts;
  int64_t instances = experts + ranks * planner->work->slots;
  int64_t wide = 9 * ranks + experts + 2 * instances;
  size_t bytes = sizeof **room + (size_t)wide * sizeof(int64_t) +
                 (size_t)(experts + 2 * ranks) * sizeof(int32_t);
  char *block = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(bytes, &block));
  struct lrmoeRetainRoom *made = (struct lrmoeRetainRoom *)(void *)block;
  char *next = block + sizeof *made;
  made->caps = lrmoeCarve64(&next, (size_t)ranks);
  made->base = lrmoeCarve64(&next, (size_t)ranks);
  made->oldLoads = lrmoeCarve64(&next, (size_t)ranks);
  made->levels = lrmoeCarve64(&next, (size_t)experts);
  made->oldShares = lrmoeCarve64(&next, (size_t)instances);
  made->moving.budgets = lrmoeCarve64(&next, (size_t)ranks);
  made->moving.bytes = lrmoeCarve64(&next, (size_t)ranks);
  made->moving.pairs = lrmoeCarve64(&next, (size_t)ranks);
  made->moving.arriving = lrmoeCarve64(&next, (size_t)ranks);
  made->moving.counts = lrmoeCarve64(&next, (size_t)ranks);
  made->moving.prices = lrmoeCarve64(&next, (size_t)ranks);
  made->moving.sure = lrmoeCarve64(&next, (size_t)instances);
  made->isOpen = lrmoeCarve32(&next, (size_t)experts);
  made->moving.path = lrmoeCarve32(&next, (size_t)ranks);
  made->moving.isChanged = lrmoeCarve32(&next, (size_t)ranks);
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

/* What rank g has for kept pairs; negative if it has not enough without. */
static int64_t budgetOf(const struct fit *fit, int32_t g) {
  const lrmoePlannerConfig_t *config = &fit->planner->config;
  const lrmoeRankMemory_t *m = &fit->plan->memory[g];
  int64_t forward = fit->plan->rankForward[g];
  int64_t used = lrmoeAddBytes(m->replicaBytes, m->savedBytes);
  used = lrmoeAddBytes(used, m->relayBytes);
  if (config->routerGrad == lrmoeRouterGradOwner)
    used = lrmoeAddBytes(used, m->routerBytes);
  used = lrmoeAddBytes(used, lrmoeTimesBytes(forward, fit->unit.dropped));
  return config->memoryBytes - used;
}

/* Most kept pairs of rank g, of unitBytes each. */
static int64_t capOf(const struct fit *fit, int32_t g, int64_t unitBytes) {
  int64_t forward = fit->plan->rankForward[g], budget = budgetOf(fit, g);
  if (!fit->planner->config.memoryBytes) return fit->plan->pairs;
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

/* Ranks begin below the limit of 0 by what they may keep, so that no sum is
 * over that of all pairs.  A rank with nothing left keeps nothing: its cap of
 * -1 fails every split. */
static void setBases(struct fit *fit) {
  struct lrmoeRetainRoom *room = fit->search.room;
  for (int32_t g = 0; g < fit->plan->numRanks; g++)
    room->base[g] = -room->caps[g];
  fit->search.limit = 0;
}

/* Where moves cost memory and the counts are too large to say how much, every
 * pair is charged as one that moves. */
static void fillCaps(struct fit *fit) {
  int hasMoves = fit->plan->numInstances > fit->plan->numExperts;
  int64_t move = hasMoves && !fit->search.moving ? fit->unit.move : 0;
  for (int32_t g = 0; g < fit->plan->numRanks; g++)
    setCap(fit, g, capOf(fit, g, fit->unit.backward + move));
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
  if (search->moving) return lrmoeMovingSplit(search->moving);
  beginShares(search);
  return lrmoeSplitFits(search->work, search->instances,
                        search->instances->kept, search->room->base,
                        search->limit);
}

static void setRate(const struct lrmoeRetainSearch *search, int64_t ppm) {
  for (int32_t e = 0; e < search->work->numExperts; e++)
    search->quotas[e] = lrmoeRetained(search->work->pairs[e], ppm);
}

static int64_t keptPairs(const struct lrmoeRetainSearch *search) {
  int64_t sum = 0;
  for (int32_t e = 0; e < search->work->numExperts; e++)
    sum += search->quotas[e];
  return sum;
}

static int64_t keptAt(const struct lrmoeRetainSearch *search, int64_t ppm) {
  int64_t sum = 0;
  for (int32_t e = 0; e < search->work->numExperts; e++)
    sum += lrmoeRetained(search->work->pairs[e], ppm);
  return sum;
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
  int64_t bound = low;
  if (search->moving && !search->isQuick) lrmoePriceRate(search, &low, &bound);
  *search->most = keptAt(search, bound);
  return rateFits(search, low);
}

static int mostPairs(const struct lrmoeRetainSearch *search) {
  int fits =
      search->moving ? lrmoeRetainTrade(search) : lrmoeRetainWater(search);
  if (fits && search->moving)
    *search->most = lrmoePricePairs(search);
  else if (fits)
    *search->most = keptPairs(search);
  return fits;
}

static int search(const struct fit *fit) {
  const lrmoePlannerConfig_t *config = &fit->planner->config;
  *fit->search.most = keptAt(&fit->search, fit->search.ceiling);
  if (config->quota != lrmoeQuotaUniform && config->quota != lrmoeQuotaOverload)
    return lrmoeRetainSplit(&fit->search);
  if (config->retain != lrmoeRetainLargest)
    return rateFits(&fit->search, fit->search.ceiling);
  return config->quota == lrmoeQuotaUniform ? largestRate(&fit->search)
                                            : mostPairs(&fit->search);
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
  *fits = search(fit);
  if (!*fits) return applyNearest(fit);
  LRMOE_CHECK(apply(fit));
  *fits = lrmoePlanBackwardFits(fit->planner, fit->plan);
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

static int isExact(const struct fit *fit) {
  return fit->planner->config.quota == lrmoeQuotaUniform &&
         fit->plan->numInstances == fit->plan->numExperts;
}

/* Sums that ports form have room. */
static int hasPorts(const struct fit *fit) {
  const int64_t most = (int64_t)1 << 40;
  return fit->planner->ports && fit->plan->pairs <= most &&
         fit->unit.row <= most &&
         lrmoeTimesBytes(fit->plan->pairs, fit->unit.row) <= most << 10;
}

/* Under a window that is too short, from a plan that is near it; of `uniform`,
 * at this rate. */
static lrmoeResult_t settlePorts(struct fit *fit, int64_t ppm, int fits) {
  const lrmoePlannerConfig_t *config = &fit->planner->config;
  fit->search.ceiling = fit->planner->config.retainPpm;
  for (int32_t g = 0; g < fit->plan->numRanks; g++)
    if (fit->search.room->caps[g] < 0 ||
        (fit->search.moving && fit->search.moving->budgets[g] < 0))
      return lrmoeSuccess;
  LRMOE_CHECK(lrmoePortsBegin(fit->planner->ports, &fit->search, fit->plan));
  if (config->quota == lrmoeQuotaUniform)
    return lrmoePortsRate(fit->planner->ports, &fit->search, fit->plan, ppm,
                          &fits);
  LRMOE_CHECK(
      lrmoePortsFill(fit->planner->ports, &fit->search, fit->plan, &fits));
  return lrmoeSuccess;
}

/* Rates under a window that is too short.  Where no expert has replicas, T_comm
 * rises with the rate: what is found is then the largest. */
static lrmoeResult_t settleLargest(struct fit *fit) {
  int64_t low = fit->search.least, high = fit->planner->config.retainPpm;
  int fits;
  LRMOE_CHECK(settle(fit, high, &fits));
  fit->plan->boundRetained = *fit->search.most;
  if (fits) return lrmoeSuccess;
  fit->search.isQuick = 1;
  LRMOE_CHECK(settle(fit, low, &fits));
  if (!fits) return hasPorts(fit) ? settlePorts(fit, low, 0) : lrmoeSuccess;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    LRMOE_CHECK(settle(fit, middle, &fits));
    if (fits)
      low = middle;
    else
      high = middle;
  }
  fit->search.isQuick = 0; /* more may fit */
  LRMOE_CHECK(settle(fit, low, &fits));
  fit->search.isQuick = 1;
  if (!fits) LRMOE_CHECK(settle(fit, low, &fits));
  if (isExact(fit)) {
    fit->plan->boundRetained = fit->plan->kept;
    return lrmoeSuccess;
  }
  return hasPorts(fit) ? settlePorts(fit, low, fits) : lrmoeSuccess;
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

/* Sums of bytes that the search of moves can form stay within an int64. */
static void beginMoving(struct fit *fit) {
  struct lrmoeMoving *moving = &fit->planner->room->moving;
  const int64_t most = (int64_t)1 << 32;
  int64_t each = fit->unit.backward + fit->unit.move;
  int64_t maxPairs = fit->planner->config.maxPairs;
  if (!fit->planner->config.memoryBytes || !fit->unit.move ||
      fit->plan->numInstances == fit->plan->numExperts || each > most ||
      lrmoeTimesBytes(fit->plan->pairs, each) > INT64_MAX / 4)
    return;
  moving->work = fit->search.work;
  moving->instances = fit->search.instances;
  moving->quotas = fit->search.quotas;
  moving->rankForward = fit->plan->rankForward;
  moving->unit = fit->unit;
  moving->maxPairs = maxPairs ? maxPairs : INT64_MAX;
  for (int32_t g = 0; g < fit->plan->numRanks; g++)
    moving->budgets[g] = budgetOf(fit, g);
  fit->search.moving = moving;
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
  int64_t most = 0;
  fit.search.most = &most;
  listInstances(plan, fit.search.instances);
  beginMoving(&fit);
  if (config->retain == lrmoeRetainLargest)
    LRMOE_CHECK(settleLargest(&fit));
  else if (config->retain == lrmoeRetainGrid)
    LRMOE_CHECK(settleGrid(&fit));
  else
    LRMOE_CHECK(settle(&fit, config->retainPpm, &fits));
  lrmoePlanBoundKept(planner, plan);
  return lrmoeSuccess;
}
