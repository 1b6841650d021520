/* Topology XML of NCCL and hwloc from anywhere: either an error that says
 * something, or a model whose figures hold. */
#include "fuzz/fuzz.h"
#include "lrmoe.h"

#include <string.h>

enum {
  maxChecked = 12 /* ranks, so that a run stays short */
};

static int lesser(int a, int b) {
  return a < b ? a : b;
}

static void checkLinks(lrmoeTopology_t topology, int numRanks) {
  for (int from = 0; from < numRanks; from++)
    for (int to = 0; to < numRanks; to++) {
      lrmoeLink_t link;
      FUZZ_CHECK(lrmoeTopologyGetLink(topology, from, to, &link) ==
                 lrmoeSuccess);
      FUZZ_CHECK((link.bytesPerSecond > 0) ==
                 (link.linkClass != lrmoeLinkNone));
      FUZZ_CHECK((link.linkClass == lrmoeLinkSelf) == (from == to));
      FUZZ_CHECK(link.latencyNs >= 0);
    }
}

static void checkLists(lrmoeTopology_t topology,
                       const lrmoeTopologyInfo_t *info) {
  for (int i = 0; i < info->numNodes; i++) {
    lrmoeTopologyNode_t node = LRMOE_TOPOLOGY_NODE_INITIALIZER;
    FUZZ_CHECK(lrmoeTopologyGetNode(topology, i, &node) == lrmoeSuccess);
    FUZZ_CHECK(node.parent < i && node.host < info->numHosts);
  }
  for (int i = 0; i < info->numResources; i++) {
    lrmoeTopologyResource_t view = LRMOE_TOPOLOGY_RESOURCE_INITIALIZER;
    FUZZ_CHECK(lrmoeTopologyGetResource(topology, i, &view) == lrmoeSuccess);
    FUZZ_CHECK(view.bytesPerSecond > 0 && view.numRanks >= 2);
    for (int64_t j = 1; j < view.numRanks; j++)
      FUZZ_CHECK(view.ranks[j - 1] < view.ranks[j]);
  }
}

static void checkTraffic(lrmoeTopology_t topology, int numRanks) {
  static int64_t bytes[maxChecked * maxChecked];
  int64_t ns = -1;
  for (int i = 0; i < numRanks * numRanks; i++)
    bytes[i] = 4096;
  FUZZ_CHECK(lrmoeTopologyTrafficNs(topology, bytes, &ns) == lrmoeSuccess);
  FUZZ_CHECK(ns > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopologyInfo_t info = LRMOE_TOPOLOGY_INFO_INITIALIZER;
  lrmoeTopology_t topology = NULL;
  source.kind = lrmoeSourceText;
  source.text = bytes ? (const char *)data : "";
  source.bytes = bytes;
  source.copies = 2;
  config.sources = &source;
  config.numSources = 1;
  lrmoeResult_t result = lrmoeTopologyOpen(&config, &topology);
  if (result != lrmoeSuccess) {
    FUZZ_CHECK(result == lrmoeInvalidArgument || result == lrmoeUnsupported);
    FUZZ_CHECK(!topology && *lrmoeGetLastError());
    return 0;
  }
  FUZZ_CHECK(lrmoeTopologyGetInfo(topology, &info) == lrmoeSuccess);
  checkLinks(topology, lesser(info.numRanks, maxChecked));
  checkLists(topology, &info);
  if (info.numRanks <= maxChecked) checkTraffic(topology, info.numRanks);
  lrmoeTopologyDestroy(topology);
  return 0;
}
