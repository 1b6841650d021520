/* Paths through the machine: see path.h.
 *
 * GPUs with a link of their own use it, then a common NVSwitch, then the PCI
 * tree; ranks of different hosts go through their ports.  In the tree parents
 * have lower numbers than their children, so that of two nodes the higher one
 * can always be replaced by its parent until both are the same.  Two PCI
 * switches that are peers are parts of one chip: what stands below them meets
 * there and not in the processor. */
#include "topo/path.h"

static void visit(const struct lrmoeVisitor *visitor, int32_t edge,
                  bool isNear) {
  if (visitor) visitor->visit(visitor->context, edge, 1, isNear);
}

int32_t lrmoeNumEdges(const struct lrmoeTopology *topology) {
  return 2 * topology->machine.numNodes + topology->machine.numWires;
}

int32_t lrmoeWireFind(const struct lrmoeMachine *machine, int32_t from,
                      int32_t to, enum lrmoeWireKind kind) {
  int32_t low = 0, high = machine->numWires;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    const struct lrmoeWire *wire = &machine->wires[middle];
    if (wire->from == from && wire->to == to && wire->kind == kind)
      return middle;
    bool isBefore = wire->from != from ? wire->from < from
                    : wire->to != to   ? wire->to < to
                                       : wire->kind < kind;
    if (isBefore)
      low = middle + 1;
    else
      high = middle;
  }
  return -1;
}

/* ---- The tree ----------------------------------------------------------- */

static int32_t meeting(const struct lrmoeNode *nodes, int32_t a, int32_t b) {
  while (a != b) {
    if (a > b)
      a = nodes[a].parent;
    else
      b = nodes[b].parent;
  }
  return a;
}

/* A GPU's C2C link to its processor takes the place of its PCI way there. */
static int32_t chipLink(const struct lrmoeMachine *machine, int32_t gpu,
                        bool up, int32_t *numa) {
  if (machine->nodes[gpu].kind != lrmoeNodeGpu) return -1;
  int32_t above = machine->nodes[gpu].parent;
  while (above >= 0 && machine->nodes[above].kind != lrmoeNodeNuma)
    above = machine->nodes[above].parent;
  if (above < 0) return -1;
  *numa = above;
  return up ? lrmoeWireFind(machine, gpu, above, lrmoeWireC2c)
            : lrmoeWireFind(machine, above, gpu, lrmoeWireC2c);
}

/* One leg, from a node up to an ancestor or down from there to the node. */
static void walkLeg(const struct lrmoeTopology *topology, int32_t node,
                    int32_t top, bool up, const struct lrmoeVisitor *visitor) {
  const struct lrmoeMachine *machine = &topology->machine;
  int32_t numa = -1, wire = -1;
  if (machine->nodes[top].kind == lrmoeNodeNuma ||
      machine->nodes[top].kind == lrmoeNodeHost)
    wire = chipLink(machine, node, up, &numa);
  if (wire >= 0) {
    visit(visitor, 2 * machine->numNodes + wire, up);
    node = numa;
  }
  for (; node != top; node = machine->nodes[node].parent)
    visit(visitor, 2 * topology->slots[node] + !up, up);
}

/* Ancestor of the node right below a host. */
static int32_t belowHost(const struct lrmoeNode *nodes, int32_t node) {
  while (nodes[nodes[node].parent].kind != lrmoeNodeHost)
    node = nodes[node].parent;
  return node;
}

static lrmoeLinkClass_t treeClass(lrmoeNodeKind_t top) {
  if (top == lrmoeNodeHost) return lrmoeLinkSockets;
  return top == lrmoeNodeNuma ? lrmoeLinkHostBridge : lrmoeLinkPci;
}

/* The wire between two peers below which the nodes stand, neither of them at or
 * above where their ways meet; -1: none. */
static int32_t peerWire(const struct lrmoeTopology *topology, int32_t from,
                        int32_t to, int32_t top) {
  int32_t left = topology->peerBridges[from];
  int32_t right = topology->peerBridges[to];
  if (left <= top || right <= top) return -1;
  return lrmoeWireFind(&topology->machine, left, right, lrmoeWirePciPeer);
}

