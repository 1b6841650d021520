/* From a rival's layout to a plan, with what is proven about its peaks. */
#include "planner/bound.h"
#include "planner/planner.h"
#include "planner/rivals/rivals.h"

void lrmoeRivalFill(struct lrmoeLayout *layout, lrmoePolicy_t policy) {
  switch (policy) {
  case lrmoePolicyProportional:
    lrmoeRivalProportional(layout);
    break;
  case lrmoePolicyEplb:
    lrmoeRivalEplb(layout);
    break;
  case lrmoePolicyQuota:
    lrmoeRivalQuota(layout);
    break;
  case lrmoePolicyShadow:
    lrmoeRivalShadow(layout);
    break;
  case lrmoePolicyFlex:
    lrmoeRivalFlex(layout);
    break;
  case lrmoePolicyPermute:
    lrmoeRivalPermute(layout);
    break;
  case lrmoePolicyRelayout:
    lrmoeRivalRelayout(layout);
    break;
  default:
    lrmoeRivalTopo(layout);
    break;
  }
}

int lrmoeRivalHas(lrmoePolicy_t policy) {
  return policy >= lrmoePolicyProportional && policy <= lrmoePolicyTopo;
}

/* No placement of the policy's kind has a lower peak.  Where homes move, only
 * the mean is sure; without replicas also the hottest expert. */
static int64_t boundOf(struct lrmoeWork *work, lrmoePolicy_t policy,
                       const int64_t *weights) {
  int64_t bound = lrmoeMeanBound(work, weights);
  if (policy == lrmoePolicyLrmoe || policy == lrmoePolicyQuota ||
      policy == lrmoePolicyShadow || policy == lrmoePolicyFlex ||
      policy == lrmoePolicyTopo)
    return lrmoeSlotBound(work, weights);
  if (policy == lrmoePolicyPermute)
    for (int32_t e = 0; e < work->numExperts; e++)
      if (weights[e] > bound) bound = weights[e];
  return bound;
}

void lrmoePlanBoundKept(const struct lrmoePlanner *planner,
                        struct lrmoePlan *plan) {
  if (lrmoePlanHasChoice(plan->policy))
    plan->boundKept = boundOf(planner->work, plan->policy, plan->quotas);
}

lrmoeResult_t lrmoePlaceRival(const struct lrmoePlanner *planner,
                              const struct lrmoeLoad *load,
                              struct lrmoePlan **plan) {
  const struct lrmoeRivalInput input = {
      .demand = load->demand,
      .use = load->use,
      .pairs = load->pairs,
      .quotas = load->quotas,
      .loads = load->past ? load->past : load->pairs,
      .hosts = planner->hosts,
      .previous = load->previous,
      .minReplicaPairs = planner->config.minReplicaPairs > 0
                             ? planner->config.minReplicaPairs
                             : 1,
      .pairNs = planner->config.pairNs > 0 ? planner->config.pairNs : 1,
      .replicaNs = planner->config.pairNs > 0 ? planner->config.materialiseNs +
                                                    planner->config.reduceNs
                                              : 0,
  };
  struct lrmoeLayout *layout = planner->layout;
  layout->input = &input;
  lrmoeRivalFill(layout, planner->config.policy);
  struct lrmoePlan *made = NULL;
  lrmoeResult_t result = lrmoeLayoutPlan(layout, &made);
  layout->input = NULL;
  LRMOE_CHECK(result);
  made->policy = planner->config.policy;
  made->boundForward =
      boundOf(planner->work, planner->config.policy, load->pairs);
  made->boundKept =
      boundOf(planner->work, planner->config.policy, load->quotas);
  for (int32_t e = 0; e < planner->numExperts; e++)
    made->homesMoved += made->homes[e] != planner->homes[e];
  *plan = made;
  return lrmoeSuccess;
}
