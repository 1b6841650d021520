/* The model: ranks on the devices of a machine.
 *
 * Devices are the GPUs or, on a machine without any, the NUMA nodes.  All that
 * follows is a function of what the machine is, not of the order in which its
 * source lists it: devices are sorted by host and bus address first. */
#include "topo/model.h"

#include "base/alloc.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxModelRanks = 1 << 20
};

/* A guess: copies within a GPU's memory. */
static const lrmoeLink_t gpuMemory = {
    .linkClass = lrmoeLinkSelf,
    .guessed = 1,
    .bytesPerSecond = 1000000000000,
};

/* A device with what it is sorted by. */
struct device {
  int64_t key[4];
  int32_t node;
};

static int compareDevices(const void *left, const void *right) {
  const struct device *a = left, *b = right;
  for (int i = 0; i < 4; i++)
    if (a->key[i] != b->key[i]) return a->key[i] < b->key[i] ? -1 : 1;
  return (a->node > b->node) - (a->node < b->node);
}

struct devices {
  struct device *list;
  int32_t count;
  bool isGpu;
};

/* The devices in no order, and whether all GPUs have ranks of the source's. */
static lrmoeResult_t listDevices(struct lrmoeTopology *topology,
                                 struct devices *devices, int32_t *ranked) {
  const struct lrmoeMachine *machine = &topology->machine;
  LRMOE_CHECK(LRMOE_ALLOCATE(machine->numNodes, &devices->list));
  for (int32_t i = 0; i < machine->numNodes; i++)
    devices->isGpu = devices->isGpu || machine->nodes[i].kind == lrmoeNodeGpu;
  lrmoeNodeKind_t kind = devices->isGpu ? lrmoeNodeGpu : lrmoeNodeNuma;
  for (int32_t i = 0; i < machine->numNodes; i++) {
    const struct lrmoeNode *node = &machine->nodes[i];
    if (node->kind != kind) continue;
    devices->list[devices->count++].node = i;
    *ranked += node->rank >= 0;
  }
  return lrmoeSuccess;
}

/* A driver's number that is not known comes last. */
static int64_t orderOfIndex(int32_t index) {
  return index < 0 ? INT32_MAX : index;
}

static void sortDevices(const struct lrmoeTopology *topology,
                        struct devices *devices, lrmoeRankOrder_t order) {
  for (int32_t i = 0; i < devices->count; i++) {
    struct device *device = &devices->list[i];
    const struct lrmoeNode *node = &topology->machine.nodes[device->node];
    bool byNumber = order == lrmoeRanksIndex || !devices->isGpu;
    device->key[0] = order == lrmoeRanksAuto
                         ? node->rank
                         : topology->hostNumbers[device->node];
    device->key[1] = byNumber ? orderOfIndex(node->index) : 0;
    device->key[2] = node->bus;
    device->key[3] = node->partition;
  }
  qsort(devices->list, (size_t)devices->count, sizeof *devices->list,
        compareDevices);
}

static lrmoeResult_t numberHosts(struct lrmoeTopology *topology) {
  const struct lrmoeMachine *machine = &topology->machine;
  LRMOE_CHECK(LRMOE_ALLOCATE(machine->numNodes, &topology->hostNumbers));
  for (int32_t i = 0; i < machine->numNodes; i++)
    if (machine->nodes[i].kind == lrmoeNodeHost)
      topology->hostNumbers[i] = topology->numHosts++;
  for (int32_t i = 0; i < machine->numNodes; i++) {
    int32_t host = machine->nodes[i].host;
    topology->hostNumbers[i] = host < 0 ? -1 : topology->hostNumbers[host];
  }
  return lrmoeSuccess;
}

static lrmoeResult_t countRanks(struct lrmoeTopology *topology,
                                const struct devices *devices,
                                const struct lrmoeModelConfig *config) {
  int32_t wanted = config->numRanks ? config->numRanks : devices->count;
  LRMOE_REQUIRE(wanted >= 1 && wanted <= maxModelRanks,
                "numRanks is %d, not 1..%d", wanted, maxModelRanks);
  LRMOE_REQUIRE(!devices->isGpu || wanted % devices->count == 0,
                "%d ranks for a machine of %d GPUs: not a multiple", wanted,
                devices->count);
  topology->numRanks = wanted;
  return lrmoeSuccess;
}

static lrmoeResult_t fillPlaces(struct lrmoeTopology *topology,
                                const struct devices *devices) {
  size_t numNodes = (size_t)topology->machine.numNodes;
  LRMOE_CHECK(LRMOE_ALLOCATE(topology->numRanks, &topology->places));
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes, &topology->firstRanks));
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes, &topology->rankCounts));
  for (size_t i = 0; i < numNodes; i++)
    topology->firstRanks[i] = -1;
  for (int32_t rank = 0; rank < topology->numRanks; rank++) {
    int64_t slot = (int64_t)rank * devices->count / topology->numRanks;
    int32_t node = devices->list[slot].node;
    topology->places[rank].device = node;
    topology->places[rank].host = topology->hostNumbers[node];
    if (!topology->rankCounts[node]++) topology->firstRanks[node] = rank;
  }
  return lrmoeSuccess;
}

static int32_t findHost(const struct lrmoeMachine *machine) {
  int32_t host = 0;
  while (machine->nodes[host].kind != lrmoeNodeHost)
    host++;
  return host;
}

