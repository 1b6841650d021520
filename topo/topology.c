/* The topology of ranks that share the live machine's memory, seen through
 * hwloc; and what every topology begins and ends with.
 *
 * Counts the cores and NUMA nodes that the calling thread may run on (what
 * the system allows, cut to the thread's binding) and gives every two ranks
 * the same link: they copy through shared memory.  The figures are defaults,
 * marked as guessed. */
#include "topo/topology.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "topo/live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxTopologyRanks = 1 << 20
};

/* Measured with the shared-memory transport, rows of 4 KiB, two cores of an
 * AMD Zen 4 server, medians: all-to-all of 16 MiB a rank moves 14 GB/s in all,
 * 7 GB/s a core; a small one among four ranks takes 5 us for three messages a
 * rank; one core copies 64 MiB at 8.5 GB/s. */
static const lrmoeLink_t guessedMemoryLink = {
    .linkClass = lrmoeLinkMemory,
    .guessed = 1,
    .latencyNs = 1700,
    .bytesPerSecond = 7000000000,
};
static const lrmoeLink_t guessedSelfLink = {
    .linkClass = lrmoeLinkSelf,
    .guessed = 1,
    .latencyNs = 0,
    .bytesPerSecond = 8500000000,
};

static int32_t countIn(hwloc_topology_t machine, hwloc_obj_type_t type,
                       hwloc_const_cpuset_t usable) {
  int32_t count = 0;
  hwloc_obj_t object = NULL;
  while ((object = hwloc_get_next_obj_by_type(machine, type, object)))
    count += object->cpuset && hwloc_bitmap_intersects(object->cpuset, usable);
  return count;
}

static int32_t atLeastOne(int32_t count) {
  return count ? count : 1;
}

/* Some sandboxes show neither cores nor nodes: then processing units count,
 * and the machine is one node. */
static lrmoeResult_t countUsable(hwloc_topology_t machine,
                                 struct lrmoeTopology *topology) {
  hwloc_bitmap_t usable = NULL;
  LRMOE_CHECK(lrmoeLiveUsable(machine, &usable));
  int32_t numCores = countIn(machine, HWLOC_OBJ_CORE, usable);
  if (!numCores) numCores = countIn(machine, HWLOC_OBJ_PU, usable);
  topology->numCores = atLeastOne(numCores);
  topology->numNumaNodes =
      atLeastOne(countIn(machine, HWLOC_OBJ_NUMANODE, usable));
  hwloc_bitmap_free(usable);
  return lrmoeSuccess;
}

static uint64_t hashModel(hwloc_topology_t machine) {
  hwloc_obj_t package = hwloc_get_obj_by_type(machine, HWLOC_OBJ_PACKAGE, 0);
  const char *model =
      package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
  return lrmoeHash(1, model ? model : "", model ? strlen(model) : 0);
}

static lrmoeResult_t readLocked(struct lrmoeTopology *topology) {
  hwloc_topology_t machine;
  if (hwloc_topology_init(&machine))
    return LRMOE_FAIL(lrmoeSystemError, "hwloc does not start: %s",
                      strerror(errno));
  lrmoeResult_t result = lrmoeLiveLoad(machine);
  if (result == lrmoeSuccess) result = countUsable(machine, topology);
  if (result == lrmoeSuccess) topology->machineKey = hashModel(machine);
  hwloc_topology_destroy(machine);
  return result;
}

static lrmoeResult_t readMachine(struct lrmoeTopology *topology) {
  lrmoeHwlocLock();
  lrmoeResult_t result = readLocked(topology);
  lrmoeHwlocUnlock();
  return result;
}

void lrmoeTopologyDefaults(struct lrmoeTopology *topology) {
  *topology = (struct lrmoeTopology){.self = guessedSelfLink,
                                     .memory = guessedMemoryLink};
}

/* So that a profile of one machine is not taken for another's.  Begins with
 * the hash of the processors' model. */
static uint64_t keyOf(const struct lrmoeTopology *topology) {
  const int64_t values[] = {topology->numRanks, topology->numCores,
                            topology->numNumaNodes};
  return lrmoeHash(topology->machineKey, values, sizeof values);
}

lrmoeResult_t lrmoeTopologyCreate(int numRanks, lrmoeTopology_t *topology) {
  LRMOE_REQUIRE(topology, "topology is NULL");
  LRMOE_REQUIRE(numRanks >= 1 && numRanks <= maxTopologyRanks,
                "numRanks is %d, not 1..%d", numRanks, maxTopologyRanks);
  struct lrmoeTopology *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  lrmoeTopologyDefaults(made);
  made->numRanks = numRanks;
  made->numHosts = made->numDomains = 1;
  lrmoeResult_t result = readMachine(made);
  made->machineKey = keyOf(made);
  if (result == lrmoeSuccess)
    *topology = made;
  else
    lrmoeTopologyDestroy(made);
  return result;
}

void lrmoeTopologyHold(lrmoeTopology_t topology) {
  atomic_fetch_add(&topology->numHolders, 1);
}

lrmoeResult_t lrmoeTopologyDestroy(lrmoeTopology_t topology) {
  if (!topology || atomic_fetch_sub(&topology->numHolders, 1) > 0)
    return lrmoeSuccess;
  lrmoeFree(topology->fits);
  lrmoeMachineFree(&topology->machine);
  lrmoeFree(topology->places);
  lrmoeFree(topology->reaches);
  lrmoeFree(topology->hostNumbers);
  lrmoeFree(topology->firstRanks);
  lrmoeFree(topology->rankCounts);
  lrmoeFree(topology->switches);
  lrmoeFree(topology->peerBridges);
  lrmoeFree(topology->slots);
  lrmoeFree(topology->ports);
  lrmoeFree(topology->resources);
  lrmoeFree(topology->members);
  lrmoeFree(topology);
  return lrmoeSuccess;
}
