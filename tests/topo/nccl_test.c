/* NCCL's topology XML: small files made for these tests.  What each element
 * means for the model. */
#include "topo/nccl_text.h"
#include "topo/open.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* PCIe 4.0 x16: 16 GT/s, 16 lanes, 128 of 130 bits. */
#define GEN4X16 31507692307
#define GEN3X16 15753846153

static lrmoeTopology_t open(const char *text) {
  lrmoeTopology_t topology = NULL;
  ASSERT_OK(openText(text, &topology));
  return topology;
}

START_TEST(linksBetweenGpus) {
  lrmoeTopology_t t = open(
      SYSTEM(CPU("0", GPU("0000:01:00.0", "0", NVLINK("0000:02:00.0", "4"))
                          GPU("0000:02:00.0", "1", NVLINK("0000:01:00.0", "4")))
                 CPU("1", GPU("0000:81:00.0", "2", ""))));
  ck_assert_int_eq(infoOf(t).numRanks, 3);
  ck_assert_int_eq(infoOf(t).numDomains, 2);
  ASSERT_LINK(t, 0, 0, lrmoeLinkSelf, 1000000000000);
  ASSERT_LINK(t, 0, 1, lrmoeLinkDirect, 100000000000); /* 4 x 25 GB/s */
  ASSERT_LINK(t, 1, 2, lrmoeLinkSockets, 16000000000);
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 0);
  ck_assert_int_eq(linkOf(t, 1, 2).guessed, 1);
  ck_assert_int_gt(linkOf(t, 1, 2).latencyNs, linkOf(t, 0, 1).latencyNs);
  ck_assert(hasNote(t, "CPU interconnect"));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* What several links to switches add up to counts, not how many switches. */
