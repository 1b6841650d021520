/* Devices and links of NCCL's topology XML: what the attributes of pci, gpu,
 * net, nvlink, xgmi and c2c elements mean. */
#include "base/alloc.h"
#include "base/hash.h"
#include "topo/nccl.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  classGpu = 0x03,         /* display controller, first byte of three */
  classAccelerator = 0x12, /* processing accelerator: AMD's Instinct */
  classNic = 0x02
};

uint64_t lrmoeNcclIdentity(const char *text) {
  if (!text || !*text) return 0;
  char *end = NULL;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 0);
  if (!errno && end != text && !*end) return value;
  return lrmoeHash(0, text, strlen(text));
}

static lrmoeResult_t readInteger(const struct lrmoeNccl *reader,
                                 const xmlNode *element, const char *name,
                                 int64_t high, int64_t *value) {
  struct lrmoeXmlNumber number = {reader->source, element, name, -1, high, -1};
  return lrmoeXmlInteger(&number, value);
}

/* ---- PCI ---------------------------------------------------------------- */

int32_t lrmoeNcclClass(const xmlNode *pci) {
  const char *text = lrmoeXmlText(pci, "class");
  if (!text) return -1;
  char *end = NULL;
  unsigned long value = strtoul(text, &end, 16);
  return end == text || *end || value > 0xffffff ? 0 : (int32_t)value;
}

bool lrmoeNcclIsGpuClass(int32_t pciClass) {
  return pciClass >> 16 == classGpu || pciClass >> 16 == classAccelerator;
}

bool lrmoeNcclIsNicClass(int32_t pciClass) {
  return pciClass >> 16 == classNic;
}

/* "16 GT/s", "2.5 GT/s PCIe", "32 GT/s PCIe/s": tenths of GT/s; 0: no rate. */
static int32_t parseSpeed(const char *text) {
  static const int32_t known[] = {25, 50, 80, 160, 320, 640, 1280};
  int32_t tenths = 0;
  int digits = 0;
  for (; isdigit((unsigned char)*text) && digits < 4; text++, digits++)
    tenths = tenths * 10 + (*text - '0');
  tenths *= 10;
  if (text[0] == '.' && isdigit((unsigned char)text[1])) {
    tenths += text[1] - '0';
    text += 2;
  }
  while (*text == ' ')
    text++;
  if (strncmp(text, "GT/s", 4) != 0) return 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i] == tenths) return tenths;
  return 0;
}

/* Width 0 is what NCCL writes for an unknown one; it reads that as 16.  The
 * bridges of a template are invented. */
