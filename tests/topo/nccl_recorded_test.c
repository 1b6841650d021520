/* NCCL topology files of real machines, one line each.
 *
 * What is expected is what the machine's public documents say, worked out by
 * hand in the comments; rates in MB/s, one direction.  NVLink 3 and 4: 25,000
 * a link, NVLink 5: 50,000.  xGMI: 46,000 (MI50, MI100), 50,000 (MI200),
 * 64,000 (MI300).  PCIe 3, 4, 5 x16: 15,753, 31,507, 63,015.  Where a way
 * leads over the CPU interconnect the rate is a guess of ours, which the
 * documents do not give: NCCL's figure for such CPUs. */
#include "topo/recorded.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* What the public documents of the machine say. */
struct recorded {
  const char *file;
  int ranks;
  int domains; /* NVLink or xGMI */
  /* Rank 0 to rank 1, and to the last: class, MB/s. */
  lrmoeLinkClass_t near;
  int64_t nearMegabytes;
  lrmoeLinkClass_t far;
  int64_t farMegabytes;
  int sharers;              /* ranks that have rank 0's first port too */
  int64_t networkMegabytes; /* between rank 0s of two such hosts; 0: guessed,
                               because the file does not say */
};

static const struct recorded machines[] = {
    /* NERSC Perlmutter GPU node: 4 A100, every two joined by 4 NVLinks 3; 4
     * Slingshot 11 NICs of 200 Gb/s, one per GPU. */
    {"simllm-perlmutter-4xa100-cxi.xml", 4, 1, lrmoeLinkDirect, 100000,
     lrmoeLinkDirect, 100000, 1, 25000},
    /* HGX B200: 18 NVLinks 5 per GPU to NVSwitches.  In the container only
     * Ethernet of 10 Gb/s is seen. */
    {"simllm-hgx-b200-8x-vastai.xml", 8, 1, lrmoeLinkSwitched, 900000,
     lrmoeLinkSwitched, 900000, 8, 1250},
    /* HGX H200: 18 NVLinks 4 per GPU, over four NVSwitches as 5+5+4+4. */
    {"simllm-hgx-h200-8x-vastai-vm.xml", 8, 1, lrmoeLinkSwitched, 450000,
     lrmoeLinkSwitched, 450000, 8, 1250},
    /* B200 in a virtual machine; 8 NICs of 400 Gb/s besides slower ones. */
    {"modal-gvisor-8xb200-vm.xml", 8, 1, lrmoeLinkSwitched, 900000,
     lrmoeLinkSwitched, 900000, 1, 50000},
    /* 8 RTX 3090 (PCIe 4), four on each socket of Intel Ice Lake; one FDR HCA
     * of 56 Gb/s for all. */
    {"panlichen-8x3090-pcie-1hca.xml", 8, 8, lrmoeLinkPci, 31507,
     lrmoeLinkSockets, 10000, 8, 7000},
    /* 4 RTX 4090 on four NUMA nodes of one EPYC; one Ethernet of 1 Gb/s. */
    {"sugarlxn-4x4090-pcie-ethernet.xml", 4, 4, lrmoeLinkSockets, 16000,
     lrmoeLinkSockets, 16000, 4, 125},
    /* 8 L20 (no NVLink), each below a ConnectX-8 of its own whose uplink is
     * PCIe 5 x16, on Granite Rapids; network speed not recorded. */
    {"rtpllm-8xl20-cx8-sparse-attrs.xml", 8, 8, lrmoeLinkHostBridge, 63015,
     lrmoeLinkSockets, 40000, 1, 0},
    /* Azure ND A100 v4: 8 A100 in pairs, one HDR HCA per GPU; the template has
     * neither NVLink nor network speed. */
    {"azure-ndv4-topo.xml", 8, 8, lrmoeLinkPci, 31507, lrmoeLinkSockets, 16000,
     1, 0},
    /* Azure ND H100 v5: 8 H100, each behind a switch with its NDR HCA. */
    {"azure-ndv5-topo.xml", 8, 8, lrmoeLinkHostBridge, 63015, lrmoeLinkSockets,
     22000, 1, 0},
    /* Azure NDv2: 8 V100, 4 per Skylake socket; one EDR HCA for all. */
    {"azure-ndv2-topo.xml", 8, 8, lrmoeLinkHostBridge, 31507, lrmoeLinkSockets,
     10000, 8, 0},
    /* Azure NC A100 v4: 4 A100 PCIe on four NUMA nodes; the file names each
     * GPU as its own NVLink peer and has no PCI speed: PCIe 3 x16 guessed.
     * Ethernet, 100 Gb/s. */
    {"azure-ncv4-topo.xml", 4, 4, lrmoeLinkSockets, 15753, lrmoeLinkSockets,
     15753, 4, 12500},
    /* AWS p4d and p4de: 8 A100 and 4 EFA NICs; two GPUs and a NIC per switch,
     * two switches per Cascade Lake socket; the template says PCIe 3. */
    {"aws-p4d-24xl-topo.xml", 8, 8, lrmoeLinkPci, 15753, lrmoeLinkSockets,
     10000, 2, 0},
    {"aws-p4de-24xl-topo.xml", 8, 8, lrmoeLinkPci, 15753, lrmoeLinkSockets,
     10000, 2, 0},
    /* Oracle BM.GPU.B4.8: 8 A100 in pairs on four NUMA nodes (1, 3, 5, 7) of
     * two EPYC sockets, a NIC per GPU. */
    {"oci-bm-gpu-b4-a100-flattened.xml", 8, 8, lrmoeLinkPci, 31507,
     lrmoeLinkSockets, 16000, 1, 0},
    /* 8 MI250X (16 GCDs): 4 xGMI links within a module, 1 or 2 beyond; a HDR
     * NIC per module.  GCD 0 and 15 have no link: PCIe 4 x8 into each GCD,
     * which is also all that one GCD can use of its NIC. */
    {"rccl-topo_16p1h.xml", 16, 1, lrmoeLinkDirect, 200000, lrmoeLinkSockets,
     15753, 2, 15753},
    /* The same in a virtual machine, PCIe hidden, GCDs in another order: rank
     * 1 is a neighbour module's. */
    {"rccl-topo_16p1h_vm.xml", 16, 1, lrmoeLinkDirect, 50000, lrmoeLinkSockets,
     16000, 2, 25000},
    /* 3 GPUs on PCIe 4, on two EPYC NUMA nodes; one HDR NIC. */
    {"rccl-topo_3p_pcie.xml", 3, 3, lrmoeLinkSockets, 16000, lrmoeLinkSockets,
     16000, 3, 25000},
    /* 4 MI100, a full mesh of one xGMI link each; ten-gigabit Ethernet in the
     * chip set, which shows as PCIe 1 x1 although it is none. */
    {"rccl-topo_4p3l.xml", 4, 1, lrmoeLinkDirect, 46000, lrmoeLinkDirect, 46000,
     4, 1250},
    /* 8 GPUs with 6 xGMI links each: all but one of the others; 6 HDR NICs, 3
     * on each side, of which ranks 0 and 3 share the first. */
    {"rccl-topo_8p6l_6nic.xml", 8, 1, lrmoeLinkDirect, 46000, lrmoeLinkDirect,
     46000, 2, 25000},
    /* 8 MI200 GCDs with three xGMI links each; Ethernet of 1 Gb/s. */
    {"rccl-topo_8p_90a.xml", 8, 1, lrmoeLinkDirect, 50000, lrmoeLinkHostBridge,
     31507, 8, 125},
    /* 8 MI300X, a full mesh of one link each; 8 NDR NICs. */
    {"rccl-topo_8p_940.xml", 8, 1, lrmoeLinkDirect, 64000, lrmoeLinkDirect,
     64000, 1, 50000},
    {"rccl-topo_8p_940vm.xml", 8, 1, lrmoeLinkDirect, 64000, lrmoeLinkDirect,
     64000, 1, 50000},
    /* 8 MI50-class GPUs on two PCIe 3 switches of one socket; an EDR NIC. */
    {"rccl-topo_8p_pcie.xml", 8, 8, lrmoeLinkPci, 15753, lrmoeLinkHostBridge,
     15753, 8, 12500},
    /* 8 MI50-class GPUs in two rings of four; one HDR NIC. */
    {"rccl-topo_8p_rome_n4.xml", 8, 2, lrmoeLinkSockets, 16000,
     lrmoeLinkSockets, 16000, 8, 16000},
    /* 8 MI100 in two hives of four, each a full mesh; Ethernet, 100 Gb/s. */
    {"rccl-topo_8p_rome_vm1.xml", 8, 2, lrmoeLinkDirect, 46000,
     lrmoeLinkSockets, 16000, 8, 12500},
    /* The same with an HDR NIC for two GPUs. */
    {"rccl-topo_collnet_n4.xml", 8, 2, lrmoeLinkDirect, 46000, lrmoeLinkSockets,
     16000, 2, 25000},
};

