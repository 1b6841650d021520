/* The planner: see planner.h.  Algorithm 1 of the paper: the full forward must fit the capacity of every rank, quotas follow from
 * demand, and what does not fit is refused, by name and number.
 *
 * Departure from the paper: its planner may lower retention until backward
 * fits.  Here retention is what the caller asked for; a rank's kept pairs are
 * never more than its forward pairs, which fit. */
#include "planner/planner.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/hash.h"
#include "planner/rivals/modes.h"
#include "topo/topology.h"

#include <string.h>

enum {
  maxCapacityPpm = 1000000000 /* a factor of 1000 */
};

static lrmoeResult_t checkNumbers(const lrmoePlannerConfig_t *config) {
  LRMOE_REQUIRE(config->numExperts >= 1 &&
                    config->numExperts <= lrmoeMaxExperts,
                "planner config: numExperts is %d, not 1..%d",
                config->numExperts, lrmoeMaxExperts);
  LRMOE_REQUIRE(config->retainPpm >= 0 && config->retainPpm <= 1000000,
                "planner config: retainPpm is %lld, not 0..1000000",
                (long long)config->retainPpm);
  LRMOE_REQUIRE(config->maxPairs >= 0, "planner config: maxPairs is %lld",
                (long long)config->maxPairs);
  LRMOE_REQUIRE(config->minReplicaPairs >= 0,
                "planner config: minReplicaPairs is %lld",
                (long long)config->minReplicaPairs);
  LRMOE_REQUIRE(config->pairNs >= 0 && config->materialiseNs >= 0 &&
                    config->reduceNs >= 0 &&
                    config->materialiseNs <= INT64_MAX - config->reduceNs,
                "planner config: costs are %lld, %lld and %lld ns",
                (long long)config->pairNs, (long long)config->materialiseNs,
                (long long)config->reduceNs);
  return lrmoeSuccess;
}

static int changesDemand(lrmoePolicy_t policy) {
  return policy == lrmoePolicyBalanced || policy == lrmoePolicyLocal;
}

static int hasReplicas(lrmoePolicy_t policy) {
  return lrmoePlanHasChoice(policy) && policy != lrmoePolicyPermute;
}

static lrmoeResult_t checkRules(const lrmoePlannerConfig_t *config) {
  LRMOE_REQUIRE(config->policy >= lrmoePolicyFixed &&
                    config->policy <= lrmoePolicyLocal,
                "planner config: policy %d is unknown", (int)config->policy);
  LRMOE_REQUIRE(config->quota >= lrmoeQuotaNone &&
                    config->quota <= lrmoeQuotaCapacity,
                "planner config: quota %d is unknown", (int)config->quota);
  LRMOE_REQUIRE(config->capacityPpm >= 0 &&
                    config->capacityPpm <= maxCapacityPpm,
                "planner config: capacityPpm is %lld, not 0..%d",
                (long long)config->capacityPpm, maxCapacityPpm);
  LRMOE_REQUIRE(config->slots >= 0 && config->slots <= lrmoeMaxSlots,
                "planner config: slots is %d, not 0..%d", config->slots,
                lrmoeMaxSlots);
  LRMOE_REQUIRE(config->slots == 0 || hasReplicas(config->policy),
                "planner config: slots is %d; policy %s has no replicas",
                config->slots, lrmoePolicyName(config->policy));
  return lrmoeSuccess;
}

static lrmoeResult_t readConfig(const lrmoePlannerConfig_t *given,
                                lrmoePlannerConfig_t *known) {
  LRMOE_CHECK(lrmoeConfigRead("planner config", given, sizeof *known, known));
  LRMOE_CHECK(checkNumbers(known));
  return checkRules(known);
}

static lrmoeResult_t fillHomes(struct lrmoePlanner *planner,
                               const int32_t *homes) {
  int32_t numRanks = planner->numRanks, numExperts = planner->numExperts;
  for (int32_t e = 0; e < numExperts; e++) {
    int32_t home =
        homes ? homes[e] : (int32_t)((int64_t)e * numRanks / numExperts);
    LRMOE_REQUIRE(home >= 0 && home < numRanks,
                  "planner config: home of expert %d is rank %d of %d", e, home,
                  numRanks);
    planner->homes[e] = home;
  }
  return lrmoeSuccess;
}

