/* The topology's order of peers for one communicator, as the library's own
 * all-to-alls have it (collectives/order.h). */
#include "collectives/order.h"

#include "base/log.h"
#include "plugin/preload/comm.h"

/* The machine of the file, else this one's devices, else ranks that share its
 * memory. */
static lrmoeResult_t openTopology(const char *path, int numRanks,
                                  lrmoeTopology_t *topology) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  config.numRanks = numRanks;
  if (path) {
    source.text = path;
    config.sources = &source;
    config.numSources = 1;
  }
  lrmoeResult_t result = lrmoeTopologyOpen(&config, topology);
  if (result == lrmoeSuccess) return result;
  if (path)
    lrmoeLog(lrmoeLogWarn, "LRMOE_TOPOLOGY=%s is refused for %d ranks: %s",
             path, numRanks, lrmoeGetLastError());
  return lrmoeTopologyCreate(numRanks, topology);
}

static lrmoeResult_t fill(struct lrmoePreloadComm *comm,
                          lrmoeTopology_t topology) {
  int64_t numRanks = comm->numRanks;
  int32_t *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(4 * numRanks, &made));
  int32_t *targets = made + 2 * numRanks, *sources = made + 3 * numRanks;
  lrmoeResult_t result = lrmoeOrderMake(topology, comm->rank, targets, sources);
  if (result != lrmoeSuccess) {
    lrmoeFree(made);
    return result;
  }
  for (int32_t step = 0; step < numRanks; step++) {
    made[targets[step]] = step;
    made[numRanks + sources[step]] = step;
  }
  comm->places = made;
  comm->sources = made + numRanks;
  return lrmoeSuccess;
}

/* Numbers the part's ranks by the place that they have in the whole. */
static void rankPlaces(const struct lrmoePreloadNew *made, const int32_t *whole,
                       int32_t *places) {
  for (int i = 0; i < made->numRanks; i++) {
    places[i] = 0;
    for (int j = 0; j < made->numRanks; j++)
      places[i] += whole[made->parentRanks[j]] < whole[made->parentRanks[i]];
  }
}

/* A machine's devices are the whole's ranks: the part keeps the whole's order,
 * without those that are not in it. */
void lrmoePreloadOrderPart(struct lrmoePreloadComm *comm,
                           const struct lrmoePreloadNew *made) {
  int32_t *places = NULL;
  if (LRMOE_ALLOCATE(2 * (int64_t)made->numRanks, &places) != lrmoeSuccess)
    return;
  comm->places = places;
  comm->sources = places + made->numRanks;
  rankPlaces(made, made->parent->places, comm->places);
  rankPlaces(made, made->parent->sources, comm->sources);
}

void lrmoePreloadOrder(struct lrmoePreloadComm *comm, const char *path) {
  lrmoeTopology_t topology = NULL;
  lrmoeResult_t result = openTopology(path, comm->numRanks, &topology);
  if (result == lrmoeSuccess) result = fill(comm, topology);
  if (topology) lrmoeTopologyDestroy(topology);
  if (result != lrmoeSuccess)
    lrmoeLog(lrmoeLogWarn, "preload: messages keep their order: %s",
             lrmoeGetLastError());
}
