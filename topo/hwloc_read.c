/* Reads hwloc's XML, formats 1 and 2.
 *
 * The XML is read here and not by hwloc: 2.9 dies of a segmentation fault on
 * objects without their sets (open-mpi/hwloc#783), its transitive closure of
 * NVLinks overwrites direct links, and without its plugins it knows neither
 * matrices nor PCI.  hwloc discovers (live.c), and this reads what it found.
 *
 * NUMA nodes with processors become nodes; a memory without any (a GPU's, or
 * HBM beside DRAM of the same processors) is no place of its own.  A device is
 * on the NUMA node that its nearest object with sets is in; where that has
 * several, the place is not known, and a note says so.  Host bridges are no
 * nodes: what stands below them meets in the NUMA node, as in NCCL's files. */
#include "base/alloc.h"
#include "base/hash.h"
#include "topo/hwloc_xml.h"
#include "topo/readers.h"

#include <stdlib.h>
#include <string.h>

enum {
  maxOsIndex = 1 << 22,
  maxNumas = 1024 /* every core is compared with every NUMA node */
};

bool lrmoeHwlocIs(const xmlNode *object, const char *type) {
  const char *text = lrmoeXmlText(object, "type");
  return lrmoeXmlIs(object, "object") && text && strcmp(text, type) == 0;
}

const char *lrmoeHwlocInfo(const xmlNode *object, const char *name) {
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child)) {
    const char *known = lrmoeXmlText(child, "name");
    if (lrmoeXmlIs(child, "info") && known && strcmp(known, name) == 0)
      return lrmoeXmlText(child, "value");
  }
  return NULL;
}

lrmoeResult_t lrmoeHwlocRemember(struct lrmoeHwloc *reader,
                                 const xmlNode *object, int32_t node,
                                 bool isSwitch) {
  int64_t gpIndex = 0;
  struct lrmoeXmlNumber number = {reader->source, object, "gp_index", -1,
                                  INT64_MAX,      -1};
  LRMOE_CHECK(lrmoeXmlInteger(&number, &gpIndex));
  if (gpIndex < 0) return lrmoeSuccess;
  if (reader->numObjects == reader->maxObjects) {
    int32_t room = reader->maxObjects ? 2 * reader->maxObjects : 64;
    struct lrmoeHwlocObject *grown = NULL;
    LRMOE_CHECK(LRMOE_ALLOCATE(room, &grown));
    if (reader->numObjects)
      memcpy(grown, reader->objects,
             (size_t)reader->numObjects * sizeof *grown);
    lrmoeFree(reader->objects);
    reader->objects = grown;
    reader->maxObjects = room;
  }
  reader->objects[reader->numObjects++] =
      (struct lrmoeHwlocObject){gpIndex, node, isSwitch};
  return lrmoeSuccess;
}

static lrmoeResult_t readSet(const xmlNode *object, const char *name,
                             hwloc_bitmap_t *set) {
  hwloc_bitmap_t made = hwloc_bitmap_alloc();
  const char *text = lrmoeXmlText(object, name);
  if (!made || (text && hwloc_bitmap_sscanf(made, text))) {
    hwloc_bitmap_free(made);
    return made ? LRMOE_FAIL(lrmoeInvalidArgument,
                             "line %ld: %s=\"%.40s\" is "
                             "no set",
                             xmlGetLineNo(object), name, text)
                : LRMOE_FAIL(lrmoeOutOfMemory, "no memory for a CPU set");
  }
  *set = made;
  return lrmoeSuccess;
}

/* ---- Hosts and NUMA nodes ----------------------------------------------- */

static lrmoeResult_t addHost(struct lrmoeHwloc *reader, const xmlNode *top) {
  struct lrmoeNode host = lrmoeMachineNode(lrmoeNodeHost, -1);
  const char *name = lrmoeHwlocInfo(top, "HostName");
  if (name && *name) {
    host.hostId = lrmoeHash(0, name, strlen(name));
    strncpy(host.name, name, lrmoeNameBytes - 1);
  }
  return lrmoeMachineAdd(reader->machine, &host, &reader->host);
}

