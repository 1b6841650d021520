/* The links of NCCL's topology XML: nvlink, xgmi and c2c elements below gpu
 * elements and pcilink elements below switches, once all of these are nodes.
 *
 * A link between two GPUs is stated by both; one to a switch or a processor by
 * the GPU only, and both its directions are added here.  All switches of a
 * host are one: what counts is how much each GPU has towards them.  In a file
 * of several hosts the switch joins them (NCCL writes such files for hosts of
 * one NVLink domain).
 *
 * A pcilink names a PCI switch that is a part of the same chip (Broadcom's PEX
 * shows itself as several switches), so that what stands below the two need
 * not go through the processor.  Both parts name each other; no rate is
 * stated, and NCCL takes it for unlimited. */
#include "base/alloc.h"
#include "topo/nccl.h"

#include <stdlib.h>
#include <string.h>

enum {
  classSwitch = 0x068000,
  classProcessor = 0x068001, /* POWER9: NVLink into the CPU */
  maxCount = 1000,           /* links that an element may state */
  bridgePartition = -1
};

/* A GPU or a bridge by its address, sorted. */
struct entry {
  int32_t host;      /* node */
  int32_t partition; /* of a GPU */
  int64_t bus;
  int32_t node;
};

struct linker {
  struct lrmoeNccl *reader;
  struct entry *entries;
  int32_t numEntries;
  int32_t host; /* number of the host whose cpu is being read */
  int32_t cpu;  /* its NUMA node */
};

static int compareEntries(const void *left, const void *right) {
  const struct entry *a = left, *b = right;
  if (a->host != b->host) return a->host < b->host ? -1 : 1;
  if (a->bus != b->bus) return a->bus < b->bus ? -1 : 1;
  return (a->partition > b->partition) - (a->partition < b->partition);
}

static lrmoeResult_t listNodes(struct linker *linker) {
  const struct lrmoeMachine *machine = linker->reader->machine;
  LRMOE_CHECK(LRMOE_ALLOCATE(machine->numNodes, &linker->entries));
  for (int32_t i = 0; i < machine->numNodes; i++) {
    const struct lrmoeNode *node = &machine->nodes[i];
    bool isGpu = node->kind == lrmoeNodeGpu;
    if (isGpu || node->kind == lrmoeNodeBridge)
      linker->entries[linker->numEntries++] = (struct entry){
          node->host, isGpu ? node->partition : bridgePartition, node->bus, i};
  }
  qsort(linker->entries, (size_t)linker->numEntries, sizeof *linker->entries,
        compareEntries);
  return lrmoeSuccess;
}

/* Node of the GPU or bridge, -1 without it. */
static int32_t findNode(const struct linker *linker, int64_t bus,
                        int32_t partition) {
  struct entry key = {linker->reader->hosts[linker->host], partition, bus, -1};
  const struct entry *found =
      bsearch(&key, linker->entries, (size_t)linker->numEntries, sizeof key,
              compareEntries);
  return found ? found->node : -1;
}

static lrmoeResult_t findSwitch(struct linker *linker, int32_t *node) {
  struct lrmoeNccl *reader = linker->reader;
  int32_t slot = reader->numHosts > 1 ? 0 : linker->host;
  if (reader->switches[slot] < 0) {
    struct lrmoeNode made = lrmoeMachineNode(lrmoeNodeSwitch, -1);
    made.host = reader->numHosts > 1 ? -1 : reader->hosts[linker->host];
    strcpy(made.name, "NVSwitch");
    LRMOE_CHECK(
        lrmoeMachineAdd(reader->machine, &made, &reader->switches[slot]));
  }
  *node = reader->switches[slot];
  return lrmoeSuccess;
}

static lrmoeResult_t noteLink(struct linker *linker, const xmlNode *element,
                              const char *what) {
  return lrmoeMachineNote(linker->reader->machine, -1,
                          "%s:%ld: <%s> to %s, which is left out",
                          linker->reader->source, xmlGetLineNo(element),
                          (const char *)element->name, what);
}

