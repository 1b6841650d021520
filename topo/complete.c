/* Guesses where the source is silent, or says what cannot be meant.
 *
 * A virtual machine shows invented bridges ("2.5 GT/s" x1 above a GPU of PCIe
 * 5), an empty speed or none: taking the least of a path would make such a
 * machine a hundred times too slow (NVIDIA/nccl-tests#256).  So a bridge that
 * is not credible is no bottleneck: it is as fast as the fastest below it.
 * Each guess is marked and said in a note. */
#include "base/alloc.h"
#include "topo/machine.h"

#include <stdlib.h>

enum {
  maxBundle = 1 << 20 /* links that are counted */
};

/* PCIe 3.0 x16: the slowest slot that this decade's GPUs are put in. */
static const int64_t defaultPciRate = 15753846153;
/* Ten-gigabit Ethernet, as NCCL takes it. */
static const int64_t defaultPortRate = 1250000000;
/* Of the processors that NCCL knows the middle. */
static const int64_t defaultCpuRate = 10000000000;
/* Of one link, as lrmoeMachineCheck has it. */
static const int64_t maxPeerRate = 1000000000000;
/* What virtual bridges and NICs in a chip set state: PCIe 1.0 x1. */
static const int64_t virtualRate = 250000000;
static const int64_t defaultWireRates[lrmoeNumWireKinds] = {
    25000000000, 46000000000, 200000000000, 31507692307, 32000000000};

static bool isPci(lrmoeNodeKind_t kind) {
  return kind == lrmoeNodeBridge || kind == lrmoeNodeGpu ||
         kind == lrmoeNodeNic;
}

static lrmoeResult_t guess(struct lrmoeMachine *machine, int32_t index,
                           int64_t rate, const char *why) {
  struct lrmoeNode *node = &machine->nodes[index];
  node->up.bytesPerSecond = rate;
  node->up.guessed = true;
  char name[lrmoeNameBytes];
  lrmoeNodePrint(node, name);
  return lrmoeMachineNote(machine, index, "%s: %s; guessed %lld MB/s", name,
                          why, (long long)(rate / 1000000));
}

/* The fastest PCI link right below each node. */
static void noteFastest(const struct lrmoeMachine *machine, int32_t index,
                        int64_t *fastest) {
  const struct lrmoeNode *node = &machine->nodes[index];
  if (node->parent >= 0 && isPci(node->kind) &&
      fastest[node->parent] < node->up.bytesPerSecond)
    fastest[node->parent] = node->up.bytesPerSecond;
}

static lrmoeResult_t completeBridge(struct lrmoeMachine *machine, int32_t index,
                                    int64_t fastest) {
  const struct lrmoeNode *node = &machine->nodes[index];
  if (node->kind != lrmoeNodeBridge) return lrmoeSuccess;
  int64_t stated = node->up.bytesPerSecond;
  if (!stated && fastest)
    return guess(machine, index, fastest, "no link speed is stated");
  if (stated && stated <= virtualRate && fastest > stated)
    return guess(machine, index, fastest,
                 "a link slower than what is below it, as virtual bridges "
                 "state it");
  return lrmoeSuccess;
}

/* Children come after their parents, so that one pass from the end sees every
 * subtree before its root. */
static lrmoeResult_t completeBridges(struct lrmoeMachine *machine) {
  int64_t *fastest = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(machine->numNodes, &fastest));
  lrmoeResult_t result = lrmoeSuccess;
  for (int32_t i = machine->numNodes - 1; i >= 0 && !result; i--) {
    result = completeBridge(machine, i, fastest[i]);
    noteFastest(machine, i, fastest);
  }
  lrmoeFree(fastest);
  return result;
}

/* What the ports of each NIC move together, as far as it is stated. */
static void sumPorts(const struct lrmoeMachine *machine, int64_t *sums) {
  for (int32_t i = 0; i < machine->numNodes; i++) {
    const struct lrmoeNode *node = &machine->nodes[i];
    if (node->kind == lrmoeNodePort && sums[node->parent] <= LRMOE_MAX_RATE)
      sums[node->parent] += node->up.bytesPerSecond;
  }
}

/* A device that the source is silent about is no bottleneck for its ports, or
 * as fast as its bridge. */
static lrmoeResult_t completeDevice(struct lrmoeMachine *machine, int32_t index,
                                    int64_t portSum) {
  const struct lrmoeNode *node = &machine->nodes[index];
  int64_t stated = node->up.bytesPerSecond;
  if (stated && stated <= virtualRate && portSum > stated)
    return guess(machine, index, portSum,
                 "a link slower than its ports, as virtual and built-in NICs "
                 "state it");
  if (!isPci(node->kind) || stated) return lrmoeSuccess;
  const struct lrmoeNode *parent = &machine->nodes[node->parent];
  int64_t rate = parent->kind == lrmoeNodeBridge ? parent->up.bytesPerSecond
                                                 : defaultPciRate;
  return guess(machine, index, portSum ? portSum : rate,
               "no link speed is stated");
}

static lrmoeResult_t completePci(struct lrmoeMachine *machine) {
  int64_t *sums = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(machine->numNodes, &sums));
  sumPorts(machine, sums);
  lrmoeResult_t result = lrmoeSuccess;
  for (int32_t i = 0; i < machine->numNodes && !result; i++)
    result = completeDevice(machine, i, sums[i]);
  lrmoeFree(sums);
  return result;
}

