/* Where the ranks of a communicator are: lrmoeTopologyOfComm.
 *
 * A rank knows its own GPU; all of them say which it is, and on which machine,
 * and each then describes that machine for itself. */
#include "base/alloc.h"
#include "base/hash.h"
#include "collectives/comm.h"
#include "topo/machine.h"
#include "topo/topology.h"

#include <stdio.h>
#include <string.h>

struct place {
  int64_t bus;
  uint64_t machine;
};

/* The same in all containers of a machine; 0: the kernel does not say. */
static uint64_t machineId(void) {
  char text[64] = "";
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (!file) return 0;
  size_t length = fread(text, 1, sizeof text, file);
  fclose(file);
  return lrmoeHash(0, text, length);
}

static lrmoeResult_t findPlace(const struct lrmoeComm *comm,
                               struct place *place) {
  char text[lrmoeBusBytes] = "";
  LRMOE_RUN(comm->backend, busAddress, text);
  *place = (struct place){lrmoeBusParse(text), machineId()};
  return lrmoeSuccess;
}

static lrmoeResult_t describe(const struct place *places, int numRanks,
                              int64_t *buses, lrmoeTopology_t *topology) {
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  config.numRanks = numRanks;
  for (int r = 0; r < numRanks; r++) {
    if (places[r].machine != places[0].machine)
      return LRMOE_FAIL(lrmoeUnsupported,
                        "ranks 0 and %d are on different machines", r);
    buses[r] = places[r].bus;
  }
  return lrmoeTopologyOpenAt(&config, buses, topology);
}

lrmoeResult_t lrmoeTopologyOfComm(lrmoeComm_t comm, lrmoeTopology_t *topology) {
  LRMOE_REQUIRE(comm && topology, "%s is NULL", comm ? "topology" : "comm");
  LRMOE_CHECK(lrmoeCommNeedBackend(comm));
  int numRanks = comm->numRanks;
  if (!comm->backend->busAddress)
    return lrmoeTopologyCreate(numRanks, topology);
  struct place mine;
  struct place *places = NULL;
  int64_t *buses = NULL;
  LRMOE_CHECK(lrmoeCommSettle(comm, findPlace(comm, &mine)));
  lrmoeResult_t result = LRMOE_ALLOCATE(numRanks, &places);
  if (result == lrmoeSuccess) result = LRMOE_ALLOCATE(numRanks, &buses);
  if (result == lrmoeSuccess)
    result =
        lrmoeAllGatherHost(comm, &mine, places, (int64_t)sizeof mine, NULL);
  lrmoeCommSettle(comm, result);
  if (result == lrmoeSuccess)
    result = describe(places, numRanks, buses, topology);
  lrmoeFree(buses);
  lrmoeFree(places);
  return result;
}