static lrmoeResult_t readCount(struct linker *linker, const xmlNode *element,
                               int32_t *count) {
  struct lrmoeXmlNumber number = {
      linker->reader->source, element, "count", 1, maxCount, 1};
  int64_t value = 0;
  LRMOE_CHECK(lrmoeXmlInteger(&number, &value));
  *count = (int32_t)value;
  return lrmoeSuccess;
}

/* bw is in MB/s a link. */
static lrmoeResult_t addC2c(struct linker *linker, const xmlNode *element,
                            struct lrmoeWire *wire) {
  struct lrmoeXmlNumber number = {
      linker->reader->source, element, "bw", 0, 100000000, 0};
  int64_t megabytes = 0;
  LRMOE_CHECK(lrmoeXmlInteger(&number, &megabytes));
  wire->kind = lrmoeWireC2c;
  wire->to = linker->cpu;
  wire->rate.bytesPerSecond = megabytes * 1000000 * wire->count;
  return lrmoeMachineConnectBoth(linker->reader->machine, *wire);
}

static lrmoeResult_t readTarget(const struct linker *linker,
                                const xmlNode *element, int64_t *bus) {
  const char *target = lrmoeXmlText(element, "target");
  *bus = target ? lrmoeBusParse(target) : LRMOE_NO_BUS;
  LRMOE_REQUIRE(*bus != LRMOE_NO_BUS,
                "%s:%ld: target=\"%.40s\" of <%s> is no PCI address",
                linker->reader->source, xmlGetLineNo(element),
                target ? target : "", (const char *)element->name);
  return lrmoeSuccess;
}

static lrmoeResult_t addToGpu(struct linker *linker, const xmlNode *element,
                              struct lrmoeWire *wire) {
  int64_t bus = LRMOE_NO_BUS;
  LRMOE_CHECK(readTarget(linker, element, &bus));
  if (bus == linker->reader->machine->nodes[wire->from].bus)
    return noteLink(linker, element, "the GPU itself");
  wire->to = findNode(linker, bus, 0);
  if (wire->to < 0)
    return noteLink(linker, element, "a GPU that is not in the file");
  return lrmoeMachineConnect(linker->reader->machine, wire);
}

/* A switch that a virtual machine hides has target fffffff:ff:ff.0. */
static int32_t targetClass(const xmlNode *element) {
  const char *text = lrmoeXmlText(element, "tclass");
  return text ? (int32_t)(strtoul(text, NULL, 16) & 0xffffff) : 0;
}

static lrmoeResult_t addLink(struct linker *linker, const xmlNode *element,
                             int32_t gpu) {
  struct lrmoeWire wire = {.kind = lrmoeWireNvlink, .from = gpu};
  LRMOE_CHECK(readCount(linker, element, &wire.count));
  if (lrmoeXmlIs(element, "c2c")) return addC2c(linker, element, &wire);
  bool isXgmi = lrmoeXmlIs(element, "xgmi");
  int32_t arch = linker->reader->machine->nodes[gpu].arch;
  int64_t one = isXgmi ? lrmoeXgmiRate(arch) : lrmoeNvlinkRate(arch);
  wire.kind = isXgmi ? lrmoeWireXgmi : lrmoeWireNvlink;
  wire.rate.bytesPerSecond = one * wire.count;
  int32_t pciClass = targetClass(element);
  if (pciClass == classSwitch) {
    LRMOE_CHECK(findSwitch(linker, &wire.to));
    return lrmoeMachineConnectBoth(linker->reader->machine, wire);
  }
  if (pciClass == classProcessor) {
    wire.kind = lrmoeWireC2c;
    wire.to = linker->cpu;
    return lrmoeMachineConnectBoth(linker->reader->machine, wire);
  }
  return addToGpu(linker, element, &wire);
}

