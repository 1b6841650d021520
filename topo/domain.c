/* NVLink domains: GPUs that NVLink or xGMI joins, directly or through others
 * or a switch; without GPUs, NUMA nodes of one host, which share its memory.
 * Also the key of the machine. */
#include "base/alloc.h"
#include "base/hash.h"
#include "topo/model.h"
#include "topo/path.h"

/* ---- Domains (union-find over nodes) ------------------------------------ */

static int32_t rootOf(int32_t *parents, int32_t node) {
  while (parents[node] != node) {
    parents[node] = parents[parents[node]];
    node = parents[node];
  }
  return node;
}

static void join(int32_t *parents, int32_t a, int32_t b) {
  a = rootOf(parents, a);
  b = rootOf(parents, b);
  if (a < b)
    parents[b] = a;
  else
    parents[a] = b;
}

/* Parents have lower numbers than their children. */
static void findPeerBridges(struct lrmoeTopology *topology) {
  const struct lrmoeMachine *machine = &topology->machine;
  int32_t *bridges = topology->peerBridges;
  for (int32_t i = 0; i < machine->numNodes; i++)
    bridges[i] = -1;
  for (int32_t i = 0; i < machine->numWires; i++)
    if (machine->wires[i].kind == lrmoeWirePciPeer)
      bridges[machine->wires[i].from] = machine->wires[i].from;
  for (int32_t i = 0; i < machine->numNodes; i++)
    if (bridges[i] < 0 && machine->nodes[i].parent >= 0)
      bridges[i] = bridges[machine->nodes[i].parent];
}

static void joinWired(struct lrmoeTopology *topology, int32_t *parents) {
  const struct lrmoeMachine *machine = &topology->machine;
  for (int32_t i = 0; i < machine->numNodes; i++)
    topology->switches[i] = -1;
  for (int32_t i = 0; i < machine->numWires; i++) {
    const struct lrmoeWire *wire = &machine->wires[i];
    if (wire->kind != lrmoeWireNvlink && wire->kind != lrmoeWireXgmi) continue;
    join(parents, wire->from, wire->to);
    if (machine->nodes[wire->to].kind == lrmoeNodeSwitch)
      topology->switches[wire->from] = wire->to;
  }
}

/* Parts of one GPU, and NUMA nodes of one host, are joined without a wire. */
static void joinUnwired(const struct lrmoeTopology *topology,
                        int32_t *parents) {
  for (int32_t rank = 0; rank < topology->numRanks; rank++) {
    int32_t device = topology->places[rank].device;
    const struct lrmoeNode *node = &topology->machine.nodes[device];
    if (node->kind == lrmoeNodeNuma)
      join(parents, device, node->host);
    else if (topology->machine.nodes[node->parent].bus == node->bus &&
             node->bus != LRMOE_NO_BUS)
      join(parents, device, node->parent);
  }
}

lrmoeResult_t lrmoeModelDomains(struct lrmoeTopology *topology) {
  int32_t numNodes = topology->machine.numNodes;
  int32_t *work = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes, &topology->switches));
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes, &topology->peerBridges));
  findPeerBridges(topology);
  LRMOE_CHECK(LRMOE_ALLOCATE(2 * (int64_t)numNodes, &work));
  int32_t *parents = work, *numbers = work + numNodes;
  for (int32_t i = 0; i < numNodes; i++) {
    parents[i] = i;
    numbers[i] = -1;
  }
  joinWired(topology, parents);
  joinUnwired(topology, parents);
  for (int32_t rank = 0; rank < topology->numRanks; rank++) {
    int32_t root = rootOf(parents, topology->places[rank].device);
    if (numbers[root] < 0) numbers[root] = topology->numDomains++;
    topology->places[rank].domain = numbers[root];
  }
  lrmoeFree(work);
  return lrmoeSuccess;
}

/* ---- The key ------------------------------------------------------------ */

static uint64_t mix(uint64_t key, int64_t value) {
  return lrmoeHash(key, &value, sizeof value);
}

static uint64_t mixLink(uint64_t key, const lrmoeLink_t *link) {
  key = mix(key, link->linkClass);
  key = mix(key, link->latencyNs);
  return mix(key, link->bytesPerSecond);
}

/* The first ranks of devices, chained host by host in ascending order. */
struct chains {
  int32_t *heads; /* [numHosts] -1: none */
  int32_t *nexts; /* [numRanks] */
};

static void chain(const struct lrmoeTopology *topology, struct chains *chains) {
  for (int32_t i = 0; i < topology->numHosts; i++)
    chains->heads[i] = -1;
  for (int32_t rank = topology->numRanks - 1; rank >= 0; rank--) {
    const struct lrmoePlace *place = &topology->places[rank];
    if (topology->firstRanks[place->device] != rank) continue;
    chains->nexts[rank] = chains->heads[place->host];
    chains->heads[place->host] = rank;
  }
}

static uint64_t mixDevice(const struct lrmoeTopology *topology,
                          const struct chains *chains, uint64_t key,
                          int32_t rank) {
  const struct lrmoePlace *place = &topology->places[rank];
  const struct lrmoeReach *reach = &topology->reaches[rank];
  const struct lrmoeNode *node = &topology->machine.nodes[place->device];
  const int64_t values[] = {rank,
                            topology->rankCounts[place->device],
                            node->kind,
                            node->arch,
                            node->numCores,
                            place->host,
                            place->domain,
                            place->numPorts,
                            reach->outBytesPerSecond,
                            reach->inBytesPerSecond,
                            reach->latencyNs};
  key = lrmoeHash(key, values, sizeof values);
  for (int32_t other = chains->heads[place->host]; other >= 0;
       other = chains->nexts[other]) {
    lrmoeLink_t link = lrmoeTopologyLink(topology, rank, other);
    key = mixLink(mix(key, other), &link);
  }
  return key;
}

static uint64_t keyOf(const struct lrmoeTopology *topology,
                      const struct chains *chains) {
  uint64_t key = mix(0, topology->numRanks);
  for (int32_t rank = 0; rank < topology->numRanks; rank++)
    if (topology->firstRanks[topology->places[rank].device] == rank)
      key = mixDevice(topology, chains, key, rank);
  for (int32_t i = 0; i < topology->numResources; i++) {
    const struct lrmoeResource *resource = &topology->resources[i];
    key = mix(key, lrmoeEdgeRate(topology, resource->edge));
    for (int64_t j = 0; j < resource->numMembers; j++)
      key = mix(key, topology->members[resource->firstMember + j]);
  }
  return key;
}

/* Per device what it is and what it can do, its links within its host, and
 * what is shared: no names and no addresses. */
lrmoeResult_t lrmoeModelKey(struct lrmoeTopology *topology) {
  struct chains chains = {0};
  int64_t room = (int64_t)topology->numHosts + topology->numRanks;
  LRMOE_CHECK(LRMOE_ALLOCATE(room, &chains.heads));
  chains.nexts = chains.heads + topology->numHosts;
  chain(topology, &chains);
  topology->machineKey = keyOf(topology, &chains);
  lrmoeFree(chains.heads);
  return lrmoeSuccess;
}