static lrmoeResult_t addGiven(const struct lrmoeTopology *topology,
                              int32_t rank, int64_t bus,
                              struct devices *devices) {
  const struct lrmoeMachine *machine = &topology->machine;
  char text[lrmoeBusBytes];
  int32_t node = lrmoeMachineFind(machine, findHost(machine), bus, 0);
  lrmoeBusPrint(bus, text);
  if (node < 0 || machine->nodes[node].kind != lrmoeNodeGpu)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "rank %d has the GPU at %s, which the description of its "
                      "machine has not",
                      rank, text);
  for (int32_t other = 0; other < rank; other++)
    if (devices->list[other].node == node)
      return LRMOE_FAIL(lrmoeUnsupported, "ranks %d and %d share the GPU at %s",
                        other, rank, text);
  devices->list[devices->count++].node = node;
  return lrmoeSuccess;
}

static lrmoeResult_t checkGiven(const struct lrmoeTopology *topology,
                                int32_t numRanks) {
  LRMOE_REQUIRE(numRanks >= 1 && numRanks <= maxModelRanks,
                "numRanks is %d, not 1..%d", numRanks, maxModelRanks);
  LRMOE_REQUIRE(topology->numHosts == 1, "%d hosts, not one",
                topology->numHosts);
  return lrmoeSuccess;
}

/* The GPUs that ranks have, in their order. */
static lrmoeResult_t listGiven(struct lrmoeTopology *topology,
                               const struct lrmoeModelConfig *config,
                               struct devices *devices) {
  LRMOE_CHECK(checkGiven(topology, config->numRanks));
  LRMOE_CHECK(LRMOE_ALLOCATE(config->numRanks, &devices->list));
  for (int32_t rank = 0; rank < config->numRanks; rank++)
    LRMOE_CHECK(addGiven(topology, rank, config->buses[rank], devices));
  devices->isGpu = true;
  topology->numRanks = config->numRanks;
  return lrmoeSuccess;
}

/* Ranks of the source's count only if every GPU has one. */
static lrmoeResult_t chooseOrder(struct lrmoeTopology *topology,
                                 const struct devices *devices, int32_t ranked,
                                 lrmoeRankOrder_t *order) {
  if (*order != lrmoeRanksAuto || ranked == devices->count) return lrmoeSuccess;
  *order = lrmoeRanksBus;
  if (!ranked) return lrmoeSuccess;
  return lrmoeMachineNote(&topology->machine, -1,
                          "only %d of %d GPUs have a rank in the source: ranks "
                          "are given in the order of bus addresses",
                          ranked, devices->count);
}

static lrmoeResult_t noteIdleHosts(struct lrmoeTopology *topology) {
  bool *busy = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(topology->numHosts, &busy));
  for (int32_t rank = 0; rank < topology->numRanks; rank++)
    busy[topology->places[rank].host] = true;
  lrmoeResult_t result = lrmoeSuccess;
  for (int32_t host = 0; host < topology->numHosts && !result; host++)
    if (!busy[host])
      result = lrmoeMachineNote(&topology->machine, -1, "host %d gets no rank",
                                host);
  lrmoeFree(busy);
  return result;
}

static lrmoeResult_t listInOrder(struct lrmoeTopology *topology,
                                 const struct lrmoeModelConfig *config,
                                 struct devices *devices) {
  int32_t ranked = 0;
  lrmoeRankOrder_t order = config->rankOrder;
  LRMOE_CHECK(listDevices(topology, devices, &ranked));
  LRMOE_CHECK(countRanks(topology, devices, config));
  LRMOE_CHECK(chooseOrder(topology, devices, ranked, &order));
  sortDevices(topology, devices, order);
  return lrmoeSuccess;
}

static lrmoeResult_t place(struct lrmoeTopology *topology,
                           const struct lrmoeModelConfig *config,
                           struct devices *devices) {
  LRMOE_CHECK(numberHosts(topology));
  if (config->buses)
    LRMOE_CHECK(listGiven(topology, config, devices));
  else
    LRMOE_CHECK(listInOrder(topology, config, devices));
  if (devices->isGpu) topology->self = gpuMemory;
  LRMOE_CHECK(fillPlaces(topology, devices));
  return noteIdleHosts(topology);
}

lrmoeResult_t lrmoeModelPlace(struct lrmoeTopology *topology,
                              const struct lrmoeModelConfig *config) {
  struct devices devices = {0};
  lrmoeResult_t result = place(topology, config, &devices);
  lrmoeFree(devices.list);
  return result;
}

static void countCores(struct lrmoeTopology *topology) {
  for (int32_t i = 0; i < topology->machine.numNodes; i++) {
    const struct lrmoeNode *node = &topology->machine.nodes[i];
    if (node->kind != lrmoeNodeNuma) continue;
    topology->numNumaNodes++;
    if (node->numCores > 0 && topology->numCores < INT_MAX - node->numCores)
      topology->numCores += node->numCores;
  }
}

static lrmoeResult_t build(struct lrmoeTopology *topology,
                           const struct lrmoeModelConfig *config) {
  countCores(topology);
  LRMOE_CHECK(lrmoeModelPlace(topology, config));
  LRMOE_CHECK(lrmoeModelDomains(topology));
  LRMOE_CHECK(lrmoeModelPorts(topology));
  LRMOE_CHECK(lrmoeModelResources(topology));
  return lrmoeModelKey(topology);
}

lrmoeResult_t lrmoeModelBuild(struct lrmoeMachine *machine,
                              const struct lrmoeModelConfig *config,
                              struct lrmoeTopology **topology) {
  struct lrmoeTopology *made = NULL;
  lrmoeResult_t result = LRMOE_ALLOCATE(1, &made);
  if (result != lrmoeSuccess) {
    lrmoeMachineFree(machine);
    return result;
  }
  lrmoeTopologyDefaults(made);
  made->machine = *machine;
  *machine = (struct lrmoeMachine){0};
  result = build(made, config);
  if (result == lrmoeSuccess)
    *topology = made;
  else
    lrmoeTopologyDestroy(made);
  return result;
}
