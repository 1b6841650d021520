/* Random machines against a slow and simple computation from the public views
 * alone: the rate of every link, and the time of random traffic. */
#include "base/hash.h"
#include "topo/machine.h"
#include "topo/open.h"
#include "topo/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxNodes = 160,
  maxRanks = 32
};

static uint64_t state;

static int below(int limit) {
  return (int)(lrmoeMix(++state) % (uint64_t)limit);
}

static int add(struct lrmoeMachine *machine, lrmoeNodeKind_t kind, int parent) {
  static int64_t nextBus;
  struct lrmoeNode node = lrmoeMachineNode(kind, parent);
  int32_t index = -1;
  nextBus += 8;
  if (kind >= lrmoeNodeBridge && kind <= lrmoeNodeNic) node.bus = nextBus;
  node.up.bytesPerSecond = 1000000000 + (int64_t)below(1000) * 7777777;
  ASSERT_OK(lrmoeMachineAdd(machine, &node, &index));
  return index;
}

/* Bridges up to three deep, GPUs and single-port NICs among them. */
static void addBelow(struct lrmoeMachine *machine, int parent, int depth) {
  int numChildren = 1 + below(3);
  for (int i = 0; i < numChildren; i++) {
    int what = below(depth < 3 ? 4 : 3);
    if (what == 3)
      addBelow(machine, add(machine, lrmoeNodeBridge, parent), depth + 1);
    else if (what == 2)
      add(machine, lrmoeNodePort, add(machine, lrmoeNodeNic, parent));
    else if (machine->numNodes < maxNodes / 2)
      add(machine, lrmoeNodeGpu, parent);
  }
}

static void wire(struct lrmoeMachine *machine, int a, int b) {
  struct lrmoeWire one = {
      .kind = lrmoeWireNvlink, .from = a, .to = b, .count = 1};
  one.rate.bytesPerSecond = 20000000000 + (int64_t)below(100) * 1000000;
  ASSERT_OK(lrmoeMachineConnect(machine, &one));
  one.from = b;
  one.to = a;
  ASSERT_OK(lrmoeMachineConnect(machine, &one));
}

static void addWires(struct lrmoeMachine *machine) {
  for (int a = 0; a < machine->numNodes; a++)
    for (int b = a + 1; b < machine->numNodes; b++)
      if (machine->nodes[a].kind == lrmoeNodeGpu &&
          machine->nodes[b].kind == lrmoeNodeGpu && below(4) == 0)
        wire(machine, a, b);
}

static lrmoeTopology_t makeRandom(int seed) {
  struct lrmoeMachine one = {0}, all = {0};
  struct lrmoeModelConfig config = {0};
  lrmoeTopology_t topology = NULL;
  state = (uint64_t)seed * 1000003;
  int host = add(&one, lrmoeNodeHost, -1);
  for (int i = below(3); i >= 0; i--) {
    int numa = add(&one, lrmoeNodeNuma, host);
    add(&one, lrmoeNodeGpu, numa);
    addBelow(&one, numa, 0);
  }
  if (seed % 2) addWires(&one);
  ASSERT_OK(lrmoeMachineComplete(&one));
  ASSERT_OK(lrmoeMachineCheck(&one, "random"));
  ASSERT_OK(lrmoeMachineJoin(&all, &one, 1 + seed % 2));
  lrmoeMachineFree(&one);
  ASSERT_OK(lrmoeModelBuild(&all, &config, &topology));
  return topology;
}

/* ---- The slow computation ------------------------------------------------ */

/* loads: [2 * nodes + wires], as many bytes as go over each direction. */
struct slow {
  lrmoeTopology_t topology;
  int64_t loads[2 * maxNodes * 2 + 4096];
  int numNodes;
};

static int64_t rateOf(const struct slow *slow, int edge) {
  lrmoeTopologyWire_t view = LRMOE_TOPOLOGY_WIRE_INITIALIZER;
  if (edge < 2 * slow->numNodes)
    return nodeOf(slow->topology, edge / 2).bytesPerSecond;
  ASSERT_OK(
      lrmoeTopologyGetWire(slow->topology, edge - 2 * slow->numNodes, &view));
  return view.bytesPerSecond;
}

static int isAncestor(const struct slow *slow, int above, int node) {
  while (node >= 0 && node != above)
    node = nodeOf(slow->topology, node).parent;
  return node == above;
}

/* Adds bytes to each edge between two nodes of a host; gives the slowest. */
static int64_t throughTree(struct slow *slow, int from, int to, int64_t bytes) {
  int64_t slowest = INT64_MAX;
  for (int side = 0; side < 2; side++) {
    int node = side ? to : from, other = side ? from : to;
    for (; !isAncestor(slow, node, other);
         node = nodeOf(slow->topology, node).parent) {
      int edge = 2 * node + side;
      slow->loads[edge] += bytes;
      if (rateOf(slow, edge) < slowest) slowest = rateOf(slow, edge);
    }
  }
  return slowest;
}

