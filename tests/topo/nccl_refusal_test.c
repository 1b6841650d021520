/* NCCL's topology XML: what is guessed is said, and what is wrong is refused by
 * name.  Small texts made for these tests. */
#include "base/alloc.h"
#include "topo/nccl_text.h"
#include "topo/open.h"

#include <stdio.h>
#include <string.h>

#define GEN4X16 31507692307
#define GEN3X16 15753846153

static lrmoeTopology_t open(const char *text) {
  lrmoeTopology_t topology = NULL;
  ASSERT_OK(openText(text, &topology));
  return topology;
}

/* ---- What is guessed, and said ------------------------------------------ */

START_TEST(virtualMachine) {
  lrmoeTopology_t t = open(
      SYSTEM("<cpu numaid=\"-1\" arch=\"x86_64\" vendor=\"GenuineIntel\">" PCI(
          "0000:05:00.0", "0x060400", "2.5 GT/s", "1",
          PCI("0000:06:00.0", "0x030200", "32.0 GT/s PCIe", "16",
              "<gpu dev=\"0\" sm=\"90\" rank=\"0\"/>"))
                 PCI("0000:07:00.0", "0x030200", "", "0",
                     "<gpu dev=\"1\" sm=\"90\" rank=\"1\"/>") "</cpu>"));
  lrmoeLink_t link = linkOf(t, 0, 1);
  ck_assert_int_eq(link.guessed, 1);
  ck_assert_int_eq(link.bytesPerSecond, GEN3X16); /* never the 0.25 of x1 */
  ck_assert(hasNote(t, "without NUMA node"));
  ck_assert(
      hasNote(t, "bridge 0000:05:00.0: a link slower than what is below"));
  ck_assert(hasNote(t, "GPU 0000:07:00.0: no link speed is stated"));
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(oddWidthAndSpeed) {
  lrmoeTopology_t t = open(SYSTEM(CPU(
      "0", PCI("0000:01:00.0", "0x030200", "16 GT/s", "17", "<gpu dev=\"0\"/>")
               PCI("0000:02:00.0", "0x030200", "17 GT/s", "16",
                   "<gpu dev=\"1\"/>"))));
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 1);
  ck_assert(hasNote(t, "link_width 17 is taken for 16"));
  ck_assert(hasNote(t, "link_speed=\"17 GT/s\" is no PCI speed"));
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(templateHasNoNvlink) {
  lrmoeTopology_t t =
      open(SYSTEM(CPU("0", PCI("ffff:ff:01.0", "0x060400", "16 GT/s", "16",
                               "<pci busid=\"0001:00:00.0\" class=\"0x030200\" "
                               "link_speed=\"16 GT/s\" link_width=\"16\"/>"
                               "<pci busid=\"0002:00:00.0\" class=\"0x030200\" "
                               "link_speed=\"16 GT/s\" link_width=\"16\"/>"
                               "<pci busid=\"0101:00:00.0\" class=\"0x020700\" "
                               "link_speed=\"16 GT/s\" link_width=\"16\"/>"))));
  ck_assert_int_eq(infoOf(t).numRanks, 2);
  ASSERT_LINK(t, 0, 1, lrmoeLinkPci, GEN4X16);
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 1);
  ck_assert(hasNote(t, "template of 2 GPUs without NVLinks"));
  ck_assert(hasNote(t, "port 0101:00:00.0: no network speed is stated"));
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(interfacesAreOne) {
  lrmoeTopology_t t = open(SYSTEM(
      CPU("0",
          GPU("0000:01:00.0", "0", "") "<nic>" NET("veth0", "10000", "0", "1")
              NET("bond0", "25000", "0", "2") "</nic>")
          CPU("1", GPU("0000:02:00.0", "1",
                       "") "<nic>" NET("veth0", "10000", "0", "1") "</nic>")));
  for (int rank = 0; rank < 2; rank++) {
    ck_assert_int_eq(rankOf(t, rank).numPorts, 1);
    ck_assert_str_eq(nodeOf(t, rankOf(t, rank).ports[0]).name, "bond0");
  }
  ck_assert(hasNote(t, "of 3 network interfaces the fastest, bond0"));
  ck_assert_int_ge(findResource(t, "port bond0 out"), 0);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(whatIsLeftOut) {
  lrmoeTopology_t t = open(SYSTEM(
      CPU("0", GPU("0000:01:00.0", "0",
                   NVLINK("0000:01:00.0", "12") NVLINK("0000:99:00.0", "2"))
                   GPU("0000:02:00.0", "1", "") "<quantum/>")));
  ck_assert(hasNote(t, "to the GPU itself, which is left out"));
  ck_assert(hasNote(t, "to a GPU that is not in the file"));
  ck_assert(hasNote(t, "<quantum> is not known"));
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, lrmoeLinkHostBridge);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(someRanksOnly) {
  lrmoeTopology_t t =
      open(SYSTEM(CPU("0", GPU("0000:02:00.0", "0", "")
                               PCI("0000:01:00.0", "0x030200", "16 GT/s", "16",
                                   "<gpu dev=\"1\"/>"))));
  ck_assert(hasNote(t, "only 1 of 2 GPUs have a rank"));
  ck_assert_str_eq(nodeOf(t, rankOf(t, 0).node).bus, "0000:01:00.0");
  lrmoeTopologyDestroy(t);
}
END_TEST

/* ---- What is refused ---------------------------------------------------- */

struct refusal {
  const char *text;
  lrmoeResult_t result;
  const char *message;
};

#define ENTITIES                                                            \
  "<!DOCTYPE system [<!ENTITY a \"xxxxxxxxxx\"><!ENTITY b "                 \
  "\"&a;&a;&a;&a;&a;&a;&a;&a;\"><!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;\">]>" \
  "<system version=\"1\"><cpu numaid=\"&c;\"/></system>"
#define EXTERNAL                                            \
  "<!DOCTYPE system SYSTEM \"file:///etc/passwd\">" SYSTEM( \
      CPU("0", GPU("0000:01:00.0", "0", "")))

static const struct refusal refusals[] = {
    {"", lrmoeInvalidArgument, "neither hwloc's XML"},
    {"hello", lrmoeInvalidArgument, "neither hwloc's XML"},
    {"<systems/>", lrmoeInvalidArgument, "neither hwloc's XML"},
    {"<system/>", lrmoeInvalidArgument, "no version"},
    {"<system version=\"3\"><cpu/></system>", lrmoeUnsupported,
     "version \"3\""},
    {"<system version=\"1\">", lrmoeInvalidArgument, "not well-formed"},
    {SYSTEM("<cpu numaid=\"0\""), lrmoeInvalidArgument, "not well-formed"},
    {SYSTEM(""), lrmoeInvalidArgument, "has no <cpu>"},
    {"<system version=\"1\"><cpu numaid=\"0\"/></system>", lrmoeUnsupported,
     "is a hint for NCCL: 0 PCI addresses, but no GPU"},
    {SYSTEM("<cpu numaid=\"0\"><pci busid=\"0000:00:16.0\"/></cpu>"),
     lrmoeUnsupported, "is a hint for NCCL: 1 PCI addresses, but no GPU"},
    {ENTITIES, lrmoeInvalidArgument, "document type"},
    {EXTERNAL, lrmoeInvalidArgument, "document type"},
    {SYSTEM(CPU("zero", GPU("0000:01:00.0", "0", ""))), lrmoeInvalidArgument,
     "numaid=\"zero\" of <cpu>"},
    {SYSTEM(CPU("-2", GPU("0000:01:00.0", "0", ""))), lrmoeInvalidArgument,
     "numaid=\"-2\" of <cpu>"},
    {SYSTEM(CPU("0", GPU("0000:01:00.0", "0", "")) CPU("0", "")),
     lrmoeInvalidArgument, "NUMA node 0 is there twice"},
    {SYSTEM(CPU("0", GPU("nowhere", "0", ""))), lrmoeInvalidArgument,
     "busid=\"nowhere\" of <pci>"},
    {SYSTEM(
         CPU("0", GPU("0000:01:00.0", "0", "") GPU("0000:01:00.0", "1", ""))),
     lrmoeInvalidArgument, "GPU 0000:01:00.0 is there twice"},
    {SYSTEM(
         CPU("0", GPU("0000:01:00.0", "0", "") GPU("0000:02:00.0", "0", ""))),
     lrmoeInvalidArgument, "GPU 0000:02:00.0 has rank 0, and another GPU too"},
    {SYSTEM(CPU("0", GPU("0000:01:00.0", "5", ""))), lrmoeInvalidArgument,
     "GPU 0000:01:00.0 has rank 5, with 1 GPUs in all"},
    {SYSTEM(CPU("0", GPU("0000:01:00.0", "0", NVLINK("0000:02:00.0", "4"))
                         GPU("0000:02:00.0", "1", ""))),
     lrmoeInvalidArgument,
     "a link from GPU 0000:01:00.0 to GPU 0000:02:00.0, but none back"},
    {SYSTEM(CPU("0", GPU("0000:01:00.0", "0", NVLINK("0000:02:00.0", "4")) GPU(
                         "0000:02:00.0", "1", NVLINK("0000:01:00.0", "2")))),
     lrmoeInvalidArgument,
     "4 links from GPU 0000:01:00.0 to GPU 0000:02:00.0, "
     "but 2 back"},
    {SYSTEM(CPU("0",
                GPU("0000:01:00.0", "0", TO_SWITCH("fffffff:ff:ff.0", "126")))),
     lrmoeInvalidArgument, "GPU 0000:01:00.0 has 126 NVLinks"},
    {SYSTEM(CPU("0", GPU("0000:01:00.0", "0", NVLINK("0000:02:00.0", "-1")))),
     lrmoeInvalidArgument, "count=\"-1\" of <nvlink>"},
    {SYSTEM(CPU("0", GPU("0000:01:00.0", "0", NVLINK("gpu1", "1")))),
     lrmoeInvalidArgument, "target=\"gpu1\" of <nvlink>"},
    {SYSTEM(CPU("0", GPU("0000:01:00.0", "0", "") NIC(
                         "0000:02:00.0", NET("cxi0", "200000000", "1", "1")))),
     lrmoeInvalidArgument, "port cxi0 at 25000000 MB/s"},
    {SYSTEM(CPU("0", GPU("0000:01:00.0", "0", "")
                         NIC("0000:02:00.0", NET("cxi0", "fast", "1", "1")))),
     lrmoeInvalidArgument, "speed=\"fast\" of <net>"},
};

START_TEST(refused) {
  const struct refusal *refusal = &refusals[_i];
  lrmoeTopology_t t = NULL;
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  source.kind = lrmoeSourceText;
  source.text = refusal->text;
  config.sources = &source;
  config.numSources = 1;
  ASSERT_RESULT(lrmoeTopologyOpen(&config, &t), refusal->result);
  ck_assert_ptr_null(t);
  ck_assert_msg(strstr(lrmoeGetLastError(), refusal->message) != NULL,
                "\"%s\" does not say \"%s\"", lrmoeGetLastError(),
                refusal->message);
}
END_TEST

START_TEST(tooDeep) {
  enum {
    depth = 200
  };
  static char text[depth * 64];
  char *at = text;
  at += sprintf(at, "<system version=\"1\"><cpu numaid=\"0\">");
  for (int i = 0; i < depth; i++)
    at += sprintf(at, "<pci busid=\"%04x:00:00.0\">", i);
  for (int i = 0; i < depth; i++)
    at += sprintf(at, "</pci>");
  sprintf(at, "</cpu></system>");
  lrmoeTopology_t t = NULL;
  ASSERT_RESULT(openText(text, &t), lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "nested more than"));
}
END_TEST

/* Ranks are a multiple of the GPUs, or refused (NVIDIA/nccl#1008). */
START_TEST(ranksAndGpus) {
  const char *text = SYSTEM(
      CPU("0", GPU("0000:01:00.0", "0", "") GPU("0000:02:00.0", "1", "")
                   GPU("0000:03:00.0", "2", "") GPU("0000:04:00.0", "3", "")));
  lrmoeTopology_t t = NULL;
  ASSERT_RESULT(openCopies(text, 1, 2, &t), lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(
      strstr(lrmoeGetLastError(), "2 ranks for a machine of 4 GPUs"));
  ASSERT_OK(openCopies(text, 1, 8, &t));
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, lrmoeLinkDevice);
  ck_assert_int_eq(linkOf(t, 1, 2).linkClass, lrmoeLinkHostBridge);
  ck_assert_int_ge(findResource(t, "GPU 0000:01:00.0 up"), 0);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Every allocation fails once: an error, no leak (under ASan), no topology. */
START_TEST(allocationFaults) {
  const char *text = SYSTEM(
      CPU("0", GPU("0000:01:00.0", "0", NVLINK("0000:02:00.0", "4"))
                   GPU("0000:02:00.0", "1", NVLINK("0000:01:00.0", "4"))
                       NIC("0000:05:00.0", NET("a", "200000", "1", "0x7"))));
  lrmoeTopology_t t = NULL;
  ASSERT_OK(openText(text, &t));
  lrmoeTopologyDestroy(t);
  int64_t numAllocations = lrmoeAllocFailAt(0);
  ck_assert_int_gt(numAllocations, 20);
  for (int64_t i = 1;; i++) {
    t = NULL;
    lrmoeAllocFailAt(i);
    lrmoeResult_t result = openText(text, &t);
    if (lrmoeAllocFailAt(0) < i) { /* there was no i-th */
      ASSERT_OK(result);
      lrmoeTopologyDestroy(t);
      break;
    }
    ck_assert_int_eq(result, lrmoeOutOfMemory);
    ck_assert_ptr_null(t);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl_refusal");
  TCase *tcase = tcase_create("nccl_refusal");
  tcase_set_timeout(tcase, 60);
  tcase_add_test(tcase, virtualMachine);
  tcase_add_test(tcase, oddWidthAndSpeed);
  tcase_add_test(tcase, templateHasNoNvlink);
  tcase_add_test(tcase, interfacesAreOne);
  tcase_add_test(tcase, whatIsLeftOut);
  tcase_add_test(tcase, someRanksOnly);
  tcase_add_test(tcase, tooDeep);
  tcase_add_test(tcase, ranksAndGpus);
  tcase_add_test(tcase, allocationFaults);
  tcase_add_loop_test(tcase, refused, 0,
                      (int)(sizeof refusals / sizeof *refusals));
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
