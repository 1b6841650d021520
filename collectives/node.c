/* Which ranks hand rows on: see node.h. */
#include "collectives/node.h"

int lrmoeNodeIsNear(const struct lrmoeStep *step, int32_t rank) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  return nodes->of[rank] == nodes->of[step->layer->comm->rank];
}

int lrmoeNodeIsRelay(const struct lrmoeStep *step, int32_t rank) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int32_t self = step->layer->comm->rank;
  return !lrmoeNodeIsNear(step, rank) &&
         lrmoeNodeRelay(nodes, self, nodes->of[rank]) == rank;
}

int lrmoeNodeIsRelayed(const struct lrmoeStep *step, int32_t rank) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int32_t self = step->layer->comm->rank;
  return !lrmoeNodeIsNear(step, rank) &&
         lrmoeNodeRelay(nodes, rank, nodes->of[self]) == self;
}

int lrmoeNodeIsUsed(const struct lrmoeLayer *layer, lrmoeWire_t wire) {
  return wire == lrmoeWireNode && layer->nodes->numNodes > 1;
}

lrmoeResult_t lrmoeNodeCheck(const struct lrmoeLayer *layer, lrmoeWire_t wire) {
  const lrmoePlannerConfig_t *planner = &layer->planner->config;
  if (!lrmoeNodeIsUsed(layer, wire)) return lrmoeSuccess;
  LRMOE_REQUIRE(!planner->memoryBytes || planner->chargesRelays,
                "wire node under the planner's memoryBytes, which leaves out "
                "what relays hold: set its chargesRelays");
  return lrmoeSuccess;
}

int lrmoeWireIsDedup(const struct lrmoeStep *step) {
  return step->config.wire == lrmoeWireDedup ||
         step->config.wire == lrmoeWireNode;
}

int64_t lrmoeNodeBytes(const struct lrmoeStep *step, const int64_t *offsets) {
  int64_t numRows = 0;
  for (int32_t d = 0; d < step->plan->numRanks; d++)
    if (!lrmoeNodeIsNear(step, d)) numRows += offsets[d + 1] - offsets[d];
  return numRows * step->layer->rowBytes;
}
