/* Random plans: see random_plan.h. */
#include "random_plan.h"

#include "base/alloc.h"
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

/* where [E, G]: 1 where an instance stands; every rank fills some slots. */
static int32_t placeReplicas(const struct lrmoePlanner *planner,
                             int32_t numSlots, uint64_t seed, uint8_t *where) {
  int32_t numExperts = planner->numExperts;
  int32_t numRanks = planner->numRanks;
  int32_t numInstances = 0;
  for (int32_t e = 0; e < numExperts; e++)
    where[e * numRanks + planner->homes[e]] = 1;
  for (int32_t g = 0; g < numRanks; g++)
    for (int32_t i = 0; i < numSlots; i++) {
      uint64_t index = (uint64_t)(g * 8 + i);
      int32_t e = (int32_t)(oracleUniform(seed, 61, index) * numExperts);
      if (oracleUniform(seed, 62, index) < 0.8) where[e * numRanks + g] = 1;
    }
  for (int32_t i = 0; i < numExperts * numRanks; i++)
    numInstances += where[i];
  return numInstances;
}

/* Cuts `total` into count random shares, sometimes very uneven. */
static void cut(int64_t total, int32_t count, uint64_t seed, uint64_t stream,
                int64_t *shares) {
  int64_t left = total;
  for (int32_t i = 0; i < count; i++) {
    double u = oracleUniform(seed, stream, (uint64_t)i);
    int64_t share = i + 1 == count ? left
                    : u < 0.2      ? 0
                    : u > 0.9      ? left
                                   : (int64_t)(u * (double)(left + 1));
    shares[i] = share < left ? share : left;
    left -= shares[i];
  }
}

static void fillPlan(const struct lrmoePlanner *planner, uint64_t seed,
                     const uint8_t *where, struct lrmoePlan *plan) {
  int32_t at = 0;
  int64_t *pairs = calloc((size_t)planner->numExperts, sizeof *pairs);
  if (!pairs) abort();
  for (int32_t e = 0; e < planner->numExperts; e++)
    for (int32_t s = 0; s < planner->numRanks; s++)
      pairs[e] += plan->demand[(int64_t)s * planner->numExperts + e];
  lrmoeQuotaFill(planner, pairs, plan->quotas);
  for (int32_t e = 0; e < planner->numExperts; e++) {
    plan->instanceOffsets[e] = at;
    for (int32_t g = 0; g < planner->numRanks; g++)
      if (where[e * planner->numRanks + g]) plan->instanceRanks[at++] = g;
    int32_t first = plan->instanceOffsets[e];
    cut(pairs[e], at - first, seed, 100 + (uint64_t)e,
        plan->forwardPairs + first);
    cut(plan->quotas[e], at - first, seed, 1000 + (uint64_t)e,
        plan->keptPairs + first);
  }
  plan->instanceOffsets[planner->numExperts] = at;
  free(pairs);
}

lrmoeResult_t randomPlan(const struct lrmoePlanner *planner,
                         const int64_t *demand, int32_t numSlots, uint64_t seed,
                         struct lrmoePlan **plan) {
  size_t cells = (size_t)planner->numExperts * (size_t)planner->numRanks;
  uint8_t *where = NULL;
  struct lrmoePlan *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(cells, &where));
  int32_t numInstances = placeReplicas(planner, numSlots, seed, where);
  const struct lrmoePlanShape shape = {planner->numRanks, planner->numExperts,
                                       numInstances, demand, lrmoeDemandCopied};
  lrmoeResult_t result = lrmoePlanAllocate(&shape, &made);
  if (result == lrmoeSuccess) {
    made->policy = planner->config.policy;
    memcpy(made->homes, planner->homes,
           (size_t)planner->numExperts * sizeof *made->homes);
    fillPlan(planner, seed, where, made);
    result = lrmoePlanVerify(made);
    lrmoePlanFinish(made);
  }
  lrmoeFree(where);
  if (result == lrmoeSuccess)
    *plan = made;
  else
    lrmoePlanDestroy(made);
  return result;
}
