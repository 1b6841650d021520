/* The stand-in for NVIDIA's management library: see nvml_standin.h.
 *
 * Declarations follow NVIDIA's reference of NVML and are written here once
 * more, so that a mistake in topo/nvml.c is not made twice alike.  With
 * STAND_IN_BARE only what a driver of 2016 had is there. */
#include "topo/nvml_standin.h"

#include <stdio.h>
#include <string.h>

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlPciInfo_st {
  char busIdLegacy[16];
  unsigned int domain;
  unsigned int bus;
  unsigned int device;
  unsigned int pciDeviceId;
  unsigned int pciSubSystemId;
  char busId[32];
} nvmlPciInfo_t;
typedef struct {
  unsigned char clusterUuid[16];
  nvmlReturn_t status;
  unsigned int cliqueId;
  unsigned char state;
} nvmlGpuFabricInfo_t;

enum {
  invalidArgument = 2,
  typeGpu = 0,
  typeNpu = 1,
  typeSwitch = 2,
  typeUnknown = 0xff
};

static struct standInMachine shown;
static int numStarted;

int standInUse(const struct standInMachine *machine);
int standInUse(const struct standInMachine *machine) {
  if (machine) shown = *machine;
  return numStarted;
}

/* Handles are the addresses of GPUs; hidden ones are not counted. */
static struct standInGpu *visible(unsigned int index) {
  for (int i = 0; i < shown.numGpus; i++)
    if (!shown.gpus[i].isHidden && !index--) return &shown.gpus[i];
  return NULL;
}

static struct standInGpu *gpuOf(nvmlDevice_t device) {
  return (struct standInGpu *)(void *)device;
}

static nvmlReturn_t checkLink(nvmlDevice_t device, unsigned int link) {
  return link < (unsigned)gpuOf(device)->numLinks ? 0 : invalidArgument;
}

#define FAIL_IF_TOLD(call)                               \
  do {                                                   \
    if (shown.results[call]) return shown.results[call]; \
  } while (0)

nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlInit_v2(void) {
  FAIL_IF_TOLD(standInInit);
  numStarted++;
  return 0;
}

nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlShutdown(void) {
  numStarted--;
  return 0;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
  FAIL_IF_TOLD(standInCount);
  *count = 0;
  while (visible(*count))
    ++*count;
  return 0;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index,
                                           nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index,
                                           nvmlDevice_t *device) {
  FAIL_IF_TOLD(standInHandle);
  *device = (nvmlDevice_t)(void *)visible(index);
  return *device ? 0 : invalidArgument;
}

static void fillPci(unsigned int domain, unsigned int bus, unsigned int device,
                    nvmlPciInfo_t *pci) {
  memset(pci, 0xa5, sizeof *pci);
  pci->domain = domain;
  pci->bus = bus;
  pci->device = device;
  snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", domain,
           bus & 0xff, device & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  FAIL_IF_TOLD(standInPci);
  const struct standInGpu *gpu = gpuOf(device);
  fillPci(gpu->domain, gpu->bus, gpu->device, pci);
  return 0;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      unsigned int *isActive);
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      unsigned int *isActive) {
  FAIL_IF_TOLD(standInLinkState);
  if (checkLink(device, link)) return invalidArgument;
  *isActive = !gpuOf(device)->links[link].isDown;
  return 0;
}

/* Switches have an address of their own, which hwloc does not show. */
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device,
                                                 unsigned int link,
                                                 nvmlPciInfo_t *pci);
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device,
                                                 unsigned int link,
                                                 nvmlPciInfo_t *pci) {
  FAIL_IF_TOLD(standInLinkPci);
  if (checkLink(device, link)) return invalidArgument;
  int peer = gpuOf(device)->links[link].peer;
  if (peer >= 0)
    fillPci(shown.gpus[peer].domain, shown.gpus[peer].bus,
            shown.gpus[peer].device, pci);
  else
    fillPci(0, 0xe0, 0, pci);
  return 0;
}

#ifndef STAND_IN_BARE
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name,
                               unsigned int bytes);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name,
                               unsigned int bytes) {
  (void)device;
  FAIL_IF_TOLD(standInName);
  snprintf(name, bytes, "Stand-in");
  return 0;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                int *minor);
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                int *minor) {
  (void)device;
  FAIL_IF_TOLD(standInCapability);
  *major = shown.major;
  *minor = shown.minor;
  return 0;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device,
                                        nvmlGpuFabricInfo_t *fabric);
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device,
                                        nvmlGpuFabricInfo_t *fabric) {
  (void)device;
  FAIL_IF_TOLD(standInFabric);
  memset(fabric, 0, sizeof *fabric);
  fabric->state = shown.fabric;
  return 0;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device,
                                           unsigned int link, int capability,
                                           unsigned int *value);
nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device,
                                           unsigned int link, int capability,
                                           unsigned int *value) {
  FAIL_IF_TOLD(standInLinkCapability);
  if (checkLink(device, link)) return invalidArgument;
  *value = !(capability == 0 && gpuOf(device)->links[link].isBlind);
  return 0;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device,
                                                 unsigned int link,
                                                 unsigned int *type);
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device,
                                                 unsigned int link,
                                                 unsigned int *type) {
  FAIL_IF_TOLD(standInLinkType);
  if (checkLink(device, link)) return invalidArgument;
  int peer = gpuOf(device)->links[link].peer;
  *type = peer >= 0               ? typeGpu
          : peer == standInSwitch ? typeSwitch
          : peer == standInCpu    ? typeNpu
                                  : typeUnknown;
  return 0;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                        unsigned int *version);
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                        unsigned int *version) {
  FAIL_IF_TOLD(standInLinkVersion);
  if (checkLink(device, link)) return invalidArgument;
  *version = shown.version;
  return 0;
}
#endif
