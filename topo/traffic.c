/* How long a whole traffic matrix takes.
 *
 * Traffic takes as long as the edge that has most to carry for its rate: what
 * alpha-beta models say of a single message, said of every shared wire at once.
 * Where a calibration has seen many ranks send to one, or one to many, that
 * counts too: for each rank what it has to receive or send from several by the
 * line of such a pattern, and for an edge that several use the part of its rate
 * that such a pattern reached.  Ranks that copy for themselves and share cores
 * have a model of their own (calibration.c), in which links between NUMA nodes
 * are a limit more. */
#include "base/alloc.h"
#include "topo/calibration.h"
#include "topo/path.h"

#include <string.h>

/* Sums stay at INT64_MAX once they are there. */
static void addTo(int64_t *sum, int64_t more) {
  *sum = more > INT64_MAX - *sum ? INT64_MAX : *sum + more;
}

static int64_t greater(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t toNs(int64_t bytes, int64_t bytesPerSecond) {
  if (bytesPerSecond <= 0) return INT64_MAX;
  __extension__ unsigned __int128 product =
      (__extension__(unsigned __int128) bytes) * 1000000000u;
  product = (product + (uint64_t)bytesPerSecond - 1) / (uint64_t)bytesPerSecond;
  return product > INT64_MAX ? INT64_MAX : (int64_t)product;
}

/* ---- Loads -------------------------------------------------------------- */

struct edgeLoad {
  int64_t bytes;
  int32_t transfers;
  bool isSending; /* on the senders' side of its paths */
};

/* One direction of what a rank has to do with others. */
struct rankLoad {
  int64_t messages;
  int64_t bytes;
  int64_t copyNs; /* what it copies itself */
  lrmoeLinkClass_t farthest;
};

struct traffic {
  const struct lrmoeTopology *topology;
  struct edgeLoad *edges;    /* [numEdges] */
  struct rankLoad *ranks[2]; /* [numRanks] received, sent */
  int64_t latencyNs;
  int64_t bytes; /* of the transfer that is being added */
  bool impossible;
};

static void load(void *context, int32_t edge, int32_t parts, bool isNear) {
  struct traffic *traffic = context;
  struct edgeLoad *load = &traffic->edges[edge];
  addTo(&load->bytes, traffic->bytes / parts + (traffic->bytes % parts != 0));
  if (load->transfers < INT32_MAX) load->transfers++;
  load->isSending = isNear;
}

static void addToRank(struct rankLoad *rank, int64_t bytes,
                      lrmoeLinkClass_t linkClass) {
  if (linkClass == lrmoeLinkSelf) return;
  rank->messages++;
  addTo(&rank->bytes, bytes);
  if (linkClass > rank->farthest) rank->farthest = linkClass;
}

/* What no edge carries is copied by the ranks, which takes their time. */
static void addTransfer(struct traffic *traffic, int32_t from, int32_t to) {
  const struct lrmoeTopology *topology = traffic->topology;
  struct lrmoeVisitor visitor = {load, traffic};
  struct rankLoad *sender = &traffic->ranks[1][from];
  struct rankLoad *receiver = &traffic->ranks[0][to];
  lrmoeLinkClass_t linkClass = lrmoePathWalk(topology, from, to, &visitor);
  if (linkClass == lrmoeLinkNone) {
    traffic->impossible = true;
    return;
  }
  addToRank(sender, traffic->bytes, linkClass);
  addToRank(receiver, traffic->bytes, linkClass);
  int64_t latencyNs;
  if (linkClass <= lrmoeLinkDevice) {
    lrmoeLink_t link = lrmoeTopologyLink(topology, from, to);
    int64_t ns = toNs(traffic->bytes, link.bytesPerSecond);
    addTo(&sender->copyNs, ns);
    addTo(&receiver->copyNs, ns);
    latencyNs = link.latencyNs;
  } else {
    latencyNs = lrmoeLinkLatencyNs(topology, linkClass, from, to);
  }
  traffic->latencyNs = greater(traffic->latencyNs, latencyNs);
}

static lrmoeResult_t addAll(struct traffic *traffic, const int64_t *bytes) {
  int32_t numRanks = traffic->topology->numRanks;
  for (int32_t from = 0; from < numRanks; from++)
    for (int32_t to = 0; to < numRanks; to++) {
      traffic->bytes = bytes[(int64_t)from * numRanks + to];
      LRMOE_REQUIRE(traffic->bytes >= 0, "%lld B from rank %d to rank %d",
                    (long long)traffic->bytes, from, to);
      if (traffic->bytes) addTransfer(traffic, from, to);
    }
  return lrmoeSuccess;
}

/* ---- Times -------------------------------------------------------------- */

static int64_t edgeNs(const struct lrmoeTopology *topology, int32_t edge,
                      const struct edgeLoad *load) {
  int64_t rate = lrmoeEdgeRate(topology, edge);
  if (load->transfers > 1)
    rate = lrmoeScaleRate(
        &topology->crowded[load->isSending][lrmoeEdgeClass(topology, edge)],
        rate);
  return toNs(load->bytes, rate);
}

static int64_t longestEdgeNs(const struct traffic *traffic) {
  int64_t ns = 0;
  for (int32_t i = 0; i < lrmoeNumEdges(traffic->topology); i++)
    if (traffic->edges[i].bytes)
      ns = greater(ns, edgeNs(traffic->topology, i, &traffic->edges[i]));
  return ns;
}

/* With several partners, by what a calibration saw of such ranks. */
static int64_t rankNs(const struct lrmoeTopology *topology,
                      const struct rankLoad *rank, bool isSending) {
  if (rank->messages < 2) return 0;
  const struct lrmoeFit *fit = lrmoeTopologyFindFit(
      topology, isSending ? lrmoePatternScatter : lrmoePatternGather,
      rank->farthest);
  return fit ? lrmoeLineNs(&fit->line, rank->messages, rank->bytes) : 0;
}

static int64_t longest(const struct traffic *traffic) {
  int64_t ns = longestEdgeNs(traffic), crowdedNs = 0;
  for (int side = 0; side < 2; side++)
    for (int32_t i = 0; i < traffic->topology->numRanks; i++) {
      const struct rankLoad *rank = &traffic->ranks[side][i];
      ns = greater(ns, rank->copyNs);
      crowdedNs = greater(crowdedNs, rankNs(traffic->topology, rank, side));
    }
  addTo(&ns, traffic->latencyNs);
  return traffic->impossible ? INT64_MAX : greater(ns, crowdedNs);
}

static lrmoeResult_t makeTraffic(const struct lrmoeTopology *topology,
                                 const int64_t *bytes,
                                 struct traffic *traffic) {
  *traffic = (struct traffic){.topology = topology};
  LRMOE_CHECK(LRMOE_ALLOCATE(lrmoeNumEdges(topology), &traffic->edges));
  LRMOE_CHECK(
      LRMOE_ALLOCATE(2 * (int64_t)topology->numRanks, &traffic->ranks[0]));
  traffic->ranks[1] = traffic->ranks[0] + topology->numRanks;
  return addAll(traffic, bytes);
}

lrmoeResult_t lrmoeTopologyTrafficNs(lrmoeTopology_t topology,
                                     const int64_t *bytes, int64_t *ns) {
  LRMOE_REQUIRE(topology && bytes && ns, "%s is NULL",
                !topology ? "topology"
                : !bytes  ? "bytes"
                          : "ns");
  bool hasCrowd = lrmoeTopologyHasCrowd(topology);
  int64_t crowdNs = 0;
  if (hasCrowd) LRMOE_CHECK(lrmoeTopologyCrowdNs(topology, bytes, &crowdNs));
  struct traffic traffic;
  lrmoeResult_t result = makeTraffic(topology, bytes, &traffic);
  if (result == lrmoeSuccess)
    *ns = hasCrowd ? greater(crowdNs, longestEdgeNs(&traffic))
                   : longest(&traffic);
  lrmoeFree(traffic.edges);
  lrmoeFree(traffic.ranks[0]);
  return result;
}

/* ---- Crowded edges ------------------------------------------------------ */

static const int64_t unitBytes = 1 << 30;

/* A gather or scatter of unitBytes from or to each other rank. */
struct pattern {
  const struct lrmoeTopology *topology;
  int64_t *bytes;     /* [numEdges] */
  int64_t *transfers; /* [numEdges] */
  int32_t root;
  bool isSending;
};

static void loadUnit(void *context, int32_t edge, int32_t parts, bool isNear) {
  struct pattern *pattern = context;
  (void)isNear;
  pattern->bytes[edge] += unitBytes / parts;
  pattern->transfers[edge]++;
}

/* Loads the edges; the farthest class. */
static lrmoeLinkClass_t walk(struct pattern *pattern) {
  struct lrmoeVisitor visitor = {loadUnit, pattern};
  lrmoeLinkClass_t farthest = lrmoeLinkSelf;
  int64_t numEdges = lrmoeNumEdges(pattern->topology);
  memset(pattern->bytes, 0, (size_t)numEdges * sizeof *pattern->bytes);
  memset(pattern->transfers, 0, (size_t)numEdges * sizeof *pattern->transfers);
  for (int32_t other = 0; other < pattern->topology->numRanks; other++) {
    int32_t from = pattern->isSending ? pattern->root : other;
    int32_t to = pattern->isSending ? other : pattern->root;
    lrmoeLinkClass_t linkClass =
        lrmoePathWalk(pattern->topology, from, to, &visitor);
    if (linkClass > farthest) farthest = linkClass;
  }
  return farthest;
}

/* The edge that limits the pattern, -1: none; how long it needs. */
static int32_t limitOf(const struct pattern *pattern, int64_t *ns) {
  int32_t edge = -1;
  *ns = 0;
  for (int32_t i = 0; i < lrmoeNumEdges(pattern->topology); i++) {
    if (!pattern->bytes[i]) continue;
    int64_t needed =
        toNs(pattern->bytes[i], lrmoeEdgeRate(pattern->topology, i));
    if (needed <= *ns) continue;
    *ns = needed;
    edge = i;
  }
  return edge;
}

/* Where each message has an edge of its own, the ranks are the limit: see
 * rankNs. */
static void crowdEdges(struct lrmoeTopology *topology,
                       const struct pattern *pattern,
                       const struct lrmoeLine *line) {
  int64_t ns = 0;
  int32_t edge = limitOf(pattern, &ns);
  if (edge < 0 || pattern->transfers[edge] < 2) return;
  __extension__ typedef __int128 wide;
  wide total = (wide)unitBytes * (topology->numRanks - 1);
  int64_t rate = (int64_t)(total * 1000000000 / ns);
  if (line->bytesPerSecond < rate)
    topology->crowded[pattern->isSending][lrmoeEdgeClass(topology, edge)] =
        (struct lrmoeScale){line->bytesPerSecond, rate};
}

/* Calibration probes the first and the last rank. */
void lrmoeTopologyCrowdEdges(struct lrmoeTopology *topology, int64_t *room) {
  struct pattern pattern = {.topology = topology,
                            .bytes = room,
                            .transfers = room + lrmoeNumEdges(topology)};
  for (int32_t i = 0; topology->places && i < topology->numFits; i++) {
    const struct lrmoeFit *fit = &topology->fits[i];
    pattern.isSending = fit->pattern == lrmoePatternScatter;
    if (!pattern.isSending && fit->pattern != lrmoePatternGather) continue;
    pattern.root = 0;
    if (walk(&pattern) != fit->linkClass) {
      pattern.root = topology->numRanks - 1;
      if (walk(&pattern) != fit->linkClass) continue;
    }
    crowdEdges(topology, &pattern, &fit->line);
  }
}