static uint64_t hashPlanner(const struct lrmoePlanner *planner) {
  const int64_t scalars[] = {
      planner->retainPpm,  planner->maxPairs,    planner->numRanks,
      planner->numExperts, planner->policy,      planner->quota,
      planner->slots,      planner->capacityPpm, planner->minReplicaPairs,
      planner->pairNs,     planner->replicaNs};
  return lrmoeHash(lrmoeHash(0, scalars, sizeof scalars), planner->homes,
                   (size_t)planner->numExperts * sizeof *planner->homes);
}

static lrmoeResult_t fillPlanner(struct lrmoePlanner *planner, int numRanks,
                                 const lrmoePlannerConfig_t *config) {
  planner->retainPpm = config->retainPpm;
  planner->maxPairs = config->maxPairs;
  planner->numRanks = numRanks;
  planner->numExperts = config->numExperts;
  planner->policy = config->policy;
  planner->quota = config->quota;
  planner->slots = config->slots;
  planner->minReplicaPairs = config->minReplicaPairs;
  planner->pairNs = config->pairNs;
  planner->replicaNs = config->materialiseNs + config->reduceNs;
  planner->capacityPpm = config->capacityPpm;
  LRMOE_CHECK(LRMOE_ALLOCATE(config->numExperts, &planner->homes));
  LRMOE_CHECK(fillHomes(planner, config->homes));
  LRMOE_CHECK(lrmoeWorkCreate(numRanks, config->numExperts, config->slots,
                              planner->homes, &planner->work));
  LRMOE_CHECK(LRMOE_ALLOCATE(numRanks, &planner->hosts));
  if (lrmoeRivalHas(config->policy))
    LRMOE_CHECK(lrmoeLayoutCreate(numRanks, config->numExperts, config->slots,
                                  planner->homes, &planner->layout));
  if (changesDemand(config->policy))
    LRMOE_CHECK(LRMOE_ALLOCATE((int64_t)numRanks * config->numExperts,
                               &planner->changedDemand));
  planner->hash = hashPlanner(planner);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePlannerCreate(lrmoeTopology_t topology,
                                 const lrmoePlannerConfig_t *config,
                                 lrmoePlanner_t *planner) {
  LRMOE_REQUIRE(topology && planner, "%s is NULL",
                topology ? "planner" : "topology");
  LRMOE_REQUIRE(topology->numRanks <= lrmoeMaxRanks,
                "topology has %d ranks, a plan at most %d", topology->numRanks,
                lrmoeMaxRanks);
  lrmoePlannerConfig_t known = LRMOE_PLANNER_CONFIG_INITIALIZER;
  LRMOE_CHECK(readConfig(config, &known));

  struct lrmoePlanner *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  lrmoeResult_t result = fillPlanner(made, topology->numRanks, &known);
  if (result == lrmoeSuccess)
    *planner = made;
  else
    lrmoePlannerDestroy(made);
  return result;
}

lrmoeResult_t lrmoePlannerDestroy(lrmoePlanner_t planner) {
  if (!planner) return lrmoeSuccess;
  lrmoeWorkDestroy(planner->work);
  lrmoeLayoutDestroy(planner->layout);
  lrmoeFree(planner->changedDemand);
  lrmoeFree(planner->hosts);
  lrmoeFree(planner->homes);
  lrmoeFree(planner);
  return lrmoeSuccess;
}

/* n[e], with every sum known to fit an int64. */
static lrmoeResult_t sumDemand(const struct lrmoePlanner *planner,
                               const int64_t *demand, int64_t *pairs) {
  int64_t left = INT64_MAX;
  memset(pairs, 0, (size_t)planner->numExperts * sizeof *pairs);
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
      pairs[e] += count;
    }
  return lrmoeSuccess;
}

/* Names the rank that is furthest over, which says how much room is enough. */
static lrmoeResult_t checkCapacity(const struct lrmoePlanner *planner,
                                   const struct lrmoePlan *plan) {
  if (!planner->maxPairs || plan->peakForward <= planner->maxPairs)
    return lrmoeSuccess;
  int32_t rank = 0;
  while (plan->rankForward[rank] != plan->peakForward)
    rank++;
  return LRMOE_FAIL(lrmoeInfeasible,
                    "forward does not fit: rank %d would execute %lld pairs "
                    "and maxPairs is %lld, %lld too many",
                    rank, (long long)plan->peakForward,
                    (long long)planner->maxPairs,
                    (long long)(plan->peakForward - planner->maxPairs));
}

