/* The order of peers: what holds in every step, and that an exchange brings
 * the same bytes in any order. */
#include "collectives/comm.h"
#include "collectives/order.h"
#include "support/ranks.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hosts of `numGpus` GPUs below one NIC. */
static lrmoeTopology_t hosts(int numGpus, int copies) {
  char text[8192];
  int used = snprintf(text, sizeof text,
                      "<system version=\"1\"><cpu numaid=\"0\" "
                      "affinity=\"ffff\" arch=\"x86_64\" "
                      "vendor=\"AuthenticAMD\" familyid=\"1\" modelid=\"1\">");
  for (int i = 0; i < numGpus; i++)
    used += snprintf(text + used, sizeof text - (size_t)used,
                     "<pci busid=\"0000:%02x:00.0\" class=\"0x030200\" "
                     "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
                     "<gpu dev=\"%d\" sm=\"80\" rank=\"%d\" gdr=\"1\"/></pci>",
                     i + 1, i, i);
  snprintf(text + used, sizeof text - (size_t)used,
           "<pci busid=\"0000:80:00.0\" class=\"0x020700\" "
           "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><nic>"
           "<net name=\"mlx5_0\" dev=\"0\" speed=\"200000\" port=\"1\" "
           "guid=\"0x1\"/></nic></pci></cpu></system>");
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  source.kind = lrmoeSourceText;
  source.text = text;
  source.copies = copies;
  config.sources = &source;
  config.numSources = 1;
  lrmoeTopology_t topology = NULL;
  ASSERT_OK(lrmoeTopologyOpen(&config, &topology));
  return topology;
}

struct orders {
  int32_t *targets; /* [G, G] by rank, step */
  int32_t *sources;
  int numRanks;
};

static struct orders makeOrders(lrmoeTopology_t topology) {
  int numRanks = topology->numRanks;
  size_t count = (size_t)numRanks * (size_t)numRanks;
  struct orders orders = {calloc(count, 4), calloc(count, 4), numRanks};
  for (int r = 0; r < numRanks; r++)
    ASSERT_OK(lrmoeOrderMake(topology, r,
                             orders.targets + (ptrdiff_t)r * numRanks,
                             orders.sources + (ptrdiff_t)r * numRanks));
  return orders;
}

static void freeOrders(struct orders *orders) {
  free(orders->targets);
  free(orders->sources);
}

/* Whether the ranks [count], `stride` apart, are all of them, once each. */
static int isPermutation(const int32_t *ranks, int count, int stride) {
  char *seen = calloc((size_t)count, 1);
  int numSeen = 0;
  for (int i = 0; i < count; i++) {
    int rank = ranks[(ptrdiff_t)i * stride];
    if (rank < 0 || rank >= count) continue;
    numSeen += !seen[rank];
    seen[rank] = 1;
  }
  free(seen);
  return numSeen == count;
}

/* Each peer once, each step a permutation, and both ends say the same. */
static void checkOrders(const struct orders *orders) {
  int count = orders->numRanks;
  for (int r = 0; r < count; r++) {
    const int32_t *targets = orders->targets + (ptrdiff_t)r * count;
    ck_assert(isPermutation(targets, count, 1));
    ck_assert(isPermutation(orders->targets + r, count, count)); /* step r */
    for (int step = 0; step < count; step++)
      ck_assert_int_eq(orders->sources[targets[step] * count + step], r);
  }
}

/* Most ranks of one host that leave it, or that enter it, in a step. */
static int mostCrossing(const struct orders *orders, int perHost, int isEntry) {
  int most = 0, numRanks = orders->numRanks;
  const int32_t *peers = isEntry ? orders->sources : orders->targets;
  for (int step = 0; step < numRanks; step++)
    for (int first = 0; first < numRanks; first += perHost) {
      int count = 0;
      for (int r = first; r < first + perHost; r++)
        count += peers[r * numRanks + step] / perHost != first / perHost;
      if (count > most) most = count;
    }
  return most;
}

static const int shapes[][2] = {{8, 4}, {4, 4},  {2, 2},  {8, 2},
                                {3, 5}, {4, 16}, {8, 16}, {1, 6}};

/* Of k ranks in each of H hosts k - floor(k / H) leave in a step, no more. */
START_TEST(sharedLinksAreEven) {
  int perHost = shapes[_i][0], numHosts = shapes[_i][1];
  lrmoeTopology_t topology = hosts(perHost, numHosts);
  struct orders orders = makeOrders(topology);
  ck_assert_int_eq(orders.numRanks, perHost * numHosts);
  checkOrders(&orders);
  int most = perHost - perHost / numHosts;
  ck_assert_int_le(mostCrossing(&orders, perHost, 0), most);
  ck_assert_int_le(mostCrossing(&orders, perHost, 1), most);
  freeOrders(&orders);
  lrmoeTopologyDestroy(topology);
}
END_TEST

/* One machine's memory, and hosts of different size: going round. */
START_TEST(goingRound) {
  for (int numRanks = 1; numRanks <= 7; numRanks++) {
    lrmoeTopology_t topology = NULL;
    ASSERT_OK(lrmoeTopologyCreate(numRanks, &topology));
    struct orders orders = makeOrders(topology);
    checkOrders(&orders);
    for (int r = 0; r < numRanks; r++)
      for (int step = 0; step < numRanks; step++)
        ck_assert_int_eq(orders.targets[r * numRanks + step],
                         (r + step) % numRanks);
    freeOrders(&orders);
    lrmoeTopologyDestroy(topology);
  }
}
END_TEST

