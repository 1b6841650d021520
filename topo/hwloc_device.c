/* Devices of hwloc's XML: which PCI devices are GPUs, NICs and NVSwitches, and
 * what their drivers say of them.
 *
 * Display controllers are not all GPUs that compute: servers have one for a
 * screen.  Where a driver (CUDA, NVML, RSMI, Level Zero) has named devices,
 * these are the GPUs; an hwloc without such a backend shows classes and makers
 * only, then NVIDIA's, and AMD's without a screen, are taken.
 *
 * hwloc knows the speed of no network port: it is guessed by the NIC's PCI
 * link, unless the machine itself is asked (live.c). */
#include "base/hash.h"
#include "topo/hwloc_xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  vendorNvidia = 0x10de,
  vendorAmd = 0x1002,
  classNic = 0x02,
  classDisplay = 0x03,
  classAccelerator = 0x12,
  classVga = 0x0300,
  classBridge = 0x0680, /* of the other kind: NVSwitch */
  maxPortsPerNic = 64
};

/* ---- PCI ---------------------------------------------------------------- */

/* pci_type="0302 [10de:2335] [10de:18bf] a1" */
struct pciType {
  unsigned pciClass;
  unsigned vendor;
};

static struct pciType typeOf(const xmlNode *object) {
  struct pciType type = {0, 0};
  const char *text = lrmoeXmlText(object, "pci_type");
  char *end = NULL;
  if (!text) return type;
  type.pciClass = (unsigned)strtoul(text, &end, 16) & 0xffff;
  if (end && strncmp(end, " [", 2) == 0)
    type.vendor = (unsigned)strtoul(end + 2, NULL, 16) & 0xffff;
  return type;
}

/* pci_link_speed is in GB/s, 0 if unknown. */
static lrmoeResult_t readSpeed(const struct lrmoeHwloc *reader,
                               const xmlNode *object, struct lrmoeRate *rate) {
  const char *text = lrmoeXmlText(object, "pci_link_speed");
  char *end = NULL;
  double speed = text ? strtod(text, &end) : 0;
  LRMOE_REQUIRE(!text || (end != text && !*end && speed >= 0 && speed < 1e5),
                "%s:%ld: pci_link_speed=\"%.40s\" is no speed in GB/s",
                reader->source, xmlGetLineNo(object), text);
  rate->bytesPerSecond = (int64_t)(speed * 1e9 + 0.5);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHwlocPci(struct lrmoeHwloc *reader, const xmlNode *object,
                            struct lrmoeNode *node) {
  const char *text = lrmoeXmlText(object, "pci_busid");
  node->bus = text ? lrmoeBusParse(text) : LRMOE_NO_BUS;
  LRMOE_REQUIRE(node->bus != LRMOE_NO_BUS,
                "%s:%ld: pci_busid=\"%.40s\" is no PCI address", reader->source,
                xmlGetLineNo(object), text ? text : "");
  return readSpeed(reader, object, &node->up);
}

/* ---- Drivers' names ----------------------------------------------------- */

/* The number behind a driver's prefix, as in "nvml3"; -1: another name. */
static int32_t numberBehind(const char *name, const char *prefix) {
  size_t length = strlen(prefix);
  if (!name || strncmp(name, prefix, length) != 0) return -1;
  char *end = NULL;
  long number = strtol(name + length, &end, 10);
  return end == name + length || *end || number < 0 || number > INT32_MAX
             ? -1
             : (int32_t)number;
}

/* The driver's number of a GPU: NVML's and RSMI's before CUDA's, which a
 * process can change. */
static int32_t driverNumber(const xmlNode *osdev, bool *isManagement) {
  static const char *const prefixes[] = {"nvml", "rsmi", "cuda"};
  const char *name = lrmoeXmlText(osdev, "name");
  for (int i = 0; i < 3; i++) {
    int32_t number = numberBehind(name, prefixes[i]);
    *isManagement = i < 2;
    if (number >= 0) return number;
  }
  *isManagement = false;
  return name && strncmp(name, "ze", 2) == 0 ? numberBehind(name, "ze") : -1;
}

static bool isHca(const xmlNode *osdev) {
  const char *type = lrmoeXmlText(osdev, "osdev_type");
  return lrmoeHwlocIs(osdev, "OSDev") && type && strcmp(type, "3") == 0;
}

static bool isNetwork(const xmlNode *osdev) {
  const char *type = lrmoeXmlText(osdev, "osdev_type");
  return lrmoeHwlocIs(osdev, "OSDev") && type && strcmp(type, "2") == 0;
}

void lrmoeHwlocSurvey(struct lrmoeHwloc *reader, const xmlNode *object) {
  bool isManagement = false;
  if (lrmoeHwlocIs(object, "OSDev")) {
    if (driverNumber(object, &isManagement) >= 0) reader->hasGpuDriver = true;
    if (isHca(object)) reader->hasHca = true;
  }
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child))
    lrmoeHwlocSurvey(reader, child);
}

/* ---- GPUs --------------------------------------------------------------- */

/* Whether a driver names the device; its number and model. */
static bool readDriver(const xmlNode *object, struct lrmoeNode *gpu) {
  bool found = false;
  bool isFinal = false;
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child)) {
    bool isManagement = false;
    int32_t number =
        lrmoeHwlocIs(child, "OSDev") ? driverNumber(child, &isManagement) : -1;
    if (number < 0) continue;
    if (!isFinal) gpu->index = number;
    isFinal = isFinal || isManagement;
    found = true;
    const char *model = lrmoeHwlocInfo(child, "GPUModel");
    if (model && !*gpu->name) strncpy(gpu->name, model, lrmoeNameBytes - 1);
  }
  return found;
}

