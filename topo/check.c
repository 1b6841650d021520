/* What the model relies on, checked once for every source: a machine that
 * cannot be is refused with the name of what is wrong. */
#include "base/alloc.h"
#include "topo/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  /* The most that any GPU has: 18 of Hopper and Blackwell, 36 of Rubin; an
   * MI250X has 8 xGMI links. */
  maxLinksPerGpu = 36,
  noPartition = -1 /* NUMA nodes beside bus addresses */
};

/* Rates that nothing comes near to today: a reading in wrong units. */
static const int64_t maxPortRate = 800000000000; /* 6.4 Tb/s */
static const int64_t maxPciRate = 1000000000000; /* PCIe 7.0 x16: 242 GB/s */
static const int64_t maxLinkRate = 1000000000000;

void lrmoeNodePrint(const struct lrmoeNode *node, char *text) {
  static const char *const kinds[] = {"host", "NUMA node", "bridge", "GPU",
                                      "NIC",  "port",      "switch"};
  char bus[lrmoeBusBytes];
  lrmoeBusPrint(node->bus, bus);
  const char *name = *bus ? bus : node->name;
  if (node->kind == lrmoeNodeNuma && !*name && node->index >= 0)
    snprintf(text, lrmoeNameBytes, "NUMA node %d", node->index);
  else if (node->kind == lrmoeNodeGpu && node->partition)
    snprintf(text, lrmoeNameBytes, "GPU %.24s part %d", name, node->partition);
  else
    snprintf(text, lrmoeNameBytes, "%s%s%.50s", kinds[node->kind],
             *name ? " " : "", name);
}

/* "file: GPU 0000:07:00.0" */
static const char *nameOf(const struct lrmoeMachine *machine, int32_t node,
                          char *text) {
  lrmoeNodePrint(&machine->nodes[node], text);
  return text;
}

static int64_t rateLimit(lrmoeNodeKind_t kind) {
  switch (kind) {
  case lrmoeNodePort:
    return maxPortRate;
  case lrmoeNodeBridge:
  case lrmoeNodeGpu:
  case lrmoeNodeNic:
    return maxPciRate;
  default:
    return LRMOE_MAX_RATE;
  }
}

static lrmoeResult_t checkRates(const struct lrmoeMachine *machine,
                                const char *source) {
  char name[lrmoeNameBytes];
  for (int32_t i = 0; i < machine->numNodes; i++) {
    const struct lrmoeNode *node = &machine->nodes[i];
    int64_t rate = node->up.bytesPerSecond;
    LRMOE_REQUIRE(rate >= 0 && rate <= rateLimit(node->kind),
                  "%s: %s at %lld MB/s, which no such link reaches", source,
                  nameOf(machine, i, name), (long long)(rate / 1000000));
    LRMOE_REQUIRE(node->up.latencyNs >= 0 && node->up.latencyNs <= 1000000000,
                  "%s: %s with a latency of %lld ns", source,
                  nameOf(machine, i, name), (long long)node->up.latencyNs);
  }
  return lrmoeSuccess;
}

/* ---- Identities --------------------------------------------------------- */

struct identity {
  int32_t host;
  int32_t partition;
  int64_t bus;
  int32_t node;
};

static int compareIdentities(const void *left, const void *right) {
  const struct identity *a = left, *b = right;
  if (a->host != b->host) return a->host < b->host ? -1 : 1;
  if (a->bus != b->bus) return a->bus < b->bus ? -1 : 1;
  if (a->partition != b->partition) return a->partition < b->partition ? -1 : 1;
  return (a->node > b->node) - (a->node < b->node);
}

/* The parts of a divided GPU stand below a bridge with the GPU's address. */
static bool isSlotOf(const struct lrmoeMachine *machine, int32_t slot,
                     int32_t node) {
  return machine->nodes[node].kind == lrmoeNodeGpu &&
         machine->nodes[node].parent == slot;
}