static void walkPeers(const struct lrmoeTopology *topology, int32_t from,
                      int32_t to, int32_t wire,
                      const struct lrmoeVisitor *visitor) {
  const struct lrmoeMachine *machine = &topology->machine;
  walkLeg(topology, from, machine->wires[wire].from, true, visitor);
  visit(visitor, 2 * machine->numNodes + wire, true);
  walkLeg(topology, to, machine->wires[wire].to, false, visitor);
}

lrmoeLinkClass_t lrmoeTreeWalk(const struct lrmoeTopology *topology,
                               int32_t from, int32_t to,
                               const struct lrmoeVisitor *visitor) {
  const struct lrmoeMachine *machine = &topology->machine;
  int32_t top = meeting(machine->nodes, from, to);
  lrmoeNodeKind_t kind = machine->nodes[top].kind;
  int32_t peers = peerWire(topology, from, to, top);
  if (peers >= 0) {
    if (visitor) walkPeers(topology, from, to, peers, visitor);
    return lrmoeLinkPci;
  }
  if (!visitor) return treeClass(kind);
  int32_t left = top, right = top, wire = -1;
  if (kind == lrmoeNodeHost && from != top && to != top) {
    left = belowHost(machine->nodes, from);
    right = belowHost(machine->nodes, to);
    wire = lrmoeWireFind(machine, left, right, lrmoeWireCpu);
  }
  if (wire < 0) left = right = top;
  walkLeg(topology, from, left, true, visitor);
  if (wire >= 0) visit(visitor, 2 * machine->numNodes + wire, true);
  walkLeg(topology, to, right, false, visitor);
  return treeClass(kind);
}

/* ---- Between ranks ------------------------------------------------------ */

static lrmoeLinkClass_t walkWires(const struct lrmoeTopology *topology,
                                  int32_t from, int32_t to,
                                  const struct lrmoeVisitor *visitor) {
  const struct lrmoeMachine *machine = &topology->machine;
  int32_t base = 2 * machine->numNodes;
  int32_t wire = lrmoeWireFind(machine, from, to, lrmoeWireNvlink);
  if (wire < 0) wire = lrmoeWireFind(machine, from, to, lrmoeWireXgmi);
  if (wire >= 0) {
    visit(visitor, base + wire, true);
    return lrmoeLinkDirect;
  }
  int32_t hub = topology->switches[from];
  if (hub < 0 || hub != topology->switches[to]) return lrmoeLinkNone;
  visit(visitor, base + lrmoeWireFind(machine, from, hub, lrmoeWireNvlink),
        true);
  visit(visitor, base + lrmoeWireFind(machine, hub, to, lrmoeWireNvlink),
        false);
  return lrmoeLinkSwitched;
}

/* Counts the parts of a walk to or from one of several ports. */
struct split {
  const struct lrmoeVisitor *outer;
  int32_t parts;
  bool isNear;
};

static void visitPart(void *context, int32_t edge, int32_t parts, bool isNear) {
  const struct split *split = context;
  (void)parts;
  (void)isNear;
  split->outer->visit(split->outer->context, edge, split->parts, split->isNear);
}

void lrmoePortWalk(const struct lrmoeTopology *topology,
                   const struct lrmoePlace *place, bool isNear,
                   const struct lrmoeVisitor *visitor) {
  const struct lrmoeNode *nodes = topology->machine.nodes;
  struct split split = {visitor, place->numPorts, isNear};
  struct lrmoeVisitor part = {visitPart, &split};
  for (int32_t i = 0; i < place->numPorts; i++) {
    int32_t port = place->ports[i], nic = nodes[port].parent;
    if (isNear) lrmoeTreeWalk(topology, place->device, nic, &part);
    visit(&part, 2 * port + !isNear, isNear);
    if (!isNear) lrmoeTreeWalk(topology, nic, place->device, &part);
  }
}

