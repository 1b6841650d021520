/* Inside the reader of hwloc's XML: hwloc_check.c sees that it can be read,
 * hwloc_read.c walks the tree of objects, hwloc_device.c reads GPUs and NICs,
 * hwloc_matrix.c the links of GPUs. */
#ifndef LRMOE_TOPO_HWLOC_XML_H
#define LRMOE_TOPO_HWLOC_XML_H

#include "topo/machine.h"
#include "topo/xml.h"

#include <hwloc/bitmap.h>

/* What matrices name by gp_index, and what of it is a node here. */
struct lrmoeHwlocObject {
  int64_t gpIndex;
  int32_t node;
  bool isSwitch;
};

/* A NUMA node with processors. */
struct lrmoeHwlocNuma {
  const xmlNode *element;
  hwloc_bitmap_t cpus;
  int32_t osIndex;
  int32_t node; /* of the machine */
  int32_t numCores;
  int32_t numUnits; /* processing units */
};

struct lrmoeHwloc {
  const char *source;
  struct lrmoeMachine *machine;
  const struct hwloc_bitmap_s *usable; /* CPUs that ranks may use; NULL: all */
  int32_t host;                        /* node */
  int32_t nowhere;   /* NUMA node of devices whose place is not known, or -1 */
  int32_t hub;       /* node of all NVSwitches, -1: none */
  bool hasGpuDriver; /* a driver named its GPUs: others are none */
  bool hasHca;       /* InfiniBand and its like: Ethernet is not taken */
  struct lrmoeHwlocNuma *numas; /* [numNumas] ascending OS index */
  int32_t numNumas;
  struct lrmoeHwlocObject *objects; /* [numObjects] */
  int32_t numObjects;
  int32_t maxObjects;
};

bool lrmoeHwlocIs(const xmlNode *object, const char *type);

/* The value of an <info name=...> of an object, NULL without it. */
const char *lrmoeHwlocInfo(const xmlNode *object, const char *name);

/* Devices and notes have no sets of CPUs. */
bool lrmoeHwlocHasSets(const xmlNode *object);

/* Format, types and sets of all objects. */
lrmoeResult_t lrmoeHwlocCheck(const char *source, const xmlNode *root);

/* Remembers what an object became, for matrices. */
lrmoeResult_t lrmoeHwlocRemember(struct lrmoeHwloc *reader,
                                 const xmlNode *object, int32_t node,
                                 bool isSwitch);

/* Whether the tree has a GPU that a driver names, an HCA: sets the flags. */
void lrmoeHwlocSurvey(struct lrmoeHwloc *reader, const xmlNode *object);

/* Address and link of a PCI device or bridge. */
lrmoeResult_t lrmoeHwlocPci(struct lrmoeHwloc *reader, const xmlNode *object,
                            struct lrmoeNode *node);

/* A PCI device: a GPU, a NIC with its ports, an NVSwitch, or nothing. */
lrmoeResult_t lrmoeHwlocDevice(struct lrmoeHwloc *reader, const xmlNode *object,
                               int32_t parent);

/* NVLink and xGMI: the matrices below the root. */
lrmoeResult_t lrmoeHwlocMatrices(struct lrmoeHwloc *reader,
                                 const xmlNode *root);

#endif
