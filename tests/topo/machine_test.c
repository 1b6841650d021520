/* The machine graph: building, guessing, checking and joining, without any
 * reader; and the figures of makers. */
#include "base/alloc.h"
#include "support/suite.h"
#include "topo/machine.h"

#include <string.h>

static struct lrmoeMachine machine;

static void setUp(void) {
  machine = (struct lrmoeMachine){0};
}

static void tearDown(void) {
  lrmoeMachineFree(&machine);
}

static int32_t add(lrmoeNodeKind_t kind, int32_t parent, int64_t bus,
                   int64_t rate) {
  struct lrmoeNode node = lrmoeMachineNode(kind, parent);
  int32_t index = -1;
  node.bus = bus;
  node.up.bytesPerSecond = rate;
  ASSERT_OK(lrmoeMachineAdd(&machine, &node, &index));
  return index;
}

static void connect(int32_t a, int32_t b, int32_t count, int64_t rate) {
  struct lrmoeWire wire = {.kind = lrmoeWireNvlink,
                           .from = a,
                           .to = b,
                           .count = count,
                           .rate = {.bytesPerSecond = rate}};
  ASSERT_OK(lrmoeMachineConnect(&machine, &wire));
  wire.from = b;
  wire.to = a;
  ASSERT_OK(lrmoeMachineConnect(&machine, &wire));
}

static int noteSays(const char *text) {
  for (int32_t i = 0; i < machine.numNotes; i++)
    if (strstr(machine.notes[i].text, text)) return 1;
  return 0;
}

/* host 0, numa 1, bridge 2, GPUs 3 and 4, NIC 5, port 6 */
static void addHost(void) {
  int32_t host = add(lrmoeNodeHost, -1, LRMOE_NO_BUS, 0);
  int32_t numa = add(lrmoeNodeNuma, host, LRMOE_NO_BUS, 16000000000);
  int32_t bridge = add(lrmoeNodeBridge, numa, 0x1000, 31507692307);
  add(lrmoeNodeGpu, bridge, 0x1100, 31507692307);
  add(lrmoeNodeGpu, bridge, 0x1200, 31507692307);
  int32_t nic = add(lrmoeNodeNic, bridge, 0x1300, 31507692307);
  add(lrmoeNodePort, nic, LRMOE_NO_BUS, 25000000000);
}

/* ---- Building ----------------------------------------------------------- */

START_TEST(treeOfKinds) {
  addHost();
  ck_assert_int_eq(machine.numNodes, 7);
  for (int32_t i = 0; i < 7; i++)
    ck_assert_int_eq(machine.nodes[i].host, 0);
  ck_assert_str_eq(machine.nodes[3].busText, "0000:11:00.0");
  ck_assert_int_eq(lrmoeMachineFind(&machine, 0, 0x1200, 0), 4);
  ck_assert_int_eq(lrmoeMachineFind(&machine, 0, 0x1200, 1), -1);
  ck_assert_int_eq(lrmoeMachineFind(&machine, 0, 0x1300, 0), 5);
  ck_assert_int_eq(lrmoeMachineFind(&machine, 1, 0x1200, 0), -1);
  ck_assert_int_eq(lrmoeMachineFind(&machine, 0, LRMOE_NO_BUS, 0), -1);
}
END_TEST

START_TEST(misplacedNodes) {
  static const struct {
    lrmoeNodeKind_t kind;
    int32_t parent;
  } wrong[] = {{lrmoeNodeHost, 0},   {lrmoeNodeNuma, -1}, {lrmoeNodeNuma, 1},
               {lrmoeNodeGpu, 3},    {lrmoeNodeGpu, 7},   {lrmoeNodePort, 2},
               {lrmoeNodeSwitch, 0}, {lrmoeNodeNic, 6},   {lrmoeNodeGpu, -1}};
  addHost();
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct lrmoeNode node = lrmoeMachineNode(wrong[i].kind, wrong[i].parent);
    int32_t index = -1;
    ASSERT_RESULT(lrmoeMachineAdd(&machine, &node, &index), lrmoeInternalError);
    ck_assert_int_eq(index, -1);
  }
  ck_assert_int_eq(machine.numNodes, 7);
}
END_TEST

START_TEST(manyNodes) {
  int32_t host = add(lrmoeNodeHost, -1, LRMOE_NO_BUS, 0);
  for (int i = 0; i < 5000; i++)
    add(lrmoeNodeGpu, host, i * 8, 1000000000);
  for (int i = 0; i < 5000; i++)
    ck_assert_int_eq(machine.nodes[i + 1].bus, i * 8);
  ASSERT_OK(lrmoeMachineCheck(&machine, "many"));
}
END_TEST

/* ---- Guessing ----------------------------------------------------------- */

START_TEST(completeMachineIsKept) {
  addHost();
  connect(3, 4, 4, 100000000000);
  ASSERT_OK(lrmoeMachineComplete(&machine));
  ASSERT_OK(lrmoeMachineCheck(&machine, "test"));
  ck_assert_int_eq(machine.numNotes, 0);
  for (int32_t i = 0; i < machine.numNodes; i++)
    ck_assert(!machine.nodes[i].up.guessed);
}
END_TEST