static int32_t countNumas(const xmlNode *object) {
  int32_t found = lrmoeHwlocIs(object, "NUMANode");
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child))
    found += countNumas(child);
  return found;
}

/* Takes a NUMA node that has processors of its own. */
static lrmoeResult_t takeNuma(struct lrmoeHwloc *reader,
                              const xmlNode *object) {
  int64_t osIndex = 0;
  struct lrmoeXmlNumber number = {reader->source, object, "os_index", 0,
                                  maxOsIndex,     0};
  struct lrmoeHwlocNuma numa = {.element = object, .node = -1};
  LRMOE_CHECK(lrmoeXmlInteger(&number, &osIndex));
  LRMOE_CHECK(readSet(object, "cpuset", &numa.cpus));
  numa.osIndex = (int32_t)osIndex;
  bool isPlace = !hwloc_bitmap_iszero(numa.cpus);
  for (int32_t i = 0; i < reader->numNumas && isPlace; i++)
    isPlace = !hwloc_bitmap_isequal(numa.cpus, reader->numas[i].cpus);
  if (isPlace)
    reader->numas[reader->numNumas++] = numa;
  else
    hwloc_bitmap_free(numa.cpus);
  LRMOE_REQUIRE(reader->numNumas <= maxNumas, "%s:%ld: more than %d NUMA nodes",
                reader->source, xmlGetLineNo(object), maxNumas);
  return lrmoeSuccess;
}

static lrmoeResult_t findNumas(struct lrmoeHwloc *reader,
                               const xmlNode *object) {
  if (lrmoeHwlocIs(object, "NUMANode")) LRMOE_CHECK(takeNuma(reader, object));
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child))
    LRMOE_CHECK(findNumas(reader, child));
  return lrmoeSuccess;
}

static int compareNumas(const void *left, const void *right) {
  const struct lrmoeHwlocNuma *a = left;
  const struct lrmoeHwlocNuma *b = right;
  return (a->osIndex > b->osIndex) - (a->osIndex < b->osIndex);
}

/* Counts a core or processing unit in the NUMA nodes that it is in. */
static lrmoeResult_t countAt(struct lrmoeHwloc *reader, const xmlNode *object,
                             bool isCore) {
  hwloc_bitmap_t own = NULL;
  LRMOE_CHECK(readSet(object, "cpuset", &own));
  bool isUsable =
      !reader->usable || hwloc_bitmap_intersects(own, reader->usable);
  for (int32_t i = 0; i < reader->numNumas && isUsable; i++) {
    struct lrmoeHwlocNuma *numa = &reader->numas[i];
    if (!hwloc_bitmap_intersects(own, numa->cpus)) continue;
    numa->numCores += isCore;
    numa->numUnits += !isCore;
  }
  hwloc_bitmap_free(own);
  return lrmoeSuccess;
}

static lrmoeResult_t countCores(struct lrmoeHwloc *reader,
                                const xmlNode *object) {
  bool isCore = lrmoeHwlocIs(object, "Core");
  if (isCore || lrmoeHwlocIs(object, "PU"))
    LRMOE_CHECK(countAt(reader, object, isCore));
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child))
    LRMOE_CHECK(countCores(reader, child));
  return lrmoeSuccess;
}

/* The nearest object above of a type, or one below the top that has it. */
static const xmlNode *above(const xmlNode *object, const char *type) {
  while (object && object->type == XML_ELEMENT_NODE &&
         !lrmoeHwlocIs(object, type))
    object = object->parent;
  return object && object->type == XML_ELEMENT_NODE ? object : NULL;
}

static const xmlNode *packageOf(const xmlNode *numa) {
  const xmlNode *package = above(numa, "Package");
  return package ? package : above(numa, "Socket");
}

static int64_t numberOf(const char *text) {
  return text ? strtoll(text, NULL, 10) : -1;
}

