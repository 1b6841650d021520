/* Synthetic machines in one line: hwloc's description of processors, and after
 * a semicolon words of our own for what hwloc's grammar has none:
 *
 *     package:2 numa:1 core:8 pu:1; gpus=4 nvlink=450 nics=4 net=400
 *
 *   gpus=N      GPUs on each NUMA node
 *   nics=N      NICs on each, with one port
 *   switches=N  PCI switches on each, to which its GPUs and NICs are dealt out
 *   pci=GB/s    of every PCI link, one direction; unset: PCIe 5.0 x16
 *   net=Gb/s    of every port; unset: 400
 *   nvlink=GB/s from every GPU to the switch of its host
 *   mesh=GB/s   between every two GPUs of a host, directly
 *   cpu=GB/s    of a NUMA node to the others
 *
 * Figures that are set are stated, not guessed. */
#include "topo/live.h"
#include "topo/readers.h"

#include <hwloc.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxDevices = 64, /* on a NUMA node */
  maxDescription = 1 << 12
};

/* GB/s and Gb/s: more than any link or network has. */
static const double maxRate = 100000;
static const double pcieFive = 63.015385;

struct devices {
  int64_t gpus;
  int64_t nics;
  int64_t switches;
  double pci;
  double net;
  double nvlink;
  double mesh;
  double cpu;
};

/* ---- Words -------------------------------------------------------------- */

/* Where a word's value goes: one of the two. */
struct word {
  const char *name;
  int64_t *count;
  double *rate;
};

static lrmoeResult_t readWord(const char *text, const char *at, size_t length,
                              const struct word *word) {
  size_t head = strlen(word->name) + 1;
  char *end = NULL;
  double value = length > head ? strtod(at + head, &end) : -1;
  double most = word->count ? maxDevices : maxRate;
  bool isWhole = !word->count || value == (double)(int64_t)value;
  LRMOE_REQUIRE(end == at + length && value >= 0 && value <= most && isWhole,
                "synthetic machine, column %d: \"%.*s\" is not a%s number "
                "within 0..%g",
                (int)(at - text) + 1, (int)length, at,
                word->count ? " whole" : "", most);
  if (word->count)
    *word->count = (int64_t)value;
  else
    *word->rate = value;
  return lrmoeSuccess;
}

static lrmoeResult_t readWords(const char *text, const char *at,
                               struct devices *devices) {
  const struct word words[] = {{"gpus", &devices->gpus, NULL},
                               {"nics", &devices->nics, NULL},
                               {"switches", &devices->switches, NULL},
                               {"pci", NULL, &devices->pci},
                               {"net", NULL, &devices->net},
                               {"nvlink", NULL, &devices->nvlink},
                               {"mesh", NULL, &devices->mesh},
                               {"cpu", NULL, &devices->cpu}};
  size_t numWords = sizeof words / sizeof *words;
  for (;;) {
    while (isspace((unsigned char)*at))
      at++;
    size_t length = strcspn(at, " \t\r\n");
    if (!length) return lrmoeSuccess;
    size_t i = 0;
    while (i < numWords &&
           (strncmp(at, words[i].name, strlen(words[i].name)) != 0 ||
            at[strlen(words[i].name)] != '='))
      i++;
    LRMOE_REQUIRE(i < numWords,
                  "synthetic machine, column %d: \"%.*s\" is none of gpus=, "
                  "nics=, switches=, pci=, net=, nvlink=, mesh=, cpu=",
                  (int)(at - text) + 1, (int)length, at);
    LRMOE_CHECK(readWord(text, at, length, &words[i]));
    at += length;
  }
}

/* ---- Devices ------------------------------------------------------------ */

static struct lrmoeRate rateOf(double gigabytes) {
  return (struct lrmoeRate){.bytesPerSecond = (int64_t)(gigabytes * 1e9)};
}

static lrmoeResult_t addNic(struct lrmoeMachine *machine,
                            const struct devices *devices,
                            const struct lrmoeNode *nic, int64_t number) {
  int32_t index = 0;
  LRMOE_CHECK(lrmoeMachineAdd(machine, nic, &index));
  struct lrmoeNode port = lrmoeMachineNode(lrmoeNodePort, index);
  port.up = rateOf(devices->net / 8);
  snprintf(port.name, sizeof port.name, "port%lld", (long long)number);
  return lrmoeMachineAdd(machine, &port, &index);
}

/* Addresses: a bus per NUMA node and kind, a device per number. */
static int64_t busOf(int32_t place, int64_t kind, int64_t number) {
  return ((int64_t)place << 18 | kind << 16 | number << 8) & INT64_MAX;
}

