/* The model beyond single files: hosts joined, many ranks, traffic, views and
 * the machine graph itself. */
#include "topo/machine.h"
#include "topo/nccl_text.h"
#include "topo/open.h"
#include "topo/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two GPUs below a PCIe 3 switch that a NIC shares, and a third beside it. */
static const char pciHost[] = SYSTEM(
    CPU("0", PCI("0000:10:00.0", "0x060400", "8 GT/s", "16",
                 GPU("0000:11:00.0", "0", "") GPU("0000:12:00.0", "1", ""))
                 GPU("0000:20:00.0", "2", "")
                     NIC("0000:30:00.0", NET("n0", "100000", "1", "1"))));

#define GEN3X16 15753846153
#define GEN4X16 31507692307

static lrmoeTopology_t openOnce(const char *text, int copies) {
  lrmoeTopology_t topology = NULL;
  ASSERT_OK(openCopies(text, copies, 0, &topology));
  return topology;
}

static int64_t trafficNs(lrmoeTopology_t t, const int64_t *bytes) {
  int64_t ns = -1;
  ASSERT_OK(lrmoeTopologyTrafficNs(t, bytes, &ns));
  return ns;
}

static int64_t ceilNs(int64_t bytes, int64_t rate) {
  return (bytes * 1000000000 + rate - 1) / rate;
}

/* ---- Traffic ------------------------------------------------------------ */

