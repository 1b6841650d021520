/* The plan: see plan.h. */
#include "planner/plan.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/hash.h"
#include "planner/carve.h"
#include "planner/forward.h"
#include "planner/scale.h"

#include <string.h>

const char *lrmoePolicyName(lrmoePolicy_t policy) {
  static const char *const names[] = {
      "fixed", "lrmoe",   "proportional", "eplb", "quota",    "shadow",
      "flex",  "permute", "relayout",     "topo", "balanced", "local"};
  size_t count = sizeof names / sizeof *names;
  return (size_t)policy < count ? names[policy] : "unknown";
}

static size_t demandBytes(int32_t numRanks, int32_t numExperts) {
  return sizeof(int64_t) * (size_t)numRanks * (size_t)numExperts;
}

/* Of quotas and what follows them. */
static size_t restBytes(int32_t numExperts, int32_t numInstances) {
  size_t experts = (size_t)numExperts, instances = (size_t)numInstances;
  return sizeof(int64_t) * (experts + 2 * instances) +
         sizeof(int32_t) * (experts + experts + 1 + instances);
}

size_t lrmoePlanArrayBytes(int32_t numRanks, int32_t numExperts,
                           int32_t numInstances) {
  return demandBytes(numRanks, numExperts) +
         restBytes(numExperts, numInstances);
}

/* Of the struct and all arrays but demand, so that demand behind them is
 * aligned. */
