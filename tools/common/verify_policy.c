/* What each policy promises, from its sentence in lrmoe.h and the published
 * description, not from its code: see verify.h. */
#include "tools/common/verify_rules.h"

#include <inttypes.h>
#include <string.h>

static int hasFixedHomes(lrmoePolicy_t policy) {
  return policy != lrmoePolicyProportional && policy != lrmoePolicyEplb &&
         policy != lrmoePolicyPermute && policy != lrmoePolicyRelayout;
}

static int changesForward(lrmoePolicy_t policy) {
  return policy == lrmoePolicyBalanced || policy == lrmoePolicyLocal;
}

static int hasReplicas(lrmoePolicy_t policy) {
  return policy != lrmoePolicyFixed && policy != lrmoePolicyPermute &&
         !changesForward(policy);
}

/* Pairs of expert e at home and away from it, in forward. */
static int64_t pairsAt(const lrmoePlanView_t *view, int32_t e, int32_t rank) {
  for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
       i++)
    if (view->instanceRanks[i] == rank) return view->forwardPairs[i];
  return 0;
}

static int32_t countOf(const lrmoePlanView_t *view, int32_t e) {
  return view->instanceOffsets[e + 1] - view->instanceOffsets[e];
}

/* flex: instances differ by one pair at most; those that got none are gone. */
static enum toolExit checkEven(const lrmoePlanView_t *view,
                               struct toolError *error) {
  for (int32_t e = 0; e < view->numExperts; e++) {
    int64_t least = INT64_MAX, most = 0;
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      if (view->forwardPairs[i] < least) least = view->forwardPairs[i];
      if (view->forwardPairs[i] > most) most = view->forwardPairs[i];
    }
    if (most - least > 1)
      return WRONG("expert %d has from %" PRId64 " to %" PRId64
                   " pairs on its instances, which share evenly",
                   e, least, most);
  }
  return toolGood;
}

/* shadow: pairs of an expert with replicas stay where their tokens are. */
static enum toolExit checkShadows(const lrmoePlanView_t *view,
                                  struct toolError *error) {
  for (int32_t e = 0; e < view->numExperts; e++)
    for (int32_t g = 0; g < view->numRanks && countOf(view, e) > 1; g++) {
      int64_t own = view->demand[(int64_t)g * view->numExperts + e];
      if (pairsAt(view, e, g) != own)
        return WRONG("rank %d runs %" PRId64 " pairs of shadowed expert %d and "
                     "has %" PRId64,
                     g, pairsAt(view, e, g), e, own);
    }
  return toolGood;
}

/* quota, topo: no replica below minReplicaPairs, and a pair left at home; no
 * rank is both relieved and given to, and none is worse off than fixed. */
static enum toolExit checkExcess(const lrmoePlanView_t *view,
                                 const lrmoePlannerConfig_t *config,
                                 struct toolError *error) {
  int64_t least = config->minReplicaPairs > 1 ? config->minReplicaPairs : 1;
  for (int32_t e = 0; e < view->numExperts; e++) {
    if (countOf(view, e) > 1 && pairsAt(view, e, view->homes[e]) < 1)
      return WRONG("expert %d has replicas and nothing at home", e);
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++)
      if (view->instanceRanks[i] != view->homes[e] &&
          view->forwardPairs[i] < least)
        return WRONG("the replica of expert %d on rank %d has %" PRId64
                     " pairs, fewer than %" PRId64,
                     e, view->instanceRanks[i], view->forwardPairs[i], least);
  }
  return toolGood;
}

/* permute: as many experts on a rank as have their home there. */
static enum toolExit checkPermutation(const lrmoePlanView_t *view,
                                      const lrmoePlannerConfig_t *config,
                                      struct toolError *error) {
  for (int32_t g = 0; g < view->numRanks; g++) {
    int32_t now = 0, before = 0;
    for (int32_t e = 0; e < view->numExperts; e++) {
      now += view->homes[e] == g;
      before += toolHomeOf(config, view->numRanks, e) == g;
    }
    if (now != before)
      return WRONG("rank %d had %d experts and has %d", g, before, now);
  }
  return toolGood;
}

