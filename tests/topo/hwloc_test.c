/* hwloc's XML: what is read, guessed and refused, on a machine of our own
 * making; synthetic machines; the live one; ports as the kernel states them. */
#include "topo/live.h"
#include "topo/open.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two sockets; on each a switch with a GPU and an HCA; the GPUs joined by a
 * matrix.  %s: attributes of the first core, the GPUs' model, the matrix. */
static const char twoSockets[] =
    "<?xml version=\"1.0\"?>\n"
    "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
    "<topology version=\"2.0\">\n"
    "<object type=\"Machine\" os_index=\"0\" cpuset=\"0xf\" "
    "complete_cpuset=\"0xf\" nodeset=\"0x3\" complete_nodeset=\"0x3\" "
    "gp_index=\"1\"><info name=\"HostName\" value=\"a\"/>\n"
    "<object type=\"Package\" os_index=\"0\" cpuset=\"0x3\" "
    "complete_cpuset=\"0x3\" nodeset=\"0x1\" gp_index=\"2\">"
    "<info name=\"CPUVendor\" value=\"AuthenticAMD\"/>"
    "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\" "
    "complete_cpuset=\"0x3\" nodeset=\"0x1\" gp_index=\"3\"/>"
    "<object type=\"Core\" %s gp_index=\"4\"/>"
    "<object type=\"Core\" cpuset=\"0x2\" complete_cpuset=\"0x2\" "
    "gp_index=\"5\"/>"
    "<object type=\"Bridge\" bridge_type=\"0-1\" gp_index=\"6\">"
    "<object type=\"Bridge\" bridge_type=\"1-1\" gp_index=\"7\" "
    "pci_busid=\"0000:01:00.0\" pci_type=\"0604 [1000:c010] [0:0] 00\" "
    "pci_link_speed=\"31.507692\">"
    "<object type=\"PCIDev\" gp_index=\"8\" pci_busid=\"0000:02:00.0\" "
    "pci_type=\"0302 [10de:20b0] [10de:1] a1\" pci_link_speed=\"31.507692\">"
    "<object type=\"OSDev\" gp_index=\"9\" name=\"nvml1\" subtype=\"NVML\" "
    "osdev_type=\"1\"><info name=\"GPUModel\" value=\"%s\"/></object></object>"
    "<object type=\"PCIDev\" gp_index=\"10\" pci_busid=\"0000:03:00.0\" "
    "pci_type=\"0207 [15b3:101b] [0:0] 00\" pci_link_speed=\"31.507692\">"
    "<object type=\"OSDev\" gp_index=\"11\" name=\"mlx5_0\" osdev_type=\"3\">"
    "<info name=\"Port1State\" value=\"4\"/></object></object>"
    "</object></object></object>\n"
    "<object type=\"Package\" os_index=\"1\" cpuset=\"0xc\" "
    "complete_cpuset=\"0xc\" nodeset=\"0x2\" gp_index=\"12\">"
    "<info name=\"CPUVendor\" value=\"AuthenticAMD\"/>"
    "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0xc\" "
    "complete_cpuset=\"0xc\" nodeset=\"0x2\" gp_index=\"13\"/>"
    "<object type=\"Core\" cpuset=\"0x4\" complete_cpuset=\"0x4\" "
    "gp_index=\"14\"/>"
    "<object type=\"PCIDev\" gp_index=\"18\" pci_busid=\"0000:82:00.0\" "
    "pci_type=\"0302 [10de:20b0] [10de:1] a1\" pci_link_speed=\"31.507692\">"
    "<object type=\"OSDev\" gp_index=\"19\" name=\"nvml0\" subtype=\"NVML\" "
    "osdev_type=\"1\"/></object>"
    "<object type=\"PCIDev\" gp_index=\"20\" pci_busid=\"0000:83:00.0\" "
    "pci_type=\"0300 [1a03:2000] [0:0] 41\"/>"
    "</object></object>\n%s</topology>\n";