lrmoeResult_t lrmoeNcclPciRate(struct lrmoeNccl *reader, const xmlNode *pci,
                               struct lrmoeRate *rate) {
  int64_t width = 0;
  LRMOE_CHECK(readInteger(reader, pci, "link_width", 1024, &width));
  const char *text = lrmoeXmlText(pci, "link_speed");
  int32_t tenths = text ? parseSpeed(text) : 0;
  bool knownWidth =
      width > 0 && width <= 32 && ((width & (width - 1)) == 0 || width == 12);
  *rate = (struct lrmoeRate){
      .bytesPerSecond = lrmoePciRate(tenths, knownWidth ? (int32_t)width : 16),
      .guessed = !knownWidth || reader->kind == lrmoeNcclTemplate};
  if (text && *text && !tenths)
    return lrmoeMachineNote(reader->machine, -1,
                            "%s:%ld: link_speed=\"%.40s\" is no PCI speed",
                            reader->source, xmlGetLineNo(pci), text);
  if (tenths && !knownWidth)
    return lrmoeMachineNote(
        reader->machine, -1, "%s:%ld: link_width %lld is taken for 16",
        reader->source, xmlGetLineNo(pci), (long long)width);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNcclCpuRate(const struct lrmoeNccl *reader,
                               const xmlNode *cpu, struct lrmoeRate *rate) {
  struct lrmoeCpu model = {.arch = lrmoeXmlText(cpu, "arch"),
                           .vendor = lrmoeXmlText(cpu, "vendor")};
  LRMOE_CHECK(readInteger(reader, cpu, "familyid", INT32_MAX, &model.family));
  LRMOE_CHECK(readInteger(reader, cpu, "modelid", INT32_MAX, &model.model));
  *rate = (struct lrmoeRate){.bytesPerSecond = lrmoeCpuRate(&model),
                             .guessed = true};
  return lrmoeSuccess;
}

/* ---- GPUs --------------------------------------------------------------- */

/* gcn is "gfx942" or, in older files, 942 or 910 (gfx90a) or 906; without it
 * sm is NVIDIA's architecture.  (RCCL's sm counts compute units.) */
static lrmoeResult_t readArch(const struct lrmoeNccl *reader,
                              const xmlNode *gpu, int32_t *arch) {
  const char *gcn = lrmoeXmlText(gpu, "gcn");
  int64_t sm = 0;
  LRMOE_CHECK(readInteger(reader, gpu, "sm", 100000, &sm));
  *arch = sm > 0 ? (int32_t)sm : 0;
  if (!gcn || !*gcn) return lrmoeSuccess;
  if (strncmp(gcn, "gfx", 3) == 0) gcn += 3;
  char *end = NULL;
  unsigned long value = strtoul(gcn, &end, 16);
  *arch = end == gcn || value > 0xffff ? 0 : (int32_t)value;
  if (*arch == 0x910) *arch = 0x90a;
  return lrmoeSuccess;
}

/* Parts of a divided GPU state mlopart; ranks that share one count up. */
static lrmoeResult_t readPartition(const struct lrmoeNccl *reader,
                                   const struct lrmoeNcclGpu *gpu,
                                   int32_t *partition) {
  int64_t stated = 0;
  LRMOE_CHECK(readInteger(reader, gpu->gpu, "mlopart", 1024, &stated));
  *partition = stated >= 0 ? (int32_t)stated : gpu->sibling;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNcclAddGpu(struct lrmoeNccl *reader,
                              const struct lrmoeNcclGpu *gpu) {
  struct lrmoeNode node = lrmoeMachineNode(lrmoeNodeGpu, gpu->parent);
  node.bus = gpu->bus;
  node.up = gpu->up;
  if (gpu->gpu) {
    int64_t index = 0, rank = 0;
    LRMOE_CHECK(readInteger(reader, gpu->gpu, "dev", INT32_MAX, &index));
    LRMOE_CHECK(readInteger(reader, gpu->gpu, "rank", INT32_MAX, &rank));
    node.index = (int32_t)index;
    node.rank = (int32_t)rank;
    LRMOE_CHECK(readArch(reader, gpu->gpu, &node.arch));
    LRMOE_CHECK(readPartition(reader, gpu, &node.partition));
  }
  int32_t added = 0;
  return lrmoeMachineAdd(reader->machine, &node, &added);
}

/* ---- NICs --------------------------------------------------------------- */

/* Mb/s; 200000 is 200 Gb/s. */
lrmoeResult_t lrmoeNcclNetRate(const struct lrmoeNccl *reader,
                               const xmlNode *net, int64_t *bytesPerSecond) {
  struct lrmoeXmlNumber number = {reader->source, net, "speed", -1,
                                  1000000000000,  -1};
  int64_t megabits = 0;
  LRMOE_CHECK(lrmoeXmlInteger(&number, &megabits));
  *bytesPerSecond = megabits > 0 ? megabits * 125000 : 0;
  return lrmoeSuccess;
}

/* Microseconds, as a decimal fraction; 0 or absent is NCCL for unknown. */
static lrmoeResult_t readLatency(const struct lrmoeNccl *reader,
                                 const xmlNode *net, int64_t *latencyNs) {
  const char *text = lrmoeXmlText(net, "latency");
  int64_t ns = 0, scale = 1000;
  bool fraction = false;
  for (; text && *text; text++) {
    bool isDigit = isdigit((unsigned char)*text);
    LRMOE_REQUIRE(isDigit ? ns < 1000000000 : *text == '.' && !fraction,
                  "%s:%ld: latency of <net> is no number of microseconds",
                  reader->source, xmlGetLineNo(net));
    if (!isDigit) {
      fraction = true;
    } else if (!fraction) {
      ns = ns * 10 + (*text - '0') * (int64_t)1000;
    } else {
      scale /= 10;
      ns += (*text - '0') * scale;
    }
  }
  *latencyNs = ns;
  return lrmoeSuccess;
}

/* A port without a name has its NIC's address. */
static void namePort(struct lrmoeNode *port, const char *name,
                     const struct lrmoeNode *nic) {
  if (!name || !*name) name = nic->busText;
  strncpy(port->name, name, lrmoeNameBytes - 1);
}

lrmoeResult_t lrmoeNcclAddPort(struct lrmoeNccl *reader, const xmlNode *net,
                               int32_t nic) {
  struct lrmoeNode port = lrmoeMachineNode(lrmoeNodePort, nic);
  const char *name = lrmoeXmlText(net, "name");
  namePort(&port, name, &reader->machine->nodes[nic]);
  port.guid = lrmoeNcclIdentity(lrmoeXmlText(net, "guid"));
  int64_t number = 0;
  LRMOE_CHECK(readInteger(reader, net, "port", INT32_MAX, &number));
  port.index = (int32_t)number;
  LRMOE_CHECK(lrmoeNcclNetRate(reader, net, &port.up.bytesPerSecond));
  LRMOE_CHECK(readLatency(reader, net, &port.up.latencyNs));
  int32_t added = 0;
  return lrmoeMachineAdd(reader->machine, &port, &added);
}

/* net="0" marks a device that is no use as a network. */
static bool isUsable(const xmlNode *net) {
  const char *flag = lrmoeXmlText(net, "net");
  return lrmoeXmlIs(net, "net") && !(flag && strcmp(flag, "0") == 0);
}

lrmoeResult_t lrmoeNcclAddNic(struct lrmoeNccl *reader, const xmlNode *pci,
                              const struct lrmoeNode *nic) {
  int32_t index = 0, numPorts = 0;
  LRMOE_CHECK(lrmoeMachineAdd(reader->machine, nic, &index));
  for (xmlNode *child = lrmoeXmlFirst(pci); child;
       child = lrmoeXmlNext(child)) {
    if (!lrmoeXmlIs(child, "nic")) continue;
    for (xmlNode *net = lrmoeXmlFirst(child); net; net = lrmoeXmlNext(net)) {
      if (!isUsable(net)) continue;
      LRMOE_CHECK(lrmoeNcclAddPort(reader, net, index));
      numPorts++;
    }
  }
  if (!numPorts && reader->kind == lrmoeNcclTemplate) {
    struct lrmoeNode port = lrmoeMachineNode(lrmoeNodePort, index);
    namePort(&port, NULL, &reader->machine->nodes[index]);
    LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &port, &index));
    numPorts = 1;
  }
  int32_t host = reader->machine->nodes[index].host;
  for (int32_t i = 0; i < reader->numHosts && numPorts; i++)
    if (reader->hosts[i] == host) reader->hasPort[i] = true;
  return lrmoeSuccess;
}