/* balanced: experts differ by one pair at most, sources keep all of theirs. */
static enum toolExit checkBalanced(const lrmoePlanView_t *view,
                                   struct toolError *error) {
  int64_t each = view->pairs / view->numExperts;
  for (int32_t e = 0; e < view->numExperts; e++) {
    int64_t pairs = toolPairsOf(view, e);
    if (pairs < each || pairs > each + 1)
      return WRONG("expert %d has %" PRId64 " pairs of a mean of %" PRId64, e,
                   pairs, each);
  }
  return toolGood;
}

static enum toolExit checkLocal(const lrmoePlanView_t *view,
                                struct toolError *error) {
  for (int32_t s = 0; s < view->numRanks; s++)
    for (int32_t e = 0; e < view->numExperts; e++)
      if (view->homes[e] != s &&
          view->demand[(int64_t)s * view->numExperts + e])
        return WRONG("rank %d sends pairs to expert %d, which is not at home "
                     "there",
                     s, e);
  return toolGood;
}

/* Sources have as many pairs as they were given, or none where no expert is
 * at home and pairs must stay. */
static enum toolExit checkSources(const lrmoePlanView_t *view,
                                  const struct toolPlanOrigin *origin,
                                  struct toolError *error) {
  for (int64_t s = 0; s < view->numRanks && origin->demand; s++) {
    int64_t given = 0, has = 0;
    int32_t numHomes = 0;
    for (int32_t e = 0; e < view->numExperts; e++) {
      given += origin->demand[s * view->numExperts + e];
      has += view->demand[s * view->numExperts + e];
      numHomes += view->homes[e] == s;
    }
    if (view->policy == lrmoePolicyLocal && !numHomes) given = 0;
    if (given != has)
      return WRONG("rank %d has %" PRId64 " pairs and was given %" PRId64,
                   (int)s, has, given);
  }
  return toolGood;
}

/* The rules of policy lrmoe's knobs that can be told from a plan. */
static enum toolExit checkKnobs(const lrmoePlanView_t *view,
                                const lrmoePlannerConfig_t *config,
                                struct toolError *error) {
  if (config->maxReplicas && view->numReplicas > config->maxReplicas)
    return WRONG("%" PRId64 " replicas and at most %" PRId64 " may be",
                 view->numReplicas, config->maxReplicas);
  for (int32_t p = 0; p < config->numPinned; p++) {
    const int32_t *pin = config->pinned + 2 * (int64_t)p;
    int32_t e = pin[0], rank = pin[1];
    int found = 0;
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++)
      found |= view->instanceRanks[i] == rank;
    if (!found)
      return WRONG("expert %d is pinned to rank %d and not there", e, rank);
  }
  return toolGood;
}

static enum toolExit checkOwnRule(const lrmoePlanView_t *view,
                                  const struct toolPlanOrigin *origin,
                                  struct toolError *error) {
  switch (view->policy) {
  case lrmoePolicyLrmoe:
    return checkKnobs(view, origin->config, error);
  case lrmoePolicyFlex:
    return checkEven(view, error);
  case lrmoePolicyShadow:
    return checkShadows(view, error);
  case lrmoePolicyQuota:
  case lrmoePolicyTopo:
    return checkExcess(view, origin->config, error);
  case lrmoePolicyPermute:
    return checkPermutation(view, origin->config, error);
  case lrmoePolicyBalanced:
    HOLDS(checkBalanced(view, error));
    return checkSources(view, origin, error);
  case lrmoePolicyLocal:
    HOLDS(checkLocal(view, error));
    return checkSources(view, origin, error);
  default:
    return toolGood;
  }
}

enum toolExit toolPlanVerifyPolicy(const lrmoePlanView_t *view,
                                   const struct toolPlanOrigin *origin,
                                   struct toolError *error) {
  if (hasFixedHomes(view->policy) && view->homesMoved)
    return WRONG("policy %d keeps homes and %d have moved", (int)view->policy,
                 view->homesMoved);
  if (!hasReplicas(view->policy) && view->numReplicas)
    return WRONG("policy %d has no replicas and %" PRId64 " stand",
                 (int)view->policy, view->numReplicas);
  if (view->changesForward != changesForward(view->policy))
    return WRONG("policy %d and changesForward %d", (int)view->policy,
                 view->changesForward);
  return checkOwnRule(view, origin, error);
}
