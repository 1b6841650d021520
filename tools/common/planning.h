/* Plans as programs make them: timed and verified. */
#ifndef LRMOE_TOOLS_PLANNING_H
#define LRMOE_TOOLS_PLANNING_H

#include "lrmoe.h"
#include "tools/common/figures.h"
#include "tools/common/verify.h"

enum {
  toolNumPolicies = 12,
  toolMaxPlanRounds = 1001
};

/* Names of enumerators, in their order, ended by NULL. */
extern const char *const toolPolicyNames[toolNumPolicies + 1];
extern const char *const toolQuotaNames[];
extern const char *const toolConstraintNames[];

/* Reads "NAME[,NAME...]" or "all". */
enum toolExit toolPoliciesRead(const char *text, const char *option,
                               lrmoePolicy_t policies[toolNumPolicies],
                               int *count, struct toolError *error);

/* Spare slots that the policy can use, of those that there are: policies
 * without replicas are made with none. */
int32_t toolPolicySlots(lrmoePolicy_t policy, int32_t slots);

/* What a failed call of the library means for a program: wrong arguments are
 * wrong input. */
enum toolExit toolCallFailed(lrmoeResult_t result, const char *what,
                             struct toolError *error);

/* A planner and what it was made with, which the verifier wants to know. */
struct toolPlanner {
  lrmoePlanner_t planner;
  lrmoePlannerConfig_t config;
  int numRanks;
  int32_t *nodes; /* [numRanks] where relays are charged, else NULL */
};

/* numRanks ranks on so many hosts like the one that a file describes; with NULL
 * ranks of one host of which nothing is known. */
lrmoeResult_t toolTopologyOpen(const char *file, int64_t copies, int numRanks,
                               lrmoeTopology_t *topology);

/* What option --topology says, NULL for nothing: whether so many ranks can be
 * taken for that machine's. */
enum toolExit toolTopologyCheck(const char *file, int64_t copies, int numRanks,
                                struct toolError *error);

/* For numRanks ranks of topology.  Free with toolPlannerFree. */
enum toolExit toolPlannerMake(lrmoeTopology_t topology, int numRanks,
                              const lrmoePlannerConfig_t *config,
                              struct toolPlanner *planner,
                              struct toolError *error);
void toolPlannerFree(struct toolPlanner *planner);

/* A plan with its view and figures. */
struct toolPlan {
  lrmoePlan_t plan;
  lrmoePlanView_t view;
  struct toolPlanFigures figures;
  double medianUs; /* of lrmoePlanMakeWith over the rounds */
};

/* Makes the plan of demand [G, E], NULL with input's totals, `rounds` times and
 * verifies it.  input may be NULL.  toolWrongData if it breaks a rule, or if
 * two rounds gave different plans.  *plan is written only on success; free it
 * with toolPlanFree. */
enum toolExit toolPlanMake(const struct toolPlanner *planner,
                           const int64_t *demand, const lrmoePlanInput_t *input,
                           int64_t rounds, struct toolPlan *plan,
                           struct toolError *error);
void toolPlanFree(struct toolPlan *plan);

#endif