/* Deals a NUMA node's devices out to its switches, if it has any. */
static lrmoeResult_t addDevices(struct lrmoeMachine *machine,
                                const struct devices *devices, int32_t numa,
                                int32_t place) {
  int32_t parents[maxDevices] = {0};
  for (int64_t i = 0; i < devices->switches; i++) {
    struct lrmoeNode node = lrmoeMachineNode(lrmoeNodeBridge, numa);
    node.bus = busOf(place, 0, i);
    node.up = rateOf(devices->pci);
    LRMOE_CHECK(lrmoeMachineAdd(machine, &node, &parents[i]));
  }
  for (int64_t i = 0; i < devices->gpus + devices->nics; i++) {
    bool isGpu = i < devices->gpus;
    int64_t number = isGpu ? i : i - devices->gpus;
    int32_t parent =
        devices->switches ? parents[number % devices->switches] : numa;
    struct lrmoeNode node =
        lrmoeMachineNode(isGpu ? lrmoeNodeGpu : lrmoeNodeNic, parent);
    int32_t index = 0;
    node.bus = busOf(place, isGpu ? 1 : 2, number);
    node.up = rateOf(devices->pci);
    node.index = isGpu ? (int32_t)(place * devices->gpus + number) : -1;
    LRMOE_CHECK(isGpu ? lrmoeMachineAdd(machine, &node, &index)
                      : addNic(machine, devices, &node,
                               place * devices->nics + number));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t connect(struct lrmoeMachine *machine, int32_t from,
                             int32_t to, double gigabytes) {
  return lrmoeMachineConnectBoth(machine,
                                 (struct lrmoeWire){.kind = lrmoeWireNvlink,
                                                    .from = from,
                                                    .to = to,
                                                    .rate = rateOf(gigabytes)});
}

static lrmoeResult_t addLinks(struct lrmoeMachine *machine,
                              const struct devices *devices, int32_t host) {
  int32_t numNodes = machine->numNodes;
  int32_t hub = -1;
  if (devices->nvlink > 0) {
    struct lrmoeNode node = lrmoeMachineNode(lrmoeNodeSwitch, -1);
    node.host = host;
    LRMOE_CHECK(lrmoeMachineAdd(machine, &node, &hub));
  }
  for (int32_t a = 0; a < numNodes; a++) {
    if (machine->nodes[a].kind != lrmoeNodeGpu) continue;
    if (hub >= 0) LRMOE_CHECK(connect(machine, a, hub, devices->nvlink));
    for (int32_t b = a + 1; b < numNodes && devices->mesh > 0; b++)
      if (machine->nodes[b].kind == lrmoeNodeGpu)
        LRMOE_CHECK(connect(machine, a, b, devices->mesh));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t addAll(struct lrmoeMachine *machine,
                            const struct devices *devices) {
  int32_t numNodes = machine->numNodes;
  int32_t place = 0;
  int32_t host = -1;
  for (int32_t i = 0; i < numNodes; i++) {
    if (machine->nodes[i].kind == lrmoeNodeHost) host = i;
    if (machine->nodes[i].kind != lrmoeNodeNuma) continue;
    if (devices->cpu > 0) machine->nodes[i].up = rateOf(devices->cpu);
    LRMOE_CHECK(addDevices(machine, devices, i, place++));
  }
  return addLinks(machine, devices, host);
}

/* ---- Processors: hwloc's ------------------------------------------------ */

static lrmoeResult_t readLocked(const char *description,
                                struct lrmoeMachine *machine) {
  hwloc_topology_t hwloc;
  if (hwloc_topology_init(&hwloc))
    return LRMOE_FAIL(lrmoeSystemError, "hwloc does not start: %s",
                      strerror(errno));
  lrmoeResult_t result = lrmoeSuccess;
  if (hwloc_topology_set_synthetic(hwloc, description) ||
      hwloc_topology_load(hwloc))
    result = LRMOE_FAIL(lrmoeInvalidArgument,
                        "hwloc knows no machine \"%.80s\"; one is \"package:2 "
                        "numa:1 core:8 pu:1\"",
                        description);
  if (result == lrmoeSuccess)
    result = lrmoeLiveExport(hwloc, "synthetic", NULL, machine);
  hwloc_topology_destroy(hwloc);
  return result;
}

static lrmoeResult_t readProcessors(const char *description,
                                    struct lrmoeMachine *machine) {
  lrmoeHwlocLock();
  lrmoeResult_t result = readLocked(description, machine);
  lrmoeHwlocUnlock();
  return result;
}

lrmoeResult_t lrmoeSyntheticRead(const char *text,
                                 struct lrmoeMachine *machine) {
  struct devices devices = {.pci = pcieFive, .net = 400};
  char processors[maxDescription];
  size_t length = strcspn(text, ";");
  LRMOE_REQUIRE(length < sizeof processors,
                "a synthetic machine of more than %d characters",
                maxDescription);
  memcpy(processors, text, length);
  processors[length] = '\0';
  if (text[length]) LRMOE_CHECK(readWords(text, text + length + 1, &devices));
  LRMOE_CHECK(readProcessors(processors, machine));
  return addAll(machine, &devices);
}
