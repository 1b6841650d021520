/* Reads NCCL's topology XML (system > cpu > pci > ...), version 1, and RCCL's,
 * version 2: the same with xgmi elements.
 *
 * Three kinds of file carry the same elements and are told apart by content.
 * A dump has gpu elements.  A template for virtual machines has bare PCI
 * devices, of class GPU or NIC, below invented bridges: its GPUs are taken,
 * its NVLinks are not known.  A hint has bus addresses and nothing to build a
 * model from: it is refused.
 *
 * Departs from NCCL where NCCL is silently wrong: "16 GT/s" is what it says
 * (NCCL takes it for 8), a network speed a thousand times off is refused, and
 * nothing has a fixed number. */
#include "base/alloc.h"
#include "topo/nccl.h"
#include "topo/readers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What kind of file -------------------------------------------------- */

struct tally {
  int64_t cpus;
  int64_t gpus;
  int64_t gpuDevices; /* bare, by class */
  int64_t pcis;
};

static void count(const xmlNode *element, struct tally *tally) {
  tally->cpus += lrmoeXmlIs(element, "cpu");
  tally->gpus += lrmoeXmlIs(element, "gpu");
  if (lrmoeXmlIs(element, "pci")) {
    tally->pcis++;
    tally->gpuDevices += lrmoeNcclIsGpuClass(lrmoeNcclClass(element));
  }
  for (xmlNode *child = lrmoeXmlFirst(element); child;
       child = lrmoeXmlNext(child))
    count(child, tally);
}

static lrmoeResult_t checkVersion(const char *source, const xmlNode *root) {
  LRMOE_REQUIRE(lrmoeXmlIs(root, "system"),
                "%s: the root element is <%s>, not <system>: no topology of "
                "NCCL",
                source, (const char *)root->name);
  const char *version = lrmoeXmlText(root, "version");
  LRMOE_REQUIRE(version, "%s: <system> has no version", source);
  if (strcmp(version, "1") != 0 && strcmp(version, "2") != 0)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "%s: version \"%.20s\" of NCCL's topology; 1 (NCCL) and "
                      "2 (RCCL) are read",
                      source, version);
  return lrmoeSuccess;
}

static lrmoeResult_t classify(struct lrmoeNccl *reader, const xmlNode *root) {
  LRMOE_CHECK(checkVersion(reader->source, root));
  struct tally tally = {0};
  count(root, &tally);
  LRMOE_REQUIRE(tally.cpus, "%s: <system> has no <cpu>", reader->source);
  if (tally.gpus) {
    reader->kind = lrmoeNcclDump;
    return lrmoeSuccess;
  }
  if (tally.gpuDevices) {
    reader->kind = lrmoeNcclTemplate;
    return lrmoeMachineNote(
        reader->machine, -1,
        "%s is a template of %lld GPUs without NVLinks and network speeds: if "
        "the machine has NVLink, only a dump (NCCL_TOPO_DUMP_FILE) shows it",
        reader->source, (long long)tally.gpuDevices);
  }
  return LRMOE_FAIL(
      lrmoeUnsupported,
      "%s is a hint for NCCL: %lld PCI addresses, but no GPU; give the dump "
      "that NCCL_TOPO_DUMP_FILE writes on the machine",
      reader->source, (long long)tally.pcis);
}

/* ---- Hosts -------------------------------------------------------------- */

/* The identity of the host of a cpu: an unsigned number, or any text. */
static uint64_t hashOf(const xmlNode *cpu) {
  return lrmoeNcclIdentity(lrmoeXmlText(cpu, "host_hash"));
}

