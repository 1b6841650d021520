/* NVLinks by NVML: a stand-in library shows machines, and the model has their
 * links; what it does not answer is guessed and said. */
#include "base/alloc.h"
#include "topo/live.h"
#include "topo/model.h"
#include "topo/nvml.h"
#include "topo/nvml_standin.h"
#include "topo/open.h"

#include <dlfcn.h>

enum {
  firstBus = 0x10 /* of GPU 0; they count up */
};

/* ---- Machines ----------------------------------------------------------- */

static void addLinks(struct standInGpu *gpu, int peer, int count) {
  for (int i = 0; i < count; i++)
    gpu->links[gpu->numLinks++].peer = peer;
}

static struct standInMachine gpus(int numGpus, int major, unsigned version) {
  struct standInMachine machine = {
      .numGpus = numGpus, .major = major, .version = version};
  for (int i = 0; i < numGpus; i++)
    machine.gpus[i].bus = (unsigned)(firstBus + i);
  return machine;
}

/* Perlmutter's A100: every two joined by four NVLinks 3 of 25 GB/s. */
static struct standInMachine mesh(void) {
  struct standInMachine machine = gpus(4, 8, 4);
  for (int from = 0; from < 4; from++)
    for (int to = 0; to < 4; to++)
      if (from != to) addLinks(&machine.gpus[from], to, 4);
  return machine;
}

/* HGX H100: 18 NVLinks 4 of each GPU lead to NVSwitches. */
static struct standInMachine switched(int peer) {
  struct standInMachine machine = gpus(8, 9, 6);
  for (int i = 0; i < 8; i++)
    addLinks(&machine.gpus[i], peer, 18);
  return machine;
}

/* ---- Reading ------------------------------------------------------------ */

static standInUseFunction *standIn(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(handle != NULL, "%s", dlerror());
  standInUseFunction *use = NULL;
  *(void **)&use = dlsym(handle, "standInUse");
  ck_assert_ptr_nonnull(use);
  return use;
}

/* A host with one NUMA node per four GPUs, as hwloc without NVML shows it. */
static struct lrmoeMachine bareMachine(int numGpus) {
  struct lrmoeMachine machine = {0};
  struct lrmoeNode node = lrmoeMachineNode(lrmoeNodeHost, -1);
  int32_t host = 0, numa = 0, gpu = 0;
  ASSERT_OK(lrmoeMachineAdd(&machine, &node, &host));
  for (int i = 0; i < numGpus; i++) {
    node = lrmoeMachineNode(lrmoeNodeNuma, host);
    node.index = i / 4;
    node.up.bytesPerSecond = 10000000000;
    if (i % 4 == 0) ASSERT_OK(lrmoeMachineAdd(&machine, &node, &numa));
    node = lrmoeMachineNode(lrmoeNodeGpu, numa);
    node.bus = (int64_t)(firstBus + i) << 8;
    node.up.bytesPerSecond = 20000000000;
    ASSERT_OK(lrmoeMachineAdd(&machine, &node, &gpu));
  }
  return machine;
}

static lrmoeTopology_t build(struct lrmoeMachine *machine) {
  lrmoeTopology_t t = NULL;
  const struct lrmoeModelConfig config = {0, lrmoeRanksBus};
  ASSERT_OK(lrmoeMachineComplete(machine));
  ASSERT_OK(lrmoeMachineCheck(machine, "test"));
  ASSERT_OK(lrmoeModelBuild(machine, &config, &t));
  return t;
}

/* The model of a bare machine of numGpus to which a library adds what it
 * shows of another. */
static lrmoeTopology_t ask(const char *library, int numGpus,
                           const struct standInMachine *shown) {
  standInUseFunction *use = standIn(library);
  struct lrmoeMachine machine = bareMachine(numGpus);
  struct lrmoeNvml nvml = {0};
  use(shown);
  ASSERT_OK(lrmoeNvmlRead(library, &nvml, &machine));
  ASSERT_OK(lrmoeNvmlAdd(&nvml, &machine));
  ck_assert_int_eq(use(NULL), 0); /* shut down */
  lrmoeNvmlFree(&nvml);
  return build(&machine);
}

static lrmoeTopology_t askStandIn(int numGpus,
                                  const struct standInMachine *shown) {
  return ask(LRMOE_NVML_STAND_IN, numGpus, shown);
}

/* ---- Tests -------------------------------------------------------------- */

