/* The figures of two ranks, and how long a whole traffic matrix takes.
 *
 * A link is as fast as the slowest edge of its path.  Traffic takes as long as
 * the edge that has most to carry for its rate: what alpha-beta models say of
 * a single message, said of every shared wire at once. */
#include "base/alloc.h"
#include "topo/calibration.h"
#include "topo/path.h"

#include <string.h>

/* Small messages between GPUs, as NVIDIA's and AMD's measurements have them,
 * in ns; through the network one switch more.  Never stated by a source, so
 * that `guessed` is about bandwidth only; a profile has measured ones. */
static const int64_t classLatencies[lrmoeNumLinkClasses] = {
    [lrmoeLinkDevice] = 1000,     [lrmoeLinkDirect] = 1300,
    [lrmoeLinkSwitched] = 1800,   [lrmoeLinkPci] = 2500,
    [lrmoeLinkHostBridge] = 3500, [lrmoeLinkSockets] = 4500,
    [lrmoeLinkNic] = 6000};

/* ---- Links -------------------------------------------------------------- */

struct slowest {
  const struct lrmoeTopology *topology;
  int64_t bytesPerSecond;
  bool guessed;
};

static void takeSlowest(void *context, int32_t edge, int32_t parts,
                        bool isNear) {
  struct slowest *slowest = context;
  (void)parts;
  (void)isNear;
  int64_t rate = lrmoeEdgeRate(slowest->topology, edge);
  if (rate < slowest->bytesPerSecond) slowest->bytesPerSecond = rate;
  slowest->guessed =
      slowest->guessed || lrmoeEdgeGuessed(slowest->topology, edge);
}