START_TEST(oneTransfer) {
  lrmoeTopology_t t = openOnce(pciHost, 1);
  int64_t bytes[9] = {0};
  ck_assert_int_eq(trafficNs(t, bytes), 0);
  bytes[0 * 3 + 2] = 1000000;
  ck_assert_int_eq(trafficNs(t, bytes),
                   linkOf(t, 0, 2).latencyNs + ceilNs(1000000, GEN3X16));
  bytes[1 * 3 + 2] = 0;
  bytes[1 * 3 + 0] = 1; /* within the switch: elsewhere, at the same time */
  ck_assert_int_eq(trafficNs(t, bytes),
                   linkOf(t, 0, 2).latencyNs + ceilNs(1000000, GEN3X16));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Two senders below one uplink take twice as long; the other way is another
 * wire. */
START_TEST(sharedUplink) {
  lrmoeTopology_t t = openOnce(pciHost, 1);
  int64_t bytes[9] = {0};
  bytes[0 * 3 + 2] = bytes[1 * 3 + 2] = 1000000;
  int64_t latency = linkOf(t, 0, 2).latencyNs;
  ck_assert_int_eq(trafficNs(t, bytes), latency + ceilNs(2000000, GEN3X16));
  bytes[2 * 3 + 0] = bytes[2 * 3 + 1] = 1000000;
  ck_assert_int_eq(trafficNs(t, bytes), latency + ceilNs(2000000, GEN3X16));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Three senders of one host share its NIC; what they receive does not count
 * with it. */
START_TEST(sharedNic) {
  lrmoeTopology_t t = openOnce(pciHost, 2);
  int64_t bytes[36] = {0};
  for (int rank = 0; rank < 3; rank++) {
    bytes[rank * 6 + rank + 3] = 1000000;
    bytes[(rank + 3) * 6 + rank] = 500000;
  }
  ck_assert_int_eq(trafficNs(t, bytes),
                   linkOf(t, 0, 3).latencyNs + ceilNs(3000000, 12500000000));
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(impossibleTraffic) {
  lrmoeTopology_t t =
      openOnce(SYSTEM(CPU("0", GPU("0000:01:00.0", "0", ""))), 2);
  int64_t bytes[4] = {0, 0, 0, 0}, ns = 0;
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, lrmoeLinkNone);
  ck_assert_int_eq(linkOf(t, 0, 1).bytesPerSecond, 0);
  ck_assert_int_eq(trafficNs(t, bytes), 0);
  bytes[1] = 1;
  ck_assert_int_eq(trafficNs(t, bytes), INT64_MAX);
  bytes[1] = -1;
  ASSERT_RESULT(lrmoeTopologyTrafficNs(t, bytes, &ns), lrmoeInvalidArgument);
  ck_assert_str_eq(lrmoeGetLastError(), "-1 B from rank 0 to rank 1");
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Sums beyond int64 stay at the top instead of wrapping. */
START_TEST(hugeTraffic) {
  lrmoeTopology_t t = openOnce(pciHost, 1);
  int64_t bytes[9];
  for (int i = 0; i < 9; i++)
    bytes[i] = INT64_MAX;
  int64_t ns = trafficNs(t, bytes);
  ck_assert_int_gt(ns, INT64_MAX / GEN3X16 * 1000000000);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* On CPUs ranks copy themselves: the slowest rank counts. */
START_TEST(memoryTraffic) {
  lrmoeTopology_t t = NULL;
  ASSERT_OK(lrmoeTopologyCreate(3, &t));
  lrmoeLink_t link = linkOf(t, 0, 1);
  int64_t bytes[9] = {0, 1000, 2000, 0, 0, 3000, 0, 0, 0};
  ck_assert_int_eq(trafficNs(t, bytes), link.latencyNs +
                                            ceilNs(2000, link.bytesPerSecond) +
                                            ceilNs(3000, link.bytesPerSecond));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* ---- Profiles' door ----------------------------------------------------- */

START_TEST(calibratedClass) {
  lrmoeTopology_t t = openOnce(pciHost, 2);
  struct lrmoeClassFigure figure = {9000, 6250000000}; /* half the port */
  uint64_t key = infoOf(t).machineKey;
  lrmoeTopologyCalibrateClass(t, lrmoeLinkNic, figure);
  ASSERT_LINK(t, 0, 3, lrmoeLinkNic, 6250000000);
  ck_assert_int_eq(linkOf(t, 0, 3).latencyNs, 9000);
  ck_assert_int_eq(linkOf(t, 0, 3).guessed, 0);
  ASSERT_LINK(t, 0, 2, lrmoeLinkHostBridge, GEN3X16);
  int64_t bytes[36] = {0};
  bytes[0 * 6 + 3] = bytes[1 * 6 + 3] = 1000000;
  ck_assert_int_eq(trafficNs(t, bytes), 9000 + ceilNs(2000000, 6250000000));
  ck_assert_int_eq(infoOf(t).calibrated, 1);
  ck_assert(infoOf(t).machineKey == key);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* ---- Many hosts --------------------------------------------------------- */

/* A host of eight GPUs below a switch of NVLinks, a NIC for each. */
static void writeHost(char *text) {
  char *at = text;
  at += sprintf(at, "<system version=\"1\">");
  for (int i = 0; i < 8; i++) {
    if (i % 4 == 0)
      at += sprintf(at,
                    "<cpu numaid=\"%d\" arch=\"x86_64\" "
                    "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">",
                    i / 4);
    at += sprintf(
        at,
        PCI("0000:%1$x0:00.0", "0x060400", "32.0 GT/s PCIe", "16",
            PCI("0000:%1$x1:00.0", "0x030200", "32.0 GT/s PCIe", "16",
                "<gpu dev=\"%2$d\" sm=\"90\" rank=\"%2$d\">" TO_SWITCH(
                    "fffffff:ff:ff.0", "18") "</gpu>")
                PCI("0000:%1$x2:00.0", "0x020700", "32.0 GT/s PCIe", "16",
                    "<nic>" NET("n%2$d", "400000", "1", "%1$d") "</nic>")),
        i + 1, i);
    if (i % 4 == 3) at += sprintf(at, "</cpu>");
  }
  sprintf(at, "</system>");
}

START_TEST(thousandRanks) {
  enum {
    hosts = 128,
    ranks = 8 * hosts
  };
  static char text[16384];
  writeHost(text);
  lrmoeTopology_t t = openOnce(text, hosts);
  lrmoeTopologyInfo_t info = infoOf(t);
  ck_assert_int_eq(info.numRanks, ranks);
  ck_assert_int_eq(info.numHosts, hosts);
  ck_assert_int_eq(info.numDomains, hosts);
  /* Host, switch, 2 NUMA nodes, and per GPU bridge, GPU, NIC, port. */
  ck_assert_int_eq(info.numNodes, hosts * (4 + 8 * 4));
  ck_assert_int_eq(info.numWires, hosts * 16);
  int64_t switched = 0, byNic = 0;
  for (int from = 0; from < ranks; from++)
    for (int to = 0; to < ranks; to++) {
      lrmoeLink_t link = lrmoeTopologyLink(t, from, to);
      switched += link.linkClass == lrmoeLinkSwitched &&
                  link.bytesPerSecond == 450000000000;
      byNic +=
          link.linkClass == lrmoeLinkNic && link.bytesPerSecond == 50000000000;
    }
  ck_assert_int_eq(switched, ranks * 7);
  ck_assert_int_eq(byNic, (int64_t)ranks * (ranks - 8));
  for (int rank = 0; rank < ranks; rank++) {
    ck_assert_int_eq(lrmoeTopologyHost(t, rank), rank / 8);
    ck_assert_int_eq(lrmoeTopologyDomain(t, rank), rank / 8);
    ck_assert_int_eq(rankOf(t, rank).numPorts, 1);
  }
  lrmoeTopologyDestroy(t);
}
END_TEST

/* An all-to-all over them: the NICs decide. */
START_TEST(thousandRanksTraffic) {
  enum {
    hosts = 128,
    ranks = 8 * hosts
  };
  static char text[16384];
  static int64_t bytes[ranks * ranks];
  writeHost(text);
  lrmoeTopology_t t = openOnce(text, hosts);
  for (int i = 0; i < ranks * ranks; i++)
    bytes[i] = 10000;
  ck_assert_int_eq(trafficNs(t, bytes),
                   linkOf(t, 0, 8).latencyNs +
                       ceilNs(10000 * (ranks - 8), 50000000000));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Unequal hosts (NVIDIA/nccl#2385), in the order of the sources. */
START_TEST(unequalHosts) {
  lrmoeTopologySource_t sources[2] = {LRMOE_TOPOLOGY_SOURCE_INITIALIZER,
                                      LRMOE_TOPOLOGY_SOURCE_INITIALIZER};
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopology_t t = NULL;
  sources[0].kind = sources[1].kind = lrmoeSourceText;
  sources[0].text =
      SYSTEM(CPU("0", GPU("0000:01:00.0", "0", "")
                          NIC("0000:05:00.0", NET("a", "100000", "1", "1"))));
  sources[1].text = pciHost;
  config.sources = sources;
  config.numSources = 2;
  ASSERT_OK(lrmoeTopologyOpen(&config, &t));
  ck_assert_int_eq(infoOf(t).numRanks, 4);
  ck_assert_int_eq(rankOf(t, 0).host, 0);
  for (int rank = 1; rank < 4; rank++)
    ck_assert_int_eq(rankOf(t, rank).host, 1);
  ASSERT_LINK(t, 0, 3, lrmoeLinkNic, 12500000000);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(sameHostTwice) {
  lrmoeTopologySource_t sources[2] = {LRMOE_TOPOLOGY_SOURCE_INITIALIZER,
                                      LRMOE_TOPOLOGY_SOURCE_INITIALIZER};
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopology_t t = NULL;
  sources[0].kind = sources[1].kind = lrmoeSourceText;
  sources[0].text = sources[1].text =
      SYSTEM("<cpu host_hash=\"0xabc\" numaid=\"0\">" GPU("0000:01:00.0", "0",
                                                          "") "</cpu>");
  config.sources = sources;
  config.numSources = 2;
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(
      strstr(lrmoeGetLastError(), "host 0xabc is described twice"));
}
END_TEST

/* ---- Rank orders -------------------------------------------------------- */

static const char threeGpus[] =
    SYSTEM(CPU("0", PCI("0000:01:00.0", "0x030200", "16 GT/s", "16",
                        "<gpu dev=\"2\" rank=\"1\"/>")
                        PCI("0000:02:00.0", "0x030200", "16 GT/s", "16",
                            "<gpu dev=\"0\" rank=\"2\"/>")
                            PCI("0000:03:00.0", "0x030200", "16 GT/s", "16",
                                "<gpu dev=\"1\" rank=\"0\"/>")));

START_TEST(rankOrders) {
  static const char *const first[] = {"0000:03:00.0", "0000:01:00.0",
                                      "0000:02:00.0"};
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopology_t t = NULL;
  source.kind = lrmoeSourceText;
  source.text = threeGpus;
  config.sources = &source;
  config.numSources = 1;
  config.rankOrder = (lrmoeRankOrder_t)_i;
  ASSERT_OK(lrmoeTopologyOpen(&config, &t));
  ck_assert_str_eq(nodeOf(t, rankOf(t, 0).node).bus, first[_i]);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Ranks where they are: two of the three GPUs, the higher one first. */
START_TEST(ranksAtBuses) {
  static const char *const wrong[] = {"has the GPU at 0000:09:00.0",
                                      "ranks 0 and 1 share the GPU at"};
  const int64_t buses[] = {0x0300, 0x0100};
  const int64_t bad[][2] = {{0x0100, 0x0900}, {0x0200, 0x0200}};
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopology_t t = NULL;
  source.kind = lrmoeSourceText;
  source.text = threeGpus;
  config.sources = &source;
  config.numSources = 1;
  config.numRanks = 2;
  ASSERT_OK(lrmoeTopologyOpenAt(&config, buses, &t));
  ck_assert_int_eq(infoOf(t).numRanks, 2);
  ck_assert_str_eq(nodeOf(t, rankOf(t, 0).node).bus, "0000:03:00.0");
  ck_assert_str_eq(nodeOf(t, rankOf(t, 1).node).bus, "0000:01:00.0");
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, lrmoeLinkHostBridge);
  lrmoeTopologyDestroy(t);
  for (int i = 0; i < 2; i++) {
    ASSERT_RESULT(lrmoeTopologyOpenAt(&config, bad[i], &t), lrmoeUnsupported);
    ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), wrong[i]));
  }
}
END_TEST

/* ---- Arguments ---------------------------------------------------------- */

START_TEST(badArguments) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopology_t t = NULL;
  ASSERT_RESULT(lrmoeTopologyOpen(&config, NULL), lrmoeInvalidArgument);
  config.numSources = 1;
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), lrmoeInvalidArgument);
  config.sources = &source;
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), lrmoeInvalidArgument);
  source.text = "/nonexistent/topology.xml";
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), lrmoeSystemError);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), source.text));
  source.text = "/tmp";
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), lrmoeInvalidArgument);
  source.kind = lrmoeSourceText;
  source.text = pciHost;
  source.copies = 0;
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), lrmoeInvalidArgument);
  source.copies = 1;
  config.numRanks = -1;
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), lrmoeInvalidArgument);
  config.numRanks = 0;
  config.rankOrder = (lrmoeRankOrder_t)9;
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), lrmoeInvalidArgument);
  ck_assert_ptr_null(t);
}
END_TEST