static const struct refusedFile refusals[] = {
    /* Only bus addresses. */
    {"aws-g5.48xl-topo.xml", lrmoeUnsupported, "is a hint for NCCL"},
    {"aws-p5.48xl-topo.xml", lrmoeUnsupported, "is a hint for NCCL"},
    /* MI300A with Slingshot: 200 Gb/s written in kb/s. */
    {"rccl-topo_4p_940.xml", lrmoeInvalidArgument,
     "port cxi2 at 25000000 MB/s, which no such link reaches"},
};

enum {
  numMachines = sizeof machines / sizeof *machines,
  numRefusals = sizeof refusals / sizeof *refusals
};

static int sharersOf(lrmoeTopology_t t) {
  int sharers = 0, port = rankOf(t, 0).ports[0];
  for (int rank = 0; rank < infoOf(t).numRanks; rank++) {
    lrmoeTopologyRank_t view = rankOf(t, rank);
    for (int i = 0; i < view.numPorts; i++)
      sharers += view.ports[i] == port;
  }
  return sharers;
}

static void assertNetwork(const struct recorded *m) {
  char path[4096];
  ck_assert(recordedPath("nccl", m->file, path, sizeof path));
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopology_t t = NULL;
  source.text = path;
  source.copies = 2;
  config.sources = &source;
  config.numSources = 1;
  ASSERT_OK(lrmoeTopologyOpen(&config, &t));
  lrmoeLink_t link = linkOf(t, 0, m->ranks);
  ck_assert_int_eq(link.linkClass, lrmoeLinkNic);
  if (m->networkMegabytes)
    ck_assert_msg(link.bytesPerSecond / 1000000 == m->networkMegabytes,
                  "%s: the network at %lld MB/s", m->file,
                  (long long)(link.bytesPerSecond / 1000000));
  else
    ck_assert_int_eq(link.guessed, 1);
  lrmoeTopologyDestroy(t);
}

