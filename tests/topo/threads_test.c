/* Threads that open topologies at once, of the live machine, of descriptions
 * and of recorded ones; for ThreadSanitizer above all. */
#include "open.h"

#include <hwloc.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
  numThreads = 4,
  numTurns = 6
};

static pthread_barrier_t start;
static char *recorded; /* hwloc's XML of a machine */

static int createLive(void) {
  lrmoeTopology_t topology = NULL;
  if (lrmoeTopologyCreate(2, &topology) != lrmoeSuccess) return 1;
  return lrmoeTopologyDestroy(topology) != lrmoeSuccess;
}

/* text NULL: the live machine, which may have no device for a rank. */
static int openOne(lrmoeSourceKind_t kind, const char *text) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopology_t topology = NULL;
  source.kind = kind;
  source.text = text;
  config.numRanks = text ? 2 : 0;
  config.sources = text ? &source : NULL;
  config.numSources = text != NULL;
  lrmoeResult_t result = lrmoeTopologyOpen(&config, &topology);
  if (result != lrmoeSuccess) return text != NULL;
  return lrmoeTopologyDestroy(topology) != lrmoeSuccess;
}

static void *threadMain(void *argument) {
  int64_t numFailed = 0;
  (void)argument;
  pthread_barrier_wait(&start);
  for (int turn = 0; turn < numTurns; turn++) {
    numFailed += createLive();
    numFailed += openOne(lrmoeSourceLive, NULL);
    numFailed += openOne(lrmoeSourceSynthetic, "package:1 numa:2 core:2 pu:1");
    numFailed += openOne(lrmoeSourceText, recorded);
  }
  return (void *)(intptr_t)numFailed;
}

static void record(void) {
  hwloc_topology_t machine;
  int length = 0;
  ck_assert(!hwloc_topology_init(&machine));
  ck_assert(!hwloc_topology_set_synthetic(machine, "numa:2 core:2 pu:1"));
  ck_assert(!hwloc_topology_load(machine));
  ck_assert(!hwloc_topology_export_xmlbuffer(machine, &recorded, &length, 0));
  char *copy = strdup(recorded);
  hwloc_free_xmlbuffer(machine, recorded);
  recorded = copy;
  hwloc_topology_destroy(machine);
}

START_TEST(threadsOpenAtOnce) {
  pthread_t threads[numThreads];
  record();
  ck_assert(!pthread_barrier_init(&start, NULL, numThreads));
  for (int i = 0; i < numThreads; i++)
    ck_assert(!pthread_create(&threads[i], NULL, threadMain, NULL));
  for (int i = 0; i < numThreads; i++) {
    void *numFailed = NULL;
    pthread_join(threads[i], &numFailed);
    ck_assert_int_eq((intptr_t)numFailed, 0);
  }
  pthread_barrier_destroy(&start);
  free(recorded);
}
END_TEST

int main(void) {
  const TTest *tests[] = {threadsOpenAtOnce};
  return suiteRunTests("topo_threads", tests, sizeof tests / sizeof *tests,
                       120.0);
}
