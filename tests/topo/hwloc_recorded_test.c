/* hwloc's XML of real machines, one line each.
 *
 * What is expected is what the machine's public documents say: V100 has six
 * NVLinks 2 of 25 GB/s, P100 four of 20, H200 eighteen of 25; rates in MB/s,
 * one direction; PCIe 3, 4, 5 x16: 15,753, 31,507, 63,015.  Where a way leads
 * over the CPU interconnect the rate is a guess of ours. */
#include "topo/recorded.h"

struct line {
  const char *file;
  int ranks;
  int domains;
  int numas;
  int cores;
  int ports;
  lrmoeLinkClass_t near; /* rank 0 to rank 1 */
  int64_t nearMegabytes;
  lrmoeLinkClass_t far; /* and to the last */
  int64_t farMegabytes;
  const char *note; /* part of one, "": none expected */
};

static const struct line machines[] = {
    /* DGX-2: each of 16 V100 has all six NVLinks on the NVSwitches.  The
     * recording was cut to four processors. */
    {"hwloc-nvidiaDGX2.xml", 16, 1, 2, 4, 0, lrmoeLinkSwitched, 150000,
     lrmoeLinkSwitched, 150000, ""},
    /* Lenovo SD665-N V3: 4 H200, 18 links to three others are 6 each; two EPYC
     * sockets of 64 cores with 4 NUMA nodes; HCAs: 4 NDR and a dual-port
     * card. */
    {"prrte-sd665nv3-4xh200-nvml-nvlink.xml", 4, 1, 8, 128, 6, lrmoeLinkDirect,
     150000, lrmoeLinkDirect, 150000, "mlx5_0: no network speed"},
    /* The same without NVML: GPUs by class, each on a NUMA node of its own. */
    {"prrte-sd665nv3-4xh200-nobackend.xml", 4, 4, 8, 128, 6, lrmoeLinkSockets,
     16000, lrmoeLinkSockets, 16000, "no links between GPUs are known"},
    /* IBM S822LC: 4 P100; two NVLinks within a socket, two to the processor. */
    {"hwloc-power8gpudistances.xml", 4, 2, 2, 8, 0, lrmoeLinkDirect, 40000,
     lrmoeLinkSockets, 32000, ""},
    /* HPE EX235A: 4 MI250X are 8 GCDs, all in one xGMI hive; 4 Slingshot NICs
     * and Ethernet; hwloc's rate is a constant. */
    {"mpibind-tioga-mi250x-xgmi.xml", 8, 1, 4, 64, 5, lrmoeLinkDirect, 100000,
     lrmoeLinkDirect, 100000, "100 GB/s for an xGMI link"},
    /* Corona: 8 MI50, four to a socket, PCIe 4 (written as 31 GB/s). */
    {"mpibind-corona-8xmi50-rsmi.xml", 8, 8, 2, 48, 1, lrmoeLinkHostBridge,
     31000, lrmoeLinkSockets, 16000, "no links between GPUs are known"},
    /* Lassen: 4 V100, whose NVLinks this hwloc did not see; the PCI link beside
     * them is PCIe 3 x2. */
    {"mpibind-lassen-p9-4xv100-cuda.xml", 4, 4, 2, 40, 4, lrmoeLinkPci, 1969,
     lrmoeLinkSockets, 1969, "no links between GPUs are known"},
    /* Pascal: 2 P100 for PCIe 3 below one switch; a dual EDR HCA, one shown. */
    {"mpibind-pascal-2xp100-pcie.xml", 2, 2, 2, 36, 1, lrmoeLinkPci, 15753,
     lrmoeLinkPci, 15753, ""},
    /* g4dn.metal: 8 T4, idle when they were recorded: PCIe 1 x8. */
    {"mpibind-aws-g4dn.metal-8xt4.xml", 8, 8, 2, 48, 1, lrmoeLinkHostBridge,
     2000, lrmoeLinkSockets, 2000, "no links between GPUs are known"},
    /* Without GPUs a rank per NUMA node that has processors. */
    {"hwloc-16amd64-4distances.xml", 8, 1, 8, 16, 0, lrmoeLinkSockets, 16000,
     lrmoeLinkSockets, 16000, ""},
    {"hwloc-16amd64-8n2c-cpusets.xml", 3, 1, 3, 4, 0, lrmoeLinkSockets, 10000,
     lrmoeLinkSockets, 10000, "interconnect is not stated"},
    {"hwloc-16intel64-manyVFs.xml", 2, 1, 2, 16, 3, lrmoeLinkSockets, 10000,
     lrmoeLinkSockets, 10000, "no network speed"},
    {"hwloc-8intel64-4n2t-memattrs.xml", 4, 1, 4, 8, 0, lrmoeLinkSockets, 10000,
     lrmoeLinkSockets, 10000, ""},
    {"hwloc-fakeheterodistances.xml", 8, 1, 8, 8, 0, lrmoeLinkSockets, 10000,
     lrmoeLinkSockets, 10000, ""},
    /* DGX Spark: 20 cores, recorded without devices. */
    {"hwloc-nvidia-dgx-gb10.xml", 1, 1, 1, 20, 0, lrmoeLinkSelf, 0,
     lrmoeLinkSelf, 0, ""},
    /* The file is upstream's test of odd devices: of three Fermi boards on PCI
     * CUDA names one, and that as a K40m; only what a driver names is a GPU. */
    {"hwloc-32em64t-2n8c2t-pci-normalio.xml", 1, 1, 2, 16, 1, lrmoeLinkSelf, 0,
     lrmoeLinkSelf, 0, "no link speed is stated"},
};

