/* What a plan owes to the planner's config: quotas, slots, memory, limits.  See
 * verify.h. */
#include "tools/common/verify_rules.h"

#include <inttypes.h>
#include <stdlib.h>

int32_t toolHomeOf(const lrmoePlannerConfig_t *config, int numRanks,
                   int32_t e) {
  if (config->homes) return config->homes[e];
  return (int32_t)((int64_t)e * numRanks / config->numExperts);
}

static int64_t quotaOf(const lrmoePlannerConfig_t *config, int64_t pairs,
                       int64_t allPairs) {
  wide quota = pairs;
  wide parts = (wide)config->numExperts * 1000000;
  if (config->quota == lrmoeQuotaUniform)
    quota = ((wide)pairs * config->retainPpm + 999999) / 1000000;
  if (config->quota == lrmoeQuotaCapacity)
    quota = ((wide)allPairs * config->capacityPpm + parts - 1) / parts;
  return (int64_t)(quota < pairs ? quota : pairs);
}

/* Of retain largest and grid, and of overload, the amount is found by the
 * planner: at most what uniform gives, at least what minRetainPpm does. */
static enum toolExit checkQuotas(const lrmoePlanView_t *view,
                                 const lrmoePlannerConfig_t *config,
                                 struct toolError *error) {
  int isExact = config->retain == lrmoeRetainExact ||
                config->quota == lrmoeQuotaNone ||
                config->quota == lrmoeQuotaCapacity;
  for (int32_t e = 0; e < view->numExperts; e++) {
    lrmoePlannerConfig_t rule = *config;
    int64_t pairs = toolPairsOf(view, e);
    if (rule.quota == lrmoeQuotaOverload) rule.quota = lrmoeQuotaUniform;
    int64_t most = quotaOf(&rule, pairs, view->pairs);
    rule.retainPpm = config->minRetainPpm;
    int64_t least = isExact ? most : quotaOf(&rule, pairs, view->pairs);
    if (view->quotas[e] < least || view->quotas[e] > most)
      return WRONG("expert %d keeps %" PRId64 " of %" PRId64
                   " pairs, not %" PRId64 " to %" PRId64,
                   e, view->quotas[e], pairs, least, most);
  }
  return toolGood;
}

/* Of `uniform`, one rate gives all quotas: of each expert it lies above
 * (K - 1) / n and at most at K / n, in millionths. */
static enum toolExit checkOneRate(const lrmoePlanView_t *view,
                                  struct toolError *error) {
  int64_t above = -1, most = 1000000;
  for (int32_t e = 0; e < view->numExperts; e++) {
    wide pairs = toolPairsOf(view, e), quota = view->quotas[e];
    if (!pairs) continue;
    int64_t low = quota ? (int64_t)((quota - 1) * 1000000 / pairs) : -1;
    int64_t high = (int64_t)(quota * 1000000 / pairs);
    if (low > above) above = low;
    if (high < most) most = high;
  }
  if (above >= most)
    return WRONG("no one rate gives the quotas: above %" PRId64
                 " and at most %" PRId64 " ppm",
                 above, most);
  return toolGood;
}

/* What is counted of each rank. */
struct rankCounts {
  int64_t forward;
  int64_t kept;
  int64_t moves;
  int64_t replicas;
  int64_t instances;
  int64_t homes; /* by the config */
  int64_t own;   /* pairs of the rank's tokens */
  int64_t relayed;
};

static int64_t rowBytes(const lrmoePlannerConfig_t *config, int64_t hidden,
                        int64_t ffn) {
  return (hidden * config->hidden + ffn * config->ffn) * config->elementBytes;
}

/* Products and sums that an int64 has no room for are its largest value. */
static int64_t bytesOf(wide bytes) {
  return bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
}