static lrmoeLinkClass_t walkHosts(const struct lrmoeTopology *topology,
                                  const struct lrmoePlace *from,
                                  const struct lrmoePlace *to,
                                  const struct lrmoeVisitor *visitor) {
  if (!from->numPorts || !to->numPorts) return lrmoeLinkNone;
  if (visitor) {
    lrmoePortWalk(topology, from, true, visitor);
    lrmoePortWalk(topology, to, false, visitor);
  }
  return lrmoeLinkNic;
}

lrmoeLinkClass_t lrmoePathWalk(const struct lrmoeTopology *topology,
                               int32_t from, int32_t to,
                               const struct lrmoeVisitor *visitor) {
  if (from == to) return lrmoeLinkSelf;
  if (!topology->places) return lrmoeLinkMemory;
  const struct lrmoePlace *a = &topology->places[from];
  const struct lrmoePlace *b = &topology->places[to];
  const struct lrmoeNode *source = &topology->machine.nodes[a->device];
  const struct lrmoeNode *target = &topology->machine.nodes[b->device];
  bool isGpu = source->kind == lrmoeNodeGpu;
  if (a->device == b->device) return isGpu ? lrmoeLinkDevice : lrmoeLinkMemory;
  if (a->host == b->host && isGpu && source->bus == target->bus &&
      source->bus != LRMOE_NO_BUS)
    return lrmoeLinkDevice;
  if (isGpu) {
    lrmoeLinkClass_t wired = walkWires(topology, a->device, b->device, visitor);
    if (wired != lrmoeLinkNone) return wired;
  }
  if (a->host != b->host) return walkHosts(topology, a, b, visitor);
  return lrmoeTreeWalk(topology, a->device, b->device, visitor);
}

/* ---- Edges -------------------------------------------------------------- */

lrmoeLinkClass_t lrmoeEdgeClass(const struct lrmoeTopology *topology,
                                int32_t edge) {
  const struct lrmoeMachine *machine = &topology->machine;
  if (edge >= 2 * machine->numNodes) {
    const struct lrmoeWire *wire =
        &machine->wires[edge - 2 * machine->numNodes];
    if (wire->kind == lrmoeWireCpu || wire->kind == lrmoeWireC2c)
      return lrmoeLinkSockets;
    if (wire->kind == lrmoeWirePciPeer) return lrmoeLinkPci;
    bool isSwitched = machine->nodes[wire->from].kind == lrmoeNodeSwitch ||
                      machine->nodes[wire->to].kind == lrmoeNodeSwitch;
    return isSwitched ? lrmoeLinkSwitched : lrmoeLinkDirect;
  }
  switch (machine->nodes[edge / 2].kind) {
  case lrmoeNodePort:
    return lrmoeLinkNic;
  case lrmoeNodeNuma:
    return lrmoeLinkSockets;
  default:
    return lrmoeLinkPci;
  }
}

static const struct lrmoeRate *edgeRate(const struct lrmoeMachine *machine,
                                        int32_t edge) {
  return edge < 2 * machine->numNodes
             ? &machine->nodes[edge / 2].up
             : &machine->wires[edge - 2 * machine->numNodes].rate;
}

int64_t lrmoeScaleRate(const struct lrmoeScale *scale, int64_t rate) {
  if (!scale->denominator) return rate;
  int64_t scaled =
      (int64_t)((__extension__(unsigned __int128) rate) *
                (uint64_t)scale->numerator / (uint64_t)scale->denominator);
  return scaled > 0 ? scaled : 1;
}

int64_t lrmoeEdgeRate(const struct lrmoeTopology *topology, int32_t edge) {
  return lrmoeScaleRate(&topology->scales[lrmoeEdgeClass(topology, edge)],
                        edgeRate(&topology->machine, edge)->bytesPerSecond);
}

bool lrmoeEdgeGuessed(const struct lrmoeTopology *topology, int32_t edge) {
  return edgeRate(&topology->machine, edge)->guessed &&
         !topology->scales[lrmoeEdgeClass(topology, edge)].denominator;
}
