/* The live machine as hwloc sees it. */
#ifndef LRMOE_TOPO_LIVE_H
#define LRMOE_TOPO_LIVE_H

#include "topo/machine.h"

#include <hwloc.h>

/* Around all that a thread does with a topology of hwloc's, from before its
 * initialisation until it is destroyed: libraries that hwloc loads (pciaccess,
 * udev, its plugins) have state of the process that nothing guards. */
void lrmoeHwlocLock(void);
void lrmoeHwlocUnlock(void);

/* Where the live machine is asked for what hwloc does not see.  Tests put
 * others in the place of the system's. */
struct lrmoeLiveInput {
  const char *nvml;   /* library, as dlopen takes it */
  const char *folder; /* the kernel's classes of devices: /sys/class */
};

/* lrmoeLiveRead with these. */
lrmoeResult_t lrmoeLiveReadWith(const struct lrmoeLiveInput *input,
                                struct lrmoeMachine *machine);

/* Loads a topology that has been initialised; refuses by name what would put
 * another machine in the place of this one. */
lrmoeResult_t lrmoeLiveLoad(hwloc_topology_t hwloc);

/* CPUs that the calling thread may run on; free with hwloc_bitmap_free. */
lrmoeResult_t lrmoeLiveUsable(hwloc_topology_t hwloc, hwloc_bitmap_t *usable);

/* Reads what hwloc has loaded into a machine; usable as in lrmoeHwlocInput. */
lrmoeResult_t lrmoeLiveExport(hwloc_topology_t hwloc, const char *source,
                              hwloc_const_bitmap_t usable,
                              struct lrmoeMachine *machine);

/* Puts the rates of network ports in, as the kernel states them below
 * `folder`, which is /sys/class. */
void lrmoeLivePorts(struct lrmoeMachine *machine, const char *folder);

#endif