/* What lrmoe.h says of one rank. */
static lrmoeRankMemory_t memoryOf(const lrmoePlannerConfig_t *config,
                                  const struct rankCounts *counts) {
  const wide forward = counts->forward, kept = counts->kept;
  int64_t width = config->activation == lrmoeSwiglu ? 2 : 1;
  int64_t params = (width + 1) * config->hidden * config->ffn;
  int isSaved = config->savedState == lrmoeSavedFull;
  int64_t weights =
      config->weightBytes ? config->weightBytes : params * config->elementBytes;
  int64_t grads = config->gradBytes ? config->gradBytes : params * 4;
  int64_t saved = bytesOf(forward * rowBytes(config, 1, width));
  lrmoeRankMemory_t memory = {
      .forwardBytes = bytesOf(forward * rowBytes(config, 1, 1)),
      .savedBytes = isSaved ? saved : 0,
      .replicaBytes = bytesOf((wide)counts->replicas * (weights + grads)),
      .backwardBytes =
          bytesOf(kept * rowBytes(config, isSaved ? 2 : 3,
                                  isSaved ? 2 + width : 2 + 2 * width)),
      .moveBytes =
          isSaved ? bytesOf((wide)counts->moves * rowBytes(config, 1, width))
                  : 0,
  };
  if (config->routerGrad == lrmoeRouterGradOwner)
    memory.routerBytes = bytesOf((wide)counts->own * rowBytes(config, 1, 0));
  if (config->routerGrad == lrmoeRouterGradExecutor && forward > kept)
    memory.routerBytes = bytesOf((forward - kept) * rowBytes(config, 1, 1));
  if (config->chargesRelays)
    memory.relayBytes = bytesOf((wide)counts->relayed * rowBytes(config, 2, 0));
  int isExecutor = config->routerGrad == lrmoeRouterGradExecutor;
  wide inForward = (wide)memory.forwardBytes + saved;
  wide inBackward =
      (wide)memory.savedBytes + memory.backwardBytes + memory.moveBytes;
  if (isExecutor) inBackward += memory.routerBytes;
  memory.peakBytes = bytesOf((inForward > inBackward ? inForward : inBackward) +
                             (isExecutor ? 0 : memory.routerBytes) +
                             memory.replicaBytes + memory.relayBytes);
  return memory;
}

static void countRanks(const lrmoePlanView_t *view,
                       const lrmoePlannerConfig_t *config,
                       struct rankCounts *counts) {
  for (int32_t e = 0; e < view->numExperts; e++) {
    int64_t pairs = toolPairsOf(view, e);
    counts[toolHomeOf(config, view->numRanks, e)].homes++;
    for (int32_t s = 0; s < view->numRanks && view->demand; s++)
      counts[s].own += view->demand[(int64_t)s * view->numExperts + e];
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      struct rankCounts *rank = &counts[view->instanceRanks[i]];
      int64_t stays = view->quotas[e] - (pairs - view->forwardPairs[i]);
      int64_t moves = view->keptPairs[i] - (stays > 0 ? stays : 0);
      rank->forward += view->forwardPairs[i];
      rank->kept += view->keptPairs[i];
      rank->moves += moves > 0 ? moves : 0;
      rank->replicas += view->instanceRanks[i] != view->homes[e];
      rank->instances++;
    }
  }
}

/* How many of the ranks below `rank` are of its node. */
static int32_t placeOf(const int32_t *nodes, int32_t rank) {
  int32_t place = 0;
  for (int32_t r = 0; r < rank; r++)
    place += nodes[r] == nodes[rank];
  return place;
}

static int standsIn(const lrmoePlanView_t *view, int32_t e,
                    const int32_t *nodes, int32_t node) {
  for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
       i++)
    if (nodes[view->instanceRanks[i]] == node) return 1;
  return 0;
}

/* Pairs of the ranks that g is the relay of, of experts of its node. */
static int64_t countRelayed(const lrmoePlanView_t *view, const int32_t *nodes,
                            int32_t g) {
  int32_t size = 0;
  int64_t pairs = 0;
  for (int32_t r = 0; r < view->numRanks; r++)
    size += nodes[r] == nodes[g];
  for (int32_t s = 0; s < view->numRanks; s++) {
    if (nodes[s] == nodes[g] || placeOf(nodes, s) % size != placeOf(nodes, g))
      continue;
    for (int32_t e = 0; e < view->numExperts; e++)
      if (standsIn(view, e, nodes, nodes[g]))
        pairs += view->demand[(int64_t)s * view->numExperts + e];
  }
  return pairs;
}

static enum toolExit checkSlots(const lrmoePlanView_t *view,
                                const lrmoePlannerConfig_t *config,
                                const struct rankCounts *counts,
                                struct toolError *error) {
  int32_t moved = 0;
  for (int32_t e = 0; e < view->numExperts; e++)
    moved += view->homes[e] != toolHomeOf(config, view->numRanks, e);
  if (moved != view->homesMoved)
    return WRONG("%d homes differ from the config and the view says %d", moved,
                 view->homesMoved);
  for (int32_t g = 0; g < view->numRanks; g++)
    if (counts[g].instances > counts[g].homes + config->slots)
      return WRONG("rank %d holds %" PRId64 " instances, at home %" PRId64
                   " and %d spare slots",
                   g, counts[g].instances, counts[g].homes, config->slots);
  return toolGood;
}