static int compareHashes(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

int32_t lrmoeNcclHost(const struct lrmoeNccl *reader, const xmlNode *cpu) {
  uint64_t hash = hashOf(cpu);
  const uint64_t *found =
      bsearch(&hash, reader->hashes, (size_t)reader->numHosts, sizeof hash,
              compareHashes);
  return (int32_t)(found - reader->hashes);
}

/* The distinct hashes, in ascending order whatever that of the file. */
static lrmoeResult_t findHosts(struct lrmoeNccl *reader, const xmlNode *root) {
  int32_t numCpus = 0;
  for (xmlNode *cpu = lrmoeXmlFirst(root); cpu; cpu = lrmoeXmlNext(cpu))
    numCpus += lrmoeXmlIs(cpu, "cpu");
  LRMOE_REQUIRE(numCpus, "%s: no <cpu> in <system>", reader->source);
  LRMOE_CHECK(LRMOE_ALLOCATE(numCpus, &reader->hashes));
  int32_t used = 0;
  for (xmlNode *cpu = lrmoeXmlFirst(root); cpu; cpu = lrmoeXmlNext(cpu))
    if (lrmoeXmlIs(cpu, "cpu")) reader->hashes[used++] = hashOf(cpu);
  qsort(reader->hashes, (size_t)numCpus, sizeof *reader->hashes, compareHashes);
  reader->numHosts = 1;
  for (int32_t i = 1; i < numCpus; i++)
    if (reader->hashes[i] != reader->hashes[i - 1])
      reader->hashes[reader->numHosts++] = reader->hashes[i];
  return lrmoeSuccess;
}

static lrmoeResult_t addHosts(struct lrmoeNccl *reader, const xmlNode *root) {
  LRMOE_CHECK(findHosts(reader, root));
  LRMOE_CHECK(LRMOE_ALLOCATE(reader->numHosts, &reader->hosts));
  LRMOE_CHECK(LRMOE_ALLOCATE(reader->numHosts, &reader->switches));
  LRMOE_CHECK(LRMOE_ALLOCATE(reader->numHosts, &reader->hasPort));
  LRMOE_CHECK(LRMOE_ALLOCATE(reader->numHosts, &reader->interfaces));
  for (int32_t i = 0; i < reader->numHosts; i++) {
    struct lrmoeNode host = lrmoeMachineNode(lrmoeNodeHost, -1);
    host.hostId = reader->hashes[i];
    LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &host, &reader->hosts[i]));
    reader->switches[i] = -1;
  }
  return lrmoeSuccess;
}

/* ---- PCI devices -------------------------------------------------------- */

static lrmoeResult_t noteUnknown(struct lrmoeNccl *reader,
                                 const xmlNode *element) {
  if (reader->saidUnknown) return lrmoeSuccess;
  reader->saidUnknown = true;
  return lrmoeMachineNote(
      reader->machine, -1, "%s:%ld: <%.40s> is not known and left out",
      reader->source, xmlGetLineNo(element), (const char *)element->name);
}

static int32_t countChildren(const xmlNode *element, const char *name) {
  int32_t found = 0;
  for (xmlNode *child = lrmoeXmlFirst(element); child;
       child = lrmoeXmlNext(child))
    found += lrmoeXmlIs(child, name);
  return found;
}