/* The node of a gpu element: by address and part, as it was added. */
static lrmoeResult_t addLinksOf(struct linker *linker, const xmlNode *pci) {
  int64_t bus = lrmoeBusParse(lrmoeXmlText(pci, "busid"));
  int32_t sibling = 0;
  for (xmlNode *gpu = lrmoeXmlFirst(pci); gpu; gpu = lrmoeXmlNext(gpu)) {
    if (!lrmoeXmlIs(gpu, "gpu")) continue;
    struct lrmoeXmlNumber number = {
        linker->reader->source, gpu, "mlopart", -1, 1024, -1};
    int64_t part = 0;
    LRMOE_CHECK(lrmoeXmlInteger(&number, &part));
    int32_t node = findNode(linker, bus, (int32_t)(part < 0 ? sibling : part));
    sibling++;
    for (xmlNode *link = lrmoeXmlFirst(gpu); link; link = lrmoeXmlNext(link))
      if (lrmoeXmlIs(link, "nvlink") || lrmoeXmlIs(link, "xgmi") ||
          lrmoeXmlIs(link, "c2c"))
        LRMOE_CHECK(addLink(linker, link, node));
  }
  return lrmoeSuccess;
}

/* A target that a smaller file lacks is no link, as for NCCL. */
static lrmoeResult_t addPeer(struct linker *linker, const xmlNode *element,
                             int32_t bridge) {
  int64_t bus = LRMOE_NO_BUS;
  LRMOE_CHECK(readTarget(linker, element, &bus));
  struct lrmoeWire wire = {.kind = lrmoeWirePciPeer,
                           .from = bridge,
                           .to = findNode(linker, bus, bridgePartition),
                           .count = 1};
  if (bridge < 0) return noteLink(linker, element, "a peer of no switch");
  if (wire.to == bridge) return noteLink(linker, element, "the switch itself");
  if (wire.to < 0)
    return noteLink(linker, element, "a switch that is not in the file");
  return lrmoeMachineConnect(linker->reader->machine, &wire);
}

static lrmoeResult_t addPeersOf(struct linker *linker, const xmlNode *pci) {
  int32_t bridge = findNode(linker, lrmoeBusParse(lrmoeXmlText(pci, "busid")),
                            bridgePartition);
  for (xmlNode *link = lrmoeXmlFirst(pci); link; link = lrmoeXmlNext(link))
    if (lrmoeXmlIs(link, "pcilink")) LRMOE_CHECK(addPeer(linker, link, bridge));
  return lrmoeSuccess;
}

static lrmoeResult_t walk(struct linker *linker, const xmlNode *element) {
  for (xmlNode *child = lrmoeXmlFirst(element); child;
       child = lrmoeXmlNext(child)) {
    if (!lrmoeXmlIs(child, "pci")) continue;
    LRMOE_CHECK(addLinksOf(linker, child));
    LRMOE_CHECK(addPeersOf(linker, child));
    LRMOE_CHECK(walk(linker, child));
  }
  return lrmoeSuccess;
}

/* The NUMA nodes were added in the order of the cpu elements. */
static int32_t nextNuma(const struct lrmoeMachine *machine, int32_t after) {
  int32_t node = after + 1;
  while (node < machine->numNodes && machine->nodes[node].kind != lrmoeNodeNuma)
    node++;
  return node;
}

static lrmoeResult_t walkAll(struct linker *linker, const xmlNode *root) {
  LRMOE_CHECK(listNodes(linker));
  linker->cpu = -1;
  for (xmlNode *cpu = lrmoeXmlFirst(root); cpu; cpu = lrmoeXmlNext(cpu)) {
    if (!lrmoeXmlIs(cpu, "cpu")) continue;
    linker->cpu = nextNuma(linker->reader->machine, linker->cpu);
    linker->host = lrmoeNcclHost(linker->reader, cpu);
    LRMOE_CHECK(walk(linker, cpu));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNcclAddLinks(struct lrmoeNccl *reader, const xmlNode *root) {
  struct linker linker = {.reader = reader};
  lrmoeResult_t result = walkAll(&linker, root);
  lrmoeFree(linker.entries);
  return result;
}