static size_t ownBytes(const struct lrmoePlanShape *shape) {
  size_t ranks = (size_t)shape->numRanks, experts = (size_t)shape->numExperts;
  size_t bytes = sizeof(struct lrmoePlan) +
                 sizeof(int64_t) * (3 * ranks + experts) +
                 sizeof(lrmoeRankMemory_t) * ranks +
                 restBytes(shape->numExperts, shape->numInstances);
  return (bytes + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
}

static void carve(struct lrmoePlan *plan) {
  size_t ranks = (size_t)plan->numRanks, experts = (size_t)plan->numExperts;
  size_t instances = (size_t)plan->numInstances;
  char *next = (char *)(plan + 1);
  plan->rankForward = lrmoeCarve64(&next, ranks);
  plan->rankKept = lrmoeCarve64(&next, ranks);
  plan->rankMovesIn = lrmoeCarve64(&next, ranks);
  plan->totals = lrmoeCarve64(&next, experts);
  plan->memory = (lrmoeRankMemory_t *)(void *)next;
  next += ranks * sizeof *plan->memory;
  plan->quotas = lrmoeCarve64(&next, experts);
  plan->forwardPairs = lrmoeCarve64(&next, instances);
  plan->keptPairs = lrmoeCarve64(&next, instances);
  plan->homes = lrmoeCarve32(&next, experts);
  plan->instanceOffsets = lrmoeCarve32(&next, experts + 1);
  plan->instanceRanks = lrmoeCarve32(&next, instances);
}

lrmoeResult_t lrmoePlanAllocate(const struct lrmoePlanShape *shape,
                                struct lrmoePlan **plan) {
  size_t own = ownBytes(shape);
  size_t cells = demandBytes(shape->numRanks, shape->numExperts);
  void *block = NULL;
  if (shape->use != lrmoeDemandCopied) cells = 0;
  LRMOE_CHECK(lrmoeAllocateUnset(own + cells, &block));
  struct lrmoePlan *made = block;
  memset(block, 0, own);
  made->numRanks = shape->numRanks;
  made->numExperts = shape->numExperts;
  made->numInstances = shape->numInstances;
  made->constraintRank = -1;
  carve(made);
  if (shape->use == lrmoeDemandBorrowed) made->demand = shape->demand;
  if (shape->use == lrmoeDemandCopied)
    made->demand = memcpy((char *)block + own, shape->demand, cells);
  *plan = made;
  return lrmoeSuccess;
}

static int64_t peak(const int64_t *values, int32_t count) {
  int64_t most = 0;
  for (int32_t i = 0; i < count; i++)
    if (values[i] > most) most = values[i];
  return most;
}

/* An expert's instances: its total and its worst-case moves, of which a lone
 * instance has none. */
static void sumExpert(struct lrmoePlan *plan, int32_t e) {
  int32_t first = plan->instanceOffsets[e], last = plan->instanceOffsets[e + 1];
  int64_t total = 0;
  for (int32_t i = first; i < last; i++)
    total += plan->forwardPairs[i];
  plan->totals[e] = total;
  for (int32_t i = first; i < last && last - first > 1; i++) {
    int64_t moves = lrmoeMovesIn(plan->forwardPairs[i], plan->keptPairs[i],
                                 total - plan->quotas[e]);
    plan->movesIn += moves;
    plan->rankMovesIn[plan->instanceRanks[i]] += moves;
  }
}

void lrmoePlanSum(struct lrmoePlan *plan) {
  size_t rankBytes = (size_t)plan->numRanks * sizeof(int64_t);
  memset(plan->rankForward, 0, 3 * rankBytes); /* rankKept, rankMovesIn too */
  plan->pairs = plan->kept = plan->movesIn = 0;
  for (int32_t i = 0; i < plan->numInstances; i++) {
    plan->rankForward[plan->instanceRanks[i]] += plan->forwardPairs[i];
    plan->rankKept[plan->instanceRanks[i]] += plan->keptPairs[i];
  }
  for (int32_t g = 0; g < plan->numRanks; g++) {
    plan->pairs += plan->rankForward[g];
    plan->kept += plan->rankKept[g];
  }
  for (int32_t e = 0; e < plan->numExperts; e++)
    sumExpert(plan, e);
  plan->peakForward = peak(plan->rankForward, plan->numRanks);
  plan->peakKept = peak(plan->rankKept, plan->numRanks);
  plan->peakMovesIn = peak(plan->rankMovesIn, plan->numRanks);
  if (!lrmoePlanHasChoice(plan->policy)) {
    plan->boundForward = plan->peakForward;
    plan->boundKept = plan->peakKept;
  }
}

void lrmoePlanParts(const struct lrmoePlan *plan,
                    struct lrmoePlanPart parts[lrmoeNumPlanParts]) {
  size_t memory = (size_t)plan->numRanks * sizeof *plan->memory;
  size_t demand = demandBytes(plan->numRanks, plan->numExperts);
  parts[0] = (struct lrmoePlanPart){plan->memory, plan->hasModel ? memory : 0};
  parts[1] = (struct lrmoePlanPart){plan->demand, plan->demand ? demand : 0};
  parts[2] = (struct lrmoePlanPart){
      plan->quotas, restBytes(plan->numExperts, plan->numInstances)};
}

uint64_t lrmoeDemandRowHash(uint64_t before, const int64_t *row,
                            int32_t numExperts) {
  return lrmoeHashFast(before, row, (size_t)numExperts * sizeof *row);
}

void lrmoePlanSeal(struct lrmoePlan *plan, uint64_t demandHash) {
  const int64_t scalars[] = {
      plan->pairs,           plan->kept,           plan->peakForward,
      plan->peakKept,        plan->boundForward,   plan->boundKept,
      plan->numRanks,        plan->numExperts,     plan->numInstances,
      plan->policy,          plan->homesMoved,     plan->changesForward,
      plan->hasModel,        plan->constraintRank, plan->constraint,
      plan->constraintSlack, plan->commNs,         plan->crossNodeBytes,
      plan->boundRetained};
  struct lrmoePlanPart parts[lrmoeNumPlanParts];
  lrmoePlanParts(plan, parts);
  uint64_t hash = lrmoeHashFast(demandHash, scalars, sizeof scalars);
  hash = lrmoeHashFast(hash, parts[0].data, parts[0].bytes);
  plan->hash = lrmoeHashFast(hash, parts[2].data, parts[2].bytes);
}

void lrmoePlanFinish(struct lrmoePlan *plan) {
  uint64_t hash = 0;
  for (int32_t s = 0; s < plan->numRanks && plan->demand; s++)
    hash = lrmoeDemandRowHash(
        hash, plan->demand + (int64_t)s * plan->numExperts, plan->numExperts);
  lrmoePlanSum(plan);
  lrmoePlanSeal(plan, hash);
}

lrmoeResult_t lrmoePlanDestroy(lrmoePlan_t plan) {
  lrmoeFree(plan);
  return lrmoeSuccess;
}

/* How far `most` is above the bound, in millionths of it, rounded up. */
static int64_t gapPpm(int64_t most, int64_t bound) {
  enum {
    million = 1000000
  };
  if (most <= bound || bound <= 0) return 0;
  int64_t whole = (most - bound) / bound, part = (most - bound) % bound, rest;
  int64_t ppm = lrmoeScale(part, million, bound, &rest);
  return whole * million + ppm + (rest > 0);
}

static int64_t retainPpm(const struct lrmoePlan *plan) {
  int64_t rest;
  if (!plan->pairs) return 1000000;
  return lrmoeScale(plan->kept, 1000000, plan->pairs, &rest);
}

lrmoeResult_t lrmoePlanGetView(lrmoePlan_t plan, lrmoePlanView_t *view) {
  LRMOE_REQUIRE(plan, "plan is NULL");
  lrmoePlanView_t full = LRMOE_PLAN_VIEW_INITIALIZER;
  full.hash = plan->hash;
  full.pairs = plan->pairs;
  full.kept = plan->kept;
  full.peakForward = plan->peakForward;
  full.peakKept = plan->peakKept;
  full.demand = plan->demand;
  full.quotas = plan->quotas;
  full.homes = plan->homes;
  full.instanceOffsets = plan->instanceOffsets;
  full.instanceRanks = plan->instanceRanks;
  full.forwardPairs = plan->forwardPairs;
  full.keptPairs = plan->keptPairs;
  full.numRanks = plan->numRanks;
  full.numExperts = plan->numExperts;
  full.numInstances = plan->numInstances;
  full.policy = plan->policy;
  full.boundForward = plan->boundForward;
  full.boundKept = plan->boundKept;
  full.gapForwardPpm = gapPpm(plan->peakForward, plan->boundForward);
  full.gapKeptPpm = gapPpm(plan->peakKept, plan->boundKept);
  full.numReplicas = plan->numInstances - plan->numExperts;
  full.movesIn = plan->movesIn;
  full.peakMovesIn = plan->peakMovesIn;
  full.retainPpm = retainPpm(plan);
  full.commNs = plan->commNs;
  full.crossNodeBytes = plan->crossNodeBytes;
  full.memory = plan->hasModel ? plan->memory : NULL;
  full.constraintSlack = plan->constraintSlack;
  full.constraint = plan->constraint;
  full.constraintRank = plan->constraintRank;
  full.homesMoved = plan->homesMoved;
  full.changesForward = plan->changesForward;
  full.totals = plan->totals;
  full.boundRetained = plan->boundRetained;
  full.gapRetainedPpm = gapPpm(plan->boundRetained, plan->kept);
  return lrmoeViewWrite("plan view", &full, sizeof full, view);
}
