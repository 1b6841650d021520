/* What one rank can move to and from other hosts by itself: through all of its
 * ports at once, no edge beyond its rate. */
#include "base/alloc.h"
#include "topo/model.h"
#include "topo/path.h"

/* How often a walk through several ports visits each edge. */
struct visits {
  const struct lrmoeTopology *topology;
  int32_t *counts; /* [numEdges]; NULL: undo */
  int64_t bytesPerSecond;
  bool guessed;
};

static void countVisit(void *context, int32_t edge, int32_t parts,
                       bool isNear) {
  struct visits *visits = context;
  (void)parts;
  (void)isNear;
  visits->counts[edge]++;
}

/* An edge that carries `count` of `parts` parts bounds the whole. */
static void bound(void *context, int32_t edge, int32_t parts, bool isNear) {
  struct visits *visits = context;
  (void)isNear;
  if (!visits->counts[edge]) return; /* seen on this walk already */
  int64_t rate =
      lrmoeEdgeRate(visits->topology, edge) / visits->counts[edge] * parts;
  visits->counts[edge] = 0;
  if (rate < visits->bytesPerSecond) visits->bytesPerSecond = rate;
  visits->guessed = visits->guessed || lrmoeEdgeGuessed(visits->topology, edge);
}

static int64_t throughPorts(const struct lrmoeTopology *topology,
                            const struct lrmoePlace *place, bool isOut,
                            struct visits *visits) {
  struct lrmoeVisitor counter = {countVisit, visits};
  struct lrmoeVisitor bounder = {bound, visits};
  visits->bytesPerSecond = INT64_MAX;
  lrmoePortWalk(topology, place, isOut, &counter);
  lrmoePortWalk(topology, place, isOut, &bounder);
  return visits->bytesPerSecond;
}

lrmoeResult_t lrmoeModelReach(struct lrmoeTopology *topology) {
  struct visits visits = {.topology = topology};
  LRMOE_CHECK(LRMOE_ALLOCATE(topology->numRanks, &topology->reaches));
  LRMOE_CHECK(LRMOE_ALLOCATE(lrmoeNumEdges(topology), &visits.counts));
  for (int32_t rank = 0; rank < topology->numRanks; rank++) {
    const struct lrmoePlace *place = &topology->places[rank];
    struct lrmoeReach *reach = &topology->reaches[rank];
    if (!place->numPorts) continue;
    visits.guessed = false;
    reach->outBytesPerSecond = throughPorts(topology, place, true, &visits);
    reach->inBytesPerSecond = throughPorts(topology, place, false, &visits);
    reach->guessed = visits.guessed;
    for (int32_t i = 0; i < place->numPorts; i++) {
      int64_t stated = topology->machine.nodes[place->ports[i]].up.latencyNs;
      if (stated > reach->latencyNs) reach->latencyNs = stated;
    }
  }
  lrmoeFree(visits.counts);
  return lrmoeSuccess;
}