START_TEST(guesses) {
  addHost();
  machine.nodes[1].up.bytesPerSecond = 0;
  machine.nodes[2].up.bytesPerSecond = 0;
  machine.nodes[4].up.bytesPerSecond = 0;
  machine.nodes[6].up.bytesPerSecond = 0;
  connect(3, 4, 4, 0);
  ASSERT_OK(lrmoeMachineComplete(&machine));
  ck_assert_int_eq(machine.nodes[1].up.bytesPerSecond, 10000000000);
  ck_assert_int_eq(machine.nodes[2].up.bytesPerSecond, 31507692307);
  ck_assert_int_eq(machine.nodes[4].up.bytesPerSecond, 31507692307);
  ck_assert_int_eq(machine.nodes[6].up.bytesPerSecond, 31507692307);
  ck_assert_int_eq(machine.wires[0].rate.bytesPerSecond, 100000000000);
  ck_assert(machine.nodes[2].up.guessed && machine.nodes[4].up.guessed &&
            machine.nodes[6].up.guessed && machine.wires[0].rate.guessed);
  ck_assert(!machine.nodes[3].up.guessed);
  ck_assert(noteSays("bridge 0000:10:00.0: no link speed is stated; guessed "
                     "31507 MB/s"));
  ck_assert(noteSays("GPU 0000:11:00.0: the rate of its links is not known"));
}
END_TEST

START_TEST(virtualBridge) {
  addHost();
  machine.nodes[2].up.bytesPerSecond = 250000000;
  ASSERT_OK(lrmoeMachineComplete(&machine));
  ck_assert_int_eq(machine.nodes[2].up.bytesPerSecond, 31507692307);
  ck_assert(machine.nodes[2].up.guessed);
}
END_TEST

START_TEST(parallelWires) {
  addHost();
  connect(3, 4, 1, 25000000000);
  connect(3, 4, 3, 75000000000);
  ASSERT_OK(lrmoeMachineComplete(&machine));
  ck_assert_int_eq(machine.numWires, 2);
  for (int32_t i = 0; i < 2; i++) {
    ck_assert_int_eq(machine.wires[i].count, 4);
    ck_assert_int_eq(machine.wires[i].rate.bytesPerSecond, 100000000000);
  }
}
END_TEST

/* ---- Checking ----------------------------------------------------------- */

static void mustSay(const char *message) {
  ASSERT_RESULT(lrmoeMachineCheck(&machine, "file"), lrmoeInvalidArgument);
  ck_assert_msg(strstr(lrmoeGetLastError(), message) != NULL,
                "\"%s\" does not say \"%s\"", lrmoeGetLastError(), message);
}

START_TEST(noDevice) {
  mustSay("file: no GPU and no NUMA node");
  add(lrmoeNodeHost, -1, LRMOE_NO_BUS, 0);
  mustSay("file: no GPU and no NUMA node");
}
END_TEST

START_TEST(twoOfOne) {
  addHost();
  add(lrmoeNodeGpu, 1, 0x1200, 1000000000);
  mustSay("file: GPU 0000:12:00.0 is there twice on one host");
}
END_TEST

START_TEST(sameBusOnTwoHosts) {
  addHost();
  int32_t host = add(lrmoeNodeHost, -1, LRMOE_NO_BUS, 0);
  add(lrmoeNodeGpu, host, 0x1200, 1000000000);
  ASSERT_OK(lrmoeMachineCheck(&machine, "file"));
}
END_TEST

START_TEST(wrongUnits) {
  addHost();
  machine.nodes[6].up.bytesPerSecond = 25000000000000;
  mustSay("port at 25000000 MB/s, which no such link reaches");
  machine.nodes[6].up.bytesPerSecond = -1;
  mustSay("port at 0 MB/s");
  machine.nodes[6].up.bytesPerSecond = 25000000000;
  machine.nodes[3].up.bytesPerSecond = 31507692307000;
  mustSay("GPU 0000:11:00.0 at 31507692 MB/s");
}
END_TEST

START_TEST(oneWayLinks) {
  addHost();
  struct lrmoeWire wire = {.kind = lrmoeWireNvlink, .from = 3, .to = 4};
  ASSERT_OK(lrmoeMachineConnect(&machine, &wire));
  mustSay("a link from GPU 0000:11:00.0 to GPU 0000:12:00.0, but none back");
}
END_TEST

START_TEST(linksOfTheWrongKind) {
  addHost();
  connect(3, 2, 1, 25000000000);
  mustSay("GPU 0000:11:00.0 and bridge 0000:10:00.0 cannot be joined");
}
END_TEST

START_TEST(tooManyLinks) {
  addHost();
  connect(3, 4, 126, 3150000000000);
  mustSay("GPU 0000:11:00.0 has 126 NVLinks or xGMI links");
}
END_TEST

/* ---- Joining ------------------------------------------------------------ */