static int64_t lesser(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t greater(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static void fillNic(const struct lrmoeTopology *topology, int32_t from,
                    int32_t to, lrmoeLink_t *link) {
  const struct lrmoeReach *a = &topology->reaches[from];
  const struct lrmoeReach *b = &topology->reaches[to];
  link->bytesPerSecond = lesser(a->outBytesPerSecond, b->inBytesPerSecond);
  link->guessed = a->guessed || b->guessed;
  link->latencyNs =
      greater(link->latencyNs, greater(a->latencyNs, b->latencyNs));
}

static void fillModel(const struct lrmoeTopology *topology, int32_t from,
                      int32_t to, lrmoeLink_t *link) {
  struct slowest slowest = {topology, INT64_MAX, false};
  struct lrmoeVisitor visitor = {takeSlowest, &slowest};
  link->latencyNs = classLatencies[link->linkClass];
  switch (link->linkClass) {
  case lrmoeLinkSelf:
  case lrmoeLinkDevice:
    link->bytesPerSecond = topology->self.bytesPerSecond;
    link->guessed = topology->self.guessed;
    break;
  case lrmoeLinkMemory:
    *link = topology->memory;
    break;
  case lrmoeLinkNic:
    fillNic(topology, from, to, link);
    break;
  case lrmoeLinkNone:
    break;
  default:
    lrmoePathWalk(topology, from, to, &visitor);
    link->bytesPerSecond = slowest.bytesPerSecond;
    link->guessed = slowest.guessed;
  }
}

lrmoeLink_t lrmoeTopologyLink(const struct lrmoeTopology *topology,
                              int32_t from, int32_t to) {
  lrmoeLink_t link = {.linkClass = lrmoePathWalk(topology, from, to, NULL)};
  const struct lrmoeClassFigure *measured = &topology->classes[link.linkClass];
  if (measured->bytesPerSecond) {
    link.latencyNs = measured->latencyNs;
    link.bytesPerSecond = measured->bytesPerSecond;
  } else {
    fillModel(topology, from, to, &link);
  }
  return link;
}

int32_t lrmoeTopologyHost(const struct lrmoeTopology *topology, int32_t rank) {
  return topology->places ? topology->places[rank].host : 0;
}

int32_t lrmoeTopologyDomain(const struct lrmoeTopology *topology,
                            int32_t rank) {
  return topology->places ? topology->places[rank].domain : 0;
}

/* ---- Profiles ----------------------------------------------------------- */

/* The fastest link of a class as the model has it; 0: there is none. */
static int64_t fastestOf(const struct lrmoeTopology *topology,
                         lrmoeLinkClass_t linkClass) {
  int64_t fastest = 0;
  for (int32_t from = 0; from < topology->numRanks; from++)
    for (int32_t to = 0; to < topology->numRanks; to++) {
      if (lrmoePathWalk(topology, from, to, NULL) != linkClass) continue;
      lrmoeLink_t link = {.linkClass = linkClass};
      fillModel(topology, from, to, &link);
      fastest = greater(fastest, link.bytesPerSecond);
    }
  return fastest;
}

void lrmoeTopologyCalibrateClass(struct lrmoeTopology *topology,
                                 lrmoeLinkClass_t linkClass,
                                 struct lrmoeClassFigure figure) {
  topology->calibrated = true;
  topology->classes[linkClass] = figure;
  topology->scales[linkClass] = (struct lrmoeScale){0, 0};
  if (!topology->places || linkClass <= lrmoeLinkDevice ||
      linkClass == lrmoeLinkNone)
    return;
  int64_t fastest = fastestOf(topology, linkClass);
  if (fastest)
    topology->scales[linkClass] =
        (struct lrmoeScale){figure.bytesPerSecond, fastest};
}

/* ---- Traffic ------------------------------------------------------------ */

/* Sums stay at INT64_MAX once they are there. */
static void addTo(int64_t *sum, int64_t more) {
  *sum = more > INT64_MAX - *sum ? INT64_MAX : *sum + more;
}

static int64_t toNs(int64_t bytes, int64_t bytesPerSecond) {
  if (bytesPerSecond <= 0) return INT64_MAX;
  __extension__ unsigned __int128 product =
      (__extension__(unsigned __int128) bytes) * 1000000000u;
  product = (product + (uint64_t)bytesPerSecond - 1) / (uint64_t)bytesPerSecond;
  return product > INT64_MAX ? INT64_MAX : (int64_t)product;
}

struct traffic {
  const struct lrmoeTopology *topology;
  int64_t *edges;  /* [numEdges] bytes */
  int64_t *sent;   /* [numRanks] ns: what ranks copy themselves */
  int64_t *arrive; /* [numRanks] ns */
  int64_t latencyNs;
  int64_t bytes; /* of the transfer that is being added */
  bool impossible;
};

static void load(void *context, int32_t edge, int32_t parts, bool isNear) {
  struct traffic *traffic = context;
  (void)isNear;
  addTo(&traffic->edges[edge],
        traffic->bytes / parts + (traffic->bytes % parts != 0));
}

/* What no edge carries is copied by the ranks, which takes their time. */
static void addTransfer(struct traffic *traffic, int32_t from, int32_t to) {
  struct lrmoeVisitor visitor = {load, traffic};
  lrmoeLinkClass_t linkClass =
      lrmoePathWalk(traffic->topology, from, to, &visitor);
  lrmoeLink_t link = {.linkClass = linkClass};
  if (linkClass == lrmoeLinkNone) {
    traffic->impossible = true;
    return;
  }
  if (linkClass <= lrmoeLinkDevice) {
    link = lrmoeTopologyLink(traffic->topology, from, to);
    int64_t ns = toNs(traffic->bytes, link.bytesPerSecond);
    addTo(&traffic->sent[from], ns);
    addTo(&traffic->arrive[to], ns);
  } else {
    const struct lrmoeClassFigure *measured =
        &traffic->topology->classes[linkClass];
    link.latencyNs = measured->bytesPerSecond ? measured->latencyNs
                                              : classLatencies[linkClass];
    if (linkClass == lrmoeLinkNic && !measured->bytesPerSecond)
      fillNic(traffic->topology, from, to, &link);
  }
  traffic->latencyNs = greater(traffic->latencyNs, link.latencyNs);
}

static int64_t longest(const struct traffic *traffic) {
  int64_t ns = 0;
  for (int32_t i = 0; i < lrmoeNumEdges(traffic->topology); i++)
    if (traffic->edges[i])
      ns = greater(
          ns, toNs(traffic->edges[i], lrmoeEdgeRate(traffic->topology, i)));
  for (int32_t i = 0; i < traffic->topology->numRanks; i++)
    ns = greater(ns, greater(traffic->sent[i], traffic->arrive[i]));
  addTo(&ns, traffic->latencyNs);
  return traffic->impossible ? INT64_MAX : ns;
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

int64_t lrmoeTopologyTrafficRoom(const struct lrmoeTopology *topology) {
  int64_t crowd = lrmoeTopologyCrowdRoom(topology);
  int64_t edges = lrmoeNumEdges(topology) + 2 * (int64_t)topology->numRanks;
  return crowd > edges ? crowd : edges;
}

lrmoeResult_t lrmoeTopologyTrafficIn(const struct lrmoeTopology *topology,
                                     const int64_t *bytes, int64_t *room,
                                     int64_t *ns) {
  if (lrmoeTopologyHasCrowd(topology))
    return lrmoeTopologyCrowdNs(topology, bytes, room, ns);
  struct traffic traffic = {.topology = topology, .edges = room};
  size_t numEdges = (size_t)lrmoeNumEdges(topology);
  size_t numRanks = (size_t)topology->numRanks;
  traffic.sent = traffic.edges + numEdges;
  traffic.arrive = traffic.sent + numRanks;
  memset(room, 0, (numEdges + 2 * numRanks) * sizeof *room);
  LRMOE_CHECK(addAll(&traffic, bytes));
  *ns = longest(&traffic);
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
