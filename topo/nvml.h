/* What NVIDIA's management library knows of the live machine that hwloc may
 * not: which GPUs this process may use, and their NVLinks.
 *
 * Debian's hwloc is built without NVML, so the library is opened here, where
 * it is.  nvml.c asks it, nvml_add.c puts the answers into the machine. */
#ifndef LRMOE_TOPO_NVML_H
#define LRMOE_TOPO_NVML_H

#include "topo/machine.h"

#define LRMOE_NVML_LIBRARY "libnvidia-ml.so.1"

enum lrmoeNvmlPeer {
  lrmoeNvmlPeerGpu,
  lrmoeNvmlPeerSwitch,
  lrmoeNvmlPeerCpu,
  lrmoeNvmlPeerUnknown
};

struct lrmoeNvmlGpu {
  int64_t bus;
  int32_t index; /* NVML's number */
  int32_t arch;  /* 90 for sm_90; 0 unknown */
  char name[lrmoeNameBytes];
  bool isInFabric; /* NVSwitches have taken it in */
};

/* An NVLink that is up, as the GPU at one end states it. */
struct lrmoeNvmlLink {
  int32_t gpu; /* into gpus */
  enum lrmoeNvmlPeer peer;
  int64_t bus;            /* of the peer, LRMOE_NO_BUS unknown */
  int64_t bytesPerSecond; /* one direction; 0 unknown */
};

struct lrmoeNvml {
  struct lrmoeNvmlGpu *gpus;
  struct lrmoeNvmlLink *links;
  int32_t numGpus;
  int32_t numLinks;
};

/* Start with {0}; free in any state. */
void lrmoeNvmlFree(struct lrmoeNvml *nvml);

/* Asks the library.  Without it, without a driver or without GPUs nothing is
 * read.  What it does not answer is left unknown and, where that matters, said
 * in a note of the machine; only memory can fail. */
lrmoeResult_t lrmoeNvmlRead(const char *library, struct lrmoeNvml *nvml,
                            struct lrmoeMachine *machine);

/* Puts GPUs and links into the machine of one host; both directions of every
 * link are added. */
lrmoeResult_t lrmoeNvmlAdd(const struct lrmoeNvml *nvml,
                           struct lrmoeMachine *machine);

#endif
