/* A stand-in for NVIDIA's management library: what it shows is set by the
 * test that opens it (dlsym "standInUse"). */
#ifndef LRMOE_TESTS_TOPO_NVML_STANDIN_H
#define LRMOE_TESTS_TOPO_NVML_STANDIN_H

enum {
  standInMaxGpus = 16,
  standInMaxLinks = 18
};

/* The functions that can be made to fail. */
enum standInCall {
  standInInit,
  standInCount,
  standInHandle,
  standInPci,
  standInName,
  standInCapability,
  standInFabric,
  standInLinkState,
  standInLinkCapability,
  standInLinkType,
  standInLinkPci,
  standInLinkVersion,
  standInNumCalls
};

enum {
  standInSwitch = -1, /* peers that are no GPU of the machine */
  standInCpu = -2,
  standInNowhere = -3
};

struct standInGpu {
  unsigned domain, bus, device;
  int isHidden;
  int numLinks;
  struct {
    int peer; /* GPU, or one of the above */
    int isDown;
    int isBlind; /* no access to the peer's memory */
  } links[standInMaxLinks];
};

struct standInMachine {
  int numGpus;
  int major, minor;             /* compute capability */
  unsigned version;             /* of NVLink */
  unsigned char fabric;         /* state: 3 for complete */
  int results[standInNumCalls]; /* what each function gives, 0: success */
  struct standInGpu gpus[standInMaxGpus];
};

/* How often the library was started, less how often it was shut down. */
typedef int standInUseFunction(const struct standInMachine *machine);

#endif
