/* What calibrated gathers and scatters say about traffic: of GPUs with links of
 * their own, of ranks that share a port, of processes on NUMA nodes. */
#include "base/alloc.h"
#include "topo/calibration.h"
#include "topo/open.h"

#include <stdlib.h>

#define GIGA 1000000000LL
static const int64_t gb = GIGA;

static lrmoeTopology_t openMachine(const char *text, int copies, int numRanks) {
  lrmoeTopology_t t = NULL;
  ASSERT_OK(openSynthetic(text, copies, numRanks, &t));
  return t;
}

static int64_t predict(lrmoeTopology_t t, const int64_t *bytes) {
  int64_t ns = -1;
  ASSERT_OK(lrmoeTopologyTrafficNs(t, bytes, &ns));
  return ns;
}

#define FIT(pattern, class, latency, rate)     \
  {                                            \
    lrmoePattern##pattern, lrmoeLink##class, { \
      latency, rate, 0, 0, 1                   \
    }                                          \
  }

static void calibrate(lrmoeTopology_t t, const struct lrmoeFit *fits,
                      int numFits) {
  ASSERT_OK(lrmoeTopologyApplyFits(t, fits, numFits));
}

/* Four GPUs, every two with a link of 100 GB/s: alone a message has all of it,
 * three to one GPU have 150 between them, and from one 120. */