START_TEST(fourGpusInAMesh) {
  struct standInMachine shown = mesh();
  lrmoeTopology_t t = askStandIn(4, &shown);
  ck_assert_int_eq(infoOf(t).numRanks, 4);
  ck_assert_int_eq(infoOf(t).numDomains, 1);
  for (int from = 0; from < 4; from++)
    for (int to = 0; to < 4; to++)
      if (from != to)
        ASSERT_LINK(t, from, to, lrmoeLinkDirect, 4 * 25000000000);
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 0);
  ck_assert_int_eq(nodeOf(t, rankOf(t, 3).node).index, 3);
  ck_assert_str_eq(nodeOf(t, rankOf(t, 3).node).name, "Stand-in");
  ck_assert_int_eq(infoOf(t).numNotes, 0);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(eightGpusOnSwitches) {
  struct standInMachine shown = switched(standInSwitch);
  lrmoeTopology_t t = askStandIn(8, &shown);
  ck_assert_int_eq(infoOf(t).numDomains, 1);
  ASSERT_LINK(t, 0, 7, lrmoeLinkSwitched, 18 * 25000000000);
  ASSERT_LINK(t, 7, 3, lrmoeLinkSwitched, 18 * 25000000000);
  ck_assert_int_eq(linkOf(t, 0, 7).guessed, 0);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* A virtual machine hides what its switches are; a fabric tells. */
START_TEST(hiddenSwitches) {
  struct standInMachine shown = switched(standInNowhere);
  lrmoeTopology_t t = askStandIn(8, &shown);
  ck_assert_int_eq(linkOf(t, 0, 7).linkClass, lrmoeLinkSockets);
  ck_assert(hasNote(t, "GPU 0000:10:00.0: 18 NVLinks are left out"));
  lrmoeTopologyDestroy(t);
  shown.fabric = 2; /* in progress */
  t = askStandIn(8, &shown);
  ck_assert_int_eq(linkOf(t, 0, 7).linkClass, lrmoeLinkSockets);
  lrmoeTopologyDestroy(t);
  shown.fabric = 3;
  t = askStandIn(8, &shown);
  ASSERT_LINK(t, 0, 7, lrmoeLinkSwitched, 18 * 25000000000);
  lrmoeTopologyDestroy(t);
}
END_TEST

START_TEST(linksThatAreDown) {
  struct standInMachine shown = mesh();
  shown.gpus[0].links[0].isDown = 1; /* to 1, and back */
  shown.gpus[1].links[0].isDown = 1;
  lrmoeTopology_t t = askStandIn(4, &shown);
  ASSERT_LINK(t, 1, 0, lrmoeLinkDirect, 3 * 25000000000);
  ASSERT_LINK(t, 0, 2, lrmoeLinkDirect, 4 * 25000000000);
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 0);
  ck_assert(hasNote(t, "NVML's GPU 0: 1 NVLinks are not up"));
  lrmoeTopologyDestroy(t);
  /* One end says that it is up: not believed. */
  shown.gpus[1].links[0].isDown = 0;
  t = askStandIn(4, &shown);
  ASSERT_LINK(t, 1, 0, lrmoeLinkDirect, 3 * 25000000000);
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 1);
  ck_assert(hasNote(t, "GPU 0000:10:00.0 states 3 NVLinks to GPU "
                       "0000:11:00.0, which states 4"));
  lrmoeTopologyDestroy(t);
  /* All between two: through the others is no link of the model. */
  for (int i = 0; i < 4; i++) {
    shown.gpus[0].links[i].isDown = 1;
    shown.gpus[1].links[i].isBlind = 1;
  }
  t = askStandIn(4, &shown);
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, lrmoeLinkHostBridge);
  ASSERT_LINK(t, 1, 2, lrmoeLinkDirect, 4 * 25000000000);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* The system shows four GPUs, the driver three: the links of those to the
 * fourth are stated by one end. */