static bool isGpu(const struct lrmoeHwloc *reader, struct pciType type,
                  bool isNamed) {
  bool isDisplay = type.pciClass >> 8 == classDisplay ||
                   type.pciClass >> 8 == classAccelerator;
  if (reader->hasGpuDriver) return isNamed;
  if (!isDisplay) return false;
  return type.vendor == vendorNvidia ||
         (type.vendor == vendorAmd && type.pciClass != classVga);
}

static lrmoeResult_t addGpu(struct lrmoeHwloc *reader, const xmlNode *object,
                            const struct lrmoeNode *gpu) {
  int32_t index = 0;
  LRMOE_CHECK(lrmoeMachineAdd(reader->machine, gpu, &index));
  LRMOE_CHECK(lrmoeHwlocRemember(reader, object, index, false));
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child))
    if (lrmoeHwlocIs(child, "OSDev"))
      LRMOE_CHECK(lrmoeHwlocRemember(reader, child, index, false));
  const struct lrmoeNode *slot = &reader->machine->nodes[gpu->parent];
  bool isSlow = slot->kind == lrmoeNodeBridge && gpu->up.bytesPerSecond > 0 &&
                2 * gpu->up.bytesPerSecond < slot->up.bytesPerSecond;
  if (!isSlow) return lrmoeSuccess;
  return lrmoeMachineNote(reader->machine, index,
                          "GPU %s: its link moves %lld MB/s, its slot %lld: an "
                          "idle GPU slows its link down; calibrate",
                          reader->machine->nodes[index].busText,
                          (long long)(gpu->up.bytesPerSecond / 1000000),
                          (long long)(slot->up.bytesPerSecond / 1000000));
}

/* All NVSwitches of a host are one. */
static lrmoeResult_t addSwitch(struct lrmoeHwloc *reader,
                               const xmlNode *object) {
  if (reader->hub < 0) {
    struct lrmoeNode hub = lrmoeMachineNode(lrmoeNodeSwitch, -1);
    hub.host = reader->host;
    LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &hub, &reader->hub));
  }
  return lrmoeHwlocRemember(reader, object, reader->hub, true);
}

static bool isSwitch(const xmlNode *object, struct pciType type) {
  const char *subtype = lrmoeXmlText(object, "subtype");
  return (subtype && strcmp(subtype, "NVSwitch") == 0) ||
         (type.pciClass == classBridge && type.vendor == vendorNvidia);
}

/* ---- NICs --------------------------------------------------------------- */

/* "Port1State" ...: how many the driver states, at least one. */
static int32_t countPorts(const xmlNode *hca) {
  int32_t count = 0;
  char name[32];
  do {
    count++;
    snprintf(name, sizeof name, "Port%dState", count + 1);
  } while (count < maxPortsPerNic && lrmoeHwlocInfo(hca, name));
  return count;
}

/* An identity of the board, so that its two functions share their link. */
static uint64_t boardOf(const xmlNode *hca) {
  const char *guid = lrmoeHwlocInfo(hca, "SysImageGUID");
  if (!guid) guid = lrmoeHwlocInfo(hca, "NodeGUID");
  return guid && *guid ? lrmoeHash(0, guid, strlen(guid)) : 0;
}

static lrmoeResult_t addPorts(struct lrmoeHwloc *reader, const xmlNode *osdev,
                              int32_t nic) {
  struct lrmoeNode port = lrmoeMachineNode(lrmoeNodePort, nic);
  const char *name = lrmoeXmlText(osdev, "name");
  int32_t numPorts = isHca(osdev) ? countPorts(osdev) : 1;
  int32_t added = 0;
  port.guid = boardOf(osdev);
  if (name) strncpy(port.name, name, lrmoeNameBytes - 1);
  for (int32_t i = 1; i <= numPorts; i++) {
    port.index = isHca(osdev) ? i : -1;
    LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &port, &added));
  }
  return lrmoeSuccess;
}

static bool isPort(const struct lrmoeHwloc *reader, const xmlNode *osdev) {
  return reader->hasHca ? isHca(osdev) : isNetwork(osdev);
}

static lrmoeResult_t addNic(struct lrmoeHwloc *reader, const xmlNode *object,
                            struct lrmoeNode *nic) {
  int32_t index = -1;
  nic->kind = lrmoeNodeNic;
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child)) {
    if (!isPort(reader, child)) continue;
    if (index < 0) LRMOE_CHECK(lrmoeMachineAdd(reader->machine, nic, &index));
    LRMOE_CHECK(addPorts(reader, child, index));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHwlocDevice(struct lrmoeHwloc *reader, const xmlNode *object,
                               int32_t parent) {
  struct pciType type = typeOf(object);
  struct lrmoeNode node = lrmoeMachineNode(lrmoeNodeGpu, parent);
  LRMOE_CHECK(lrmoeHwlocPci(reader, object, &node));
  bool isNamed = readDriver(object, &node);
  if (isSwitch(object, type)) return addSwitch(reader, object);
  if (isGpu(reader, type, isNamed)) return addGpu(reader, object, &node);
  if (type.pciClass >> 8 != classNic) return lrmoeSuccess;
  struct lrmoeNode nic = lrmoeMachineNode(lrmoeNodeNic, parent);
  nic.bus = node.bus;
  nic.up = node.up;
  return addNic(reader, object, &nic);
}
