/* The planner's config: read by prefix, every field within its range, and what
 * does not go together refused by name, so that nothing behind it checks
 * again.  The ranges keep sums of bytes and of costs inside an int64. */
#include "base/config.h"

#include "base/hash.h"
#include "planner/planner.h"

enum {
  million = 1000000,
  maxFactorPpm = 1000 * million,
  maxWidth = 1 << 24, /* of H and F */
  maxPinned = 1 << 14 /* each is compared with all others */
};

static const int64_t maxBytes = (int64_t)1 << 46; /* of a rank */
static const int64_t maxNs = (int64_t)1 << 50;

static lrmoeResult_t inRange(const char *name, int64_t value, int64_t least,
                             int64_t most) {
  LRMOE_REQUIRE(value >= least && value <= most,
                "planner config: %s is %lld, not %lld..%lld", name,
                (long long)value, (long long)least, (long long)most);
  return lrmoeSuccess;
}

#define IN_RANGE(config, field, least, most) \
  LRMOE_CHECK(inRange(#field, (config)->field, least, most))

static lrmoeResult_t checkNumbers(const lrmoePlannerConfig_t *config) {
  IN_RANGE(config, numExperts, 1, lrmoeMaxExperts);
  IN_RANGE(config, retainPpm, 0, million);
  IN_RANGE(config, minRetainPpm, 0, config->retainPpm);
  IN_RANGE(config, capacityPpm, 0, maxFactorPpm);
  LRMOE_REQUIRE(config->maxPairs >= 0, "planner config: maxPairs is %lld",
                (long long)config->maxPairs);
  IN_RANGE(config, slots, 0, lrmoeMaxSlots);
  IN_RANGE(config, tolerancePpm, 0, maxFactorPpm);
  IN_RANGE(config, minReplicaPairs, 0, INT64_MAX);
  IN_RANGE(config, maxReplicas, 0, INT64_MAX);
  IN_RANGE(config, balancedPpm, 0, maxFactorPpm);
  IN_RANGE(config, hysteresisPpm, 0, million);
  IN_RANGE(config, materialiseNs, 0, maxNs);
  IN_RANGE(config, reduceNs, 0, maxNs);
  IN_RANGE(config, pairNs, 0, maxNs);
  return lrmoeSuccess;
}

static lrmoeResult_t checkModel(const lrmoePlannerConfig_t *config) {
  IN_RANGE(config, hidden, 0, maxWidth);
  IN_RANGE(config, ffn, config->hidden ? 1 : 0, maxWidth);
  IN_RANGE(config, memoryBytes, 0, maxBytes);
  IN_RANGE(config, weightBytes, 0, maxBytes);
  IN_RANGE(config, gradBytes, 0, maxBytes);
  IN_RANGE(config, windowNs, 0, maxNs);
  IN_RANGE(config, windowWork, 0, INT64_MAX);
  LRMOE_REQUIRE(config->elementBytes == 2 || config->elementBytes == 4,
                "planner config: elementBytes is %d, not 2 or 4",
                config->elementBytes);
  IN_RANGE(config, activation, lrmoeSwiglu, lrmoeGelu);
  IN_RANGE(config, routerGrad, lrmoeRouterGradKept, lrmoeRouterGradExecutor);
  IN_RANGE(config, savedState, lrmoeSavedFull, lrmoeSavedNone);
  IN_RANGE(config, chargesRelays, 0, 1);
  LRMOE_REQUIRE(config->hidden || (!config->memoryBytes && !config->windowNs),
                "planner config: %s needs hidden and ffn",
                config->memoryBytes ? "memoryBytes" : "windowNs");
  LRMOE_REQUIRE(config->routerGrad != lrmoeRouterGradExecutor ||
                    config->savedState == lrmoeSavedFull,
                "planner config: routerGrad executor needs savedState full");
  return lrmoeSuccess;
}

int lrmoePolicyChangesDemand(lrmoePolicy_t policy) {
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
  LRMOE_REQUIRE(config->retain >= lrmoeRetainExact &&
                    config->retain <= lrmoeRetainGrid,
                "planner config: retain %d is unknown", (int)config->retain);
  LRMOE_REQUIRE(config->slots == 0 || hasReplicas(config->policy),
                "planner config: slots is %d; policy %s has no replicas",
                config->slots, lrmoePolicyName(config->policy));
  LRMOE_REQUIRE(config->retain == lrmoeRetainExact ||
                    config->quota == lrmoeQuotaUniform ||
                    config->quota == lrmoeQuotaOverload,
                "planner config: quota %s leaves no retention to find",
                config->quota == lrmoeQuotaNone ? "none" : "capacity");
  return lrmoeSuccess;
}

/* Knobs of policy lrmoe that another policy would leave unread. */
static lrmoeResult_t refuseKnobs(const lrmoePlannerConfig_t *config) {
  const struct {
    const char *name;
    int64_t value;
  } knobs[] = {{"tolerancePpm", config->tolerancePpm},
               {"maxReplicas", config->maxReplicas},
               {"balancedPpm", config->balancedPpm},
               {"hysteresisPpm", config->hysteresisPpm}};
  if (config->policy == lrmoePolicyLrmoe) return lrmoeSuccess;
  for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++)
    LRMOE_REQUIRE(!knobs[i].value,
                  "planner config: %s is a knob of policy lrmoe, not of %s",
                  knobs[i].name, lrmoePolicyName(config->policy));
  return lrmoeSuccess;
}

static int isPlaced(const lrmoePlannerConfig_t *config, int64_t pin) {
  const int32_t *pins = config->pinned;
  for (int64_t i = 0; i < pin; i++)
    if (pins[2 * i] == pins[2 * pin] && pins[2 * i + 1] == pins[2 * pin + 1])
      return 1;
  return 0;
}

static lrmoeResult_t checkPins(const lrmoePlannerConfig_t *config,
                               int32_t numRanks) {
  IN_RANGE(config, numPinned, 0, maxPinned);
  LRMOE_REQUIRE(!config->numPinned || config->pinned,
                "planner config: numPinned is %d and pinned is NULL",
                config->numPinned);
  LRMOE_REQUIRE(!config->numPinned || config->policy == lrmoePolicyLrmoe,
                "planner config: policy %s does not know pinned replicas",
                lrmoePolicyName(config->policy));
  for (int64_t i = 0; i < config->numPinned; i++) {
    int32_t e = config->pinned[2 * i], rank = config->pinned[2 * i + 1];
    LRMOE_REQUIRE(e >= 0 && e < config->numExperts && rank >= 0 &&
                      rank < numRanks,
                  "planner config: pinned replica %lld is expert %d on rank %d",
                  (long long)i, e, rank);
    LRMOE_REQUIRE(rank != lrmoeHomeOf(config, e, numRanks),
                  "planner config: pinned replica %lld of expert %d is at its "
                  "home, rank %d",
                  (long long)i, e, rank);
    int32_t onRank = 0;
    for (int64_t k = 0; k <= i; k++)
      onRank += config->pinned[2 * k + 1] == rank;
    LRMOE_REQUIRE(onRank <= config->slots,
                  "planner config: more than %d replicas are pinned to rank %d",
                  config->slots, rank);
    LRMOE_REQUIRE(!isPlaced(config, i),
                  "planner config: expert %d is pinned to rank %d twice", e,
                  rank);
  }
  LRMOE_REQUIRE(
      !config->maxReplicas || config->numPinned <= config->maxReplicas,
      "planner config: %d replicas are pinned and maxReplicas is %lld",
      config->numPinned, (long long)config->maxReplicas);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePlannerConfigRead(const lrmoePlannerConfig_t *given,
                                     int32_t numRanks,
                                     lrmoePlannerConfig_t *known) {
  LRMOE_CHECK(lrmoeConfigRead("planner config", given, sizeof *known, known));
  LRMOE_CHECK(checkNumbers(known));
  LRMOE_CHECK(checkModel(known));
  LRMOE_CHECK(checkRules(known));
  LRMOE_CHECK(refuseKnobs(known));
  return checkPins(known, numRanks);
}

uint64_t lrmoePlannerConfigHash(const lrmoePlannerConfig_t *config) {
  const int64_t scalars[] = {
      config->retainPpm,       config->maxPairs,      config->numExperts,
      config->policy,          config->quota,         config->slots,
      config->hidden,          config->ffn,           config->memoryBytes,
      config->weightBytes,     config->gradBytes,     config->windowNs,
      config->minRetainPpm,    config->capacityPpm,   config->tolerancePpm,
      config->minReplicaPairs, config->maxReplicas,   config->balancedPpm,
      config->hysteresisPpm,   config->materialiseNs, config->reduceNs,
      config->pairNs,          config->numPinned,     config->elementBytes,
      config->retain,          config->activation,    config->routerGrad,
      config->savedState,      config->windowWork,    config->chargesRelays};
  return lrmoeHash(lrmoeHash(0, scalars, sizeof scalars), config->pinned,
                   2 * (size_t)config->numPinned * sizeof(int32_t));
}