/* What connects the NUMA nodes is not in the file: guessed by the CPU. */
static struct lrmoeRate cpuRate(const xmlNode *top, const xmlNode *package) {
  const xmlNode *said =
      package && lrmoeHwlocInfo(package, "CPUVendor") ? package : top;
  const struct lrmoeCpu cpu = {
      .arch = lrmoeHwlocInfo(top, "Architecture"),
      .vendor = lrmoeHwlocInfo(said, "CPUVendor"),
      .family = numberOf(lrmoeHwlocInfo(said, "CPUFamilyNumber")),
      .model = numberOf(lrmoeHwlocInfo(said, "CPUModelNumber"))};
  return (struct lrmoeRate){.bytesPerSecond = lrmoeCpuRate(&cpu),
                            .guessed = true};
}

static lrmoeResult_t addNuma(struct lrmoeHwloc *reader, const xmlNode *top,
                             struct lrmoeHwlocNuma *numa) {
  struct lrmoeNode node = lrmoeMachineNode(lrmoeNodeNuma, reader->host);
  const xmlNode *package = packageOf(numa->element);
  int64_t index = -1;
  node.index = numa->osIndex;
  node.up = cpuRate(top, package);
  /* Some sandboxes show no cores: then processing units count. */
  node.numCores = numa->numCores ? numa->numCores : numa->numUnits;
  if (package) {
    struct lrmoeXmlNumber number = {reader->source, package, "os_index", -1,
                                    maxOsIndex,     -1};
    LRMOE_CHECK(lrmoeXmlInteger(&number, &index));
    node.package = (int32_t)index;
  }
  LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &node, &numa->node));
  LRMOE_CHECK(lrmoeHwlocRemember(reader, numa->element, numa->node, false));
  /* POWER's NVLinks to its processors are said to end in packages. */
  return package ? lrmoeHwlocRemember(reader, package, numa->node, false)
                 : lrmoeSuccess;
}

static lrmoeResult_t addNumas(struct lrmoeHwloc *reader, const xmlNode *top) {
  LRMOE_CHECK(LRMOE_ALLOCATE(countNumas(top) + 1, &reader->numas));
  LRMOE_CHECK(findNumas(reader, top));
  if (!reader->numNumas) { /* formats before 2 leave a single one out */
    struct lrmoeHwlocNuma *one = &reader->numas[0];
    *one = (struct lrmoeHwlocNuma){.element = top};
    LRMOE_CHECK(readSet(top, "cpuset", &one->cpus));
    reader->numNumas = 1;
  }
  qsort(reader->numas, (size_t)reader->numNumas, sizeof *reader->numas,
        compareNumas);
  LRMOE_CHECK(countCores(reader, top));
  for (int32_t i = 0; i < reader->numNumas; i++)
    LRMOE_CHECK(addNuma(reader, top, &reader->numas[i]));
  return lrmoeMachineNote(reader->machine, -1,
                          "%s does not state the rates of the CPU "
                          "interconnect: guessed by the CPU's model",
                          reader->source);
}

/* ---- Devices ------------------------------------------------------------ */

/* The NUMA node whose CPUs the object has, -1 if there are several. */
static lrmoeResult_t placeOf(const struct lrmoeHwloc *reader,
                             const xmlNode *object, int32_t *place) {
  hwloc_bitmap_t cpus = NULL;
  LRMOE_CHECK(readSet(object, "cpuset", &cpus));
  int32_t found = -1;
  int32_t numFound = 0;
  for (int32_t i = 0; i < reader->numNumas; i++) {
    if (!hwloc_bitmap_intersects(cpus, reader->numas[i].cpus)) continue;
    found = reader->numas[i].node;
    numFound++;
  }
  hwloc_bitmap_free(cpus);
  *place = numFound == 1 ? found : -1;
  return lrmoeSuccess;
}

static lrmoeResult_t needNowhere(struct lrmoeHwloc *reader) {
  if (reader->nowhere >= 0) return lrmoeSuccess;
  struct lrmoeNode node = lrmoeMachineNode(lrmoeNodeNuma, reader->host);
  LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &node, &reader->nowhere));
  return lrmoeMachineNote(reader->machine, reader->nowhere,
                          "%s does not say which NUMA node some devices are "
                          "near to",
                          reader->source);
}

