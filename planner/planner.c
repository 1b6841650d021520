/* The planner: see planner.h.  Algorithm 1 of the paper: the full forward must
 * fit the capacity of every rank, quotas follow from demand, and what does not
 * fit is refused, by name and number.
 *
 * Quotas begin at the retention asked for; where a limit is then broken and
 * the config leaves the retention to the planner, retain.c lowers them. */
#include "planner/planner.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/hash.h"
#include "planner/model.h"
#include "planner/port.h"
#include "planner/retain.h"
#include "topo/topology.h"

#include <string.h>

static lrmoeResult_t fillHomes(struct lrmoePlanner *planner,
                               const lrmoePlannerConfig_t *config) {
  int32_t numRanks = planner->numRanks, numExperts = planner->numExperts;
  for (int32_t e = 0; e < numExperts; e++) {
    int32_t home = lrmoeHomeOf(config, e, numRanks);
    LRMOE_REQUIRE(home >= 0 && home < numRanks,
                  "planner config: home of expert %d is rank %d of %d", e, home,
                  numRanks);
    planner->homes[e] = home;
  }
  return lrmoeSuccess;
}

static uint64_t hashPlanner(const struct lrmoePlanner *planner) {
  const int64_t numRanks = planner->numRanks;
  uint64_t hash = lrmoePlannerConfigHash(&planner->config);
  hash = lrmoeHash(hash, planner->hosts,
                   (size_t)numRanks * sizeof *planner->hosts);
  hash = lrmoeHash(hash, planner->domains,
                   (size_t)numRanks * sizeof *planner->domains);
  hash = lrmoeHash(hash, &numRanks, sizeof numRanks);
  return lrmoeHash(hash, planner->homes,
                   (size_t)planner->numExperts * sizeof *planner->homes);
}

/* What the model needs: the topology, held for as long as the planner lives,
 * and room for the traffic of backward's two rounds. */
static lrmoeResult_t fillModel(struct lrmoePlanner *planner,
                               lrmoeTopology_t topology) {
  int64_t ranks = planner->numRanks;
  LRMOE_CHECK(LRMOE_ALLOCATE(ranks, &planner->hosts));
  LRMOE_CHECK(LRMOE_ALLOCATE(ranks, &planner->domains));
  for (int32_t g = 0; g < planner->numRanks; g++) {
    planner->hosts[g] = lrmoeTopologyHost(topology, g);
    planner->domains[g] = lrmoeTopologyDomain(topology, g);
  }
  if (!planner->config.hidden) return lrmoeSuccess;
  lrmoeTopologyHold(topology);
  planner->topology = topology;
  LRMOE_CHECK(LRMOE_ALLOCATE(lrmoeTopologyTrafficRoom(topology),
                             &planner->trafficRoom));
  return LRMOE_ALLOCATE(2 * ranks * ranks, &planner->traffic);
}

static lrmoeResult_t fillNodes(struct lrmoePlanner *planner) {
  LRMOE_CHECK(lrmoeNodesMake(planner->numRanks, planner->hosts,
                             planner->domains, &planner->nodes));
  return LRMOE_ALLOCATE(planner->numRanks + planner->nodes->numNodes,
                        &planner->passing);
}

