/* The topology: what the planner and the collectives know about the machine.
 *
 * Figures of two ranks are computed when they are asked for, by a walk over
 * the machine's tree, so that a topology is as large as its machine and not as
 * the square of its ranks. */
#ifndef LRMOE_TOPO_TOPOLOGY_H
#define LRMOE_TOPO_TOPOLOGY_H

#include "topo/fit.h"
#include "topo/machine.h"

#include <stdatomic.h>

enum {
  lrmoeNumLinkClasses = lrmoeLinkNone + 1
};

/* What a profile says about a class of links; bytesPerSecond 0: nothing. */
struct lrmoeClassFigure {
  int64_t latencyNs;
  int64_t bytesPerSecond;
};

/* What a calibration says about a pattern of messages. */
struct lrmoeFit {
  lrmoePattern_t pattern;
  lrmoeLinkClass_t linkClass;
  struct lrmoeLine line;
};

/* Where a rank is. */
struct lrmoePlace {
  int32_t device; /* node: GPU or NUMA node */
  int32_t host;   /* number of the host, from 0 */
  int32_t domain; /* number of the NVLink domain, from 0 */
  int32_t numPorts;
  const int32_t *ports; /* nodes, into lrmoeTopology.ports */
};

/* What one rank can move to and from other hosts by itself. */
struct lrmoeReach {
  int64_t outBytesPerSecond; /* 0: no port */
  int64_t inBytesPerSecond;
  int64_t latencyNs; /* that its ports state, 0: none does */
  bool guessed;
};

/* One direction of a link that the traffic of several ranks goes through. */
struct lrmoeResource {
  char name[lrmoeNameBytes + 32];
  int32_t edge; /* see path.h */
  int32_t node;
  int64_t firstMember; /* in lrmoeTopology.members */
  int64_t numMembers;
  int64_t order[3]; /* what resources are sorted by */
};

/* Of the model to a measured figure: bandwidth times numerator over
 * denominator. */
struct lrmoeScale {
  int64_t numerator;
  int64_t denominator;
};

struct lrmoeTopology {
  atomic_int numHolders; /* besides its maker: see lrmoeTopologyHold */
  int32_t numRanks;
  int32_t numCores;
  int32_t numNumaNodes;
  int32_t numHosts;
  int32_t numDomains;
  bool calibrated;
  uint64_t machineKey;
  lrmoeLink_t self;      /* from a rank to itself */
  lrmoeLink_t memory;    /* to another rank in the same memory */
  struct lrmoeFit *fits; /* [numFits] by pattern, class; owned */
  int32_t numFits;
  /* What follows is empty after lrmoeTopologyCreate: places is NULL. */
  struct lrmoeMachine machine; /* wires sorted by from, to, kind */
  struct lrmoePlace *places;   /* [numRanks] */
  struct lrmoeReach *reaches;  /* [numRanks] */
  int32_t *hostNumbers;        /* [numNodes] -1 where a node joins hosts */
  int32_t *firstRanks;         /* [numNodes] of a device, else -1 */
  int32_t *rankCounts;         /* [numNodes] */
  int32_t *switches;           /* [numNodes] NVSwitch of a GPU, -1: none */
  int32_t *peerBridges;        /* [numNodes] the nearest bridge at or above
                                  that has PCI peers, -1: none */
  int32_t *slots; /* [numNodes] of a NIC the first NIC that shares its
                           PCI link; of others the node itself */
  int32_t *ports; /* what places point to */
  struct lrmoeResource *resources;
  int32_t *members; /* ranks, what resources point to */
  int32_t numResources;
  struct lrmoeClassFigure classes[lrmoeNumLinkClasses];
  struct lrmoeScale scales[lrmoeNumLinkClasses];
  struct lrmoeScale crowded[2][lrmoeNumLinkClasses]; /* see calibration.h */
};

/* Builds the model of a machine that lrmoeMachineComplete and
 * lrmoeMachineCheck have passed.  The machine moves into the topology, and is
 * {0} afterwards whatever the result. */
struct lrmoeModelConfig {
  int32_t numRanks; /* 0: one per device */
  lrmoeRankOrder_t rankOrder;
  const int64_t *buses; /* [numRanks] GPU of each rank, of one host; or NULL */
};
lrmoeResult_t lrmoeModelBuild(struct lrmoeMachine *machine,
                              const struct lrmoeModelConfig *config,
                              struct lrmoeTopology **topology);

/* As lrmoeTopologyOpen of one host; rank r of config->numRanks has the GPU at
 * the PCI address buses[r], each another one.  lrmoeUnsupported: the host has
 * no such GPU. */
lrmoeResult_t lrmoeTopologyOpenAt(const lrmoeTopologyConfig_t *config,
                                  const int64_t *buses,
                                  lrmoeTopology_t *topology);

/* Keeps the topology until one more lrmoeTopologyDestroy. */
void lrmoeTopologyHold(lrmoeTopology_t topology);

/* No ranks, and the figures of memory that are guessed without a profile. */
void lrmoeTopologyDefaults(struct lrmoeTopology *topology);

/* For ranks in range; never fails. */
lrmoeLink_t lrmoeTopologyLink(const struct lrmoeTopology *topology,
                              int32_t from, int32_t to);
int32_t lrmoeTopologyHost(const struct lrmoeTopology *topology, int32_t rank);
int32_t lrmoeTopologyDomain(const struct lrmoeTopology *topology, int32_t rank);

/* lrmoeTopologyTrafficNs without allocating: room is for
 * lrmoeTopologyTrafficRoom numbers. */
int64_t lrmoeTopologyTrafficRoom(const struct lrmoeTopology *topology);
lrmoeResult_t lrmoeTopologyTrafficIn(const struct lrmoeTopology *topology,
                                     const int64_t *bytes, int64_t *room,
                                     int64_t *ns);

/* The limit that decides the time of `bytes`, as a sum over all traffic. */
struct lrmoeTrafficLimit {
  int64_t *slopes;   /* [G, G] what a byte adds, in 2^-32 ns, rounded down */
  int64_t fixedNs;   /* what is the same for all bytes */
  int64_t latencyNs; /* the least with which any traffic between two ranks goes;
                        fixedNs, or above it */
  bool isProof; /* no traffic takes less than latencyNs and its slopes: not so
                   where a calibration tells a crowd */
};
lrmoeResult_t lrmoeTopologyTrafficLimit(const struct lrmoeTopology *topology,
                                        const int64_t *bytes, int64_t *room,
                                        struct lrmoeTrafficLimit *limit);

/* Takes the figures of a class from a profile: every link of the class then
 * has them and is not guessed, and what such links go through is scaled with
 * the fastest of them.  For the reader of profiles. */
void lrmoeTopologyCalibrateClass(struct lrmoeTopology *topology,
                                 lrmoeLinkClass_t linkClass,
                                 struct lrmoeClassFigure figure);

#endif
