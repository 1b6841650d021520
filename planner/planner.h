/* The planner: agreed inputs, fixed when it is made.
 *
 * A plan is made in three parts, each behind one function below: quotas (how
 * many pairs of each expert are kept), placement (where instances stand and
 * how many pairs each takes) and the checks (capacities, invariants).  All of
 * it is a pure function in integers: every rank makes the same plan.  The
 * planner owns the memory that making a plan works in, so it makes one plan at
 * a time; nothing in it outlasts the call. */
#ifndef LRMOE_PLANNER_PLANNER_H
#define LRMOE_PLANNER_PLANNER_H

#include "planner/plan.h"
#include "planner/rivals/layout.h"
#include "planner/work.h"

struct lrmoePlanner {
  int64_t retainPpm;
  int64_t capacityPpm;
  int64_t maxPairs;
  int64_t minReplicaPairs;
  int64_t pairNs;
  int64_t replicaNs;          /* to bring weights out and the gradient home */
  int32_t *homes;             /* [E] */
  int32_t *hosts;             /* [G] number of each rank's host */
  struct lrmoeLayout *layout; /* of the rivals, else NULL */
  int64_t *changedDemand;     /* [G, E] of policies that change it, else NULL */
  struct lrmoeWork *work;     /* of the plan being made */
  int32_t numRanks;
  int32_t numExperts;
  lrmoePolicy_t policy;
  lrmoeQuota_t quota;
  int32_t slots;
  uint64_t hash; /* of all inputs: ranks compare it in round F0 */
};

/* Demand as the parts of the planner see it; its total is an int64. */
struct lrmoeLoad {
  const int64_t *demand; /* [G, E] */
  const int64_t *pairs;  /* [E] n */
  const int64_t *quotas; /* [E] K */
  const int64_t *past;   /* [E] loads that rivals place by; NULL: n */
  const struct lrmoePlan *previous; /* or NULL */
};

/* K[e] from n[e] by the planner's quota rule. */
void lrmoeQuotaFill(const struct lrmoePlanner *planner, const int64_t *pairs,
                    int64_t *quotas);

/* Policy fixed: a new plan, with everything but what lrmoePlanFinish adds. */
lrmoeResult_t lrmoePlaceFixed(const struct lrmoePlanner *planner,
                              const struct lrmoeLoad *load,
                              struct lrmoePlan **plan);

/* Whether lrmoePlaceRival makes the plans of a policy. */
int lrmoeRivalHas(lrmoePolicy_t policy);

/* The rivals, the same. */
lrmoeResult_t lrmoePlaceRival(const struct lrmoePlanner *planner,
                              const struct lrmoeLoad *load,
                              struct lrmoePlan **plan);

/* Policy lrmoe, the same. */
lrmoeResult_t lrmoePlaceReplicas(const struct lrmoePlanner *planner,
                                 const struct lrmoeLoad *load,
                                 struct lrmoePlan **plan);

#endif