static int findWire(const struct slow *slow, int from, int to) {
  for (int i = 0; i < infoOf(slow->topology).numWires; i++) {
    lrmoeTopologyWire_t view = LRMOE_TOPOLOGY_WIRE_INITIALIZER;
    ASSERT_OK(lrmoeTopologyGetWire(slow->topology, i, &view));
    if (view.from == from && view.to == to) return i;
  }
  return -1;
}

static int64_t lesser(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Out of a rank's host, or into it; parts are rounded up. */
static int64_t throughPorts(struct slow *slow, int rank, int isOut,
                            int64_t bytes) {
  lrmoeTopologyRank_t view = rankOf(slow->topology, rank);
  int64_t slowest = INT64_MAX;
  int64_t part = (bytes + view.numPorts - 1) / view.numPorts;
  for (int i = 0; i < view.numPorts; i++) {
    int port = view.ports[i], nic = nodeOf(slow->topology, port).parent;
    slowest = lesser(slowest, isOut ? throughTree(slow, view.node, nic, part)
                                    : throughTree(slow, nic, view.node, part));
    slow->loads[2 * port + !isOut] += part;
    slowest = lesser(slowest, rateOf(slow, 2 * port));
  }
  return slowest;
}

/* Rate of the way, 0: none; -1: not compared (several ports). */
static int64_t send(struct slow *slow, int from, int to, int64_t bytes) {
  lrmoeTopologyRank_t a = rankOf(slow->topology, from);
  lrmoeTopologyRank_t b = rankOf(slow->topology, to);
  int direct = findWire(slow, a.node, b.node);
  if (direct >= 0) {
    slow->loads[2 * slow->numNodes + direct] += bytes;
    return rateOf(slow, 2 * slow->numNodes + direct);
  }
  if (a.host == b.host) return throughTree(slow, a.node, b.node, bytes);
  if (!a.numPorts || !b.numPorts) return 0;
  int64_t out = throughPorts(slow, from, 1, bytes);
  int64_t in = throughPorts(slow, to, 0, bytes);
  return a.numPorts == 1 && b.numPorts == 1 ? lesser(out, in) : -1;
}

static int64_t slowestNs(const struct slow *slow, int64_t latencyNs) {
  int64_t ns = 0;
  int numEdges = 2 * slow->numNodes + infoOf(slow->topology).numWires;
  for (int i = 0; i < numEdges; i++) {
    if (!slow->loads[i]) continue;
    int64_t rate = rateOf(slow, i);
    int64_t mine = (slow->loads[i] * 1000000000 + rate - 1) / rate;
    if (mine > ns) ns = mine;
  }
  return ns + latencyNs;
}

/* Fills random traffic, and checks the rate of each link on the way. */
static int64_t fillTraffic(struct slow *slow, int numRanks, int64_t *bytes) {
  int64_t latencyNs = 0;
  for (int from = 0; from < numRanks; from++)
    for (int to = 0; to < numRanks; to++) {
      lrmoeLink_t link = linkOf(slow->topology, from, to);
      int64_t *mine = &bytes[from * numRanks + to];
      *mine = from == to || link.linkClass == lrmoeLinkNone || below(3) == 0
                  ? 0
                  : below(1000000);
      if (from == to) continue;
      int64_t rate = send(slow, from, to, *mine);
      if (rate >= 0) ck_assert_int_eq(link.bytesPerSecond, rate);
      if (*mine && link.latencyNs > latencyNs) latencyNs = link.latencyNs;
    }
  return latencyNs;
}

START_TEST(randomMachine) {
  static struct slow slow;
  static int64_t bytes[maxRanks * maxRanks];
  memset(&slow, 0, sizeof slow);
  slow.topology = makeRandom(_i);
  lrmoeTopologyInfo_t info = infoOf(slow.topology);
  slow.numNodes = info.numNodes;
  int64_t ns = -1;
  ck_assert(info.numRanks <= maxRanks && info.numNodes <= 2 * maxNodes);
  int64_t latencyNs = fillTraffic(&slow, info.numRanks, bytes);
  ASSERT_OK(lrmoeTopologyTrafficNs(slow.topology, bytes, &ns));
  ck_assert_int_eq(ns, slowestNs(&slow, latencyNs));
  lrmoeTopologyDestroy(slow.topology);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("random");
  TCase *tcase = tcase_create("random");
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, randomMachine, 0, 60);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