START_TEST(badIndices) {
  lrmoeTopology_t t = openOnce(pciHost, 1);
  lrmoeTopologyNode_t node = LRMOE_TOPOLOGY_NODE_INITIALIZER;
  lrmoeTopologyWire_t wire = LRMOE_TOPOLOGY_WIRE_INITIALIZER;
  lrmoeTopologyRank_t rank = LRMOE_TOPOLOGY_RANK_INITIALIZER;
  lrmoeTopologyResource_t resource = LRMOE_TOPOLOGY_RESOURCE_INITIALIZER;
  const char *note = NULL;
  lrmoeTopologyInfo_t info = infoOf(t);
  ASSERT_RESULT(lrmoeTopologyGetNode(t, info.numNodes, &node),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetNode(t, -1, &node), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetWire(t, info.numWires, &wire),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetRank(t, info.numRanks, &rank),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetResource(t, info.numResources, &resource),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetNote(t, info.numNotes, &note),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetNode(NULL, 0, &node), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetInfo(t, NULL), lrmoeInvalidArgument);
  ck_assert_str_eq(lrmoeGetLastError(), "info is NULL");
  lrmoeTopologyDestroy(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("model");
  TCase *tcase = tcase_create("model");
  tcase_set_timeout(tcase, 120);
  tcase_add_test(tcase, oneTransfer);
  tcase_add_test(tcase, sharedUplink);
  tcase_add_test(tcase, sharedNic);
  tcase_add_test(tcase, impossibleTraffic);
  tcase_add_test(tcase, hugeTraffic);
  tcase_add_test(tcase, memoryTraffic);
  tcase_add_test(tcase, calibratedClass);
  tcase_add_test(tcase, thousandRanks);
  tcase_add_test(tcase, thousandRanksTraffic);
  tcase_add_test(tcase, unequalHosts);
  tcase_add_test(tcase, sameHostTwice);
  tcase_add_loop_test(tcase, rankOrders, 0, 3);
  tcase_add_test(tcase, ranksAtBuses);
  tcase_add_test(tcase, badArguments);
  tcase_add_test(tcase, badIndices);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
