/* Asks NVIDIA's management library: see nvml.h.
 *
 * Its few types and functions are declared here, as its public header has
 * them: the base library builds where no CUDA is installed.  Every function but
 * the first few may be missing (drivers differ by ten years), and every call
 * may fail (a virtual machine hides peers, a GPU falls off the bus): such an
 * answer is unknown, never an error.  A driver without devices is no fault. */
#include "topo/nvml.h"

#include "base/alloc.h"
#include "base/log.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
  maxGpus = 1024,
  maxLinks = 36, /* of a GPU: Rubin's */
  nvmlSuccess = 0,
  nvmlInvalidArgument = 2, /* a link that the GPU does not have */
  nvmlNotSupported = 3,    /* a GPU without NVLink */
  nvmlDriverNotLoaded = 9,
  nvmlPeerToPeer = 0,   /* of nvmlNvLinkCapability_t */
  nvmlPeerIsGpu = 0,    /* of nvmlIntNvLinkDeviceType_t */
  nvmlPeerIsCpu = 1,    /* POWER */
  nvmlPeerIsSwitch = 2, /* 255: not known */
  nvmlFabricComplete = 3
};

typedef struct nvmlDevice_st *nvmlDevice;

struct nvmlPciInfo { /* nvmlPciInfo_t since 2018 */
  char busIdLegacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pciDeviceId;
  unsigned pciSubSystemId;
  char busId[32];
};

struct nvmlFabricInfo { /* nvmlGpuFabricInfo_t */
  unsigned char clusterUuid[16];
  int status;
  unsigned cliqueId;
  unsigned char state;
};

/* The library's functions; NULL: it has none of that name. */
struct api {
  int (*init)(void);
  int (*shutdown)(void);
  int (*getCount)(unsigned *count);
  int (*getHandle)(unsigned index, nvmlDevice *device);
  int (*getPci)(nvmlDevice device, struct nvmlPciInfo *pci);
  int (*getName)(nvmlDevice device, char *name, unsigned bytes);
  int (*getCapability)(nvmlDevice device, int *major, int *minor);
  int (*getFabric)(nvmlDevice device, struct nvmlFabricInfo *fabric);
  int (*getLinkState)(nvmlDevice device, unsigned link, unsigned *isActive);
  int (*getLinkCapability)(nvmlDevice device, unsigned link, int capability,
                           unsigned *value);
  int (*getLinkType)(nvmlDevice device, unsigned link, unsigned *type);
  int (*getLinkPci)(nvmlDevice device, unsigned link, struct nvmlPciInfo *pci);
  int (*getLinkVersion)(nvmlDevice device, unsigned link, unsigned *version);
};

/* One call of a function that may be missing. */
#define ASK(function, ...) ((function) ? (function)(__VA_ARGS__) : -1)

void lrmoeNvmlFree(struct lrmoeNvml *nvml) {
  lrmoeFree(nvml->gpus);
  lrmoeFree(nvml->links);
  *nvml = (struct lrmoeNvml){0};
}

/* ---- The library -------------------------------------------------------- */

#define FIND(function, name) *(void **)&(function) = dlsym(handle, name)

