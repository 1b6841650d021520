/* The plan: see plan.h.  Everything here is bounded by the sizes of the arrays
 * and safe for arrays that hold any values, because lrmoePlanLoad verifies
 * plans that come from outside. */
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

size_t lrmoePlanArrayBytes(int32_t numRanks, int32_t numExperts,
                           int32_t numInstances) {
  size_t ranks = (size_t)numRanks, experts = (size_t)numExperts;
  size_t instances = (size_t)numInstances;
  return sizeof(int64_t) * (ranks * experts + experts + 2 * instances) +
         sizeof(int32_t) * (experts + experts + 1 + instances);
}

lrmoeResult_t lrmoePlanAllocate(int32_t numRanks, int32_t numExperts,
                                int32_t numInstances, struct lrmoePlan **plan) {
  size_t ranks = (size_t)numRanks, experts = (size_t)numExperts;
  size_t instances = (size_t)numInstances;
  size_t bytes = sizeof **plan + 3 * ranks * sizeof(int64_t) +
                 ranks * sizeof(lrmoeRankMemory_t) +
                 lrmoePlanArrayBytes(numRanks, numExperts, numInstances);
  char *block = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(bytes, &block));
  struct lrmoePlan *made = (struct lrmoePlan *)(void *)block;
  char *next = block + sizeof *made;
  made->rankForward = lrmoeCarve64(&next, ranks);
  made->rankKept = lrmoeCarve64(&next, ranks);
  made->rankMovesIn = lrmoeCarve64(&next, ranks);
  made->memory = (lrmoeRankMemory_t *)(void *)next;
  next += ranks * sizeof *made->memory;
  made->constraintRank = -1;
  made->demand = lrmoeCarve64(&next, ranks * experts);
  made->quotas = lrmoeCarve64(&next, experts);
  made->forwardPairs = lrmoeCarve64(&next, instances);
  made->keptPairs = lrmoeCarve64(&next, instances);
  made->homes = lrmoeCarve32(&next, experts);
  made->instanceOffsets = lrmoeCarve32(&next, experts + 1);
  made->instanceRanks = lrmoeCarve32(&next, instances);
  made->numRanks = numRanks;
  made->numExperts = numExperts;
  made->numInstances = numInstances;
  *plan = made;
  return lrmoeSuccess;
}

static int64_t peak(const int64_t *values, int32_t count) {
  int64_t most = 0;
  for (int32_t i = 0; i < count; i++)
    if (values[i] > most) most = values[i];
  return most;
}

static void sumMoves(struct lrmoePlan *plan) {
  memset(plan->rankMovesIn, 0,
         (size_t)plan->numRanks * sizeof *plan->rankMovesIn);
  plan->movesIn = 0;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int32_t first = plan->instanceOffsets[e];
    int32_t last = plan->instanceOffsets[e + 1];
    int64_t dropped = -plan->quotas[e];
    for (int32_t i = first; i < last; i++)
      dropped += plan->forwardPairs[i];
    for (int32_t i = first; i < last; i++) {
      int64_t moves =
          lrmoeMovesIn(plan->forwardPairs[i], plan->keptPairs[i], dropped);
      plan->movesIn += moves;
      plan->rankMovesIn[plan->instanceRanks[i]] += moves;
    }
  }
  plan->peakMovesIn = peak(plan->rankMovesIn, plan->numRanks);
}

char *lrmoePlanSaved(const struct lrmoePlan *plan, size_t *bytes) {
  *bytes =
      lrmoePlanArrayBytes(plan->numRanks, plan->numExperts, plan->numInstances);
  if (!plan->hasModel) return (char *)plan->demand;
  *bytes += (size_t)plan->numRanks * sizeof *plan->memory;
  return (char *)plan->memory;
}

static uint64_t hashPlan(const struct lrmoePlan *plan) {
  const int64_t scalars[] = {
      plan->pairs,           plan->kept,           plan->peakForward,
      plan->peakKept,        plan->boundForward,   plan->boundKept,
      plan->numRanks,        plan->numExperts,     plan->numInstances,
      plan->policy,          plan->homesMoved,     plan->changesForward,
      plan->hasModel,        plan->constraintRank, plan->constraint,
      plan->constraintSlack, plan->commNs,         plan->crossNodeBytes};
  size_t bytes;
  const char *saved = lrmoePlanSaved(plan, &bytes);
  return lrmoeHashFast(lrmoeHash(0, scalars, sizeof scalars), saved, bytes);
}

void lrmoePlanSum(struct lrmoePlan *plan) {
  size_t rankBytes = (size_t)plan->numRanks * sizeof(int64_t);
  memset(plan->rankForward, 0, rankBytes);
  memset(plan->rankKept, 0, rankBytes);
  plan->pairs = 0;
  plan->kept = 0;
  for (int32_t i = 0; i < plan->numInstances; i++) {
    plan->pairs += plan->forwardPairs[i];
    plan->kept += plan->keptPairs[i];
    plan->rankForward[plan->instanceRanks[i]] += plan->forwardPairs[i];
    plan->rankKept[plan->instanceRanks[i]] += plan->keptPairs[i];
  }
  plan->peakForward = peak(plan->rankForward, plan->numRanks);
  plan->peakKept = peak(plan->rankKept, plan->numRanks);
  if (!lrmoePlanHasChoice(plan->policy)) {
    plan->boundForward = plan->peakForward;
    plan->boundKept = plan->peakKept;
  }
  sumMoves(plan);
}

