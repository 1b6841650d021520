/* Policy fixed: every expert has one instance, at its home, which executes all
 * of its pairs: F[e][home] = n[e], X[e][home] = K[e].  The baseline of the
 * paper's comparisons, and its algorithm with no spare slots. */
#include "planner/planner.h"

#include <string.h>

lrmoeResult_t lrmoePlaceFixed(const struct lrmoePlanner *planner,
                              const struct lrmoeLoad *load,
                              struct lrmoePlan **plan) {
  int32_t numExperts = planner->numExperts;
  size_t experts = (size_t)numExperts;
  const struct lrmoePlanShape shape = {planner->numRanks, numExperts,
                                       numExperts, load->demand, load->use};
  struct lrmoePlan *made = NULL;
  LRMOE_CHECK(lrmoePlanAllocate(&shape, &made));
  made->policy = planner->config.policy;
  made->changesForward = !!planner->changedDemand;
  memcpy(made->quotas, load->quotas, experts * sizeof(int64_t));
  memcpy(made->forwardPairs, load->pairs, experts * sizeof(int64_t));
  memcpy(made->keptPairs, load->quotas, experts * sizeof(int64_t));
  memcpy(made->homes, planner->homes, experts * sizeof(int32_t));
  memcpy(made->instanceRanks, planner->homes, experts * sizeof(int32_t));
  for (int32_t e = 0; e <= numExperts; e++)
    made->instanceOffsets[e] = e;
  *plan = made;
  return lrmoeSuccess;
}