/* False where it lacks what nothing can be read without. */
static bool findApi(void *handle, struct api *api) {
  FIND(api->init, "nvmlInit_v2");
  FIND(api->shutdown, "nvmlShutdown");
  FIND(api->getCount, "nvmlDeviceGetCount_v2");
  FIND(api->getHandle, "nvmlDeviceGetHandleByIndex_v2");
  FIND(api->getPci, "nvmlDeviceGetPciInfo_v3");
  FIND(api->getName, "nvmlDeviceGetName");
  FIND(api->getCapability, "nvmlDeviceGetCudaComputeCapability");
  FIND(api->getFabric, "nvmlDeviceGetGpuFabricInfo");
  FIND(api->getLinkState, "nvmlDeviceGetNvLinkState");
  FIND(api->getLinkCapability, "nvmlDeviceGetNvLinkCapability");
  FIND(api->getLinkType, "nvmlDeviceGetNvLinkRemoteDeviceType");
  FIND(api->getLinkPci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  FIND(api->getLinkVersion, "nvmlDeviceGetNvLinkVersion");
  return api->init && api->shutdown && api->getCount && api->getHandle &&
         api->getPci;
}

/* ---- GPUs --------------------------------------------------------------- */

struct asker {
  const struct api *api;
  struct lrmoeNvml *nvml;
  struct lrmoeMachine *machine;
};

static int64_t busOf(const struct nvmlPciInfo *pci) {
  if (pci->bus > 0xff || pci->device > 0x1f) return LRMOE_NO_BUS;
  return (int64_t)pci->domain << 16 | (int64_t)pci->bus << 8 |
         (int64_t)pci->device << 3;
}

static lrmoeResult_t noteGpu(const struct asker *asker, unsigned index,
                             const char *function, int code) {
  return lrmoeMachineNote(asker->machine, -1,
                          "NVML's GPU %u is left out: %s gives %d", index,
                          function, code);
}

/* On some boards every GPU has the address 0. */
static bool isTaken(const struct lrmoeNvml *nvml, int64_t bus) {
  for (int32_t i = 0; i < nvml->numGpus; i++)
    if (nvml->gpus[i].bus == bus) return true;
  return false;
}

/* sm_90 as 90; 0 where that is not told. */
static int32_t archOf(const struct api *api, nvmlDevice device) {
  int major = 0, minor = 0;
  if (ASK(api->getCapability, device, &major, &minor) != nvmlSuccess) return 0;
  bool isSane = major > 0 && major < 100 && minor >= 0 && minor < 10;
  return isSane ? 10 * major + minor : 0;
}

static bool isInFabric(const struct api *api, nvmlDevice device) {
  struct nvmlFabricInfo fabric = {.state = 0};
  return ASK(api->getFabric, device, &fabric) == nvmlSuccess &&
         fabric.state == nvmlFabricComplete;
}

/* ---- Links -------------------------------------------------------------- */

/* By the GPU's architecture; without it by what nvmlNvlinkVersion_t calls 1.0,
 * 2.0, 2.2, 3.0, 3.1, 4.0 and 5.0 (older drivers count 1, 2, 3, 4: the same
 * rates). */
static int64_t rateOf(int32_t arch, unsigned version) {
  static const int64_t rates[] = {0,           20000000000, 25000000000,
                                  25000000000, 25000000000, 25000000000,
                                  25000000000, 50000000000};
  int64_t rate = lrmoeNvlinkRate(arch);
  if (rate) return rate;
  return version < sizeof rates / sizeof *rates ? rates[version] : 0;
}

static enum lrmoeNvmlPeer peerOf(const struct api *api, nvmlDevice device,
                                 unsigned link) {
  unsigned type = 0;
  if (ASK(api->getLinkType, device, link, &type) != nvmlSuccess)
    return lrmoeNvmlPeerUnknown;
  switch (type) {
  case nvmlPeerIsGpu:
    return lrmoeNvmlPeerGpu;
  case nvmlPeerIsCpu:
    return lrmoeNvmlPeerCpu;
  case nvmlPeerIsSwitch:
    return lrmoeNvmlPeerSwitch;
  default:
    return lrmoeNvmlPeerUnknown;
  }
}

/* A link that cannot reach its peer's memory carries nothing of ours. */
static bool isUsable(const struct api *api, nvmlDevice device, unsigned link) {
  unsigned reaches = 1;
  int code =
      ASK(api->getLinkCapability, device, link, nvmlPeerToPeer, &reaches);
  return code != nvmlSuccess || reaches;
}

static void takeLink(const struct asker *asker, nvmlDevice device,
                     unsigned number) {
  struct lrmoeNvml *nvml = asker->nvml;
  struct lrmoeNvmlLink *link = &nvml->links[nvml->numLinks++];
  struct nvmlPciInfo pci = {.domain = 0};
  unsigned version = 0;
  link->gpu = nvml->numGpus - 1;
  link->peer = peerOf(asker->api, device, number);
  link->bus = ASK(asker->api->getLinkPci, device, number, &pci) == nvmlSuccess
                  ? busOf(&pci)
                  : LRMOE_NO_BUS;
  if (ASK(asker->api->getLinkVersion, device, number, &version) != nvmlSuccess)
    version = 0;
  link->bytesPerSecond = rateOf(nvml->gpus[link->gpu].arch, version);
}

/* Of the links that are up; how many are down, and the last odd answer. */
static lrmoeResult_t takeLinks(const struct asker *asker, nvmlDevice device) {
  const struct lrmoeNvmlGpu *gpu = &asker->nvml->gpus[asker->nvml->numGpus - 1];
  int numDown = 0, odd = nvmlSuccess;
  for (unsigned i = 0; i < maxLinks; i++) {
    unsigned isActive = 0;
    int code = ASK(asker->api->getLinkState, device, i, &isActive);
    if (code == nvmlInvalidArgument || code == nvmlNotSupported) break;
    if (code != nvmlSuccess)
      odd = code;
    else if (!isActive)
      numDown++;
    else if (isUsable(asker->api, device, i))
      takeLink(asker, device, i);
  }
  if (odd != nvmlSuccess)
    LRMOE_CHECK(lrmoeMachineNote(
        asker->machine, -1,
        "NVML's GPU %d: some NVLinks are not known: nvmlDeviceGetNvLinkState "
        "%s (%d)",
        gpu->index, odd < 0 ? "is missing" : "fails", odd));
  if (numDown)
    return lrmoeMachineNote(asker->machine, -1,
                            "NVML's GPU %d: %d NVLinks are not up", gpu->index,
                            numDown);
  return lrmoeSuccess;
}

static lrmoeResult_t takeGpu(const struct asker *asker, unsigned index) {
  const struct api *api = asker->api;
  nvmlDevice device = NULL;
  int code = api->getHandle(index, &device);
  if (code != nvmlSuccess)
    return noteGpu(asker, index, "nvmlDeviceGetHandleByIndex_v2", code);
  struct nvmlPciInfo pci = {.domain = 0};
  code = api->getPci(device, &pci);
  int64_t bus = busOf(&pci);
  if (code != nvmlSuccess || bus == LRMOE_NO_BUS)
    return noteGpu(asker, index, "nvmlDeviceGetPciInfo_v3", code);
  if (isTaken(asker->nvml, bus))
    return lrmoeMachineNote(asker->machine, -1,
                            "NVML's GPU %u is left out: another has its "
                            "address",
                            index);
  struct lrmoeNvmlGpu *gpu = &asker->nvml->gpus[asker->nvml->numGpus++];
  gpu->bus = bus;
  gpu->index = (int32_t)index;
  gpu->arch = archOf(api, device);
  gpu->isInFabric = isInFabric(api, device);
  if (ASK(api->getName, device, gpu->name, lrmoeNameBytes) != nvmlSuccess)
    *gpu->name = '\0';
  gpu->name[lrmoeNameBytes - 1] = '\0';
  return takeLinks(asker, device);
}

/* ---- All ---------------------------------------------------------------- */

static lrmoeResult_t askAll(const struct asker *asker) {
  unsigned count = 0;
  int code = asker->api->getCount(&count);
  if (code != nvmlSuccess)
    return lrmoeMachineNote(asker->machine, -1,
                            "NVML does not count its GPUs "
                            "(nvmlDeviceGetCount_v2 gives %d): NVLinks are not "
                            "known",
                            code);
  if (count > maxGpus) count = maxGpus;
  LRMOE_CHECK(LRMOE_ALLOCATE(count, &asker->nvml->gpus));
  LRMOE_CHECK(LRMOE_ALLOCATE((size_t)count * maxLinks, &asker->nvml->links));
  for (unsigned i = 0; i < count; i++)
    LRMOE_CHECK(takeGpu(asker, i));
  return lrmoeSuccess;
}

static lrmoeResult_t askStarted(void *handle, const struct asker *asker,
                                struct api *api) {
  if (!findApi(handle, api)) {
    lrmoeLog(lrmoeLogInfo, "this NVML is too old: NVLinks are not known");
    return lrmoeSuccess;
  }
  int code = api->init();
  if (code == nvmlDriverNotLoaded) {
    lrmoeLog(lrmoeLogInfo, "NVML finds no driver");
    return lrmoeSuccess;
  }
  if (code != nvmlSuccess)
    return lrmoeMachineNote(asker->machine, -1,
                            "NVML does not start (nvmlInit_v2 gives %d): "
                            "NVLinks are not known",
                            code);
  lrmoeResult_t result = askAll(asker);
  api->shutdown();
  return result;
}

lrmoeResult_t lrmoeNvmlRead(const char *library, struct lrmoeNvml *nvml,
                            struct lrmoeMachine *machine) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *why = dlerror();
    lrmoeLog(lrmoeLogInfo, "no NVML: %s", why ? why : library);
    return lrmoeSuccess;
  }
  struct api api = {.init = NULL};
  const struct asker asker = {&api, nvml, machine};
  lrmoeResult_t result = askStarted(handle, &asker, &api);
  dlclose(handle);
  return result;
}
