/* Which network ports carry a device's traffic to other hosts.
 *
 * A port is worth what can flow from the device through the tree into the
 * network.  The best ports are those of the highest worth, of these the
 * nearest, of these those with the fewest hops.  Devices with the same best
 * ports share them out evenly, in the order of bus addresses: the choice does
 * not depend on which ranks take part (NVIDIA/nccl#1303).  NICs of one card
 * (the same slot, or ports with the same guid) share its PCI link
 * (NVIDIA/nccl#820). */
#include "base/alloc.h"
#include "topo/model.h"
#include "topo/path.h"

#include <stdlib.h>
#include <string.h>

enum {
  maxGpusPerHost = 1024,
  maxPortsPerHost = 4096
};

/* A port or a device, with what it is sorted by. */
struct item {
  int32_t host;
  int32_t node;
  int64_t bus;
  int32_t number; /* of a port: port number; of a device: its part */
  uint64_t guid;
  const char *name;
};

static int compareItems(const void *left, const void *right) {
  const struct item *a = left, *b = right;
  if (a->host != b->host) return a->host < b->host ? -1 : 1;
  if (a->bus != b->bus) return a->bus < b->bus ? -1 : 1;
  if (a->number != b->number) return a->number < b->number ? -1 : 1;
  if (a->guid != b->guid) return a->guid < b->guid ? -1 : 1;
  int named = strcmp(a->name, b->name);
  return named ? named : (a->node > b->node) - (a->node < b->node);
}

struct chooser {
  struct lrmoeTopology *topology;
  struct item *ports; /* sorted */
  struct item *devices;
  int32_t *best;    /* best ports of the host's devices, one after another */
  int64_t *offsets; /* [devices of the host + 1] into best */
  int32_t numPorts;
  int32_t numDevices;
};

/* ---- Slots -------------------------------------------------------------- */

/* NICs with the same key share a slot. */
struct slot {
  int32_t host;
  uint64_t key[2];
  int32_t nic;
};

static int compareSlots(const void *left, const void *right) {
  const struct slot *a = left, *b = right;
  if (a->host != b->host) return a->host < b->host ? -1 : 1;
  for (int i = 0; i < 2; i++)
    if (a->key[i] != b->key[i]) return a->key[i] < b->key[i] ? -1 : 1;
  return (a->nic > b->nic) - (a->nic < b->nic);
}

static int32_t slotOf(int32_t *slots, int32_t nic) {
  while (slots[nic] != nic)
    nic = slots[nic];
  return nic;
}

/* Functions of one PCI device, below the same bridge. */
static struct slot bySlot(const struct lrmoeNode *nodes, int32_t nic) {
  return (struct slot){
      .host = nodes[nic].host,
      .key = {(uint64_t)nodes[nic].bus >> 3, (uint64_t)nodes[nic].parent},
      .nic = nic};
}

static struct slot byGuid(const struct lrmoeNode *nodes, int32_t port) {
  return (struct slot){.host = nodes[port].host,
                       .key = {nodes[port].guid, UINT64_MAX},
                       .nic = nodes[port].parent};
}

static void joinSlots(int32_t *slots, struct slot *list, int32_t count) {
  qsort(list, (size_t)count, sizeof *list, compareSlots);
  for (int32_t i = 1; i < count; i++) {
    const struct slot *a = &list[i - 1], *b = &list[i];
    if (a->host != b->host || memcmp(a->key, b->key, sizeof a->key) != 0)
      continue;
    int32_t left = slotOf(slots, a->nic), right = slotOf(slots, b->nic);
    slots[left > right ? left : right] = left < right ? left : right;
  }
}

static lrmoeResult_t findSlots(struct lrmoeTopology *topology) {
  const struct lrmoeNode *nodes = topology->machine.nodes;
  int32_t numNodes = topology->machine.numNodes, count = 0;
  struct slot *list = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes, &topology->slots));
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes, &list));
  for (int32_t i = 0; i < numNodes; i++) {
    topology->slots[i] = i;
    if (nodes[i].kind == lrmoeNodeNic && nodes[i].bus != LRMOE_NO_BUS)
      list[count++] = bySlot(nodes, i);
    else if (nodes[i].kind == lrmoeNodePort && nodes[i].guid)
      list[count++] = byGuid(nodes, i);
  }
  joinSlots(topology->slots, list, count);
  for (int32_t i = 0; i < numNodes; i++)
    topology->slots[i] = slotOf(topology->slots, i);
  lrmoeFree(list);
  return lrmoeSuccess;
}

