/* Nodes: see node.h. */
#include "collectives/node.h"

/* Hosts lie within domains, or domains within hosts. */
static int areNear(const struct lrmoePlanner *planner, int32_t a, int32_t b) {
  return planner->hosts[a] == planner->hosts[b] ||
         planner->domains[a] == planner->domains[b];
}

static void numberNodes(const struct lrmoePlanner *planner,
                        struct lrmoeNodes *nodes) {
  for (int32_t r = 0; r < planner->numRanks; r++) {
    int32_t near = 0;
    while (near < r && !areNear(planner, near, r))
      near++;
    nodes->of[r] = near < r ? nodes->of[near] : nodes->numNodes++;
  }
}

lrmoeResult_t lrmoeNodesMake(const struct lrmoePlanner *planner,
                             struct lrmoeNodes *nodes) {
  int64_t numRanks = planner->numRanks;
  struct lrmoeNodes made = {0};
  LRMOE_CHECK(LRMOE_ALLOCATE(4 * numRanks + 1, &made.of));
  made.places = made.of + numRanks;
  made.ranks = made.places + numRanks;
  made.firsts = made.ranks + numRanks;
  numberNodes(planner, &made);
  int32_t next = 0;
  for (int32_t n = 0; n < made.numNodes; n++) {
    made.firsts[n] = next;
    for (int32_t r = 0; r < planner->numRanks; r++) {
      if (made.of[r] != n) continue;
      made.places[r] = next - made.firsts[n];
      made.ranks[next++] = r;
    }
  }
  made.firsts[made.numNodes] = next;
  *nodes = made;
  return lrmoeSuccess;
}

void lrmoeNodesFree(struct lrmoeNodes *nodes) {
  lrmoeFree(nodes->of);
}

int32_t lrmoeNodeSize(const struct lrmoeNodes *nodes, int32_t node) {
  return nodes->firsts[node + 1] - nodes->firsts[node];
}

int32_t lrmoeNodeRelay(const struct lrmoeNodes *nodes, int32_t source,
                       int32_t node) {
  int32_t member = nodes->places[source] % lrmoeNodeSize(nodes, node);
  return nodes->ranks[nodes->firsts[node] + member];
}

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