static const char goodCore[] = "cpuset=\"0x1\" complete_cpuset=\"0x1\"";
static const char twelveLinks[] =
    "<distances2 type=\"OSDev\" nbobjs=\"2\" kind=\"9\" "
    "name=\"NVLinkBandwidth\" indexing=\"gp\"><indexes length=\"5\">9 19 "
    "</indexes><u64values length=\"30\">1000000 300000 </u64values>"
    "<u64values length=\"9\">300000 1000000 </u64values></distances2>\n";

static const char *machineOf(const char *core, const char *model,
                             const char *matrix) {
  static char text[8192];
  snprintf(text, sizeof text, twoSockets, core, model, matrix);
  return text;
}

START_TEST(wholeMachine) {
  lrmoeTopology_t t = NULL;
  ASSERT_OK(openText(machineOf(goodCore, "NVIDIA A100", twelveLinks), &t));
  int cores = 0;
  int numas = 0;
  ASSERT_OK(lrmoeTopologyGetCores(t, &cores, &numas));
  ck_assert_int_eq(infoOf(t).numRanks, 2); /* the screen's is no GPU */
  ck_assert_int_eq(numas, 2);
  ck_assert_int_eq(cores, 3);
  ASSERT_LINK(t, 0, 1, lrmoeLinkDirect, 300000000000);
  ck_assert_str_eq(nodeOf(t, rankOf(t, 0).node).bus, "0000:02:00.0");
  ck_assert_int_eq(nodeOf(t, rankOf(t, 0).node).index, 1);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(withoutMatrix) {
  lrmoeTopology_t t = NULL;
  ASSERT_OK(openText(machineOf(goodCore, "NVIDIA A100", ""), &t));
  ASSERT_LINK(t, 0, 1, lrmoeLinkSockets, 16000000000);
  ck_assert(hasNote(t, "no links between GPUs are known"));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* 12 links of 25 GB/s, which hwloc 2.9 states as 50 each. */
START_TEST(factorOfTwo) {
  char matrix[512];
  char *digit;
  lrmoeTopology_t t = NULL;
  snprintf(matrix, sizeof matrix, "%s", twelveLinks);
  while ((digit = strstr(matrix, "300000")))
    memcpy(digit, "600000", 6);
  ASSERT_OK(openText(machineOf(goodCore, "NVIDIA A100", matrix), &t));
  ASSERT_LINK(t, 0, 1, lrmoeLinkDirect, 300000000000);
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 1);
  ck_assert(hasNote(t, "hwloc/#574") || hasNote(t, "hwloc#574"));
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(twoHostsFromOneFile) {
  lrmoeTopology_t t = NULL;
  ASSERT_OK(openCopies(machineOf(goodCore, "", twelveLinks), 2, 0, &t));
  ck_assert_int_eq(infoOf(t).numRanks, 4);
  ck_assert_int_eq(infoOf(t).numHosts, 2);
  ck_assert_int_eq(linkOf(t, 0, 2).linkClass, lrmoeLinkNic);
  ck_assert_int_eq(linkOf(t, 0, 2).guessed, 1);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Part of the text, what stands there instead, and what is said. */
struct wrong {
  const char *part;
  const char *instead;
  lrmoeResult_t result;
  const char *message;
};

static const struct wrong wrongs[] = {
    {"version=\"2.0\"", "version=\"3.0\"", lrmoeUnsupported, "format 3.0"},
    {"cpuset=\"0x1\" complete", "complete", lrmoeInvalidArgument,
     "Core without cpuset"},
    {" complete_cpuset=\"0x1\"", "", lrmoeInvalidArgument,
     "Core without complete_cpuset"},
    {"cpuset=\"0x4\"", "cpuset=\"none\"", lrmoeInvalidArgument, "is no set"},
    {"cpuset=\"0x4\"", "cpuset=\",x4\"", lrmoeInvalidArgument, "is no set"},
    {"cpuset=\"0x4\"", "cpuset=\",0x4\"", lrmoeInvalidArgument, "is no set"},
    {"cpuset=\"0x4\"", "cpuset=\"\"", lrmoeInvalidArgument, "is no set"},
    {"cpuset=\"0x4\"", "cpuset=\"0x\"", lrmoeInvalidArgument, "is no set"},
    {"cpuset=\"0x4\"", "cpuset=\"0x4,\"", lrmoeInvalidArgument, "is no set"},
    {"cpuset=\"0x4\"", "cpuset=\"0x123456789\"", lrmoeInvalidArgument,
     "is no set"},
    {"cpuset=\"0x4\"", "cpuset=\"0xf...f0\"", lrmoeInvalidArgument,
     "is no set"},
    {"type=\"Machine\"", "type=\"Rack\"", lrmoeInvalidArgument,
     "the object at the top is no Machine"},
    {"</topology>",
     "<object type=\"Machine\" cpuset=\"0x1\" complete_cpuset=\"0x1\"/>"
     "</topology>",
     lrmoeInvalidArgument, "a second object at the top"},
    {"type=\"Core\"", "kind=\"Core\"", lrmoeInvalidArgument,
     "an object without type"},
    {"0000:02:00.0", "0000:zz:00.0", lrmoeInvalidArgument, "is no PCI address"},
    {"0000:82:00.0", "0000:02:00.0", lrmoeInvalidArgument, "0000:02:00.0"},
    {"pci_link_speed=\"31.507692\"", "pci_link_speed=\"fast\"",
     lrmoeInvalidArgument, "is no speed in GB/s"},
    {"nbobjs=\"2\"", "nbobjs=\"3\"", lrmoeInvalidArgument, "there are too few"},
    {"nbobjs=\"2\"", "nbobjs=\"1\"", lrmoeInvalidArgument, "more indexes"},
    {"nbobjs=\"2\"", "nbobjs=\"999999999\"", lrmoeInvalidArgument,
     "is not within"},
    {"300000 </u64", "many </u64", lrmoeInvalidArgument, "no whole number"},
    {"</topology>", "", lrmoeInvalidArgument, "not well-formed"},
};

static void exchange(char *text, size_t bytes, const struct wrong *wrong) {
  char *at = strstr(text, wrong->part);
  ck_assert_msg(at != NULL, "the machine has no %s", wrong->part);
  char rest[8192];
  snprintf(rest, sizeof rest, "%s", at + strlen(wrong->part));
  snprintf(at, bytes - (size_t)(at - text), "%s%s", wrong->instead, rest);
}

START_TEST(wrongMachine) {
  const struct wrong *wrong = &wrongs[_i];
  char text[9000];
  lrmoeTopology_t t = NULL;
  snprintf(text, sizeof text, "%s",
           machineOf(goodCore, "NVIDIA A100", twelveLinks));
  exchange(text, sizeof text, wrong);
  ASSERT_RESULT(openText(text, &t), wrong->result);
  ck_assert_msg(strstr(lrmoeGetLastError(), wrong->message) != NULL,
                "\"%s\" in place of \"%s\": %s", wrong->instead, wrong->part,
                lrmoeGetLastError());
}
END_TEST

/* Sets as hwloc writes them: a word of zeros is left out, and one without an
 * end begins with 0xf...f. */
START_TEST(setsOfManyWords) {
  static const char *const sets[] = {
      "cpuset=\"0x1,,0x0\" complete_cpuset=\"0x1,,0x0\"",
      "cpuset=\"0x1\" complete_cpuset=\"0xf...f\"",
      "cpuset=\"0x1\" complete_cpuset=\"0xf...f,,0x1\"",
      "cpuset=\"00000001\" complete_cpuset=\"0x1\" nodeset=\"0xf...f\""};
  lrmoeTopology_t t = NULL;
  ASSERT_OK(openText(machineOf(sets[_i], "NVIDIA A100", twelveLinks), &t));
  int cores = 0;
  int numas = 0;
  ASSERT_OK(lrmoeTopologyGetCores(t, &cores, &numas));
  ck_assert_int_eq(numas, 2);
  ck_assert_int_eq(cores, _i ? 3 : 2); /* the first is in no NUMA node */
  lrmoeTopologyDestroy(t);
}
END_TEST

/* What takes time that grows with the square of a file is bounded. */
START_TEST(tooManyNumas) {
  static char text[1 << 20];
  size_t length = (size_t)snprintf(
      text, sizeof text,
      "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" "
      "cpuset=\"0xffff\" complete_cpuset=\"0xffff\" gp_index=\"1\">");
  for (int i = 1; i <= 1025; i++)
    length += (size_t)snprintf(
        text + length, sizeof text - length,
        "<object type=\"NUMANode\" os_index=\"%d\" cpuset=\"0x%x\" "
        "complete_cpuset=\"0x%x\"/>",
        i, (unsigned)i, (unsigned)i);
  snprintf(text + length, sizeof text - length, "</object></topology>");
  lrmoeTopology_t t = NULL;
  ASSERT_RESULT(openText(text, &t), lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(
      strstr(lrmoeGetLastError(), "more than 1024 NUMA nodes"));
}
END_TEST

/* ---- Synthetic ---------------------------------------------------------- */

START_TEST(syntheticMachine) {
  lrmoeTopology_t t = NULL;
  ASSERT_OK(openSynthetic("package:2 numa:1 core:8 pu:1; gpus=4 nvlink=450 "
                          "nics=4 net=400 cpu=40",
                          1, 0, &t));
  ck_assert_int_eq(infoOf(t).numRanks, 8);
  ck_assert_int_eq(infoOf(t).numDomains, 1);
  ASSERT_LINK(t, 0, 7, lrmoeLinkSwitched, 450000000000);
  ck_assert_int_eq(linkOf(t, 0, 7).guessed, 0);
  lrmoeTopologyDestroy(t);
  ASSERT_OK(
      openSynthetic("package:2 numa:1 core:2 pu:1; gpus=4 switches=2 pci=30 "
                    "cpu=20",
                    1, 0, &t));
  ASSERT_LINK(t, 0, 1, lrmoeLinkHostBridge, 30000000000);
  ASSERT_LINK(t, 0, 2, lrmoeLinkPci, 30000000000);
  ASSERT_LINK(t, 0, 4, lrmoeLinkSockets, 20000000000);
  lrmoeTopologyDestroy(t);
  ASSERT_OK(openSynthetic("pu:2; gpus=3 mesh=100", 1, 0, &t));
  ASSERT_LINK(t, 2, 1, lrmoeLinkDirect, 100000000000);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(wrongSynthetic) {
  static const char *const texts[][2] = {
      {"boxes:2", "hwloc knows no machine"},
      {"pu:1; gpus=2 foo=3", "column 14: \"foo=3\""},
      {"pu:1; gpus=1.5", "column 7: \"gpus=1.5\" is not a whole number"},
      {"pu:1; gpus=", "column 7"},
      {"pu:1; nvlink=-1", "column 7"},
      {"pu:1; gpus=65", "within 0..64"},
  };
  lrmoeTopology_t t = NULL;
  ASSERT_RESULT(openSynthetic(texts[_i][0], 1, 0, &t), lrmoeInvalidArgument);
  ck_assert_msg(strstr(lrmoeGetLastError(), texts[_i][1]) != NULL, "%s: %s",
                texts[_i][0], lrmoeGetLastError());
}
END_TEST

/* ---- Live --------------------------------------------------------------- */

START_TEST(thisMachine) {
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopology_t t = NULL;
  ASSERT_OK(lrmoeTopologyOpen(&config, &t));
  ck_assert_int_ge(infoOf(t).numRanks, 1);
  int cores = 0;
  int numas = 0;
  ASSERT_OK(lrmoeTopologyGetCores(t, &cores, &numas));
  ck_assert_int_ge(cores, 1);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Also where hwloc is told that what it reads is this machine. */
START_TEST(otherMachine) {
  static const char *const settings[][2] = {
      {"HWLOC_XMLFILE", "/other"},
      {"HWLOC_SYNTHETIC", "package:3 core:8 pu:1"},
      {"HWLOC_FSROOT", "/tmp"},
      {"HWLOC_CPUID_PATH", "/tmp"}};
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  lrmoeTopology_t t = NULL;
  setenv("HWLOC_THISSYSTEM", "1", 1);
  setenv(settings[_i][0], settings[_i][1], 1);
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), lrmoeSystemError);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), settings[_i][0]));
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), settings[_i][1]));
  unsetenv(settings[_i][0]);
  unsetenv("HWLOC_THISSYSTEM");
}
END_TEST

