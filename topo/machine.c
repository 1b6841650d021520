/* The machine graph, built: growing arrays of nodes, wires and notes, and
 * machines joined to one. */
#include "topo/machine.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
  firstRoom = 16,
  maxMachineParts = 1 << 24 /* what an int32_t index and memory can bear */
};

/* Makes room for one more element; the old array is freed. */
static lrmoeResult_t grow(void **array, size_t elementBytes, int32_t count,
                          int32_t *room) {
  if (count < *room) return lrmoeSuccess;
  if (count >= maxMachineParts)
    return LRMOE_FAIL(lrmoeInvalidArgument,
                      "a machine of more than %d nodes, links or notes",
                      maxMachineParts);
  int32_t wanted = *room ? 2 * *room : firstRoom;
  void *larger = NULL;
  LRMOE_CHECK(lrmoeAllocate((size_t)wanted, elementBytes, &larger));
  if (count) memcpy(larger, *array, (size_t)count * elementBytes);
  lrmoeFree(*array);
  *array = larger;
  *room = wanted;
  return lrmoeSuccess;
}

#define GROW(array, count, room) \
  grow((void **)&(array), sizeof *(array), (count), &(room))

void lrmoeMachineFree(struct lrmoeMachine *machine) {
  for (int32_t i = 0; i < machine->numNotes; i++)
    lrmoeFree(machine->notes[i].text);
  lrmoeFree(machine->nodes);
  lrmoeFree(machine->wires);
  lrmoeFree(machine->notes);
  *machine = (struct lrmoeMachine){0};
}

struct lrmoeNode lrmoeMachineNode(lrmoeNodeKind_t kind, int32_t parent) {
  return (struct lrmoeNode){.kind = kind,
                            .parent = parent,
                            .host = -1,
                            .bus = LRMOE_NO_BUS,
                            .index = -1,
                            .rank = -1,
                            .package = -1};
}

/* Whether the tree of machine.h has the kind below the other. */
static bool mayHold(lrmoeNodeKind_t parent, lrmoeNodeKind_t kind) {
  switch (kind) {
  case lrmoeNodeNuma:
    return parent == lrmoeNodeHost;
  case lrmoeNodeBridge:
  case lrmoeNodeGpu:
  case lrmoeNodeNic:
    return parent == lrmoeNodeHost || parent == lrmoeNodeNuma ||
           parent == lrmoeNodeBridge;
  case lrmoeNodePort:
    return parent == lrmoeNodeNic;
  default:
    return false;
  }
}

static bool isRoot(lrmoeNodeKind_t kind) {
  return kind == lrmoeNodeHost || kind == lrmoeNodeSwitch;
}