START_TEST(receiversAreTheLimit) {
  static const struct lrmoeFit fits[] = {FIT(Message, Direct, 0, 100 * GIGA),
                                         FIT(Gather, Direct, 10, 150 * GIGA),
                                         FIT(Scatter, Direct, 0, 120 * GIGA)};
  lrmoeTopology_t t = openMachine("pu:1; gpus=4 mesh=100", 1, 0);
  int64_t gather[16] = {[4] = 30 * gb, [8] = 30 * gb, [12] = 30 * gb};
  int64_t scatter[16] = {[1] = 30 * gb, [2] = 30 * gb, [3] = 30 * gb};
  int64_t single[16] = {[1] = 30 * gb};
  int64_t latency = linkOf(t, 0, 1).latencyNs;
  ck_assert_int_eq(predict(t, gather), latency + gb * 3 / 10);
  calibrate(t, fits, 3);
  ck_assert_int_eq(predict(t, single), gb * 3 / 10);
  ck_assert_int_eq(predict(t, gather), 3 * 10 + gb * 6 / 10);
  ck_assert_int_eq(predict(t, scatter), gb * 75 / 100);
  calibrate(t, fits, 1); /* what was measured before is gone */
  ck_assert_int_eq(predict(t, gather), gb * 3 / 10);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Two hosts of two GPUs with one port of 50 GB/s: what several receive through
 * it has the part of its rate that a gather had.  Of the three messages of one
 * two go through a port, so that the port alone allows for 75; 60 of these make
 * 40 of its 50. */
START_TEST(sharedPorts) {
  static const struct lrmoeFit fits[] = {FIT(Message, Nic, 5000, 50 * GIGA),
                                         FIT(Gather, Nic, 0, 60 * GIGA),
                                         FIT(Scatter, Nic, 0, 99 * GIGA)};
  lrmoeTopology_t t =
      openMachine("pu:1; gpus=2 nics=1 nvlink=400 net=400", 2, 0);
  ck_assert_int_eq(linkOf(t, 0, 2).linkClass, lrmoeLinkNic);
  /* Each GPU of a host has one message from the other. */
  int64_t both[16] = {[0 * 4 + 2] = 10 * gb, [1 * 4 + 3] = 10 * gb};
  int64_t one[16] = {[0 * 4 + 2] = 10 * gb};
  calibrate(t, fits, 1);
  ck_assert_int_eq(predict(t, both), 5000 + gb * 20 / 50);
  calibrate(t, fits, 3);
  ck_assert_int_le(llabs(predict(t, both) - (5000 + gb * 20 / 40)), 100);
  ck_assert_int_eq(predict(t, one), 5000 + gb * 10 / 50);
  /* A scatter that was faster than the port is no reason to raise it. */
  int64_t out[16] = {[0 * 4 + 2] = 10 * gb, [1 * 4 + 2] = 10 * gb};
  ck_assert_int_le(llabs(predict(t, out) - (5000 + gb * 20 / 40)), 100);
  /* The view of links is that of single messages. */
  ASSERT_LINK(t, 0, 2, lrmoeLinkNic, 50 * gb);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* Four processes on two NUMA nodes of two cores: as in one memory, but that
 * messages have the figures of their own links. */
START_TEST(processesOnNumaNodes) {
  static const struct lrmoeFit fits[] = {
      FIT(Message, Self, 0, 8 * GIGA),     FIT(Message, Memory, 0, 8 * GIGA),
      FIT(Message, Sockets, 0, 2 * GIGA),  FIT(Gather, Sockets, 0, 8 * GIGA),
      FIT(Scatter, Sockets, 0, 16 * GIGA), FIT(All, Sockets, 0, 16 * GIGA)};
  lrmoeTopology_t t = openMachine("numa:2 core:2 pu:1; cpu=4", 1, 4);
  ck_assert_int_eq(linkOf(t, 0, 1).linkClass, lrmoeLinkMemory);
  ck_assert_int_eq(linkOf(t, 0, 2).linkClass, lrmoeLinkSockets);
  calibrate(t, fits, 6);
  const int64_t n = 8000000; /* one rank copies it in 1 ms */
  ck_assert_int_eq(predict(t, (int64_t[16]){[1] = n}), 1000000);
  ck_assert_int_eq(predict(t, (int64_t[16]){[2] = n}), 4000000);
  /* All alike, within nodes: two cores for four ranks. */
  ck_assert_int_eq(predict(t, (int64_t[16]){[1] = n,
                                            [1 * 4 + 0] = n,
                                            [2 * 4 + 3] = n,
                                            [3 * 4 + 2] = n}),
                   2000000);
  /* Two messages over the wire between the nodes. */
  ck_assert_int_eq(predict(t, (int64_t[16]){[2] = n, [1 * 4 + 3] = n}),
                   8000000);
  lrmoeTopologyDestroy(t);
}
END_TEST

/* All ranks on the one NUMA node that there is: the same as in one memory. */
START_TEST(processesOfOneNode) {
  static const struct lrmoeFit fits[] = {
      FIT(Message, Self, 7, 9 * GIGA), FIT(Message, Memory, 11, 8 * GIGA),
      FIT(Gather, Memory, 13, 7 * GIGA), FIT(Scatter, Memory, 17, 15 * GIGA),
      FIT(All, Memory, 19, 13 * GIGA)};
  lrmoeTopology_t t = openMachine("core:2 pu:1", 1, 3), memory = NULL;
  ASSERT_OK(lrmoeTopologyCreate(3, &memory));
  calibrate(t, fits, 5);
  calibrate(memory, fits, 5);
  uint64_t state = 3;
  for (int i = 0; i < 1000; i++) {
    int64_t bytes[9];
    for (int j = 0; j < 9; j++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      bytes[j] = state >> 62 ? (int64_t)(state >> 36) : 0;
    }
    ck_assert_int_eq(predict(t, bytes), predict(memory, bytes));
  }
  lrmoeTopologyDestroy(t);
  lrmoeTopologyDestroy(memory);
}
END_TEST

/* An allocation that fails leaves what was calibrated before. */
START_TEST(allocationFaults) {
  static const struct lrmoeFit fits[] = {FIT(Message, Direct, 0, 100 * GIGA)};
  static const struct lrmoeFit others[] = {FIT(Message, Direct, 0, 50 * GIGA)};
  lrmoeTopology_t t = openMachine("pu:1; gpus=2 mesh=100", 1, 0);
  calibrate(t, fits, 1);
  for (int i = 1; i <= 2; i++) {
    lrmoeAllocFailAt(i);
    ASSERT_RESULT(lrmoeTopologyApplyFits(t, others, 1), lrmoeOutOfMemory);
    lrmoeAllocFailAt(0);
    ASSERT_LINK(t, 0, 1, lrmoeLinkDirect, 100 * gb);
  }
  calibrate(t, others, 1);
  ASSERT_LINK(t, 0, 1, lrmoeLinkDirect, 50 * gb);
  lrmoeTopologyDestroy(t);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {receiversAreTheLimit, sharedPorts,
                                processesOnNumaNodes, processesOfOneNode,
                                allocationFaults};
  return suiteRunTests("traffic", tests, 5, 60);
}
