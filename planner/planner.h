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

#include "planner/nodes.h"
#include "planner/rivals/layout.h"
#include "planner/work.h"

struct lrmoePlanner {
  lrmoePlannerConfig_t config; /* checked; homes is NULL, pinned ours */
  lrmoeTopology_t topology;    /* with a model: held, for the window */
  int32_t *homes;              /* [E] */
  int32_t *hosts;              /* [G] number of each rank's host */
  int32_t *domains;            /* [G] and of its NVLink domain */
  int32_t *pinned;             /* [numPinned, 2] */
  struct lrmoeNodes *nodes;    /* where relays are charged, else NULL */
  int64_t *passing;            /* [G] room for their pairs, then [numNodes] */
  struct lrmoeLayout *layout;  /* of the rivals, else NULL */
  int64_t *changedDemand;      /* [G, E] of policies that change it, or NULL */
  struct lrmoeRetainRoom
      *room;                /* where limits can bind, else NULL (retain.h) */
  struct lrmoePorts *ports; /* where a window can bind a search, else NULL */
  int64_t *traffic;         /* [2, G, G] with a model, else NULL */
  int64_t *trafficRoom;     /* what its time is worked out in (topology.h) */
  struct lrmoeWork *work;   /* of the plan being made */
  int32_t numRanks;
  int32_t numExperts;
  uint64_t hash; /* of all inputs: ranks compare it in round F0 */
};

/* The config as it is given, its fields checked; homes and pinned still belong
 * to the caller. */
lrmoeResult_t lrmoePlannerConfigRead(const lrmoePlannerConfig_t *given,
                                     int32_t numRanks,
                                     lrmoePlannerConfig_t *known);

/* Of all but the homes. */
uint64_t lrmoePlannerConfigHash(const lrmoePlannerConfig_t *config);

/* Whether a policy plans for another demand than it is given. */
int lrmoePolicyChangesDemand(lrmoePolicy_t policy);

static inline int32_t lrmoeHomeOf(const lrmoePlannerConfig_t *config,
                                  int32_t expert, int32_t numRanks) {
  return config->homes
             ? config->homes[expert]
             : (int32_t)((int64_t)expert * numRanks / config->numExperts);
}

/* Demand as the parts of the planner see it; its total is an int64. */
struct lrmoeLoad {
  const int64_t *demand; /* [G, E] or NULL */
  enum lrmoeDemandUse use;
  const int64_t *pairs;  /* [E] n */
  const int64_t *quotas; /* [E] K at retainPpm */
  const int64_t *past;   /* [E] loads that rivals place by; NULL: n */
  const struct lrmoePlan *previous; /* or NULL */
};

/* Demand checked and added up, in the planner's work->pairs, and hashed; what
 * the plan is for, which is not what was given where the policy changes it. */
lrmoeResult_t lrmoeDemandRead(const struct lrmoePlanner *planner,
                              const int64_t *given,
                              const lrmoePlanInput_t *input,
                              struct lrmoeLoad *load, uint64_t *hash);

/* K[e] from n[e] by the planner's quota rule, with rho its retainPpm. */
void lrmoeQuotaFill(const struct lrmoePlanner *planner, const int64_t *pairs,
                    int64_t *quotas);

/* ceil(retainPpm * pairs / 10^6), for 0 <= retainPpm <= 10^6. */
int64_t lrmoeRetained(int64_t pairs, int64_t retainPpm);

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

/* Proves the bound of kept pairs anew, from the plan's quotas. */
void lrmoePlanBoundKept(const struct lrmoePlanner *planner,
                        struct lrmoePlan *plan);

/* Policy lrmoe, the same. */
lrmoeResult_t lrmoePlaceReplicas(const struct lrmoePlanner *planner,
                                 const struct lrmoeLoad *load,
                                 struct lrmoePlan **plan);

#endif