/* ---- Lists -------------------------------------------------------------- */

static struct item itemOf(const struct lrmoeTopology *topology, int32_t node) {
  const struct lrmoeNode *known = &topology->machine.nodes[node];
  bool isPort = known->kind == lrmoeNodePort;
  return (struct item){
      .host = topology->hostNumbers[node],
      .node = node,
      .bus = isPort ? topology->machine.nodes[known->parent].bus : known->bus,
      .number = isPort ? known->index : known->partition,
      .guid = known->guid,
      .name = known->name};
}

static lrmoeResult_t listItems(struct chooser *chooser) {
  const struct lrmoeTopology *topology = chooser->topology;
  const struct lrmoeMachine *machine = &topology->machine;
  LRMOE_CHECK(LRMOE_ALLOCATE(machine->numNodes, &chooser->ports));
  LRMOE_CHECK(LRMOE_ALLOCATE(machine->numNodes, &chooser->devices));
  for (int32_t i = 0; i < machine->numNodes; i++) {
    if (machine->nodes[i].kind == lrmoeNodePort)
      chooser->ports[chooser->numPorts++] = itemOf(topology, i);
    else if (topology->firstRanks[i] >= 0)
      chooser->devices[chooser->numDevices++] = itemOf(topology, i);
  }
  qsort(chooser->ports, (size_t)chooser->numPorts, sizeof *chooser->ports,
        compareItems);
  qsort(chooser->devices, (size_t)chooser->numDevices, sizeof *chooser->devices,
        compareItems);
  return lrmoeSuccess;
}

/* ---- Worth -------------------------------------------------------------- */

struct worth {
  const struct lrmoeTopology *topology;
  int64_t bytesPerSecond;
  lrmoeLinkClass_t linkClass;
  int32_t hops;
};

static void takeEdge(void *context, int32_t edge, int32_t parts, bool isNear) {
  struct worth *worth = context;
  (void)parts;
  (void)isNear;
  int64_t rate = lrmoeEdgeRate(worth->topology, edge);
  if (rate < worth->bytesPerSecond) worth->bytesPerSecond = rate;
  worth->hops++;
}

static struct worth worthOf(const struct lrmoeTopology *topology,
                            int32_t device, int32_t port) {
  struct worth worth = {.topology = topology, .bytesPerSecond = INT64_MAX};
  struct lrmoeVisitor visitor = {takeEdge, &worth};
  worth.linkClass = lrmoeTreeWalk(
      topology, device, topology->machine.nodes[port].parent, &visitor);
  takeEdge(&worth, 2 * port, 1, true);
  return worth;
}

/* > 0: a is better. */
static int compareWorth(const struct worth *a, const struct worth *b) {
  if (a->bytesPerSecond != b->bytesPerSecond)
    return a->bytesPerSecond > b->bytesPerSecond ? 1 : -1;
  if (a->linkClass != b->linkClass) return a->linkClass < b->linkClass ? 1 : -1;
  return (a->hops < b->hops) - (a->hops > b->hops);
}

/* ---- Choice, host by host ----------------------------------------------- */

struct range {
  int32_t first;
  int32_t end;
};

static struct range rangeOf(const struct item *items, int32_t count,
                            int32_t first, int32_t host) {
  struct range range = {first, first};
  while (range.end < count && items[range.end].host == host)
    range.end++;
  return range;
}

/* Appends the device's best ports of its host. */
static int64_t appendBest(const struct chooser *chooser, int32_t device,
                          struct range ports, int64_t at) {
  struct worth highest = {0};
  int64_t end = at;
  for (int32_t i = ports.first; i < ports.end; i++) {
    struct worth worth =
        worthOf(chooser->topology, device, chooser->ports[i].node);
    int better = end == at ? 1 : compareWorth(&worth, &highest);
    if (better < 0) continue;
    if (better > 0) end = at;
    highest = worth;
    chooser->best[end++] = chooser->ports[i].node;
  }
  return end;
}