static const struct refusedFile refusals[] = {
    {"hwloc-nvidiaDGX2-format3.0.xml", lrmoeUnsupported,
     "format 3.0 of hwloc's XML"},
};

enum {
  numMachines = sizeof machines / sizeof *machines,
  numRefusals = sizeof refusals / sizeof *refusals
};

static int countKind(lrmoeTopology_t t, lrmoeNodeKind_t kind) {
  int count = 0;
  for (int i = 0; i < infoOf(t).numNodes; i++)
    count += nodeOf(t, i).kind == kind;
  return count;
}

START_TEST(recordedMachine) {
  const struct line *m = &machines[_i];
  lrmoeTopology_t t = recordedOpen("hwloc", m->file, m->ranks, m->domains);
  if (!t) return;
  int cores = 0;
  int numas = 0;
  ASSERT_OK(lrmoeTopologyGetCores(t, &cores, &numas));
  ck_assert_msg(numas == m->numas && cores == m->cores,
                "%s: %d NUMA nodes, %d cores", m->file, numas, cores);
  ck_assert_msg(countKind(t, lrmoeNodePort) == m->ports, "%s: %d ports",
                m->file, countKind(t, lrmoeNodePort));
  if (m->ranks > 1) {
    recordedWay(t, m->file, 1, m->near, m->nearMegabytes);
    recordedWay(t, m->file, m->ranks - 1, m->far, m->farMegabytes);
  }
  ck_assert_msg(!*m->note || hasNote(t, m->note), "%s: no note \"%s\"", m->file,
                m->note);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(refusedFile) {
  recordedRefused("hwloc", &refusals[_i]);
}
END_TEST

/* 16 V100 at 150 GB/s to each other, all of them; 4 H200 likewise. */
START_TEST(everyTwoGpus) {
  static const char *const files[] = {"hwloc-nvidiaDGX2.xml",
                                      "prrte-sd665nv3-4xh200-nvml-nvlink.xml"};
  lrmoeTopology_t t = recordedOpen("hwloc", files[_i], _i ? 4 : 16, 1);
  if (!t) return;
  for (int from = 0; from < infoOf(t).numRanks; from++)
    for (int to = 0; to < infoOf(t).numRanks; to++)
      if (from != to)
        ASSERT_LINK(t, from, to, _i ? lrmoeLinkDirect : lrmoeLinkSwitched,
                    150000000000);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(everyFileIsListed) {
  const struct recordedTable tables[] = {RECORDED_TABLE(machines),
                                         RECORDED_TABLE(refusals)};
  recordedAllListed("hwloc", tables, 2);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("hwloc_recorded");
  TCase *tests = tcase_create("recorded");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, recordedMachine, 0, numMachines);
  tcase_add_loop_test(tests, refusedFile, 0, numRefusals);
  tcase_add_loop_test(tests, everyTwoGpus, 0, 2);
  tcase_add_test(tests, everyFileIsListed);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