enum {
  numRanks = 6
};

/* What rank s sends to rank d: this many bytes, all of this value. */
static int64_t bytesOf(int s, int d) {
  return (s * 7 + d * 5) % 4 * 1000 + s;
}

static char valueOf(int s, int d) {
  return (char)(s * numRanks + d + 1);
}

static int exchangeOnce(const struct testRank *self, lrmoeComm_t comm) {
  int64_t sendOffsets[numRanks + 1] = {0}, recvOffsets[numRanks + 1] = {0};
  char send[numRanks * 4096], recv[numRanks * 4096];
  for (int p = 0; p < numRanks; p++) {
    sendOffsets[p + 1] = sendOffsets[p] + bytesOf(self->rank, p);
    recvOffsets[p + 1] = recvOffsets[p] + bytesOf(p, self->rank);
    memset(send + sendOffsets[p], valueOf(self->rank, p),
           (size_t)bytesOf(self->rank, p));
  }
  memset(recv, 0, sizeof recv);
  int64_t sent = 0;
  const struct lrmoeExchange exchange = {send,        sendOffsets, recv,
                                         recvOffsets, 1,           0};
  RANK_OK(self, lrmoeExchangeRun(comm, &exchange, 1, NULL, &sent));
  RANK_TRUE(self,
            sent == sendOffsets[numRanks] - bytesOf(self->rank, self->rank));
  for (int p = 0; p < numRanks; p++)
    for (int64_t i = recvOffsets[p]; i < recvOffsets[p + 1]; i++)
      RANK_TRUE(self, recv[i] == valueOf(p, self->rank));
  return 0;
}

static int refuse(const struct testRank *self, lrmoeComm_t comm) {
  lrmoeTopology_t other = NULL;
  RANK_OK(self, lrmoeTopologyCreate(numRanks + 1, &other));
  RANK_TRUE(self, lrmoeCommSetTopology(comm, other) == lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeCommSetTopology(NULL, other) == lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeCommSetTopology(comm, NULL) == lrmoeInvalidArgument);
  lrmoeTopologyDestroy(other);
  return 0;
}

/* The same bytes by the caller's own messages, in the order that is told. */
static int exchangeOwn(const struct testRank *self, lrmoeComm_t comm) {
  char send[numRanks][4096], recv[numRanks][4096];
  int target = 0, source = 0, numTargets[numRanks] = {0};
  RANK_OK(self, lrmoeGroupStart());
  for (int step = 0; step < numRanks; step++) {
    RANK_OK(self, lrmoeCommGetPeers(comm, step, &target, &source));
    RANK_TRUE(self, ++numTargets[target] == 1);
    memset(send[target], valueOf(self->rank, target), sizeof send[target]);
    RANK_OK(self, lrmoeSend(send[target], (size_t)bytesOf(self->rank, target),
                            lrmoeInt8, target, comm, NULL));
    RANK_OK(self, lrmoeRecv(recv[source], (size_t)bytesOf(source, self->rank),
                            lrmoeInt8, source, comm, NULL));
  }
  RANK_OK(self, lrmoeGroupEnd());
  for (int p = 0; p < numRanks; p++)
    for (int64_t i = 0; i < bytesOf(p, self->rank); i++)
      RANK_TRUE(self, recv[p][i] == valueOf(p, self->rank));
  RANK_TRUE(self, lrmoeCommGetPeers(comm, numRanks, &target, &source) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self,
            lrmoeCommGetPeers(comm, 0, NULL, &source) == lrmoeInvalidArgument);
  return 0;
}

static int runExchange(const struct testRank *self) {
  lrmoeTopology_t *topologies = self->user;
  lrmoeComm_t comm = NULL;
  RANK_OK(self, lrmoeCommInitRank(self->numRanks, &self->id, self->rank, NULL,
                                  &comm));
  int isBad = exchangeOnce(self, comm);
  for (int i = 0; i < 2 && !isBad; i++) {
    RANK_OK(self, lrmoeCommSetTopology(comm, topologies[i]));
    isBad = exchangeOnce(self, comm) || exchangeOwn(self, comm);
  }
  if (!isBad) isBad = refuse(self, comm);
  if (!isBad) isBad = exchangeOnce(self, comm);
  lrmoeCommDestroy(comm);
  return isBad;
}

START_TEST(sameBytes) {
  lrmoeTopology_t topologies[] = {hosts(2, 3), hosts(3, 2)};
  ck_assert_int_eq(testRanksRun(numRanks, runExchange, topologies), 0);
  lrmoeTopologyDestroy(topologies[0]);
  lrmoeTopologyDestroy(topologies[1]);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("order");
  TCase *tcase = tcase_create("order");
  tcase_set_timeout(tcase, 120);
  tcase_add_loop_test(tcase, sharedLinksAreEven, 0,
                      (int)(sizeof shapes / sizeof *shapes));
  tcase_add_test(tcase, goingRound);
  tcase_add_test(tcase, sameBytes);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