/* What the plan is for: `demand`, or what the policy makes of it. */
static const int64_t *changeDemand(const struct lrmoePlanner *planner,
                                   const int64_t *demand) {
  const struct lrmoeModeShape shape = {planner->homes, planner->numRanks,
                                       planner->numExperts};
  if (!changesDemand(planner->policy)) return demand;
  if (planner->policy == lrmoePolicyBalanced)
    lrmoeModeBalanced(&shape, demand, planner->changedDemand);
  else
    lrmoeModeLocal(&shape, demand, planner->changedDemand);
  return planner->changedDemand;
}

static lrmoeResult_t place(const struct lrmoePlanner *planner,
                           const struct lrmoeLoad *load,
                           struct lrmoePlan **plan) {
  if (planner->policy == lrmoePolicyLrmoe)
    return lrmoePlaceReplicas(planner, load, plan);
  if (lrmoeRivalHas(planner->policy))
    return lrmoePlaceRival(planner, load, plan);
  return lrmoePlaceFixed(planner, load, plan);
}

static lrmoeResult_t makePlan(const struct lrmoePlanner *planner,
                              const int64_t *given,
                              const lrmoePlanInput_t *input,
                              struct lrmoePlan **plan) {
  int64_t *pairs = planner->work->pairs, *quotas = planner->work->quotas;
  LRMOE_CHECK(sumDemand(planner, given, pairs));
  const int64_t *demand = changeDemand(planner, given);
  LRMOE_CHECK(sumDemand(planner, demand, pairs));
  lrmoeQuotaFill(planner, pairs, quotas);
  const struct lrmoeLoad load = {demand, pairs, quotas, input->loads,
                                 input->previous};
  struct lrmoePlan *made = NULL;
  LRMOE_CHECK(place(planner, &load, &made));
  lrmoeResult_t result;
  LRMOE_CHECK_GOTO(lrmoePlanVerify(made), result, fail);
  lrmoePlanFinish(made);
  LRMOE_CHECK_GOTO(checkCapacity(planner, made), result, fail);
  *plan = made;
  return lrmoeSuccess;

fail:
  lrmoePlanDestroy(made);
  return result;
}

/* Sums of the loads fit an int64, and the previous plan is of one kind with
 * the new one. */
static lrmoeResult_t checkInput(const struct lrmoePlanner *planner,
                                const lrmoePlanInput_t *input) {
  const struct lrmoePlan *previous = input->previous;
  int64_t left = INT64_MAX;
  LRMOE_REQUIRE(!previous || (previous->numRanks == planner->numRanks &&
                              previous->numExperts == planner->numExperts),
                "the previous plan is for %d ranks and %d experts, not %d and "
                "%d",
                previous->numRanks, previous->numExperts, planner->numRanks,
                planner->numExperts);
  for (int32_t e = 0; input->loads && e < planner->numExperts; e++) {
    LRMOE_REQUIRE(input->loads[e] >= 0 && input->loads[e] <= left,
                  "load of expert %d is %lld, or all are more than 2^63 - 1", e,
                  (long long)input->loads[e]);
    left -= input->loads[e];
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePlanMakeWith(lrmoePlanner_t planner, const int64_t *demand,
                                const lrmoePlanInput_t *input,
                                lrmoePlan_t *plan) {
  lrmoePlanInput_t known = LRMOE_PLAN_INPUT_INITIALIZER;
  LRMOE_REQUIRE(planner && demand && plan, "%s is NULL",
                !planner  ? "planner"
                : !demand ? "demand"
                          : "plan");
  if (input)
    LRMOE_CHECK(
        lrmoeConfigRead("lrmoePlanInput_t", input, sizeof known, &known));
  LRMOE_CHECK(checkInput(planner, &known));
  return makePlan(planner, demand, &known, plan);
}

lrmoeResult_t lrmoePlanMake(lrmoePlanner_t planner, const int64_t *demand,
                            lrmoePlan_t *plan) {
  return lrmoePlanMakeWith(planner, demand, NULL, plan);
}
