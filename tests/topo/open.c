/* Helpers of the topology tests: see open.h. */
#include "topo/open.h"

#include <string.h>

static lrmoeResult_t openSource(const lrmoeTopologySource_t *source,
                                int numRanks, lrmoeTopology_t *topology) {
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  config.sources = source;
  config.numSources = 1;
  config.numRanks = numRanks;
  return lrmoeTopologyOpen(&config, topology);
}

lrmoeResult_t openFile(const char *path, lrmoeTopology_t *topology) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  source.text = path;
  return openSource(&source, 0, topology);
}

lrmoeResult_t openCopies(const char *text, int copies, int numRanks,
                         lrmoeTopology_t *topology) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  source.kind = lrmoeSourceText;
  source.text = text;
  source.copies = copies;
  return openSource(&source, numRanks, topology);
}

lrmoeResult_t openSynthetic(const char *text, int copies, int numRanks,
                            lrmoeTopology_t *topology) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  source.kind = lrmoeSourceSynthetic;
  source.text = text;
  source.copies = copies;
  return openSource(&source, numRanks, topology);
}

lrmoeResult_t openText(const char *text, lrmoeTopology_t *topology) {
  return openCopies(text, 1, 0, topology);
}

lrmoeTopologyInfo_t infoOf(lrmoeTopology_t topology) {
  lrmoeTopologyInfo_t info = LRMOE_TOPOLOGY_INFO_INITIALIZER;
  ASSERT_OK(lrmoeTopologyGetInfo(topology, &info));
  return info;
}

lrmoeLink_t linkOf(lrmoeTopology_t topology, int from, int to) {
  lrmoeLink_t link = {0};
  ASSERT_OK(lrmoeTopologyGetLink(topology, from, to, &link));
  return link;
}

lrmoeTopologyRank_t rankOf(lrmoeTopology_t topology, int rank) {
  lrmoeTopologyRank_t view = LRMOE_TOPOLOGY_RANK_INITIALIZER;
  ASSERT_OK(lrmoeTopologyGetRank(topology, rank, &view));
  return view;
}

lrmoeTopologyNode_t nodeOf(lrmoeTopology_t topology, int node) {
  lrmoeTopologyNode_t view = LRMOE_TOPOLOGY_NODE_INITIALIZER;
  ASSERT_OK(lrmoeTopologyGetNode(topology, node, &view));
  return view;
}

static lrmoeTopologyResource_t resourceOf(lrmoeTopology_t topology, int i) {
  lrmoeTopologyResource_t view = LRMOE_TOPOLOGY_RESOURCE_INITIALIZER;
  ASSERT_OK(lrmoeTopologyGetResource(topology, i, &view));
  return view;
}

int findResource(lrmoeTopology_t topology, const char *name) {
  for (int i = 0; i < infoOf(topology).numResources; i++)
    if (strcmp(resourceOf(topology, i).name, name) == 0) return i;
  return -1;
}

int hasNote(lrmoeTopology_t topology, const char *text) {
  for (int i = 0; i < infoOf(topology).numNotes; i++) {
    const char *note = NULL;
    ASSERT_OK(lrmoeTopologyGetNote(topology, i, &note));
    if (strstr(note, text)) return 1;
  }
  return 0;
}

static void assertSameRank(lrmoeTopology_t a, lrmoeTopology_t b, int rank,
                           const char *what) {
  lrmoeTopologyRank_t left = rankOf(a, rank), right = rankOf(b, rank);
  ck_assert_msg(left.host == right.host && left.domain == right.domain &&
                    left.numPorts == right.numPorts,
                "%s: rank %d is elsewhere", what, rank);
  for (int i = 0; i < infoOf(a).numRanks; i++) {
    lrmoeLink_t one = linkOf(a, rank, i), other = linkOf(b, rank, i);
    ck_assert_msg(one.linkClass == other.linkClass &&
                      one.latencyNs == other.latencyNs &&
                      one.bytesPerSecond == other.bytesPerSecond &&
                      one.guessed == other.guessed,
                  "%s: ranks %d and %d are linked otherwise", what, rank, i);
  }
}

void assertSameModel(lrmoeTopology_t a, lrmoeTopology_t b, const char *what) {
  lrmoeTopologyInfo_t left = infoOf(a), right = infoOf(b);
  ck_assert_msg(left.numRanks == right.numRanks &&
                    left.numHosts == right.numHosts &&
                    left.numDomains == right.numDomains &&
                    left.numResources == right.numResources,
                "%s: other sizes", what);
  for (int rank = 0; rank < left.numRanks; rank++)
    assertSameRank(a, b, rank, what);
  for (int i = 0; i < left.numResources; i++) {
    lrmoeTopologyResource_t one = resourceOf(a, i), other = resourceOf(b, i);
    ck_assert_msg(one.bytesPerSecond == other.bytesPerSecond &&
                      one.numRanks == other.numRanks &&
                      one.guessed == other.guessed,
                  "%s: resource %d is another", what, i);
    ck_assert_mem_eq(one.ranks, other.ranks,
                     (size_t)one.numRanks * sizeof *one.ranks);
  }
  ck_assert_msg(left.machineKey == right.machineKey, "%s: another key", what);
}

static void assertSameNode(const lrmoeTopologyNode_t *a,
                           const lrmoeTopologyNode_t *b, const char *what) {
  ck_assert_msg(a->kind == b->kind && a->parent == b->parent &&
                    a->host == b->host && strcmp(a->name, b->name) == 0 &&
                    strcmp(a->bus, b->bus) == 0 &&
                    a->bytesPerSecond == b->bytesPerSecond &&
                    a->firstRank == b->firstRank,
                "%s: node %s %s in the place of %s %s", what, b->bus, b->name,
                a->bus, a->name);
}

void assertSameLists(lrmoeTopology_t a, lrmoeTopology_t b, const char *what) {
  lrmoeTopologyInfo_t left = infoOf(a), right = infoOf(b);
  ck_assert_int_eq(left.numNodes, right.numNodes);
  ck_assert_int_eq(left.numWires, right.numWires);
  for (int i = 0; i < left.numNodes; i++) {
    lrmoeTopologyNode_t one = nodeOf(a, i), other = nodeOf(b, i);
    assertSameNode(&one, &other, what);
  }
  for (int i = 0; i < left.numWires; i++) {
    lrmoeTopologyWire_t one = LRMOE_TOPOLOGY_WIRE_INITIALIZER, other = one;
    ASSERT_OK(lrmoeTopologyGetWire(a, i, &one));
    ASSERT_OK(lrmoeTopologyGetWire(b, i, &other));
    ck_assert_msg(one.from == other.from && one.to == other.to &&
                      one.count == other.count,
                  "%s: link %d is another", what, i);
  }
  for (int i = 0; i < left.numResources; i++)
    ck_assert_msg(strcmp(resourceOf(a, i).name, resourceOf(b, i).name) == 0,
                  "%s: resource %s in the place of %s", what,
                  resourceOf(b, i).name, resourceOf(a, i).name);
}
