/* The topology of the live machine, and of environments that hide it. */
#include "base/alloc.h"
#include "support/suite.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void create(int numRanks, lrmoeTopology_t *topology) {
  *topology = NULL;
  ASSERT_OK(lrmoeTopologyCreate(numRanks, topology));
  ck_assert_ptr_nonnull(*topology);
}

START_TEST(linksAreUniform) {
  lrmoeTopology_t topology;
  create(5, &topology);
  for (int from = 0; from < 5; from++)
    for (int to = 0; to < 5; to++) {
      lrmoeLink_t link;
      ASSERT_OK(lrmoeTopologyGetLink(topology, from, to, &link));
      ck_assert_int_eq(link.linkClass,
                       from == to ? lrmoeLinkSelf : lrmoeLinkMemory);
      ck_assert_int_eq(link.guessed, 1);
      ck_assert_int_gt(link.bytesPerSecond, 0);
      ck_assert_int_ge(link.latencyNs, 0);
    }
  ASSERT_OK(lrmoeTopologyDestroy(topology));
}
END_TEST

/* The counts are those of this process: pinned to one core, there is one. */
START_TEST(coresAreThoseAllowed) {
  lrmoeTopology_t topology;
  int numCores = 0, numNodes = 0;
  create(2, &topology);
  ASSERT_OK(lrmoeTopologyGetCores(topology, &numCores, &numNodes));
  lrmoeTopologyDestroy(topology);
  cpu_set_t allowed, one;
  ck_assert_int_eq(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  ck_assert(numCores >= 1 && numCores <= CPU_COUNT(&allowed));
  ck_assert_int_ge(numNodes, 1);

  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed))
    cpu++;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
  create(2, &topology);
  ASSERT_OK(lrmoeTopologyGetCores(topology, &numCores, &numNodes));
  ck_assert_int_eq(numCores, 1);
  ck_assert_int_eq(numNodes, 1);
  lrmoeTopologyDestroy(topology);
}
END_TEST

START_TEST(badArguments) {
  lrmoeTopology_t topology = NULL;
  ASSERT_RESULT(lrmoeTopologyCreate(0, &topology), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyCreate(-1, &topology), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyCreate(1 << 21, &topology), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyCreate(1, NULL), lrmoeInvalidArgument);
  ck_assert_ptr_null(topology);
  create(2, &topology);
  lrmoeLink_t link = {.latencyNs = 77};
  ASSERT_RESULT(lrmoeTopologyGetLink(topology, 0, 2, &link),
                lrmoeInvalidArgument);
  ck_assert_str_eq(lrmoeGetLastError(), "link from rank 0 to rank 2, of 2");
  ASSERT_RESULT(lrmoeTopologyGetLink(topology, -1, 0, &link),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetLink(topology, 0, 0, NULL),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetLink(NULL, 0, 0, &link), lrmoeInvalidArgument);
  ck_assert_int_eq(link.latencyNs, 77);
  int count;
  ASSERT_RESULT(lrmoeTopologyGetCores(NULL, &count, &count),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetCores(topology, NULL, &count),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetCores(topology, &count, NULL),
                lrmoeInvalidArgument);
  lrmoeTopologyDestroy(topology);
  ASSERT_OK(lrmoeTopologyDestroy(NULL));
}
END_TEST

/* Valid XML, but without the sets that hwloc 2.9 follows unasked. */
static const char brokenXml[] =
    "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
    "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" "
    "gp_index=\"1\"/></topology>\n";

START_TEST(otherMachinesAreRefused) {
  char path[] = "/tmp/lrmoe_topo_XXXXXX";
  int descriptor = mkstemp(path);
  ck_assert_int_ge(descriptor, 0);
  ck_assert_int_eq(write(descriptor, brokenXml, sizeof brokenXml - 1),
                   (ssize_t)sizeof brokenXml - 1);
  close(descriptor);
  lrmoeTopology_t topology = NULL;
  setenv("HWLOC_XMLFILE", path, 1);
  ASSERT_RESULT(lrmoeTopologyCreate(2, &topology), lrmoeSystemError);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), path));
  setenv("HWLOC_THISSYSTEM", "1", 1);
  ASSERT_RESULT(lrmoeTopologyCreate(2, &topology), lrmoeSystemError);
  unlink(path);
  unsetenv("HWLOC_XMLFILE");
  unsetenv("HWLOC_THISSYSTEM");
  setenv("HWLOC_SYNTHETIC", "package:2 core:8 pu:1", 1);
  ASSERT_RESULT(lrmoeTopologyCreate(2, &topology), lrmoeSystemError);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "another machine"));
  unsetenv("HWLOC_SYNTHETIC");
  setenv("HWLOC_FSROOT", "/tmp", 1);
  ASSERT_RESULT(lrmoeTopologyCreate(2, &topology), lrmoeSystemError);
  unsetenv("HWLOC_FSROOT");
  ck_assert_ptr_null(topology);
  create(2, &topology); /* the live machine is still there */
  lrmoeTopologyDestroy(topology);
}
END_TEST

/* What is no description of another machine may be odd: no crash, and either
 * an answer that holds or an error. */
START_TEST(oddEnvironments) {
  static const char *const settings[][2] = {
      {"HWLOC_SYNTHETIC", "nonsense::"}, {"HWLOC_COMPONENTS", "-linux"},
      {"HWLOC_COMPONENTS", "nonsense"},  {"HWLOC_COMPONENTS", "stop"},
      {"HWLOC_COMPONENTS", ""},          {"HWLOC_CPUID_PATH", "/nonexistent"},
      {"HWLOC_THISSYSTEM", "0"},         {"HWLOC_XMLFILE", ""}};
  setenv("HWLOC_HIDE_ERRORS", "2", 1);
  setenv(settings[_i][0], settings[_i][1], 1);
  lrmoeTopology_t topology = NULL;
  lrmoeResult_t result = lrmoeTopologyCreate(3, &topology);
  ck_assert(result == lrmoeSuccess || result == lrmoeSystemError);
  ck_assert((topology != NULL) == (result == lrmoeSuccess));
  if (topology) {
    int numCores = 0, numNodes = 0;
    ASSERT_OK(lrmoeTopologyGetCores(topology, &numCores, &numNodes));
    ck_assert(numCores >= 1 && numNodes >= 1);
  }
  lrmoeTopologyDestroy(topology);
}
END_TEST

START_TEST(allocationFault) {
  lrmoeTopology_t topology = NULL;
  lrmoeAllocFailAt(1);
  ASSERT_RESULT(lrmoeTopologyCreate(2, &topology), lrmoeOutOfMemory);
  lrmoeAllocFailAt(0);
  ck_assert_ptr_null(topology);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology");
  TCase *tcase = tcase_create("topology");
  tcase_set_timeout(tcase, 60);
  tcase_add_test(tcase, linksAreUniform);
  tcase_add_test(tcase, coresAreThoseAllowed);
  tcase_add_test(tcase, badArguments);
  tcase_add_test(tcase, otherMachinesAreRefused);
  tcase_add_loop_test(tcase, oddEnvironments, 0, 8);
  tcase_add_test(tcase, allocationFault);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