/* A host bridge has no link of its own: what is below it stands beside it. */
static bool isHostBridge(const xmlNode *bridge) {
  const char *kind = lrmoeXmlText(bridge, "bridge_type");
  return !kind || strncmp(kind, "0-", 2) == 0;
}

static lrmoeResult_t walkDevices(struct lrmoeHwloc *reader,
                                 const xmlNode *object, int32_t place);

/* place: node that the object stands on, -1 where that is not known. */
static lrmoeResult_t addDevice(struct lrmoeHwloc *reader, const xmlNode *object,
                               int32_t place) {
  if (lrmoeHwlocHasSets(object)) {
    LRMOE_CHECK(placeOf(reader, object, &place));
    return walkDevices(reader, object, place);
  }
  bool isBridge = lrmoeHwlocIs(object, "Bridge");
  if (!isBridge && !lrmoeHwlocIs(object, "PCIDev")) return lrmoeSuccess;
  if (isBridge && isHostBridge(object))
    return walkDevices(reader, object, place);
  if (place < 0) {
    LRMOE_CHECK(needNowhere(reader));
    place = reader->nowhere;
  }
  if (!isBridge) return lrmoeHwlocDevice(reader, object, place);
  struct lrmoeNode bridge = lrmoeMachineNode(lrmoeNodeBridge, place);
  LRMOE_CHECK(lrmoeHwlocPci(reader, object, &bridge));
  LRMOE_CHECK(lrmoeMachineAdd(reader->machine, &bridge, &place));
  return walkDevices(reader, object, place);
}

static lrmoeResult_t walkDevices(struct lrmoeHwloc *reader,
                                 const xmlNode *object, int32_t place) {
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child))
    if (lrmoeXmlIs(child, "object"))
      LRMOE_CHECK(addDevice(reader, child, place));
  return lrmoeSuccess;
}

/* ---- The whole ---------------------------------------------------------- */

/* The one object at the top, wherever among matrices and the like. */
static lrmoeResult_t findTop(const struct lrmoeHwloc *reader,
                             const xmlNode *root, const xmlNode **top) {
  const xmlNode *found = NULL;
  for (xmlNode *child = lrmoeXmlFirst(root); child;
       child = lrmoeXmlNext(child)) {
    if (!lrmoeXmlIs(child, "object")) continue;
    LRMOE_REQUIRE(!found, "%s:%ld: a second object at the top", reader->source,
                  xmlGetLineNo(child));
    found = child;
  }
  LRMOE_REQUIRE(found && lrmoeHwlocIs(found, "Machine"),
                "%s: the object at the top is no Machine", reader->source);
  *top = found;
  return lrmoeSuccess;
}

static lrmoeResult_t readRoot(struct lrmoeHwloc *reader, const xmlNode *root) {
  const xmlNode *top = NULL;
  LRMOE_CHECK(lrmoeHwlocCheck(reader->source, root));
  LRMOE_CHECK(findTop(reader, root, &top));
  LRMOE_CHECK(addHost(reader, top));
  LRMOE_CHECK(addNumas(reader, top));
  lrmoeHwlocSurvey(reader, top);
  LRMOE_CHECK(addDevice(reader, top, -1));
  return lrmoeHwlocMatrices(reader, root);
}

lrmoeResult_t lrmoeHwlocRead(const struct lrmoeHwlocInput *input,
                             struct lrmoeMachine *machine) {
  struct lrmoeHwloc reader = {.source = input->source,
                              .machine = machine,
                              .usable = input->usable,
                              .nowhere = -1,
                              .hub = -1};
  xmlDocPtr document = NULL;
  LRMOE_CHECK(
      lrmoeXmlParse(input->source, input->text, input->bytes, &document));
  lrmoeResult_t result = readRoot(&reader, xmlDocGetRootElement(document));
  xmlFreeDoc(document);
  for (int32_t i = 0; i < reader.numNumas; i++)
    hwloc_bitmap_free(reader.numas[i].cpus);
  lrmoeFree(reader.numas);
  lrmoeFree(reader.objects);
  if (result == lrmoeSuccess && !input->isLive)
    result = lrmoeHwlocNoteLinks(input->source, machine);
  return result;
}
