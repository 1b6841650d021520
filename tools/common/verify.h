/* A check of plans that shares nothing with the planner: it reads a plan's
 * public view and the planner's config, and works everything out anew, in
 * wider integers where that matters. */
#ifndef LRMOE_TOOLS_VERIFY_H
#define LRMOE_TOOLS_VERIFY_H

#include "lrmoe.h"
#include "tools/common/fail.h"

/* What a plan was made from. */
struct toolPlanOrigin {
  const lrmoePlannerConfig_t *config; /* NULL: unknown; then quotas, slots,
                                         memory and policy are not checked */
  const int64_t *demand;              /* [G, E] that was given, or NULL */
  int numRanks;
  int isBestEffort;      /* 1: limits may be exceeded if the view says so */
  const int64_t *totals; /* [E] that were given instead of demand, or NULL */
  const int32_t *nodes;  /* [G] node of each rank, for what relays hold; NULL:
                            that is not checked */
};

/* toolWrongData names what is wrong first, and where:
 *   sums       F to n, X to K, 0 <= K <= n, and what the view adds up
 *   totals     the sums of demand, or those that were given
 *   instances  by expert and rank, one on a rank, one at home
 *   peaks      and bounds, gaps, worst-case moves
 *   slots      of policies that keep homes and of those that move them
 *   memory     per rank by the formula of lrmoeRankMemory_t, and limits
 *   quotas     by their rule
 *   policy     what its description promises (verify_policy.c) */
enum toolExit toolPlanVerify(const lrmoePlanView_t *view,
                             const struct toolPlanOrigin *origin,
                             struct toolError *error);

struct toolRank;

/* Checks a plan that the rank has made; toolWrongData after saying why. */
enum toolExit toolRankVerify(const struct toolRank *self, lrmoePlan_t plan,
                             const struct toolPlanOrigin *origin);

/* Its parts that need a config. */
enum toolExit toolPlanVerifyConfig(const lrmoePlanView_t *view,
                                   const struct toolPlanOrigin *origin,
                                   struct toolError *error);
enum toolExit toolPlanVerifyPolicy(const lrmoePlanView_t *view,
                                   const struct toolPlanOrigin *origin,
                                   struct toolError *error);

/* The home of expert e that a config gives. */
int32_t toolHomeOf(const lrmoePlannerConfig_t *config, int numRanks, int32_t e);

/* n of expert e, from the view's demand, or its totals where it has none. */
int64_t toolPairsOf(const lrmoePlanView_t *view, int32_t e);

#endif