START_TEST(hiddenGpu) {
  struct standInMachine shown = mesh();
  shown.gpus[2].isHidden = 1;
  lrmoeTopology_t t = askStandIn(4, &shown);
  ASSERT_LINK(t, 0, 2, lrmoeLinkDirect, 4 * 25000000000);
  ASSERT_LINK(t, 2, 3, lrmoeLinkDirect, 4 * 25000000000);
  ck_assert(hasNote(t, "NVML does not show GPU 0000:12:00.0"));
  ck_assert_int_eq(nodeOf(t, rankOf(t, 3).node).index, 2);
  lrmoeTopologyDestroy(t);
  /* The driver shows three and the system the same three. */
  t = askStandIn(2, &shown);
  ck_assert_int_eq(infoOf(t).numRanks, 3);
  ASSERT_LINK(t, 0, 2, lrmoeLinkDirect, 4 * 25000000000);
  ck_assert(hasNote(t, "GPU 0000:13:00.0 is shown by NVML only"));
  ck_assert(hasNote(t, "GPU 0000:10:00.0: 4 NVLinks are left out"));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* POWER: NVLinks into the processor. */
START_TEST(linksToProcessors) {
  struct standInMachine shown = gpus(8, 7, 2);
  for (int i = 0; i < 8; i++)
    addLinks(&shown.gpus[i], standInCpu, 3);
  lrmoeTopology_t t = askStandIn(8, &shown);
  ck_assert_int_eq(infoOf(t).numDomains, 8);
  ASSERT_LINK(t, 0, 1, lrmoeLinkHostBridge, 3 * 25000000000);
  ASSERT_LINK(t, 0, 7, lrmoeLinkSockets, 10000000000);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Compute capability, version of NVLink, GB/s times ten of four links. */
static const struct {
  int major, minor;
  unsigned version;
  int64_t megabytes;
} generations[] = {{6, 0, 1, 80000},   {7, 0, 2, 100000}, {8, 0, 4, 100000},
                   {8, 6, 5, 56250},   {9, 0, 6, 100000}, {10, 0, 7, 200000},
                   {0, 0, 1, 80000},   {0, 0, 2, 100000}, {0, 0, 3, 100000},
                   {0, 0, 4, 100000},  {0, 0, 5, 100000}, {0, 0, 6, 100000},
                   {0, 0, 7, 200000},  {0, 0, 8, 0},      {0, 0, 0, 0},
                   {-3, 99, 4, 100000}};

START_TEST(rates) {
  struct standInMachine shown = mesh();
  shown.major = generations[_i].major;
  shown.minor = generations[_i].minor;
  shown.version = generations[_i].version;
  lrmoeTopology_t t = askStandIn(4, &shown);
  lrmoeLink_t link = linkOf(t, 1, 3);
  ck_assert_int_eq(link.linkClass, lrmoeLinkDirect);
  ck_assert_int_eq(link.guessed, generations[_i].megabytes == 0);
  if (generations[_i].megabytes)
    ck_assert_int_eq(link.bytesPerSecond, generations[_i].megabytes * 1000000);
  else
    ck_assert(hasNote(t, "the rate of its links is not known"));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Each function fails for all devices: there is a model, and where links are
 * lost by it, a note. */
START_TEST(failures) {
  static const struct {
    enum standInCall call;
    lrmoeLinkClass_t linkClass;
    const char *note;
  } cases[] = {
      {standInInit, lrmoeLinkHostBridge, "nvmlInit_v2 gives 999"},
      {standInCount, lrmoeLinkHostBridge, "nvmlDeviceGetCount_v2 gives 999"},
      {standInHandle, lrmoeLinkHostBridge,
       "NVML's GPU 0 is left out: nvmlDeviceGetHandleByIndex_v2 gives 999"},
      {standInPci, lrmoeLinkHostBridge,
       "NVML's GPU 3 is left out: nvmlDeviceGetPciInfo_v3 gives 999"},
      {standInName, lrmoeLinkDirect, ""},
      {standInCapability, lrmoeLinkDirect, ""},
      {standInFabric, lrmoeLinkDirect, ""},
      {standInLinkState, lrmoeLinkHostBridge,
       "nvmlDeviceGetNvLinkState fails (999)"},
      {standInLinkCapability, lrmoeLinkDirect, ""},
      {standInLinkType, lrmoeLinkDirect, ""},
      {standInLinkPci, lrmoeLinkHostBridge, "12 NVLinks are left out"},
      {standInLinkVersion, lrmoeLinkDirect, ""},
  };
  ck_assert_int_eq(sizeof cases / sizeof *cases, standInNumCalls);
  struct standInMachine shown = mesh();
  shown.results[cases[_i].call] = 999;
  lrmoeTopology_t t = askStandIn(4, &shown);
  ck_assert_int_eq(cases[_i].call, _i);
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, cases[_i].linkClass);
  ck_assert_msg(hasNote(t, cases[_i].note) || !*cases[_i].note, "no note: %s",
                cases[_i].note);
  ck_assert(*cases[_i].note || infoOf(t).numNotes == 0);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* GPUs without NVLink, no driver, no library: nothing to say. */
START_TEST(nothingToFind) {
  struct standInMachine shown = mesh();
  shown.results[standInLinkState] = 3;
  lrmoeTopology_t t = askStandIn(4, &shown);
  ck_assert_int_eq(infoOf(t).numNotes, 0);
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, lrmoeLinkHostBridge);
  lrmoeTopologyDestroy(t);
  shown.results[standInInit] = 9;
  t = askStandIn(4, &shown);
  ck_assert_int_eq(infoOf(t).numNotes, 0);
  lrmoeTopologyDestroy(t);
  struct lrmoeMachine machine = {0};
  struct lrmoeNvml nvml = {0};
  ASSERT_OK(lrmoeNvmlRead("libnone-of-that-name.so.1", &nvml, &machine));
  ASSERT_OK(lrmoeNvmlRead("libm.so.6", &nvml, &machine)); /* no functions */
  ASSERT_OK(lrmoeNvmlAdd(&nvml, &machine));
  ck_assert_int_eq(nvml.numGpus + machine.numNodes + machine.numNotes, 0);
}
END_TEST

/* A library of 2016: neither types of peers nor rates. */
START_TEST(oldLibrary) {
  struct standInMachine shown = mesh();
  lrmoeTopology_t t = ask(LRMOE_NVML_STAND_IN_BARE, 4, &shown);
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, lrmoeLinkDirect);
  ck_assert_int_eq(linkOf(t, 0, 1).guessed, 1);
  ck_assert(hasNote(t, "the rate of its links is not known"));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Addresses that are none, or another's; a GPU that is its own peer. */
START_TEST(oddAddresses) {
  struct standInMachine shown = mesh();
  shown.gpus[1].bus = firstBus;
  shown.gpus[2].bus = 0x100;
  shown.gpus[3].links[0].peer = 3;
  lrmoeTopology_t t = askStandIn(4, &shown);
  ck_assert_int_eq(infoOf(t).numRanks, 4);
  ck_assert(hasNote(t, "NVML's GPU 1 is left out: another has its address"));
  ck_assert(hasNote(t, "NVML's GPU 2 is left out"));
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Every allocation fails once: an error, and nothing is lost. */
START_TEST(allocationFaults) {
  standInUseFunction *use = standIn(LRMOE_NVML_STAND_IN);
  struct standInMachine shown = switched(standInSwitch);
  shown.gpus[3].links[5].isDown = 1;
  use(&shown);
  int numFailed = 0;
  for (lrmoeResult_t result = lrmoeOutOfMemory; result != lrmoeSuccess;) {
    struct lrmoeMachine machine = bareMachine(4);
    struct lrmoeNvml nvml = {0};
    lrmoeAllocFailAt(++numFailed);
    result = lrmoeNvmlRead(LRMOE_NVML_STAND_IN, &nvml, &machine);
    if (result == lrmoeSuccess) result = lrmoeNvmlAdd(&nvml, &machine);
    lrmoeAllocFailAt(0);
    ck_assert(result == lrmoeSuccess || result == lrmoeOutOfMemory);
    ck_assert_int_eq(use(NULL), 0);
    lrmoeNvmlFree(&nvml);
    lrmoeMachineFree(&machine);
  }
  ck_assert_int_ge(numFailed, 5);
}
END_TEST

/* The live machine with the stand-in's GPUs, which its system does not show;
 * it may have some of its own. */
START_TEST(liveMachine) {
  standInUseFunction *use = standIn(LRMOE_NVML_STAND_IN);
  struct standInMachine shown = mesh();
  for (int i = 0; i < 4; i++)
    shown.gpus[i].domain = 0xfff0;
  use(&shown);
  const struct lrmoeLiveInput input = {LRMOE_NVML_STAND_IN, "/nonexistent"};
  struct lrmoeMachine machine = {0};
  ASSERT_OK(lrmoeLiveReadWith(&input, &machine));
  int numLinked = 0;
  for (int i = 0; i < machine.numWires; i++) {
    const struct lrmoeWire *wire = &machine.wires[i];
    if (machine.nodes[wire->from].bus >> 16 != 0xfff0) continue;
    ck_assert_int_eq(wire->kind, lrmoeWireNvlink);
    ck_assert_int_eq(wire->rate.bytesPerSecond, 4 * 25000000000);
    numLinked++;
  }
  ck_assert_int_eq(numLinked, 12);
  lrmoeTopology_t t = build(&machine);
  ck_assert(!hasNote(t, "no links between GPUs are known"));
  lrmoeTopologyDestroy(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nvml");
  TCase *tests = tcase_create("nvml");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, fourGpusInAMesh);
  tcase_add_test(tests, eightGpusOnSwitches);
  tcase_add_test(tests, hiddenSwitches);
  tcase_add_test(tests, linksThatAreDown);
  tcase_add_test(tests, hiddenGpu);
  tcase_add_test(tests, linksToProcessors);
  tcase_add_loop_test(tests, rates, 0,
                      sizeof generations / sizeof *generations);
  tcase_add_loop_test(tests, failures, 0, standInNumCalls);
  tcase_add_test(tests, nothingToFind);
  tcase_add_test(tests, oldLibrary);
  tcase_add_test(tests, oddAddresses);
  tcase_add_test(tests, allocationFaults);
  tcase_add_test(tests, liveMachine);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
