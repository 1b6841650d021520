/* Shared resources: the edges that the traffic of two or more ranks goes
 * through, each with its ranks.
 *
 * Every rank walks the near side of its paths, then the far side: near edges
 * carry what it sends, far edges what it receives. */
#include "base/alloc.h"
#include "topo/model.h"
#include "topo/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct use {
  int32_t *stamps; /* [numEdges] last rank that was counted, plus one */
  int64_t *counts; /* [numEdges] ranks */
  int64_t *nexts;  /* [numEdges] where the next rank goes; NULL: count */
  int32_t *members;
  int32_t rank;
  bool isNear; /* which side is being walked */
};

static void take(void *context, int32_t edge, int32_t parts, bool isNear) {
  struct use *use = context;
  (void)parts;
  if (isNear != use->isNear || use->stamps[edge] == use->rank + 1) return;
  use->stamps[edge] = use->rank + 1;
  if (!use->nexts)
    use->counts[edge]++;
  else if (use->counts[edge] > 1)
    use->members[use->nexts[edge]++] = use->rank;
}

/* Other ranks that a rank's paths lead to: those of its host and, for all of
 * other hosts, its ports.  GPUs in a domain over several hosts use their wire
 * to the switch, which those of their host have shown. */
static void walkRank(const struct lrmoeTopology *topology, struct use *use,
                     const int32_t *neighbours, int32_t numNeighbours) {
  struct lrmoeVisitor visitor = {take, use};
  for (int side = 0; side < 2; side++) {
    use->isNear = side == 0;
    for (int32_t i = 0; i < numNeighbours; i++)
      if (use->isNear)
        lrmoePathWalk(topology, use->rank, neighbours[i], &visitor);
      else
        lrmoePathWalk(topology, neighbours[i], use->rank, &visitor);
    lrmoePortWalk(topology, &topology->places[use->rank], use->isNear,
                  &visitor);
  }
}

/* The first rank of each device, in the order of hosts, and where each host's
 * begin: ranks of one device share its paths. */
struct byHost {
  int32_t *ranks;
  int32_t *offsets; /* [numHosts + 1] */
};

static bool isFirst(const struct lrmoeTopology *topology, int32_t rank) {
  return topology->firstRanks[topology->places[rank].device] == rank;
}

static void sortByHost(const struct lrmoeTopology *topology,
                       struct byHost *hosts) {
  for (int32_t rank = 0; rank < topology->numRanks; rank++)
    hosts->offsets[topology->places[rank].host + 1] += isFirst(topology, rank);
  for (int32_t i = 0; i < topology->numHosts; i++)
    hosts->offsets[i + 1] += hosts->offsets[i];
  for (int32_t rank = 0; rank < topology->numRanks; rank++)
    if (isFirst(topology, rank))
      hosts->ranks[hosts->offsets[topology->places[rank].host]++] = rank;
  for (int32_t i = topology->numHosts; i > 0; i--)
    hosts->offsets[i] = hosts->offsets[i - 1];
  hosts->offsets[0] = 0;
}

static void walkAll(const struct lrmoeTopology *topology,
                    const struct byHost *hosts, struct use *use) {
  memset(use->stamps, 0, (size_t)lrmoeNumEdges(topology) * sizeof *use->stamps);
  for (use->rank = 0; use->rank < topology->numRanks; use->rank++) {
    int32_t host = topology->places[use->rank].host;
    int32_t first = hosts->offsets[host];
    walkRank(topology, use, hosts->ranks + first,
             hosts->offsets[host + 1] - first);
  }
}

static void nameResource(const struct lrmoeTopology *topology,
                         struct lrmoeResource *resource) {
  const struct lrmoeMachine *machine = &topology->machine;
  char first[lrmoeNameBytes], second[lrmoeNameBytes];
  if (resource->edge >= 2 * machine->numNodes) {
    const struct lrmoeWire *wire =
        &machine->wires[resource->edge - 2 * machine->numNodes];
    lrmoeNodePrint(&machine->nodes[wire->from], first);
    lrmoeNodePrint(&machine->nodes[wire->to], second);
    snprintf(resource->name, sizeof resource->name, "%.40s to %.40s", first,
             second);
    return;
  }
  const struct lrmoeNode *node = &machine->nodes[resource->edge / 2];
  bool isUp = resource->edge % 2 == 0;
  lrmoeNodePrint(node, first);
  const char *direction = node->kind == lrmoeNodePort ? (isUp ? "out" : "in")
                          : isUp                      ? "up"
                                                      : "down";
  snprintf(resource->name, sizeof resource->name, "%s %s", first, direction);
}