static void writeFile(const char *folder, const char *file, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash;
       slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
  }
  FILE *out = fopen(path, "w");
  ck_assert_ptr_nonnull(out);
  fputs(text, out);
  fclose(out);
}

static int removeEntry(const char *path, const struct stat *status, int type,
                       struct FTW *walk) {
  (void)status;
  (void)type;
  (void)walk;
  return remove(path);
}

START_TEST(portsOfTheKernel) {
  char folder[] = "/tmp/lrmoe_ports_XXXXXX";
  ck_assert_ptr_nonnull(mkdtemp(folder));
  writeFile(folder, "infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  writeFile(folder, "net/eth0/speed", "25000\n");
  writeFile(folder, "net/eth1/speed", "-1\n");
  static const char *const names[] = {"mlx5_0", "eth0", "eth1", "../eth0"};
  static const int32_t numbers[] = {1, -1, -1, -1};
  static const int64_t rates[] = {25000000000, 3125000000, 7, 7};
  struct lrmoeMachine machine = {0};
  int32_t host = 0;
  int32_t nic = 0;
  int32_t ports[4];
  struct lrmoeNode node = lrmoeMachineNode(lrmoeNodeHost, -1);
  ASSERT_OK(lrmoeMachineAdd(&machine, &node, &host));
  node = lrmoeMachineNode(lrmoeNodeNic, host);
  ASSERT_OK(lrmoeMachineAdd(&machine, &node, &nic));
  for (int i = 0; i < 4; i++) {
    node = lrmoeMachineNode(lrmoeNodePort, nic);
    node.index = numbers[i];
    node.up.bytesPerSecond = 7;
    snprintf(node.name, sizeof node.name, "%s", names[i]);
    ASSERT_OK(lrmoeMachineAdd(&machine, &node, &ports[i]));
  }
  lrmoeLivePorts(&machine, folder);
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(machine.nodes[ports[i]].up.bytesPerSecond, rates[i]);
  lrmoeMachineFree(&machine);
  ck_assert_int_eq(nftw(folder, removeEntry, 8, FTW_DEPTH | FTW_PHYS), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("hwloc");
  TCase *tests = tcase_create("hwloc");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, wholeMachine);
  tcase_add_test(tests, withoutMatrix);
  tcase_add_test(tests, factorOfTwo);
  tcase_add_test(tests, twoHostsFromOneFile);
  tcase_add_loop_test(tests, wrongMachine, 0, sizeof wrongs / sizeof *wrongs);
  tcase_add_loop_test(tests, setsOfManyWords, 0, 4);
  tcase_add_test(tests, tooManyNumas);
  tcase_add_test(tests, syntheticMachine);
  tcase_add_loop_test(tests, wrongSynthetic, 0, 6);
  tcase_add_test(tests, thisMachine);
  tcase_add_loop_test(tests, otherMachine, 0, 4);
  tcase_add_test(tests, portsOfTheKernel);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
