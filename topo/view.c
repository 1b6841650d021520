/* What programs see of a topology. */
#include "base/config.h"
#include "topo/path.h"

#include <string.h>

#define REQUIRE_BOTH(topology, what, view)          \
  LRMOE_REQUIRE((topology) && (view), "%s is NULL", \
                (topology) ? (what) : "topology")
#define REQUIRE_INDEX(index, count, what)                                \
  LRMOE_REQUIRE((index) >= 0 && (index) < (count), "%s %d, of %d", what, \
                index, count)

lrmoeResult_t lrmoeTopologyGetLink(lrmoeTopology_t topology, int from, int to,
                                   lrmoeLink_t *link) {
  REQUIRE_BOTH(topology, "link", link);
  LRMOE_REQUIRE(from >= 0 && from < topology->numRanks && to >= 0 &&
                    to < topology->numRanks,
                "link from rank %d to rank %d, of %d", from, to,
                topology->numRanks);
  *link = lrmoeTopologyLink(topology, from, to);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeTopologyGetCores(lrmoeTopology_t topology, int *numCores,
                                    int *numNumaNodes) {
  LRMOE_REQUIRE(topology && numCores && numNumaNodes, "%s is NULL",
                !topology   ? "topology"
                : !numCores ? "numCores"
                            : "numNumaNodes");
  *numCores = topology->numCores;
  *numNumaNodes = topology->numNumaNodes;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeTopologyGetInfo(lrmoeTopology_t topology,
                                   lrmoeTopologyInfo_t *info) {
  REQUIRE_BOTH(topology, "info", info);
  lrmoeTopologyInfo_t full = LRMOE_TOPOLOGY_INFO_INITIALIZER;
  full.machineKey = topology->machineKey;
  full.numRanks = topology->numRanks;
  full.numHosts = topology->numHosts;
  full.numDomains = topology->numDomains;
  full.numNodes = topology->machine.numNodes;
  full.numWires = topology->machine.numWires;
  full.numResources = topology->numResources;
  full.numNotes = topology->machine.numNotes;
  full.calibrated = topology->calibrated;
  return lrmoeViewWrite("lrmoeTopologyInfo_t", &full, sizeof full, info);
}

lrmoeResult_t lrmoeTopologyGetNode(lrmoeTopology_t topology, int node,
                                   lrmoeTopologyNode_t *view) {
  REQUIRE_BOTH(topology, "view", view);
  REQUIRE_INDEX(node, topology->machine.numNodes, "node");
  const struct lrmoeNode *known = &topology->machine.nodes[node];
  lrmoeTopologyNode_t full = LRMOE_TOPOLOGY_NODE_INITIALIZER;
  full.kind = known->kind;
  full.parent = known->parent;
  full.host = topology->hostNumbers[node];
  full.guessed = known->up.guessed;
  full.bus = known->busText;
  full.name = *known->name ? known->name : known->busText;
  full.bytesPerSecond = known->up.bytesPerSecond;
  full.latencyNs = known->up.latencyNs;
  full.index = known->index;
  full.partition = known->partition;
  full.firstRank = topology->firstRanks[node];
  full.numRanks = topology->rankCounts[node];
  full.arch = known->arch;
  full.numCores = known->numCores;
  return lrmoeViewWrite("lrmoeTopologyNode_t", &full, sizeof full, view);
}

lrmoeResult_t lrmoeTopologyGetWire(lrmoeTopology_t topology, int wire,
                                   lrmoeTopologyWire_t *view) {
  static const char *const kinds[lrmoeNumWireKinds] = {"NVLink", "xGMI", "C2C",
                                                       "PCI", "CPU"};
  REQUIRE_BOTH(topology, "view", view);
  REQUIRE_INDEX(wire, topology->machine.numWires, "wire");
  const struct lrmoeWire *known = &topology->machine.wires[wire];
  int32_t edge = 2 * topology->machine.numNodes + wire;
  lrmoeTopologyWire_t full = LRMOE_TOPOLOGY_WIRE_INITIALIZER;
  full.kind = kinds[known->kind];
  full.bytesPerSecond = lrmoeEdgeRate(topology, edge);
  full.from = known->from;
  full.to = known->to;
  full.count = known->count;
  full.guessed = lrmoeEdgeGuessed(topology, edge);
  return lrmoeViewWrite("lrmoeTopologyWire_t", &full, sizeof full, view);
}

lrmoeResult_t lrmoeTopologyGetRank(lrmoeTopology_t topology, int rank,
                                   lrmoeTopologyRank_t *view) {
  REQUIRE_BOTH(topology, "view", view);
  REQUIRE_INDEX(rank, topology->numRanks, "rank");
  lrmoeTopologyRank_t full = LRMOE_TOPOLOGY_RANK_INITIALIZER;
  if (topology->places) {
    const struct lrmoePlace *place = &topology->places[rank];
    full.node = place->device;
    full.host = place->host;
    full.domain = place->domain;
    full.numPorts = place->numPorts;
    full.ports = place->ports;
  }
  return lrmoeViewWrite("lrmoeTopologyRank_t", &full, sizeof full, view);
}

lrmoeResult_t lrmoeTopologyGetResource(lrmoeTopology_t topology, int resource,
                                       lrmoeTopologyResource_t *view) {
  REQUIRE_BOTH(topology, "view", view);
  REQUIRE_INDEX(resource, topology->numResources, "resource");
  const struct lrmoeResource *known = &topology->resources[resource];
  lrmoeTopologyResource_t full = LRMOE_TOPOLOGY_RESOURCE_INITIALIZER;
  full.name = known->name;
  full.bytesPerSecond = lrmoeEdgeRate(topology, known->edge);
  full.node = known->node;
  full.guessed = lrmoeEdgeGuessed(topology, known->edge);
  full.ranks = topology->members + known->firstMember;
  full.numRanks = known->numMembers;
  return lrmoeViewWrite("lrmoeTopologyResource_t", &full, sizeof full, view);
}

lrmoeResult_t lrmoeTopologyGetNote(lrmoeTopology_t topology, int note,
                                   const char **text) {
  REQUIRE_BOTH(topology, "text", text);
  REQUIRE_INDEX(note, topology->machine.numNotes, "note");
  *text = topology->machine.notes[note].text;
  return lrmoeSuccess;
}