static bool sameBest(const struct chooser *chooser, int32_t a, int32_t b) {
  const int64_t *offsets = chooser->offsets;
  int64_t length = offsets[a + 1] - offsets[a];
  return length == offsets[b + 1] - offsets[b] &&
         memcmp(chooser->best + offsets[a], chooser->best + offsets[b],
                (size_t)length * sizeof *chooser->best) == 0;
}

/* The i-th of `sharers` devices with the same `length` ports has every
 * sharers-th port from the i-th on, or one if there are fewer. */
static void assign(struct chooser *chooser, int32_t local, int32_t device,
                   int32_t numLocal, int32_t *at) {
  int32_t turn = 0, sharers = 0;
  for (int32_t i = 0; i < numLocal; i++) {
    if (!sameBest(chooser, i, local)) continue;
    turn += i < local;
    sharers++;
  }
  const int32_t *best = chooser->best + chooser->offsets[local];
  int32_t length =
      (int32_t)(chooser->offsets[local + 1] - chooser->offsets[local]);
  struct lrmoeTopology *topology = chooser->topology;
  int32_t first = topology->firstRanks[device], begin = *at;
  if (length) {
    topology->ports[(*at)++] = best[turn % length];
    for (int32_t i = turn + sharers; i < length; i += sharers)
      topology->ports[(*at)++] = best[i];
  }
  for (int32_t i = 0; i < topology->rankCounts[device]; i++) {
    topology->places[first + i].ports = topology->ports + begin;
    topology->places[first + i].numPorts = *at - begin;
  }
}

static lrmoeResult_t reserve(struct chooser *chooser, struct range devices,
                             struct range ports) {
  int64_t numDevices = devices.end - devices.first;
  int64_t numPorts = ports.end - ports.first;
  LRMOE_REQUIRE(numDevices <= maxGpusPerHost && numPorts <= maxPortsPerHost,
                "a host of %lld devices and %lld network ports, not up to %d "
                "and %d",
                (long long)numDevices, (long long)numPorts, maxGpusPerHost,
                maxPortsPerHost);
  lrmoeFree(chooser->best);
  lrmoeFree(chooser->offsets);
  chooser->best = NULL;
  chooser->offsets = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(numDevices * numPorts, &chooser->best));
  return LRMOE_ALLOCATE(numDevices + 1, &chooser->offsets);
}

static lrmoeResult_t chooseForHost(struct chooser *chooser,
                                   struct range devices, struct range ports,
                                   int32_t *at) {
  LRMOE_CHECK(reserve(chooser, devices, ports));
  int32_t numLocal = devices.end - devices.first;
  for (int32_t i = 0; i < numLocal; i++)
    chooser->offsets[i + 1] =
        appendBest(chooser, chooser->devices[devices.first + i].node, ports,
                   chooser->offsets[i]);
  for (int32_t i = 0; i < numLocal; i++)
    assign(chooser, i, chooser->devices[devices.first + i].node, numLocal, at);
  return lrmoeSuccess;
}

static lrmoeResult_t chooseAll(struct chooser *chooser) {
  struct lrmoeTopology *topology = chooser->topology;
  LRMOE_CHECK(listItems(chooser));
  LRMOE_CHECK(LRMOE_ALLOCATE((int64_t)chooser->numPorts + chooser->numDevices,
                             &topology->ports));
  int32_t at = 0;
  struct range devices = {0, 0}, ports = {0, 0};
  for (int32_t host = 0; host < topology->numHosts; host++) {
    devices = rangeOf(chooser->devices, chooser->numDevices, devices.end, host);
    ports = rangeOf(chooser->ports, chooser->numPorts, ports.end, host);
    LRMOE_CHECK(chooseForHost(chooser, devices, ports, &at));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeModelPorts(struct lrmoeTopology *topology) {
  LRMOE_CHECK(findSlots(topology));
  struct chooser chooser = {.topology = topology};
  lrmoeResult_t result = chooseAll(&chooser);
  lrmoeFree(chooser.ports);
  lrmoeFree(chooser.devices);
  lrmoeFree(chooser.best);
  lrmoeFree(chooser.offsets);
  if (result == lrmoeSuccess) result = lrmoeModelReach(topology);
  return result;
}
