/* The invariants of plans: see plan.h.  Bounded by the sizes of the arrays and
 * safe for arrays that hold any values, because lrmoePlanLoad verifies plans
 * that come from outside. */
#include "planner/plan.h"

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

/* Of a lone instance, which most experts have, the sums are plain. */
static int isLone(const struct lrmoePlan *plan, int32_t e, int64_t total) {
  int32_t i = plan->instanceOffsets[e];
  return plan->instanceOffsets[e + 1] == i + 1 &&
         plan->instanceRanks[i] == plan->homes[e] && plan->homes[e] >= 0 &&
         plan->homes[e] < plan->numRanks && plan->forwardPairs[i] == total &&
         plan->keptPairs[i] == plan->quotas[e] && plan->quotas[e] >= 0 &&
         plan->quotas[e] <= total;
}

lrmoeResult_t lrmoePlanVerifyShares(const struct lrmoePlan *plan,
                                    const int64_t *pairs) {
  LRMOE_CHECK(verifyOffsets(plan, lrmoeInternalError));
  for (int32_t e = 0; e < plan->numExperts; e++)
    if (!isLone(plan, e, pairs[e]))
      LRMOE_CHECK(verifyExpert(plan, e, pairs[e], lrmoeInternalError));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePlanVerify(const struct lrmoePlan *plan) {
  return lrmoePlanVerifyAs(plan, lrmoeInternalError);
}
