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

/* In numbers: the loads of the edges, and two of each rank. */
int64_t lrmoeTopologyTrafficRoom(const struct lrmoeTopology *topology) {
  const int64_t perEdge = sizeof(struct edgeLoad) / sizeof(int64_t);
  const int64_t perRank = sizeof(struct rankLoad) / sizeof(int64_t);
  int64_t loads = perEdge * lrmoeNumEdges(topology) +
                  2 * perRank * (int64_t)topology->numRanks;
  return greater(loads, lrmoeTopologyCrowdRoom(topology));
}

/* The loads that the bytes make, in room. */
static lrmoeResult_t fill(const struct lrmoeTopology *topology,
                          const int64_t *bytes, int64_t *room,
                          struct traffic *traffic) {
  *traffic = (struct traffic){.topology = topology,
                              .edges = (struct edgeLoad *)(void *)room};
  traffic->ranks[0] =
      (struct rankLoad *)(void *)(traffic->edges + lrmoeNumEdges(topology));
  traffic->ranks[1] = traffic->ranks[0] + topology->numRanks;
  memset(room, 0, (size_t)lrmoeTopologyTrafficRoom(topology) * sizeof *room);
  return addAll(traffic, bytes);
}

lrmoeResult_t lrmoeTopologyTrafficIn(const struct lrmoeTopology *topology,
                                     const int64_t *bytes, int64_t *room,
                                     int64_t *ns) {
  bool hasCrowd = lrmoeTopologyHasCrowd(topology);
  int64_t crowdNs = 0;
  if (hasCrowd)
    LRMOE_CHECK(lrmoeTopologyCrowdNs(topology, bytes, room, &crowdNs));
  struct traffic traffic;
  LRMOE_CHECK(fill(topology, bytes, room, &traffic));
  *ns =
      hasCrowd ? greater(crowdNs, longestEdgeNs(&traffic)) : longest(&traffic);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeTopologyTrafficNs(lrmoeTopology_t topology,
                                     const int64_t *bytes, int64_t *ns) {
  LRMOE_REQUIRE(topology && bytes && ns, "%s is NULL",
                !topology ? "topology"
                : !bytes  ? "bytes"
                          : "ns");
  int64_t *room = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(lrmoeTopologyTrafficRoom(topology), &room));
  lrmoeResult_t result = lrmoeTopologyTrafficIn(topology, bytes, room, ns);
  lrmoeFree(room);
  return result;
}

/* ---- The limit that decides --------------------------------------------- */

/* An edge, or what a rank copies; rank -1, edge -1: neither, all bytes count
 * alike. */
struct decisive {
  const struct lrmoeTopology *topology;
  int32_t edge;
  int32_t rank;
  int side; /* of the rank: 0 received, 1 sent */
  int64_t ns;
  int64_t slope; /* of the bytes that are being added */
};

static int64_t slopeOf(int64_t bytesPerSecond, int64_t parts) {
  const int64_t second = 1000000000;
  return bytesPerSecond < 1 ? 0 : (second << 32) / bytesPerSecond / parts;
}

static void addSlope(void *context, int32_t edge, int32_t parts, bool isNear) {
  struct decisive *decisive = context;
  (void)isNear;
  if (edge == decisive->edge)
    decisive->slope += slopeOf(lrmoeEdgeRate(decisive->topology, edge), parts);
}

static int64_t slopeBetween(struct decisive *decisive, int32_t from,
                            int32_t to) {
  const struct lrmoeTopology *topology = decisive->topology;
  struct lrmoeVisitor visitor = {addSlope, decisive};
  decisive->slope = 0;
  lrmoeLinkClass_t linkClass = lrmoePathWalk(topology, from, to, &visitor);
  if ((decisive->side ? from : to) == decisive->rank &&
      linkClass <= lrmoeLinkDevice)
    return slopeOf(lrmoeTopologyLink(topology, from, to).bytesPerSecond, 1);
  return decisive->slope;
}

static void decide(const struct traffic *traffic, struct decisive *decisive) {
  const struct lrmoeTopology *topology = traffic->topology;
  for (int32_t i = 0; i < lrmoeNumEdges(topology); i++) {
    int64_t ns =
        traffic->edges[i].bytes ? edgeNs(topology, i, &traffic->edges[i]) : 0;
    if (ns <= decisive->ns) continue;
    decisive->ns = ns;
    decisive->edge = i;
  }
  for (int side = 0; side < 2; side++)
    for (int32_t g = 0; g < topology->numRanks; g++) {
      if (traffic->ranks[side][g].copyNs <= decisive->ns) continue;
      decisive->ns = traffic->ranks[side][g].copyNs;
      decisive->edge = -1;
      decisive->rank = g;
      decisive->side = side;
    }
}

static int64_t leastLatency(const struct lrmoeTopology *topology) {
  int64_t least = INT64_MAX;
  for (int32_t from = 0; from < topology->numRanks; from++)
    for (int32_t to = 0; to < topology->numRanks; to++) {
      if (from == to) continue;
      lrmoeLinkClass_t linkClass = lrmoePathWalk(topology, from, to, NULL);
      int64_t ns = linkClass <= lrmoeLinkDevice
                       ? lrmoeTopologyLink(topology, from, to).latencyNs
                       : lrmoeLinkLatencyNs(topology, linkClass, from, to);
      if (ns < least) least = ns;
    }
  return least == INT64_MAX ? 0 : least;
}

/* Where a crowd decides, its share of the time is spread over all bytes. */
static void spread(int64_t ns, int64_t numCells, const int64_t *bytes,
                   int64_t *slopes) {
  __extension__ typedef __int128 wide;
  wide sum = 0;
  for (int64_t i = 0; i < numCells; i++)
    sum += bytes[i];
  wide slope = sum ? ((wide)ns << 32) / sum : 0;
  for (int64_t i = 0; i < numCells; i++)
    slopes[i] = slope > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)slope;
}

lrmoeResult_t lrmoeTopologyTrafficLimit(const struct lrmoeTopology *topology,
                                        const int64_t *bytes, int64_t *room,
                                        struct lrmoeTrafficLimit *limit) {
  struct decisive decisive = {.topology = topology, .edge = -1, .rank = -1};
  int64_t ranks = topology->numRanks, ns;
  struct traffic traffic;
  LRMOE_CHECK(lrmoeTopologyTrafficIn(topology, bytes, room, &ns));
  LRMOE_CHECK(fill(topology, bytes, room, &traffic));
  decide(&traffic, &decisive);
  limit->latencyNs =
      lrmoeTopologyHasCrowd(topology) ? 0 : leastLatency(topology);
  limit->fixedNs = traffic.latencyNs;
  limit->isProof =
      !lrmoeTopologyHasCrowd(topology) && ns - decisive.ns == traffic.latencyNs;
  if (!limit->isProof) limit->fixedNs = 0;
  if (!limit->isProof || !ns) {
    spread(ns, ranks * ranks, bytes, limit->slopes);
    return lrmoeSuccess;
  }
  for (int64_t i = 0; i < ranks * ranks; i++)
    limit->slopes[i] =
        slopeBetween(&decisive, (int32_t)(i / ranks), (int32_t)(i % ranks));
  return lrmoeSuccess;
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
