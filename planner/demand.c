/* Demand as it comes: n[e] from [G, E], in one pass that also hashes.
 *
 * In large groups the matrix is larger than the caches and reading it takes
 * longer than the search, so every row is read once, while it is near, and
 * what a plan does not need it does not ask for: a plan may borrow the matrix,
 * or be made from the totals alone. */
#include "planner/planner.h"
#include "planner/rivals/modes.h"

#include <string.h>

/* The first count that is negative, or with which the sum leaves an int64. */
static lrmoeResult_t findBadCount(const struct lrmoePlanner *planner,
                                  const int64_t *demand) {
  int64_t left = INT64_MAX;
  for (int32_t s = 0; s < planner->numRanks; s++)
    for (int32_t e = 0; e < planner->numExperts; e++) {
      int64_t count = demand[(int64_t)s * planner->numExperts + e];
      LRMOE_REQUIRE(count >= 0, "demand of rank %d, expert %d is %lld", s, e,
                    (long long)count);
      LRMOE_REQUIRE(count <= left,
                    "demand adds up to more than 2^63 - 1 pairs at rank %d, "
                    "expert %d",
                    s, e);
      left -= count;
    }
  return lrmoeSuccess;
}

/* Adds one row modulo 2^64; gives the bits that occur. */
static uint64_t addRow(const int64_t *row, int32_t count, int64_t *sums) {
  uint64_t bits = 0;
  for (int32_t e = 0; e < count; e++) {
    bits |= (uint64_t)row[e];
    sums[e] = (int64_t)((uint64_t)sums[e] + (uint64_t)row[e]);
  }
  return bits;
}

/* Four at once: a sum is then fetched and stored once for all of them. */
static uint64_t addFourRows(const int64_t *rows, int32_t count, int64_t *sums) {
  uint64_t bits = 0;
  const int64_t *a = rows, *b = a + count, *c = b + count, *d = c + count;
  for (int32_t e = 0; e < count; e++) {
    uint64_t w = (uint64_t)a[e], x = (uint64_t)b[e];
    uint64_t y = (uint64_t)c[e], z = (uint64_t)d[e];
    bits |= w | x | y | z;
    sums[e] = (int64_t)((uint64_t)sums[e] + w + x + y + z);
  }
  return bits;
}

/* n[e], with every sum known to fit an int64.  Counts are looked at one by one
 * only where all being as large as the bits of the largest would not fit; sums
 * are modulo 2^64 until then. */
static lrmoeResult_t sumDemand(const struct lrmoePlanner *planner,
                               const int64_t *demand, int64_t *pairs,
                               uint64_t *hash) {
  int32_t numRanks = planner->numRanks, numExperts = planner->numExperts;
  uint64_t bits = 0;
  *hash = 0;
  memset(pairs, 0, (size_t)numExperts * sizeof *pairs);
  for (int32_t s = 0, rows; s < numRanks; s += rows) {
    const int64_t *row = demand + (int64_t)s * numExperts;
    rows = numRanks - s >= 4 ? 4 : 1;
    bits |= rows == 4 ? addFourRows(row, numExperts, pairs)
                      : addRow(row, numExperts, pairs);
    for (int32_t i = 0; i < rows; i++)
      *hash =
          lrmoeDemandRowHash(*hash, row + (int64_t)i * numExperts, numExperts);
  }
  if (bits <= (uint64_t)(INT64_MAX / ((int64_t)numRanks * numExperts)))
    return lrmoeSuccess;
  return findBadCount(planner, demand);
}

/* What the plan is for: `demand`, or what the policy makes of it. */
static const int64_t *changeDemand(const struct lrmoePlanner *planner,
                                   const int64_t *demand) {
  const struct lrmoeModeShape shape = {planner->homes, planner->numRanks,
                                       planner->numExperts};
  if (!lrmoePolicyChangesDemand(planner->config.policy)) return demand;
  if (planner->config.policy == lrmoePolicyBalanced)
    lrmoeModeBalanced(&shape, demand, planner->changedDemand);
  else
    lrmoeModeLocal(&shape, demand, planner->changedDemand);
  return planner->changedDemand;
}

/* Policies and models that ask where pairs come from. */
static lrmoeResult_t refuseTotals(const struct lrmoePlanner *planner,
                                  const int64_t *demand) {
  const lrmoePlannerConfig_t *config = &planner->config;
  lrmoePolicy_t policy = config->policy;
  LRMOE_REQUIRE(!demand, "demand and totals are both given");
  LRMOE_REQUIRE(policy != lrmoePolicyShadow && policy != lrmoePolicyRelayout &&
                    !lrmoePolicyChangesDemand(policy),
                "policy %s needs demand: totals do not say the sources",
                lrmoePolicyName(policy));
  LRMOE_REQUIRE(
      !config->windowNs &&
          (!config->hidden || config->routerGrad != lrmoeRouterGradOwner),
      "%s needs demand: totals do not say the sources",
      config->windowNs ? "windowNs" : "routerGrad owner");
  return lrmoeSuccess;
}

static lrmoeResult_t readTotals(const struct lrmoePlanner *planner,
                                const int64_t *totals, int64_t *pairs) {
  int64_t left = INT64_MAX;
  for (int32_t e = 0; e < planner->numExperts; e++) {
    LRMOE_REQUIRE(totals[e] >= 0 && totals[e] <= left,
                  "total of expert %d is %lld, or all are more than 2^63 - 1",
                  e, (long long)totals[e]);
    pairs[e] = totals[e];
    left -= totals[e];
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDemandRead(const struct lrmoePlanner *planner,
                              const int64_t *given,
                              const lrmoePlanInput_t *input,
                              struct lrmoeLoad *load, uint64_t *hash) {
  int64_t *pairs = planner->work->pairs;
  if (input->totals) {
    LRMOE_CHECK(refuseTotals(planner, given));
    load->demand = NULL;
    load->use = lrmoeDemandUnknown;
    *hash = 0;
    return readTotals(planner, input->totals, pairs);
  }
  LRMOE_CHECK(sumDemand(planner, given, pairs, hash));
  load->demand = changeDemand(planner, given);
  load->use = input->borrowDemand && load->demand == given ? lrmoeDemandBorrowed
                                                           : lrmoeDemandCopied;
  if (load->demand == given) return lrmoeSuccess;
  return sumDemand(planner, load->demand, pairs, hash);
}