static lrmoeResult_t checkSorted(const struct lrmoeMachine *machine,
                                 const char *source, const struct identity *all,
                                 int32_t count) {
  char name[lrmoeNameBytes];
  for (int32_t i = 1; i < count; i++) {
    const struct identity *a = &all[i - 1], *b = &all[i];
    if (a->host != b->host || a->bus != b->bus ||
        a->partition != b->partition || isSlotOf(machine, a->node, b->node))
      continue;
    return LRMOE_FAIL(lrmoeInvalidArgument, "%s: %s is there twice on one host",
                      source, nameOf(machine, b->node, name));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t checkIdentities(const struct lrmoeMachine *machine,
                                     const char *source) {
  struct identity *all = NULL;
  int32_t count = 0;
  LRMOE_CHECK(LRMOE_ALLOCATE(machine->numNodes, &all));
  for (int32_t i = 0; i < machine->numNodes; i++) {
    const struct lrmoeNode *node = &machine->nodes[i];
    if (node->bus != LRMOE_NO_BUS)
      all[count++] =
          (struct identity){node->host, node->partition, node->bus, i};
    else if (node->kind == lrmoeNodeNuma && node->index >= 0)
      all[count++] = (struct identity){node->host, noPartition, node->index, i};
  }
  qsort(all, (size_t)count, sizeof *all, compareIdentities);
  lrmoeResult_t result = checkSorted(machine, source, all, count);
  lrmoeFree(all);
  return result;
}

/* Either no GPU has a rank of the source's, or some have distinct ones. */
static lrmoeResult_t markRanks(const struct lrmoeMachine *machine,
                               const char *source, int32_t numGpus,
                               bool *taken) {
  char name[lrmoeNameBytes];
  for (int32_t i = 0; i < machine->numNodes; i++) {
    int32_t rank = machine->nodes[i].rank;
    if (machine->nodes[i].kind != lrmoeNodeGpu || rank < 0) continue;
    LRMOE_REQUIRE(rank < numGpus, "%s: %s has rank %d, with %d GPUs in all",
                  source, nameOf(machine, i, name), rank, numGpus);
    LRMOE_REQUIRE(!taken[rank], "%s: %s has rank %d, and another GPU too",
                  source, nameOf(machine, i, name), rank);
    taken[rank] = true;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t checkDevices(const struct lrmoeMachine *machine,
                                  const char *source) {
  int32_t numGpus = 0, numNumaNodes = 0;
  for (int32_t i = 0; i < machine->numNodes; i++) {
    numGpus += machine->nodes[i].kind == lrmoeNodeGpu;
    numNumaNodes += machine->nodes[i].kind == lrmoeNodeNuma;
  }
  LRMOE_REQUIRE(numGpus || numNumaNodes,
                "%s: no GPU and no NUMA node that a rank could use", source);
  bool *taken = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(numGpus, &taken));
  lrmoeResult_t result = markRanks(machine, source, numGpus, taken);
  lrmoeFree(taken);
  return result;
}

/* ---- Wires -------------------------------------------------------------- */

static bool mayJoin(enum lrmoeWireKind kind, lrmoeNodeKind_t a,
                    lrmoeNodeKind_t b) {
  switch (kind) {
  case lrmoeWireNvlink:
  case lrmoeWireXgmi:
    return (a == lrmoeNodeGpu || a == lrmoeNodeSwitch) &&
           (b == lrmoeNodeGpu || b == lrmoeNodeSwitch);
  case lrmoeWireC2c:
    return (a == lrmoeNodeGpu && b == lrmoeNodeNuma) ||
           (a == lrmoeNodeNuma && b == lrmoeNodeGpu);
  case lrmoeWirePciPeer:
    return a == lrmoeNodeBridge && b == lrmoeNodeBridge;
  default:
    return a == lrmoeNodeNuma && b == lrmoeNodeNuma;
  }
}

static int compareWires(const void *left, const void *right) {
  const struct lrmoeWire *a = left, *b = right;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->from != b->from) return a->from < b->from ? -1 : 1;
  return (a->to > b->to) - (a->to < b->to);
}

static lrmoeResult_t checkWayBack(const struct lrmoeMachine *machine,
                                  const char *source,
                                  const struct lrmoeWire *sorted,
                                  const struct lrmoeWire *wire) {
  struct lrmoeWire key = *wire;
  key.from = wire->to;
  key.to = wire->from;
  const struct lrmoeWire *back = bsearch(
      &key, sorted, (size_t)machine->numWires, sizeof *sorted, compareWires);
  char from[lrmoeNameBytes], to[lrmoeNameBytes];
  LRMOE_REQUIRE(back, "%s: a link from %s to %s, but none back", source,
                nameOf(machine, wire->from, from),
                nameOf(machine, wire->to, to));
  LRMOE_REQUIRE(back->count == wire->count,
                "%s: %d links from %s to %s, but %d back", source, wire->count,
                nameOf(machine, wire->from, from),
                nameOf(machine, wire->to, to), back->count);
  return lrmoeSuccess;
}

static lrmoeResult_t checkWire(const struct lrmoeMachine *machine,
                               const char *source,
                               const struct lrmoeWire *wire) {
  char from[lrmoeNameBytes], to[lrmoeNameBytes];
  nameOf(machine, wire->from, from);
  nameOf(machine, wire->to, to);
  LRMOE_REQUIRE(mayJoin(wire->kind, machine->nodes[wire->from].kind,
                        machine->nodes[wire->to].kind),
                "%s: %s and %s cannot be joined by such a link", source, from,
                to);
  int64_t rate = wire->rate.bytesPerSecond;
  int64_t links = wire->count > 0 ? wire->count : 1;
  LRMOE_REQUIRE(wire->count >= 0 && rate >= 0 && rate <= LRMOE_MAX_RATE &&
                    rate / links <= maxLinkRate,
                "%s: %d links of %lld MB/s in all from %s to %s", source,
                wire->count, (long long)(rate / 1000000), from, to);
  return lrmoeSuccess;
}

/* NVLinks and xGMI links that leave each GPU. */
static lrmoeResult_t checkLinkCounts(const struct lrmoeMachine *machine,
                                     const char *source, int64_t *counts) {
  char name[lrmoeNameBytes];
  for (int32_t i = 0; i < machine->numWires; i++) {
    const struct lrmoeWire *wire = &machine->wires[i];
    if (wire->kind == lrmoeWireNvlink || wire->kind == lrmoeWireXgmi)
      counts[wire->from] += wire->count;
  }
  for (int32_t i = 0; i < machine->numNodes; i++)
    LRMOE_REQUIRE(
        machine->nodes[i].kind != lrmoeNodeGpu || counts[i] <= maxLinksPerGpu,
        "%s: %s has %lld NVLinks or xGMI links, no GPU more than %d", source,
        nameOf(machine, i, name), (long long)counts[i], maxLinksPerGpu);
  return lrmoeSuccess;
}

static lrmoeResult_t checkWires(const struct lrmoeMachine *machine,
                                const char *source) {
  struct lrmoeWire *sorted = NULL;
  int64_t *counts = NULL;
  lrmoeResult_t result = lrmoeSuccess;
  LRMOE_CHECK_GOTO(LRMOE_ALLOCATE(machine->numWires, &sorted), result, done);
  LRMOE_CHECK_GOTO(LRMOE_ALLOCATE(machine->numNodes, &counts), result, done);
  if (machine->numWires)
    memcpy(sorted, machine->wires, (size_t)machine->numWires * sizeof *sorted);
  qsort(sorted, (size_t)machine->numWires, sizeof *sorted, compareWires);
  for (int32_t i = 0; i < machine->numWires; i++) {
    const struct lrmoeWire *wire = &machine->wires[i];
    LRMOE_CHECK_GOTO(checkWire(machine, source, wire), result, done);
    LRMOE_CHECK_GOTO(checkWayBack(machine, source, sorted, wire), result, done);
  }
  result = checkLinkCounts(machine, source, counts);
done:
  lrmoeFree(sorted);
  lrmoeFree(counts);
  return result;
}

lrmoeResult_t lrmoeMachineCheck(const struct lrmoeMachine *machine,
                                const char *source) {
  LRMOE_CHECK(checkDevices(machine, source));
  LRMOE_CHECK(checkIdentities(machine, source));
  LRMOE_CHECK(checkRates(machine, source));
  return checkWires(machine, source);
}