static lrmoeResult_t addDivided(struct lrmoeNccl *reader,
                                struct lrmoeNcclGpu *gpu) {
  struct lrmoeNode slot = lrmoeMachineNode(lrmoeNodeBridge, gpu->parent);
  slot.bus = gpu->bus;
  slot.up = gpu->up;
  LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &slot, &gpu->parent));
  for (xmlNode *child = lrmoeXmlFirst(gpu->pci); child;
       child = lrmoeXmlNext(child)) {
    if (!lrmoeXmlIs(child, "gpu")) continue;
    gpu->gpu = child;
    LRMOE_CHECK(lrmoeNcclAddGpu(reader, gpu));
    gpu->sibling++;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t addGpus(struct lrmoeNccl *reader,
                             struct lrmoeNcclGpu *gpu) {
  if (countChildren(gpu->pci, "gpu") > 1) return addDivided(reader, gpu);
  for (xmlNode *child = lrmoeXmlFirst(gpu->pci); child;
       child = lrmoeXmlNext(child))
    if (lrmoeXmlIs(child, "gpu")) gpu->gpu = child;
  return lrmoeNcclAddGpu(reader, gpu);
}

/* A nic beside other devices below one PCI address hangs on a bridge. */
static lrmoeResult_t addNicBelow(struct lrmoeNccl *reader, const xmlNode *pci,
                                 const struct lrmoeNode *bridge,
                                 int32_t parent) {
  struct lrmoeNode nic = *bridge;
  nic.kind = lrmoeNodeNic;
  nic.parent = parent;
  if (parent != bridge->parent) nic.bus = LRMOE_NO_BUS;
  return lrmoeNcclAddNic(reader, pci, &nic);
}

static lrmoeResult_t addPci(struct lrmoeNccl *reader, const xmlNode *pci,
                            int32_t parent);

static lrmoeResult_t addBridge(struct lrmoeNccl *reader, const xmlNode *pci,
                               const struct lrmoeNode *bridge) {
  int32_t index = 0;
  LRMOE_CHECK(lrmoeMachineAdd(reader->machine, bridge, &index));
  if (countChildren(pci, "nic"))
    LRMOE_CHECK(addNicBelow(reader, pci, bridge, index));
  for (xmlNode *child = lrmoeXmlFirst(pci); child;
       child = lrmoeXmlNext(child)) {
    if (lrmoeXmlIs(child, "pci"))
      LRMOE_CHECK(addPci(reader, child, index));
    else if (!lrmoeXmlIs(child, "nic") && !lrmoeXmlIs(child, "pcilink"))
      LRMOE_CHECK(noteUnknown(reader, child));
  }
  return lrmoeSuccess;
}

/* What a pci element is: its children say so, else its class.  In a dump a
 * bare device is one that NCCL does not use. */
static lrmoeResult_t addPci(struct lrmoeNccl *reader, const xmlNode *pci,
                            int32_t parent) {
  const char *text = lrmoeXmlText(pci, "busid");
  int64_t bus = text ? lrmoeBusParse(text) : LRMOE_NO_BUS;
  LRMOE_REQUIRE(bus != LRMOE_NO_BUS,
                "%s:%ld: busid=\"%.40s\" of <pci> is no PCI address",
                reader->source, xmlGetLineNo(pci), text ? text : "");
  struct lrmoeNode node = lrmoeMachineNode(lrmoeNodeBridge, parent);
  node.bus = bus;
  LRMOE_CHECK(lrmoeNcclPciRate(reader, pci, &node.up));
  struct lrmoeNcclGpu gpu = {
      .pci = pci, .parent = parent, .bus = bus, .up = node.up};
  if (countChildren(pci, "gpu")) return addGpus(reader, &gpu);
  if (countChildren(pci, "pci")) return addBridge(reader, pci, &node);
  if (countChildren(pci, "nic")) return addNicBelow(reader, pci, &node, parent);
  int32_t pciClass = lrmoeNcclClass(pci);
  bool isGpu = lrmoeNcclIsGpuClass(pciClass);
  bool isNic = lrmoeNcclIsNicClass(pciClass);
  if (reader->kind == lrmoeNcclTemplate && isGpu)
    return lrmoeNcclAddGpu(reader, &gpu);
  if (reader->kind == lrmoeNcclTemplate && isNic)
    return addNicBelow(reader, pci, &node, parent);
  return isGpu || isNic ? lrmoeSuccess : addBridge(reader, pci, &node);
}

/* ---- Processors --------------------------------------------------------- */

/* Interfaces without a PCI device (bridges, tunnels, virtual ones) share a
 * wire that the file does not show, and are repeated below every cpu: the
 * fastest stands for all of a host. */
static lrmoeResult_t takeInterfaces(struct lrmoeNccl *reader,
                                    const xmlNode *nic, int32_t host) {
  struct lrmoeNcclInterface *best = &reader->interfaces[host];
  for (xmlNode *net = lrmoeXmlFirst(nic); net; net = lrmoeXmlNext(net)) {
    int64_t speed = 0;
    if (!lrmoeXmlIs(net, "net")) continue;
    LRMOE_CHECK(lrmoeNcclNetRate(reader, net, &speed));
    best->count++;
    const char *name = lrmoeXmlText(net, "name");
    const char *known = best->net ? lrmoeXmlText(best->net, "name") : NULL;
    bool earlier = strcmp(name ? name : "", known ? known : "") < 0;
    if (best->net &&
        (speed < best->speed || (speed == best->speed && !earlier)))
      continue;
    best->net = net;
    best->speed = speed;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t addInterface(struct lrmoeNccl *reader, int32_t host) {
  const struct lrmoeNcclInterface *best = &reader->interfaces[host];
  if (!best->net || reader->hasPort[host]) return lrmoeSuccess;
  struct lrmoeNode nic = lrmoeMachineNode(lrmoeNodeNic, reader->hosts[host]);
  int32_t index = 0;
  nic.up.bytesPerSecond = best->speed; /* no limit beyond the port's */
  nic.up.guessed = true;
  LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &nic, &index));
  const char *name = lrmoeXmlText(best->net, "name");
  LRMOE_CHECK(lrmoeMachineNote(
      reader->machine, index,
      "no NIC is a PCI device; of %d network interfaces the fastest, %.40s, is "
      "taken for all, at an unknown place",
      best->count, name ? name : "one without a name"));
  return lrmoeNcclAddPort(reader, best->net, index);
}

static lrmoeResult_t addNuma(struct lrmoeNccl *reader, const xmlNode *cpu,
                             int32_t host, int32_t *index) {
  int64_t numaId = 0;
  struct lrmoeXmlNumber number = {reader->source, cpu, "numaid", -1,
                                  INT32_MAX,      -1};
  LRMOE_CHECK(lrmoeXmlInteger(&number, &numaId));
  struct lrmoeNode numa = lrmoeMachineNode(lrmoeNodeNuma, reader->hosts[host]);
  numa.index = (int32_t)numaId;
  LRMOE_CHECK(lrmoeNcclCpuRate(reader, cpu, &numa.up));
  LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &numa, index));
  if (numaId < 0)
    return lrmoeMachineNote(reader->machine, *index,
                            "%s:%ld: a <cpu> without NUMA node: how near its "
                            "devices are to each other is not known",
                            reader->source, xmlGetLineNo(cpu));
  return lrmoeSuccess;
}