static int isPinned(const lrmoePlannerConfig_t *config, int32_t e,
                    int32_t rank) {
  for (int64_t i = 0; i < config->numPinned; i++)
    if (config->pinned[2 * i] == e && config->pinned[2 * i + 1] == rank)
      return 1;
  return 0;
}

/* Every instance away from home has work, unless it was asked for. */
static enum toolExit checkUse(const lrmoePlanView_t *view,
                              const lrmoePlannerConfig_t *config,
                              struct toolError *error) {
  for (int32_t e = 0; e < view->numExperts; e++)
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++)
      if (view->instanceRanks[i] != view->homes[e] && !view->forwardPairs[i] &&
          !view->keptPairs[i] && !isPinned(config, e, view->instanceRanks[i]))
        return WRONG("the replica of expert %d on rank %d has nothing to do", e,
                     view->instanceRanks[i]);
  return toolGood;
}

static enum toolExit checkMemory(const lrmoePlanView_t *view,
                                 const struct toolPlanOrigin *origin,
                                 const struct rankCounts *counts,
                                 struct toolError *error) {
  const lrmoePlannerConfig_t *config = origin->config;
  if (!config->hidden || !view->memory) return toolGood;
  for (int32_t g = 0; g < view->numRanks; g++) {
    const lrmoeRankMemory_t *got = &view->memory[g];
    struct rankCounts of = counts[g];
    /* What cannot be counted is believed: the rest of the sum is checked. */
    of.relayed = origin->nodes && view->demand
                     ? countRelayed(view, origin->nodes, g)
                     : got->relayBytes / rowBytes(config, 2, 0);
    lrmoeRankMemory_t expected = memoryOf(config, &of);
    if (got->forwardBytes != expected.forwardBytes ||
        got->savedBytes != expected.savedBytes ||
        got->replicaBytes != expected.replicaBytes ||
        got->backwardBytes != expected.backwardBytes ||
        got->moveBytes != expected.moveBytes ||
        got->routerBytes != expected.routerBytes ||
        got->relayBytes != expected.relayBytes ||
        got->peakBytes != expected.peakBytes)
      return WRONG("rank %d needs %" PRId64 " B by the formula and %" PRId64
                   " B by the plan, or their parts differ",
                   g, expected.peakBytes, got->peakBytes);
    if (config->memoryBytes && got->peakBytes > config->memoryBytes &&
        !(origin->isBestEffort && view->constraintSlack < 0))
      return WRONG("rank %d needs %" PRId64 " B of %" PRId64, g, got->peakBytes,
                   config->memoryBytes);
  }
  return toolGood;
}

static enum toolExit checkCounts(const lrmoePlanView_t *view,
                                 const struct toolPlanOrigin *origin,
                                 struct rankCounts *counts,
                                 struct toolError *error) {
  countRanks(view, origin->config, counts);
  HOLDS(checkSlots(view, origin->config, counts, error));
  HOLDS(checkUse(view, origin->config, error));
  return checkMemory(view, origin, counts, error);
}

enum toolExit toolPlanVerifyConfig(const lrmoePlanView_t *view,
                                   const struct toolPlanOrigin *origin,
                                   struct toolError *error) {
  const lrmoePlannerConfig_t *config = origin->config;
  if (view->numExperts != config->numExperts || view->policy != config->policy)
    return WRONG("the plan has %d experts and policy %d, not %d and %d",
                 view->numExperts, (int)view->policy, config->numExperts,
                 (int)config->policy);
  HOLDS(checkQuotas(view, config, error));
  if (config->quota == lrmoeQuotaUniform) HOLDS(checkOneRate(view, error));
  int isOver = config->maxPairs && view->peakForward > config->maxPairs;
  if (isOver && !(origin->isBestEffort && view->constraintSlack < 0))
    return WRONG("a rank executes %" PRId64 " pairs of %" PRId64,
                 view->peakForward, config->maxPairs);
  struct rankCounts *counts = calloc((size_t)view->numRanks, sizeof *counts);
  if (!counts) return WRONG("no memory to check the plan");
  enum toolExit code = checkCounts(view, origin, counts, error);
  free(counts);
  return code;
}