/* Resources in the order of their members, so that the order of nodes in the
 * source does not matter: first member, then number, then rate. */
static int compareResources(const void *left, const void *right) {
  const struct lrmoeResource *a = left, *b = right;
  if (a->order[0] != b->order[0]) return a->order[0] < b->order[0] ? -1 : 1;
  if (a->order[1] != b->order[1]) return a->order[1] < b->order[1] ? -1 : 1;
  if (a->order[2] != b->order[2]) return a->order[2] < b->order[2] ? -1 : 1;
  return (a->edge > b->edge) - (a->edge < b->edge);
}

static int32_t nodeOf(const struct lrmoeMachine *machine, int32_t edge) {
  return edge < 2 * machine->numNodes
             ? edge / 2
             : machine->wires[edge - 2 * machine->numNodes].from;
}

static lrmoeResult_t listResources(struct lrmoeTopology *topology,
                                   struct use *use) {
  int32_t numEdges = lrmoeNumEdges(topology), numShared = 0;
  int64_t numMembers = 0;
  for (int32_t i = 0; i < numEdges; i++) {
    use->nexts[i] = numMembers;
    if (use->counts[i] < 2) continue;
    numMembers += use->counts[i];
    numShared++;
  }
  LRMOE_CHECK(LRMOE_ALLOCATE(numShared, &topology->resources));
  LRMOE_CHECK(LRMOE_ALLOCATE(numMembers, &topology->members));
  for (int32_t i = 0; i < numEdges; i++) {
    if (use->counts[i] < 2) continue;
    struct lrmoeResource *resource =
        &topology->resources[topology->numResources++];
    resource->edge = i;
    resource->node = nodeOf(&topology->machine, i);
    resource->firstMember = use->nexts[i];
    resource->numMembers = use->counts[i];
    nameResource(topology, resource);
  }
  use->members = topology->members;
  return lrmoeSuccess;
}

static void sortResources(struct lrmoeTopology *topology) {
  for (int32_t i = 0; i < topology->numResources; i++) {
    struct lrmoeResource *resource = &topology->resources[i];
    resource->order[0] = topology->members[resource->firstMember];
    resource->order[1] = resource->numMembers;
    resource->order[2] = lrmoeEdgeRate(topology, resource->edge);
  }
  qsort(topology->resources, (size_t)topology->numResources,
        sizeof *topology->resources, compareResources);
}

static lrmoeResult_t collect(struct lrmoeTopology *topology, struct use *use,
                             struct byHost *hosts, int64_t *nexts) {
  sortByHost(topology, hosts);
  walkAll(topology, hosts, use);
  use->nexts = nexts;
  LRMOE_CHECK(listResources(topology, use));
  walkAll(topology, hosts, use);
  sortResources(topology);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeModelResources(struct lrmoeTopology *topology) {
  size_t numEdges = (size_t)lrmoeNumEdges(topology);
  struct use use = {0};
  struct byHost hosts = {0};
  int64_t *nexts = NULL;
  lrmoeResult_t result = lrmoeSuccess;
  LRMOE_CHECK_GOTO(LRMOE_ALLOCATE(numEdges, &use.stamps), result, done);
  LRMOE_CHECK_GOTO(LRMOE_ALLOCATE(numEdges, &use.counts), result, done);
  LRMOE_CHECK_GOTO(LRMOE_ALLOCATE(numEdges, &nexts), result, done);
  LRMOE_CHECK_GOTO(LRMOE_ALLOCATE(topology->numRanks, &hosts.ranks), result,
                   done);
  LRMOE_CHECK_GOTO(LRMOE_ALLOCATE(topology->numHosts + 1, &hosts.offsets),
                   result, done);
  result = collect(topology, &use, &hosts, nexts);
done:
  lrmoeFree(use.stamps);
  lrmoeFree(use.counts);
  lrmoeFree(nexts);
  lrmoeFree(hosts.ranks);
  lrmoeFree(hosts.offsets);
  return result;
}
