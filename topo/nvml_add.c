/* Puts what NVML knows into the machine: see nvml.h.
 *
 * Each GPU states its own ends of links.  A link between two GPUs that NVML
 * shows counts where both state it: where they do not agree the lesser number
 * is taken, marked as guessed and said.  What only one end can state (a switch,
 * a processor, a GPU that is hidden from this process) is added both ways.  All
 * switches of a host are one, as in NCCL's files. */
#include "base/alloc.h"
#include "topo/nvml.h"

#include <stdlib.h>
#include <string.h>

/* One end of one link. */
struct end {
  enum lrmoeWireKind kind;
  int32_t low; /* the lesser node of the two */
  int32_t high;
  int32_t from; /* the GPU that states it */
  int64_t bytesPerSecond;
};

struct adder {
  const struct lrmoeNvml *nvml;
  struct lrmoeMachine *machine;
  int32_t host;      /* node */
  int32_t place;     /* node that GPUs which only NVML knows stand on */
  int32_t hub;       /* node of the NVSwitches, -1: none yet */
  int32_t *gpuNodes; /* [nvml->numGpus] */
  int32_t *numLost;  /* [nvml->numGpus] links whose other end is not known */
  struct end *ends;
  int32_t numEnds;
};

/* ---- GPUs --------------------------------------------------------------- */

/* The host, its switch and, where there is but one, its NUMA node: that is
 * where a GPU must be whose place the system does not show. */
static void survey(struct adder *adder) {
  int32_t numNumas = 0, numa = -1;
  adder->host = adder->hub = -1;
  for (int32_t i = 0; i < adder->machine->numNodes; i++) {
    lrmoeNodeKind_t kind = adder->machine->nodes[i].kind;
    if (kind == lrmoeNodeHost && adder->host < 0) adder->host = i;
    if (kind == lrmoeNodeSwitch && adder->hub < 0) adder->hub = i;
    if (kind != lrmoeNodeNuma) continue;
    numNumas++;
    numa = i;
  }
  adder->place = numNumas == 1 ? numa : adder->host;
}

static lrmoeResult_t addGpu(struct adder *adder, const struct lrmoeNvmlGpu *gpu,
                            int32_t *node) {
  struct lrmoeNode made = lrmoeMachineNode(lrmoeNodeGpu, adder->place);
  made.bus = gpu->bus;
  LRMOE_CHECK(lrmoeMachineAdd(adder->machine, &made, node));
  return lrmoeMachineNote(
      adder->machine, *node,
      "GPU %s is shown by NVML only: how near it is to anything is not known",
      adder->machine->nodes[*node].busText);
}

static lrmoeResult_t takeGpu(struct adder *adder, int32_t index) {
  const struct lrmoeNvmlGpu *gpu = &adder->nvml->gpus[index];
  int32_t node = lrmoeMachineFind(adder->machine, adder->host, gpu->bus, 0);
  if (node < 0 || adder->machine->nodes[node].kind != lrmoeNodeGpu)
    LRMOE_CHECK(addGpu(adder, gpu, &node));
  struct lrmoeNode *known = &adder->machine->nodes[node];
  known->index = gpu->index;
  if (!known->arch) known->arch = gpu->arch;
  if (!*known->name) memcpy(known->name, gpu->name, sizeof known->name);
  adder->gpuNodes[index] = node;
  return lrmoeSuccess;
}

static bool isShown(const struct adder *adder, int32_t node) {
  for (int32_t i = 0; i < adder->nvml->numGpus; i++)
    if (adder->gpuNodes[i] == node) return true;
  return false;
}

static lrmoeResult_t noteHidden(const struct adder *adder) {
  for (int32_t i = 0; i < adder->machine->numNodes; i++) {
    const struct lrmoeNode *node = &adder->machine->nodes[i];
    if (node->kind != lrmoeNodeGpu || isShown(adder, i)) continue;
    LRMOE_CHECK(lrmoeMachineNote(
        adder->machine, i,
        "NVML does not show GPU %s: it is hidden from this process, or another "
        "driver has it",
        node->busText));
  }
  return lrmoeSuccess;
}

/* ---- Ends --------------------------------------------------------------- */

static lrmoeResult_t findHub(struct adder *adder, int32_t *node) {
  if (adder->hub < 0) {
    struct lrmoeNode hub = lrmoeMachineNode(lrmoeNodeSwitch, -1);
    hub.host = adder->host;
    strcpy(hub.name, "NVSwitch");
    LRMOE_CHECK(lrmoeMachineAdd(adder->machine, &hub, &adder->hub));
  }
  *node = adder->hub;
  return lrmoeSuccess;
}

static int32_t numaOf(const struct lrmoeMachine *machine, int32_t node) {
  while (node >= 0 && machine->nodes[node].kind != lrmoeNodeNuma)
    node = machine->nodes[node].parent;
  return node;
}

/* The node at the other end, -1 where that is not known.  An NVSwitch that a
 * virtual machine hides has no address; but GPUs that a fabric has taken in, or
 * that have an NVSwitch in sight, have all their other links there. */