START_TEST(recordedMachine) {
  const struct recorded *m = &machines[_i];
  lrmoeTopology_t t = recordedOpen("nccl", m->file, m->ranks, m->domains);
  if (!t) return;
  recordedWay(t, m->file, 1, m->near, m->nearMegabytes);
  recordedWay(t, m->file, m->ranks - 1, m->far, m->farMegabytes);
  ck_assert_msg(sharersOf(t) == m->sharers, "%s: %d ranks share a port",
                m->file, sharersOf(t));
  lrmoeTopologyDestroy(t);
  assertNetwork(m);
}
END_TEST

START_TEST(refusedFile) {
  recordedRefused("nccl", &refusals[_i]);
}
END_TEST

START_TEST(everyFileHasALine) {
  const struct recordedTable tables[] = {RECORDED_TABLE(machines),
                                         RECORDED_TABLE(refusals)};
  recordedAllListed("nccl", tables, 2);
}
END_TEST

/* DGX-1 with V100: a hybrid cube mesh of NVLinks 2, six per GPU, 25 GB/s each;
 * the table of its makers gives the links of every two. */
enum {
  cube = 8
};

static int readCube(int counts[cube][cube]) {
  char path[4096];
  if (!recordedPath("nccl", "dgx1v-nvlink-count-matrix.csv", path, sizeof path))
    return 0;
  FILE *file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fscanf(file, "%*[^\n]"), 0);
  for (int a = 0; a < cube; a++) {
    ck_assert_int_eq(fscanf(file, "%*d"), 0);
    for (int b = 0; b < cube; b++)
      ck_assert_int_eq(fscanf(file, ",%d", &counts[a][b]), 1);
  }
  fclose(file);
  return 1;
}

static void writeCube(int counts[cube][cube], char *text) {
  text += sprintf(text, "<system version=\"1\"><cpu numaid=\"0\">");
  for (int a = 0; a < cube; a++) {
    text += sprintf(text,
                    "<pci busid=\"0000:%02x:00.0\" class=\"0x030200\" "
                    "link_speed=\"8 GT/s\" link_width=\"16\">"
                    "<gpu dev=\"%d\" sm=\"70\" rank=\"%d\">",
                    a + 1, a, a);
    for (int b = 0; b < cube; b++)
      if (counts[a][b])
        text += sprintf(text,
                        "<nvlink target=\"0000:%02x:00.0\" count=\"%d\" "
                        "tclass=\"0x030200\"/>",
                        b + 1, counts[a][b]);
    text += sprintf(text, "</gpu></pci>");
  }
  sprintf(text, "</cpu></system>");
}

START_TEST(cubeMesh) {
  static char text[16384];
  int counts[cube][cube] = {{0}};
  if (!readCube(counts)) return;
  writeCube(counts, text);
  lrmoeTopology_t t = NULL;
  ASSERT_OK(openText(text, &t));
  ck_assert_int_eq(infoOf(t).numDomains, 1);
  for (int a = 0; a < cube; a++) {
    int64_t sum = 0;
    for (int b = 0; b < cube; b++) {
      lrmoeLink_t link = linkOf(t, a, b);
      bool isDirect = link.linkClass == lrmoeLinkDirect;
      ck_assert_int_eq(isDirect, counts[a][b] > 0);
      if (isDirect) sum += link.bytesPerSecond;
      if (isDirect)
        ck_assert_int_eq(link.bytesPerSecond, counts[a][b] * 25000000000);
    }
    ck_assert_int_eq(sum, 150000000000);
  }
  lrmoeTopologyDestroy(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl_recorded");
  TCase *tcase = tcase_create("nccl_recorded");
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, recordedMachine, 0, numMachines);
  tcase_add_loop_test(tcase, refusedFile, 0, numRefusals);
  tcase_add_test(tcase, everyFileHasALine);
  tcase_add_test(tcase, cubeMesh);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