START_TEST(copies) {
  struct lrmoeMachine all = {0};
  addHost();
  connect(3, 4, 4, 100000000000);
  machine.nodes[0].hostId = 7;
  machine.nodes[3].rank = 1;
  machine.nodes[4].rank = 0;
  ASSERT_OK(lrmoeMachineNote(&machine, 3, "about a GPU"));
  ASSERT_OK(lrmoeMachineJoin(&all, &machine, 3));
  ck_assert_int_eq(all.numNodes, 21);
  ck_assert_int_eq(all.numWires, 6);
  ck_assert_int_eq(all.numNotes, 1);
  ck_assert_int_eq(all.nodes[14 + 5].parent, 14 + 2);
  ck_assert_int_eq(all.nodes[14 + 5].host, 14);
  ck_assert_int_eq(all.wires[4].from, 14 + 3);
  ck_assert_int_eq(all.nodes[14 + 4].rank, 4);
  ck_assert_int_eq(all.nodes[14].hostId, 0);
  ASSERT_OK(lrmoeMachineCheck(&all, "copies"));
  lrmoeMachineFree(&all);
}
END_TEST

START_TEST(sameHostTwice) {
  struct lrmoeMachine all = {0};
  addHost();
  machine.nodes[0].hostId = 7;
  ASSERT_OK(lrmoeMachineJoin(&all, &machine, 1));
  ASSERT_RESULT(lrmoeMachineJoin(&all, &machine, 1), lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "host 0x7"));
  ASSERT_RESULT(lrmoeMachineJoin(&all, &machine, 0), lrmoeInvalidArgument);
  lrmoeMachineFree(&all);
}
END_TEST

/* ---- Figures ------------------------------------------------------------ */

START_TEST(busAddresses) {
  char text[lrmoeBusBytes];
  ck_assert_int_eq(lrmoeBusParse("0000:07:1f.3"), 0x7fb);
  ck_assert_int_eq(lrmoeBusParse("07:1F.3"), 0x7fb);
  ck_assert_int_eq(lrmoeBusParse("000A:07:1f"), 0xa07f8);
  ck_assert_int_eq(lrmoeBusParse("00000001:00:00.0"), 0x10000);
  lrmoeBusPrint(lrmoeBusParse("fffffff:FF:01.0"), text);
  ck_assert_str_eq(text, "fffffff:ff:01.0");
  lrmoeBusPrint(LRMOE_NO_BUS, text);
  ck_assert_str_eq(text, "");
  static const char *const wrong[] = {"",
                                      ":",
                                      "07",
                                      "0000:07:20.0",
                                      "0000:07:1f.",
                                      "0000:07:1f.8",
                                      "0000:100:00.0",
                                      "g:00:00.0",
                                      "0000:07:1f.3 ",
                                      "123456789:00:00.0"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_msg(lrmoeBusParse(wrong[i]) == LRMOE_NO_BUS, "\"%s\"", wrong[i]);
}
END_TEST

START_TEST(rates) {
  ck_assert_int_eq(lrmoePciRate(160, 16), 31507692307);
  ck_assert_int_eq(lrmoePciRate(25, 1), 250000000);
  ck_assert_int_eq(lrmoePciRate(0, 16), 0);
  ck_assert_int_eq(lrmoePciRate(160, 0), 0);
  ck_assert_int_eq(4 * lrmoeNvlinkRate(86), 56250000000);
  ck_assert_int_eq(18 * lrmoeNvlinkRate(90), 450000000000);
  ck_assert_int_eq(18 * lrmoeNvlinkRate(100), 900000000000);
  ck_assert_int_eq(lrmoeNvlinkRate(0), 0);
  ck_assert_int_eq(lrmoeXgmiRate(0x90a), 50000000000);
  ck_assert_int_eq(lrmoeXgmiRate(0x1234), 0);
}
END_TEST

/* ---- Faults ------------------------------------------------------------- */

START_TEST(allocationFaults) {
  addHost();
  connect(3, 4, 4, 0);
  machine.nodes[2].up.bytesPerSecond = 0;
  struct lrmoeMachine all = {0};
  for (int64_t i = 1; i < 100; i++) {
    lrmoeAllocFailAt(i);
    lrmoeResult_t result = lrmoeMachineJoin(&all, &machine, 40);
    bool reached = lrmoeAllocFailAt(0) >= i;
    lrmoeMachineFree(&all);
    ck_assert_int_eq(result, reached ? lrmoeOutOfMemory : lrmoeSuccess);
    if (!reached) return;
  }
  ck_abort_msg("allocations without end");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("machine");
  TCase *tcase = tcase_create("machine");
  const TTest *const tests[] = {treeOfKinds,
                                misplacedNodes,
                                manyNodes,
                                completeMachineIsKept,
                                guesses,
                                virtualBridge,
                                parallelWires,
                                noDevice,
                                twoOfOne,
                                sameBusOnTwoHosts,
                                wrongUnits,
                                oneWayLinks,
                                copies,
                                tooManyLinks,
                                linksOfTheWrongKind,
                                sameHostTwice,
                                rates,
                                busAddresses,
                                allocationFaults};
  tcase_add_checked_fixture(tcase, setUp, tearDown);
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