/* A port moves what its slot can, or what Ethernet of old does without one. */
static int64_t guessPort(const struct lrmoeMachine *machine,
                         const struct lrmoeNode *port) {
  const struct lrmoeNode *nic = &machine->nodes[port->parent];
  return nic->bus == LRMOE_NO_BUS ? defaultPortRate : nic->up.bytesPerSecond;
}

static lrmoeResult_t completeOther(struct lrmoeMachine *machine,
                                   int32_t index) {
  const struct lrmoeNode *node = &machine->nodes[index];
  if (node->up.bytesPerSecond) return lrmoeSuccess;
  if (node->kind == lrmoeNodeNuma)
    return guess(machine, index, defaultCpuRate,
                 "the rate of the CPU interconnect is not stated");
  if (node->kind == lrmoeNodePort)
    return guess(machine, index, guessPort(machine, node),
                 "no network speed is stated");
  return lrmoeSuccess;
}

static lrmoeResult_t completeOthers(struct lrmoeMachine *machine) {
  for (int32_t i = 0; i < machine->numNodes; i++)
    LRMOE_CHECK(completeOther(machine, i));
  return lrmoeSuccess;
}

static int64_t greater(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* A part of a switch's chip hands on whatever the devices of another can send:
 * what stands below either, all together. */
static lrmoeResult_t completePeers(struct lrmoeMachine *machine,
                                   int64_t *sums) {
  for (int32_t i = 0; i < machine->numNodes; i++) {
    const struct lrmoeNode *node = &machine->nodes[i];
    if (isPci(node->kind) && sums[node->parent] < maxPeerRate)
      sums[node->parent] += node->up.bytesPerSecond;
  }
  for (int32_t i = 0; i < machine->numWires; i++) {
    struct lrmoeWire *wire = &machine->wires[i];
    if (wire->kind != lrmoeWirePciPeer || wire->rate.bytesPerSecond) continue;
    int64_t sum = greater(sums[wire->from], sums[wire->to]);
    wire->rate.bytesPerSecond = sum < maxPeerRate ? sum : maxPeerRate;
    wire->rate.guessed = true;
    if (!sum) continue;
    LRMOE_CHECK(lrmoeMachineNote(
        machine, wire->from,
        "bridge %s: how fast it reaches its peer %s is not stated; guessed "
        "%lld "
        "MB/s, as what is below them",
        machine->nodes[wire->from].busText, machine->nodes[wire->to].busText,
        (long long)(wire->rate.bytesPerSecond / 1000000)));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t completePciPeers(struct lrmoeMachine *machine) {
  int64_t *sums = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(machine->numNodes, &sums));
  lrmoeResult_t result = completePeers(machine, sums);
  lrmoeFree(sums);
  return result;
}

static lrmoeResult_t completeWires(struct lrmoeMachine *machine) {
  for (int32_t i = 0; i < machine->numWires; i++) {
    struct lrmoeWire *wire = &machine->wires[i];
    if (wire->rate.bytesPerSecond) continue;
    int64_t links = wire->count > 0 ? wire->count : 1;
    if (links > maxBundle) links = maxBundle;
    wire->rate.bytesPerSecond = links * defaultWireRates[wire->kind];
    wire->rate.guessed = true;
    char name[lrmoeNameBytes];
    lrmoeNodePrint(&machine->nodes[wire->from], name);
    LRMOE_CHECK(lrmoeMachineNote(
        machine, wire->from,
        "%s: the rate of its links is not known; guessed "
        "%lld MB/s each",
        name, (long long)(defaultWireRates[wire->kind] / 1000000)));
  }
  return lrmoeSuccess;
}

static int compareWires(const void *left, const void *right) {
  const struct lrmoeWire *a = left, *b = right;
  if (a->from != b->from) return a->from < b->from ? -1 : 1;
  if (a->to != b->to) return a->to < b->to ? -1 : 1;
  return (a->kind > b->kind) - (a->kind < b->kind);
}

/* Sums stay below what lrmoeMachineCheck refuses, plus one wire's. */
static void mergeWires(struct lrmoeMachine *machine) {
  struct lrmoeWire *wires = machine->wires;
  if (!machine->numWires) return;
  qsort(wires, (size_t)machine->numWires, sizeof *wires, compareWires);
  int32_t kept = 0;
  for (int32_t i = 1; i < machine->numWires; i++) {
    struct lrmoeWire *last = &wires[kept];
    if (compareWires(last, &wires[i]) != 0) {
      wires[++kept] = wires[i];
      continue;
    }
    if (last->count < maxBundle) last->count += wires[i].count;
    if (last->rate.bytesPerSecond <= LRMOE_MAX_RATE)
      last->rate.bytesPerSecond += wires[i].rate.bytesPerSecond;
    last->rate.guessed = last->rate.guessed || wires[i].rate.guessed;
  }
  machine->numWires = kept + 1;
}

lrmoeResult_t lrmoeMachineComplete(struct lrmoeMachine *machine) {
  LRMOE_CHECK(lrmoeMachineSort(machine));
  LRMOE_CHECK(completeBridges(machine));
  LRMOE_CHECK(completePci(machine));
  LRMOE_CHECK(completeOthers(machine));
  LRMOE_CHECK(completePciPeers(machine));
  LRMOE_CHECK(completeWires(machine));
  mergeWires(machine);
  return lrmoeSuccess;
}