static lrmoeResult_t fillPlanner(struct lrmoePlanner *planner,
                                 lrmoeTopology_t topology,
                                 const lrmoePlannerConfig_t *config) {
  int32_t numRanks = topology->numRanks;
  planner->config = *config;
  planner->config.homes = NULL;
  planner->config.pinned = NULL;
  planner->numRanks = numRanks;
  planner->numExperts = config->numExperts;
  LRMOE_CHECK(LRMOE_ALLOCATE(config->numExperts, &planner->homes));
  LRMOE_CHECK(fillHomes(planner, config));
  LRMOE_CHECK(lrmoeWorkCreate(numRanks, config->numExperts, config->slots,
                              planner->homes, &planner->work));
  LRMOE_CHECK(fillModel(planner, topology));
  if (topology->numHosts > 1) planner->work->hosts = planner->hosts;
  if (config->numPinned) {
    LRMOE_CHECK(
        LRMOE_ALLOCATE(2 * (int64_t)config->numPinned, &planner->pinned));
    memcpy(planner->pinned, config->pinned,
           2 * (size_t)config->numPinned * sizeof(int32_t));
    planner->config.pinned = planner->work->pinned = planner->pinned;
    planner->work->numPinned = config->numPinned;
  }
  if (config->chargesRelays) LRMOE_CHECK(fillNodes(planner));
  if (lrmoeRivalHas(config->policy))
    LRMOE_CHECK(lrmoeLayoutCreate(numRanks, config->numExperts, config->slots,
                                  planner->homes, &planner->layout));
  if (lrmoePolicyChangesDemand(config->policy))
    LRMOE_CHECK(LRMOE_ALLOCATE((int64_t)numRanks * config->numExperts,
                               &planner->changedDemand));
  if (config->memoryBytes || config->windowNs)
    LRMOE_CHECK(lrmoeRetainRoomCreate(planner, &planner->room));
  if (config->windowNs && config->windowWork &&
      (config->quota == lrmoeQuotaOverload ||
       (config->quota == lrmoeQuotaUniform && config->slots)) &&
      config->retain == lrmoeRetainLargest && numRanks <= lrmoeMaxPortRanks)
    LRMOE_CHECK(lrmoePortsCreate(planner, &planner->ports));
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
  LRMOE_CHECK(lrmoePlannerConfigRead(config, topology->numRanks, &known));

  struct lrmoePlanner *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  lrmoeResult_t result = fillPlanner(made, topology, &known);
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
  lrmoeRetainRoomDestroy(planner->room);
  lrmoePortsDestroy(planner->ports);
  lrmoeTopologyDestroy(planner->topology);
  lrmoeNodesFree(planner->nodes);
  lrmoeFree(planner->passing);
  lrmoeFree(planner->traffic);
  lrmoeFree(planner->trafficRoom);
  lrmoeFree(planner->pinned);
  lrmoeFree(planner->changedDemand);
  lrmoeFree(planner->hosts);
  lrmoeFree(planner->domains);
  lrmoeFree(planner->homes);
  lrmoeFree(planner);
  return lrmoeSuccess;
}

static lrmoeResult_t place(const struct lrmoePlanner *planner,
                           const struct lrmoeLoad *load,
                           struct lrmoePlan **plan) {
  if (planner->config.policy == lrmoePolicyLrmoe)
    return lrmoePlaceReplicas(planner, load, plan);
  if (lrmoeRivalHas(planner->config.policy))
    return lrmoePlaceRival(planner, load, plan);
  return lrmoePlaceFixed(planner, load, plan);
}

/* From shares to a plan that holds what it promises. */
static lrmoeResult_t finishPlan(const struct lrmoePlanner *planner,
                                int bestEffort, uint64_t demandHash,
                                struct lrmoePlan *plan) {
  LRMOE_CHECK(lrmoePlanVerifyShares(plan, planner->work->pairs));
  lrmoePlanSum(plan);
  LRMOE_CHECK(lrmoePlanMeasure(planner, plan));
  if (planner->room && planner->config.retain == lrmoeRetainLargest)
    plan->boundRetained = plan->kept;
  if (planner->room && plan->constraintSlack < 0) {
    LRMOE_CHECK(lrmoeRetainFit(planner, plan));
    LRMOE_CHECK(lrmoePlanVerifyShares(plan, planner->work->pairs));
    lrmoePlanSum(plan);
    LRMOE_CHECK(lrmoePlanMeasure(planner, plan));
  }
  if (!bestEffort) LRMOE_CHECK(lrmoePlanCheckLimits(planner, plan));
  lrmoePlanSeal(plan, demandHash);
  return lrmoeSuccess;
}

static lrmoeResult_t makePlan(const struct lrmoePlanner *planner,
                              const int64_t *given,
                              const lrmoePlanInput_t *input,
                              struct lrmoePlan **plan) {
  struct lrmoeLoad load = {.pairs = planner->work->pairs,
                           .quotas = planner->work->quotas,
                           .past = input->loads,
                           .previous = input->previous};
  uint64_t demandHash = 0;
  LRMOE_CHECK(lrmoeDemandRead(planner, given, input, &load, &demandHash));
  lrmoeQuotaFill(planner, load.pairs, planner->work->quotas);
  struct lrmoePlan *made = NULL;
  LRMOE_CHECK(place(planner, &load, &made));
  lrmoeResult_t result =
      finishPlan(planner, input->bestEffort, demandHash, made);
  if (result == lrmoeSuccess)
    *plan = made;
  else
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
  if (input)
    LRMOE_CHECK(
        lrmoeConfigRead("lrmoePlanInput_t", input, sizeof known, &known));
  LRMOE_REQUIRE(planner && (demand || known.totals) && plan, "%s is NULL",
                !planner ? "planner"
                : !plan  ? "plan"
                         : "demand");
  LRMOE_CHECK(checkInput(planner, &known));
  return makePlan(planner, demand, &known, plan);
}

lrmoeResult_t lrmoePlanMake(lrmoePlanner_t planner, const int64_t *demand,
                            lrmoePlan_t *plan) {
  return lrmoePlanMakeWith(planner, demand, NULL, plan);
}