static lrmoeResult_t addCpu(struct lrmoeNccl *reader, const xmlNode *cpu) {
  int32_t host = lrmoeNcclHost(reader, cpu), numa = 0;
  LRMOE_CHECK(addNuma(reader, cpu, host, &numa));
  for (xmlNode *child = lrmoeXmlFirst(cpu); child;
       child = lrmoeXmlNext(child)) {
    if (lrmoeXmlIs(child, "pci"))
      LRMOE_CHECK(addPci(reader, child, numa));
    else if (lrmoeXmlIs(child, "nic"))
      LRMOE_CHECK(takeInterfaces(reader, child, host));
    else
      LRMOE_CHECK(noteUnknown(reader, child));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t readRoot(struct lrmoeNccl *reader, const xmlNode *root) {
  LRMOE_CHECK(classify(reader, root));
  LRMOE_CHECK(addHosts(reader, root));
  for (xmlNode *child = lrmoeXmlFirst(root); child;
       child = lrmoeXmlNext(child)) {
    if (lrmoeXmlIs(child, "cpu"))
      LRMOE_CHECK(addCpu(reader, child));
    else
      LRMOE_CHECK(noteUnknown(reader, child));
  }
  for (int32_t i = 0; i < reader->numHosts; i++)
    LRMOE_CHECK(addInterface(reader, i));
  LRMOE_CHECK(lrmoeMachineNote(reader->machine, -1,
                               "%s does not state the rates of the CPU "
                               "interconnect: guessed by the CPU's model",
                               reader->source));
  return lrmoeNcclAddLinks(reader, root);
}

lrmoeResult_t lrmoeNcclRead(const char *source, const char *text, size_t bytes,
                            struct lrmoeMachine *machine) {
  struct lrmoeNccl reader = {.source = source, .machine = machine};
  xmlDocPtr document = NULL;
  LRMOE_CHECK(lrmoeXmlParse(source, text, bytes, &document));
  lrmoeResult_t result = readRoot(&reader, xmlDocGetRootElement(document));
  xmlFreeDoc(document);
  lrmoeFree(reader.hashes);
  lrmoeFree(reader.hosts);
  lrmoeFree(reader.switches);
  lrmoeFree(reader.hasPort);
  lrmoeFree(reader.interfaces);
  return result;
}
