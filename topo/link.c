/* The figures of two ranks: a link is as fast as the slowest edge of its path,
 * or as a calibration has found its class to be. */
#include "topo/path.h"

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

int64_t lrmoeLinkLatencyNs(const struct lrmoeTopology *topology,
                           lrmoeLinkClass_t linkClass, int32_t from,
                           int32_t to) {
  const struct lrmoeClassFigure *measured = &topology->classes[linkClass];
  if (measured->bytesPerSecond) return measured->latencyNs;
  lrmoeLink_t link = {.latencyNs = classLatencies[linkClass]};
  if (linkClass == lrmoeLinkNic) fillNic(topology, from, to, &link);
  return link.latencyNs;
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