START_TEST(linksThroughSwitches) {
  lrmoeTopology_t t = open(SYSTEM(CPU(
      "0", GPU("0000:01:00.0", "0",
               TO_SWITCH("0000:c5:00.0", "5") TO_SWITCH("0000:c6:00.0", "7"))
               GPU("0000:02:00.0", "1", TO_SWITCH("fffffff:ff:ff.0", "12")))));
  ASSERT_LINK(t, 0, 1, lrmoeLinkSwitched, 300000000000);
  ASSERT_LINK(t, 1, 0, lrmoeLinkSwitched, 300000000000);
  ck_assert_int_eq(infoOf(t).numDomains, 1);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(pciPaths) {
  lrmoeTopology_t t = open(SYSTEM(
      CPU("0", PCI("0000:10:00.0", "0x060400", "8 GT/s", "16",
                   GPU("0000:11:00.0", "0", "") GPU("0000:12:00.0", "1", ""))
                   GPU("0000:20:00.0", "2", ""))));
  ASSERT_LINK(t, 0, 1, lrmoeLinkPci, GEN4X16);
  ASSERT_LINK(t, 0, 2, lrmoeLinkHostBridge, GEN3X16);
  int up = findResource(t, "bridge 0000:10:00.0 up");
  ck_assert_int_ge(up, 0);
  lrmoeTopologyResource_t view = LRMOE_TOPOLOGY_RESOURCE_INITIALIZER;
  ASSERT_OK(lrmoeTopologyGetResource(t, up, &view));
  ck_assert_int_eq(view.bytesPerSecond, GEN3X16);
  ck_assert_int_eq(view.numRanks, 2);
  ck_assert_int_eq(view.ranks[0], 0);
  ck_assert_int_eq(view.ranks[1], 1);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* A switch with its uplink, GPUs below it and a peer. */
#define PART(bus, peer, body)                  \
  PCI(bus, "0x060400", "16.0 GT/s PCIe", "16", \
      "<pcilink target=\"" peer "\"/>" body)
#define TWO_PARTS(first, second)                                               \
  SYSTEM(CPU("0",                                                              \
             PART("0000:10:00.0", second,                                      \
                  GPU("0000:11:00.0", "0", "") GPU("0000:12:00.0", "1", ""))   \
                 PART("0000:20:00.0", first,                                   \
                      GPU("0000:21:00.0", "2", "")                             \
                          NIC("0000:22:00.0", NET("a", "200000", "1", "0x1"))) \
                     GPU("0000:30:00.0", "3", "")))

/* Parts of one switch reach each other without the processor, all at once. */
START_TEST(peerSwitches) {
  lrmoeTopology_t t = open(TWO_PARTS("0000:10:00.0", "0000:20:00.0"));
  ASSERT_LINK(t, 0, 2, lrmoeLinkPci, GEN4X16);
  ASSERT_LINK(t, 2, 1, lrmoeLinkPci, GEN4X16);
  ASSERT_LINK(t, 0, 3, lrmoeLinkHostBridge, GEN4X16);
  ck_assert_int_eq(linkOf(t, 0, 2).guessed, 1);
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 0);
  ck_assert(hasNote(t, "how fast it reaches its peer 0000:20:00.0"));
  int across = findResource(t, "bridge 0000:10:00.0 to bridge 0000:20:00.0");
  lrmoeTopologyResource_t view = LRMOE_TOPOLOGY_RESOURCE_INITIALIZER;
  ASSERT_OK(lrmoeTopologyGetResource(t, across, &view));
  ck_assert_int_eq(view.numRanks, 2);
  ck_assert_int_eq(view.bytesPerSecond, 2 * GEN4X16);
  /* Both GPUs of the first part to the second's: its own link is what counts,
   * and the uplinks carry nothing. */
  int64_t ns = 0, bytes[16] = {[2] = GEN4X16, [4 + 2] = GEN4X16};
  ASSERT_OK(lrmoeTopologyTrafficNs(t, bytes, &ns));
  ck_assert_int_eq(ns / 1000000000, 2);
  /* To the last GPU they do. */
  int64_t up[16] = {[3] = GEN4X16, [2 * 4 + 3] = GEN4X16};
  ASSERT_OK(lrmoeTopologyTrafficNs(t, up, &ns));
  ck_assert_int_eq(ns / 1000000000, 2);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(peersThatAreNone) {
  lrmoeTopology_t t = open(TWO_PARTS("0000:44:00.0", "0000:44:00.0"));
  ASSERT_LINK(t, 0, 2, lrmoeLinkHostBridge, GEN4X16);
  ck_assert(hasNote(t, "<pcilink> to a switch that is not in the file"));
  lrmoeTopologyDestroy(t);
  t = open(TWO_PARTS("0000:20:00.0", "0000:10:00.0"));
  ck_assert(hasNote(t, "<pcilink> to the switch itself"));
  lrmoeTopologyDestroy(t);
  t = open(TWO_PARTS("0000:11:00.0", "0000:21:00.0")); /* GPUs */
  ASSERT_LINK(t, 0, 2, lrmoeLinkHostBridge, GEN4X16);
  lrmoeTopologyDestroy(t);
  t = NULL;
  ASSERT_RESULT(openText(TWO_PARTS("0000:10:00.0", "0000:44:00.0"), &t),
                lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(),
                               "a link from bridge 0000:20:00.0 to bridge "
                               "0000:10:00.0, but none back"));
  ASSERT_RESULT(openText(TWO_PARTS("here", "0000:44:00.0"), &t),
                lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(
      lrmoeGetLastError(), "target=\"here\" of <pcilink> is no PCI address"));
}
END_TEST

/* The names of a card and of links come from the lesser address, wherever that
 * is in the file. */
START_TEST(siblingsInAnyOrder) {
#define FIRST                                               \
  PCI("0000:10:00.0", "0x060400", "8 GT/s", "16",           \
      GPU("0000:11:00.0", "0", NVLINK("0000:21:00.0", "4")) \
          NIC("0000:12:00.0", NET("b", "200000", "1", "0x1")))
#define SECOND                                        \
  NIC("0000:12:00.1", NET("a", "200000", "1", "0x1")) \
  GPU("0000:21:00.0", "1", NVLINK("0000:11:00.0", "4"))
  lrmoeTopology_t t = open(SYSTEM(CPU("0", FIRST) CPU("1", SECOND)));
  lrmoeTopology_t other = open(SYSTEM(CPU("1", SECOND) CPU("0", FIRST)));
  assertSameModel(t, other, "reversed");
  assertSameLists(t, other, "reversed");
  ck_assert_int_ge(findResource(t, "NIC 0000:12:00.0 down"), 0);
  ck_assert_str_eq(nodeOf(t, 2).bus, "0000:10:00.0");
  lrmoeTopologyDestroy(t);
  lrmoeTopologyDestroy(other);
}
END_TEST

/* Every speed that NCCL's table has, and the spellings in use. */
START_TEST(pciSpeeds) {
  static const struct {
    const char *text;
    int64_t rate;
  } speeds[] = {{"2.5 GT/s", 4000000000},        {"5 GT/s PCIe", 8000000000},
                {"8.0 GT/s PCIe", 15753846153},  {"16 GT/s", 31507692307},
                {"32 GT/s PCIe/s", 63015384615}, {"32.0 GT/s", 63015384615},
                {"64.0 GT/s PCIe", 118000000000}};
  char text[1024];
  snprintf(text, sizeof text,
           SYSTEM(CPU("0", PCI("0000:01:00.0", "0x030200", "%1$s", "16",
                               "<gpu dev=\"0\"/>")
                               PCI("0000:02:00.0", "0x030200", "%1$s", "16",
                                   "<gpu dev=\"1\"/>"))),
           speeds[_i].text);
  lrmoeTopology_t t = open(text);
  ASSERT_LINK(t, 0, 1, lrmoeLinkHostBridge, speeds[_i].rate);
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 0);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(amd) {
  lrmoeTopology_t t = open(
      "<system version=\"2\">"
      "<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">"
      "<pci busid=\"0000:c1:00.0\" class=\"0x120000\" link_speed=\"32.0 GT/s "
      "PCIe\" link_width=\"16\"><gpu dev=\"0\" sm=\"304\" gcn=\"gfx942\" "
      "rank=\"0\"><xgmi target=\"0000:c2:00.0\" count=\"1\" "
      "tclass=\"0x120000\"/></gpu></pci>"
      "<pci busid=\"0000:c2:00.0\" class=\"0x120000\" link_speed=\"32.0 GT/s "
      "PCIe\" link_width=\"16\"><gpu dev=\"1\" sm=\"304\" gcn=\"gfx942\" "
      "rank=\"1\"><xgmi target=\"0000:c1:00.0\" count=\"1\" "
      "tclass=\"0x120000\"/></gpu></pci></cpu></system>");
  ASSERT_LINK(t, 0, 1, lrmoeLinkDirect, 64000000000);
  ck_assert_int_eq(nodeOf(t, rankOf(t, 0).node).arch, 0x942);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Grace Hopper and its kin: the way to the processor is C2C, not PCI. */
START_TEST(chipToChip) {
  lrmoeTopology_t t = open(SYSTEM(
      CPU("0", PCI("0009:01:00.0", "0x030200", "2.5 GT/s", "16",
                   "<gpu dev=\"0\" sm=\"90\" rank=\"0\"><c2c bw=\"45000\" "
                   "count=\"10\"/></gpu>"))
          CPU("1", PCI("0019:01:00.0", "0x030200", "2.5 GT/s", "16",
                       "<gpu dev=\"1\" sm=\"90\" rank=\"1\"><c2c bw=\"45000\""
                       " count=\"10\"/></gpu>"))));
  ASSERT_LINK(t, 0, 1, lrmoeLinkSockets, 16000000000); /* not 4 GB/s */
  ck_assert_int_eq(infoOf(t).numWires, 4);
  lrmoeTopologyWire_t wire = LRMOE_TOPOLOGY_WIRE_INITIALIZER;
  ASSERT_OK(lrmoeTopologyGetWire(t, 0, &wire));
  ck_assert_str_eq(wire.kind, "C2C");
  ck_assert_int_eq(wire.bytesPerSecond, 450000000000);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Parts of one GPU: ranks on the same device, one PCI slot. */
START_TEST(dividedGpu) {
  lrmoeTopology_t t = open(SYSTEM(CPU(
      "0",
      PCI("0000:01:00.0", "0x030200", "64.0 GT/s PCIe", "16",
          "<gpu dev=\"0\" sm=\"107\" mlopart=\"0\" rank=\"0\">" TO_SWITCH(
              "fffffff:ff:ff.0",
              "36") "</gpu>"
                    "<gpu dev=\"0\" sm=\"107\" mlopart=\"1\" "
                    "rank=\"1\">" TO_SWITCH("fffffff:ff:ff.0", "36") "</gpu>")
          GPU("0000:02:00.0", "2", TO_SWITCH("fffffff:ff:ff.0", "12")))));
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, lrmoeLinkDevice);
  ck_assert_int_eq(linkOf(t, 0, 2).linkClass, lrmoeLinkSwitched);
  ck_assert_int_eq(nodeOf(t, rankOf(t, 1).node).partition, 1);
  ck_assert_int_eq(infoOf(t).numDomains, 1);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* A dual-port NIC: two functions, each with a port of 200 Gb/s, in one slot
 * that carries less than both (NVIDIA/nccl#820). */
START_TEST(dualPortNic) {
  lrmoeTopology_t t = NULL;
  ASSERT_OK(openCopies(
      SYSTEM(CPU("0", GPU("0000:01:00.0", "0", "") NIC(
                          "0000:05:00.0", NET("a", "200000", "1", "0x7"))
                          NIC("0000:05:00.1", NET("b", "200000", "2", "0x7")))),
      2, 0, &t));
  ck_assert_int_eq(rankOf(t, 0).numPorts, 2);
  ASSERT_LINK(t, 0, 1, lrmoeLinkNic, GEN4X16 / 2 * 2);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* GPUs that share NICs take turns; the nearest NIC wins; latency counts. */
START_TEST(nicChoice) {
  lrmoeTopology_t t = NULL;
  const char *text = SYSTEM(
      CPU("0", PCI("0000:10:00.0", "0x060400", "16 GT/s", "16",
                   GPU("0000:11:00.0", "0", "") GPU("0000:12:00.0", "1", "")
                       NIC("0000:13:00.0", NET("n0", "100000", "1", "1"))
                           NIC("0000:14:00.0", NET("n1", "100000", "1", "2"))))
          CPU("1", GPU("0000:81:00.0", "2", "")
                       NIC("0000:82:00.0", NET("n2", "100000", "1", "3"))));
  ASSERT_OK(openCopies(text, 2, 0, &t));
  ck_assert_int_eq(infoOf(t).numRanks, 6);
  ck_assert_int_eq(infoOf(t).numHosts, 2);
  for (int rank = 0; rank < 6; rank++) {
    static const char *const names[] = {"n0", "n1", "n2"};
    ck_assert_int_eq(rankOf(t, rank).host, rank / 3);
    ck_assert_int_eq(rankOf(t, rank).numPorts, 1);
    ck_assert_str_eq(nodeOf(t, rankOf(t, rank).ports[0]).name, names[rank % 3]);
  }
  ASSERT_LINK(t, 0, 5, lrmoeLinkNic, 12500000000);
  ck_assert_int_eq(linkOf(t, 0, 5).guessed, 0);
  ck_assert_int_ge(linkOf(t, 0, 5).latencyNs, 1500);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(severalHostsInOneFile) {
  lrmoeTopology_t t =
      open(SYSTEM("<cpu host_hash=\"0xb\" numaid=\"0\" arch=\"arm64\">" GPU(
          "0000:01:00.0", "1",
          TO_SWITCH(
              "fffffff:ff:ff.0",
              "12")) "</cpu>"
                     "<cpu host_hash=\"0xa\" numaid=\"0\" arch=\"arm64\">" GPU(
                         "0000:01:00.0", "0",
                         TO_SWITCH("fffffff:ff:ff.0", "12")) "</cpu>"));
  ck_assert_int_eq(infoOf(t).numHosts, 2);
  ck_assert_int_eq(infoOf(t).numDomains, 1); /* NVLink joins them */
  ASSERT_LINK(t, 0, 1, lrmoeLinkSwitched, 300000000000);
  ck_assert_int_eq(rankOf(t, 0).host, 0);
  ck_assert_int_eq(rankOf(t, 1).host, 1);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Distinct topologies may be made at once. */
static void *openOften(void *result) {
  for (int i = 0; i < 20; i++) {
    lrmoeTopology_t t = NULL;
    *(lrmoeResult_t *)result =
        openText(SYSTEM(CPU("0", GPU("0000:01:00.0", "0", "")
                                     GPU("0000:02:00.0", "1", ""))),
                 &t);
    lrmoeTopologyDestroy(t);
  }
  return NULL;
}

START_TEST(severalThreads) {
  pthread_t threads[4];
  lrmoeResult_t results[4];
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, openOften, &results[i]),
                     0);
  for (int i = 0; i < 4; i++) {
    ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_int_eq(results[i], lrmoeSuccess);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl");
  TCase *tcase = tcase_create("nccl");
  tcase_set_timeout(tcase, 60);
  tcase_add_test(tcase, linksBetweenGpus);
  tcase_add_test(tcase, linksThroughSwitches);
  tcase_add_test(tcase, pciPaths);
  tcase_add_test(tcase, peerSwitches);
  tcase_add_test(tcase, peersThatAreNone);
  tcase_add_test(tcase, siblingsInAnyOrder);
  tcase_add_test(tcase, amd);
  tcase_add_test(tcase, chipToChip);
  tcase_add_test(tcase, dividedGpu);
  tcase_add_test(tcase, dualPortNic);
  tcase_add_test(tcase, nicChoice);
  tcase_add_test(tcase, severalHostsInOneFile);
  tcase_add_test(tcase, severalThreads);
  tcase_add_loop_test(tcase, pciSpeeds, 0, 7);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