void lrmoePlanFinish(struct lrmoePlan *plan) {
  lrmoePlanSum(plan);
  plan->hash = hashPlan(plan);
}

static lrmoeResult_t verifyDemand(const struct lrmoePlan *plan,
                                  lrmoeResult_t broken) {
  int64_t left = INT64_MAX;
  int64_t count = (int64_t)plan->numRanks * plan->numExperts;
  for (int64_t i = 0; i < count; i++) {
    int64_t pairs = plan->demand[i];
    int rank = (int)(i / plan->numExperts);
    int expert = (int)(i % plan->numExperts);
    if (pairs < 0)
      return LRMOE_FAIL(broken, "demand of rank %d, expert %d is %lld", rank,
                        expert, (long long)pairs);
    if (pairs > left)
      return LRMOE_FAIL(broken,
                        "demand adds up to more than 2^63 - 1 pairs at rank "
                        "%d, expert %d",
                        rank, expert);
    left -= pairs;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t verifyOffsets(const struct lrmoePlan *plan,
                                   lrmoeResult_t broken) {
  const int32_t *offsets = plan->instanceOffsets;
  if (offsets[0] != 0)
    return LRMOE_FAIL(broken, "instances begin at %d, not 0", offsets[0]);
  for (int32_t e = 0; e < plan->numExperts; e++)
    if (offsets[e + 1] <= offsets[e])
      return LRMOE_FAIL(broken, "expert %d has no instance", e);
  if (offsets[plan->numExperts] != plan->numInstances)
    return LRMOE_FAIL(broken, "instances end at %d of %d",
                      offsets[plan->numExperts], plan->numInstances);
  return lrmoeSuccess;
}

/* Invariant 2 for one expert. */
static lrmoeResult_t verifyPlaces(const struct lrmoePlan *plan, int32_t expert,
                                  lrmoeResult_t broken) {
  int32_t before = -1;
  int atHome = 0;
  for (int32_t i = plan->instanceOffsets[expert];
       i < plan->instanceOffsets[expert + 1]; i++) {
    int32_t rank = plan->instanceRanks[i];
    if (rank <= before || rank >= plan->numRanks)
      return LRMOE_FAIL(broken,
                        "expert %d: instance on rank %d after %d, of %d ranks",
                        expert, rank, before, plan->numRanks);
    atHome |= rank == plan->homes[expert];
    before = rank;
  }
  if (!atHome)
    return LRMOE_FAIL(broken, "expert %d has no instance at its home, rank %d",
                      expert, plan->homes[expert]);
  return lrmoeSuccess;
}

/* The shares of one expert's instances, none negative, add up to `total`. */
static lrmoeResult_t verifyShares(const struct lrmoePlan *plan, int32_t expert,
                                  const int64_t *shares, int64_t total,
                                  lrmoeResult_t broken) {
  const char *name = shares == plan->keptPairs ? "kept" : "forward";
  int64_t left = total;
  for (int32_t i = plan->instanceOffsets[expert];
       i < plan->instanceOffsets[expert + 1]; i++) {
    if (shares[i] < 0 || shares[i] > left)
      return LRMOE_FAIL(broken, "expert %d: rank %d has %lld %s pairs of %lld",
                        expert, plan->instanceRanks[i], (long long)shares[i],
                        name, (long long)left);
    left -= shares[i];
  }
  if (left)
    return LRMOE_FAIL(broken, "expert %d: %lld of %lld %s pairs have no rank",
                      expert, (long long)left, (long long)total, name);
  return lrmoeSuccess;
}

static lrmoeResult_t verifyExpert(const struct lrmoePlan *plan, int32_t expert,
                                  int64_t total, lrmoeResult_t broken) {
  int64_t quota = plan->quotas[expert];
  if (quota < 0 || quota > total)
    return LRMOE_FAIL(broken, "expert %d keeps %lld of %lld pairs", expert,
                      (long long)quota, (long long)total);
  LRMOE_CHECK(verifyPlaces(plan, expert, broken));
  LRMOE_CHECK(verifyShares(plan, expert, plan->forwardPairs, total, broken));
  return verifyShares(plan, expert, plan->keptPairs, quota, broken);
}

lrmoeResult_t lrmoePlanVerifyAs(const struct lrmoePlan *plan,
                                lrmoeResult_t broken) {
  LRMOE_CHECK(verifyDemand(plan, broken));
  LRMOE_CHECK(verifyOffsets(plan, broken));
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int64_t total = 0;
    for (int32_t s = 0; s < plan->numRanks; s++)
      total += plan->demand[(int64_t)s * plan->numExperts + e];
    LRMOE_CHECK(verifyExpert(plan, e, total, broken));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePlanVerifyShares(const struct lrmoePlan *plan,
                                    const int64_t *pairs) {
  LRMOE_CHECK(verifyOffsets(plan, lrmoeInternalError));
  for (int32_t e = 0; e < plan->numExperts; e++)
    LRMOE_CHECK(verifyExpert(plan, e, pairs[e], lrmoeInternalError));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePlanVerify(const struct lrmoePlan *plan) {
  return lrmoePlanVerifyAs(plan, lrmoeInternalError);
}

lrmoeResult_t lrmoePlanDestroy(lrmoePlan_t plan) {
  lrmoeFree(plan);
  return lrmoeSuccess;
}

/* How far the peak is above its bound, in millionths, rounded up. */
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
  return lrmoeViewWrite("plan view", &full, sizeof full, view);
}