static lrmoeResult_t findPeer(struct adder *adder,
                              const struct lrmoeNvmlLink *link,
                              struct end *end) {
  const struct lrmoeMachine *machine = adder->machine;
  bool isOpen = link->peer == lrmoeNvmlPeerUnknown;
  bool mayBeSwitched =
      adder->nvml->gpus[link->gpu].isInFabric || adder->hub >= 0;
  int32_t peer = lrmoeMachineFind(machine, adder->host, link->bus, 0);
  bool isGpu = peer >= 0 && machine->nodes[peer].kind == lrmoeNodeGpu;
  end->kind = lrmoeWireNvlink;
  end->high = -1;
  if ((isOpen || link->peer == lrmoeNvmlPeerGpu) && isGpu) {
    end->high = peer;
  } else if (link->peer == lrmoeNvmlPeerSwitch || (isOpen && mayBeSwitched)) {
    return findHub(adder, &end->high);
  } else if (link->peer == lrmoeNvmlPeerCpu) {
    end->kind = lrmoeWireC2c;
    end->high = numaOf(machine, end->from);
  }
  return lrmoeSuccess;
}

static lrmoeResult_t takeLink(struct adder *adder,
                              const struct lrmoeNvmlLink *link) {
  struct end end = {.from = adder->gpuNodes[link->gpu],
                    .bytesPerSecond = link->bytesPerSecond};
  LRMOE_CHECK(findPeer(adder, link, &end));
  if (end.high < 0 || end.high == end.from) {
    adder->numLost[link->gpu]++;
    return lrmoeSuccess;
  }
  end.low = end.high < end.from ? end.high : end.from;
  end.high = end.high < end.from ? end.from : end.high;
  adder->ends[adder->numEnds++] = end;
  return lrmoeSuccess;
}

static lrmoeResult_t noteLost(const struct adder *adder) {
  for (int32_t i = 0; i < adder->nvml->numGpus; i++)
    if (adder->numLost[i])
      LRMOE_CHECK(lrmoeMachineNote(
          adder->machine, adder->gpuNodes[i],
          "GPU %s: %d NVLinks are left out: what they lead to is not known",
          adder->machine->nodes[adder->gpuNodes[i]].busText,
          adder->numLost[i]));
  return lrmoeSuccess;
}

/* ---- Links -------------------------------------------------------------- */

static int compareEnds(const void *left, const void *right) {
  const struct end *a = left, *b = right;
  if (a->low != b->low) return a->low < b->low ? -1 : 1;
  if (a->high != b->high) return a->high < b->high ? -1 : 1;
  return (a->from > b->from) - (a->from < b->from);
}

/* All ends between two nodes: those of one, then those of the other. */
static lrmoeResult_t connect(struct adder *adder, const struct end *ends,
                             int32_t count) {
  struct lrmoeWire wire = {
      .kind = ends->kind, .from = ends->low, .to = ends->high};
  int64_t rate = 0;
  int32_t numLow = 0;
  for (int32_t i = 0; i < count; i++) {
    int64_t stated = ends[i].bytesPerSecond;
    numLow += ends[i].from == ends->low;
    if (stated && (!rate || stated < rate)) rate = stated;
  }
  int32_t numHigh = count - numLow;
  wire.count = numLow < numHigh ? numLow : numHigh;
  if (!isShown(adder, wire.from) || !isShown(adder, wire.to)) {
    wire.count = count;
  } else if (numLow != numHigh) {
    wire.rate.guessed = true;
    LRMOE_CHECK(lrmoeMachineNote(
        adder->machine, wire.from,
        "GPU %s states %d NVLinks to GPU %s, which states %d: the lesser "
        "number is taken",
        adder->machine->nodes[wire.from].busText, numLow,
        adder->machine->nodes[wire.to].busText, numHigh));
  }
  wire.rate.bytesPerSecond = rate * wire.count;
  if (!wire.count) return lrmoeSuccess;
  return lrmoeMachineConnectBoth(adder->machine, wire);
}

static lrmoeResult_t connectAll(struct adder *adder) {
  qsort(adder->ends, (size_t)adder->numEnds, sizeof *adder->ends, compareEnds);
  for (int32_t first = 0, next; first < adder->numEnds; first = next) {
    const struct end *end = &adder->ends[first];
    next = first + 1;
    while (next < adder->numEnds && adder->ends[next].low == end->low &&
           adder->ends[next].high == end->high)
      next++;
    LRMOE_CHECK(connect(adder, end, next - first));
  }
  return lrmoeSuccess;
}

/* ---- All ---------------------------------------------------------------- */

static lrmoeResult_t addAll(struct adder *adder) {
  const struct lrmoeNvml *nvml = adder->nvml;
  LRMOE_CHECK(LRMOE_ALLOCATE(nvml->numGpus, &adder->gpuNodes));
  LRMOE_CHECK(LRMOE_ALLOCATE(nvml->numGpus, &adder->numLost));
  LRMOE_CHECK(LRMOE_ALLOCATE(nvml->numLinks, &adder->ends));
  for (int32_t i = 0; i < nvml->numGpus; i++)
    LRMOE_CHECK(takeGpu(adder, i));
  LRMOE_CHECK(noteHidden(adder));
  for (int32_t i = 0; i < nvml->numLinks; i++)
    LRMOE_CHECK(takeLink(adder, &nvml->links[i]));
  LRMOE_CHECK(noteLost(adder));
  return connectAll(adder);
}

lrmoeResult_t lrmoeNvmlAdd(const struct lrmoeNvml *nvml,
                           struct lrmoeMachine *machine) {
  if (!nvml->numGpus) return lrmoeSuccess;
  struct adder adder = {.nvml = nvml, .machine = machine};
  survey(&adder);
  lrmoeResult_t result = addAll(&adder);
  lrmoeFree(adder.gpuNodes);
  lrmoeFree(adder.numLost);
  lrmoeFree(adder.ends);
  return result;
}