lrmoeResult_t lrmoeMachineAdd(struct lrmoeMachine *machine,
                              const struct lrmoeNode *node, int32_t *index) {
  bool holds = isRoot(node->kind)
                   ? node->parent == -1
                   : node->parent >= 0 && node->parent < machine->numNodes &&
                         mayHold(machine->nodes[node->parent].kind, node->kind);
  if (!holds)
    return LRMOE_FAIL(lrmoeInternalError, "a node of kind %d below node %d",
                      (int)node->kind, node->parent);
  LRMOE_CHECK(GROW(machine->nodes, machine->numNodes, machine->maxNodes));
  struct lrmoeNode *added = &machine->nodes[machine->numNodes];
  *added = *node;
  added->name[lrmoeNameBytes - 1] = '\0';
  lrmoeBusPrint(node->bus, added->busText);
  if (node->kind == lrmoeNodeHost)
    added->host = machine->numNodes;
  else if (node->kind != lrmoeNodeSwitch)
    added->host = machine->nodes[node->parent].host;
  *index = machine->numNodes++;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeMachineConnect(struct lrmoeMachine *machine,
                                  const struct lrmoeWire *wire) {
  if (wire->from < 0 || wire->from >= machine->numNodes || wire->to < 0 ||
      wire->to >= machine->numNodes || wire->from == wire->to)
    return LRMOE_FAIL(lrmoeInternalError, "a link from node %d to node %d",
                      wire->from, wire->to);
  LRMOE_CHECK(GROW(machine->wires, machine->numWires, machine->maxWires));
  machine->wires[machine->numWires++] = *wire;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeMachineConnectBoth(struct lrmoeMachine *machine,
                                      struct lrmoeWire wire) {
  LRMOE_CHECK(lrmoeMachineConnect(machine, &wire));
  int32_t from = wire.from;
  wire.from = wire.to;
  wire.to = from;
  return lrmoeMachineConnect(machine, &wire);
}

static lrmoeResult_t addNote(struct lrmoeMachine *machine, int32_t node,
                             const char *text) {
  LRMOE_CHECK(GROW(machine->notes, machine->numNotes, machine->maxNotes));
  char *copy = NULL;
  size_t bytes = strlen(text) + 1;
  LRMOE_CHECK(LRMOE_ALLOCATE(bytes, &copy));
  memcpy(copy, text, bytes);
  machine->notes[machine->numNotes++] =
      (struct lrmoeNote){.node = node, .text = copy};
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeMachineNote(struct lrmoeMachine *machine, int32_t node,
                               const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return addNote(machine, node, text);
}

/* Two recordings of one host may disagree about everything (their processes
 * saw different parts of it), so they are not put together. */
static lrmoeResult_t checkNewHosts(const struct lrmoeMachine *machine,
                                   const struct lrmoeMachine *other) {
  for (int32_t i = 0; i < other->numNodes; i++) {
    const struct lrmoeNode *host = &other->nodes[i];
    if (host->kind != lrmoeNodeHost || !host->hostId) continue;
    for (int32_t j = 0; j < machine->numNodes; j++)
      if (machine->nodes[j].kind == lrmoeNodeHost &&
          machine->nodes[j].hostId == host->hostId)
        return LRMOE_FAIL(lrmoeInvalidArgument,
                          "host 0x%llx is described twice: use copies to "
                          "repeat a host",
                          (unsigned long long)host->hostId);
  }
  return lrmoeSuccess;
}

static int32_t countGpus(const struct lrmoeMachine *machine) {
  int32_t count = 0;
  for (int32_t i = 0; i < machine->numNodes; i++)
    count += machine->nodes[i].kind == lrmoeNodeGpu;
  return count;
}

static lrmoeResult_t appendNodes(struct lrmoeMachine *machine,
                                 const struct lrmoeMachine *other,
                                 bool unique) {
  int32_t offset = machine->numNodes;
  int32_t firstRank = countGpus(machine);
  for (int32_t i = 0; i < other->numNodes; i++) {
    struct lrmoeNode node = other->nodes[i];
    int32_t index = 0;
    if (node.parent >= 0) node.parent += offset;
    if (node.host >= 0) node.host += offset;
    if (node.rank >= 0) node.rank += firstRank;
    if (!unique) node.hostId = 0;
    LRMOE_CHECK(lrmoeMachineAdd(machine, &node, &index));
  }
  return lrmoeSuccess;
}

/* The wires of a machine are distinct, and their copies are so too. */
static lrmoeResult_t appendWires(struct lrmoeMachine *machine,
                                 const struct lrmoeMachine *other,
                                 int32_t offset) {
  for (int32_t i = 0; i < other->numWires; i++) {
    LRMOE_CHECK(GROW(machine->wires, machine->numWires, machine->maxWires));
    struct lrmoeWire wire = other->wires[i];
    wire.from += offset;
    wire.to += offset;
    machine->wires[machine->numWires++] = wire;
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeMachineJoin(struct lrmoeMachine *machine,
                               const struct lrmoeMachine *other,
                               int32_t copies) {
  LRMOE_REQUIRE(copies >= 1, "%d copies of a host", copies);
  if (copies == 1) LRMOE_CHECK(checkNewHosts(machine, other));
  int32_t first = machine->numNodes;
  for (int32_t copy = 0; copy < copies; copy++) {
    int32_t offset = machine->numNodes;
    LRMOE_CHECK(appendNodes(machine, other, copies == 1));
    LRMOE_CHECK(appendWires(machine, other, offset));
  }
  for (int32_t i = 0; i < other->numNotes; i++) {
    int32_t node = other->notes[i].node;
    LRMOE_CHECK(
        addNote(machine, node < 0 ? -1 : node + first, other->notes[i].text));
  }
  return lrmoeSuccess;
}

int32_t lrmoeMachineFind(const struct lrmoeMachine *machine, int32_t host,
                         int64_t bus, int32_t partition) {
  int32_t found = -1;
  for (int32_t i = 0; i < machine->numNodes; i++) {
    const struct lrmoeNode *node = &machine->nodes[i];
    if (node->bus != bus || node->host != host || bus == LRMOE_NO_BUS) continue;
    if (node->kind == lrmoeNodeGpu && node->partition != partition) continue;
    if (found < 0 || node->kind == lrmoeNodeGpu) found = i;
  }
  return found;
}
