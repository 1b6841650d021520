/* The topology: what the planner and the collectives know about the machine.
 *
 * Figures of two ranks are computed when they are asked for, by a walk over
 * the machine's tree, so that a topology is as large as its machine and not as
 * the square of its ranks. */
#ifndef LRMOE_TOPO_TOPOLOGY_H
#define LRMOE_TOPO_TOPOLOGY_H

#include "topo/machine.h"

enum {
  lrmoeNumLinkClasses = lrmoeLinkNone + 1
};

/* What a profile says about a class of links; bytesPerSecond 0: nothing. */
struct lrmoeClassFigure {
  int64_t latencyNs;
  int64_t bytesPerSecond;
};

/* Where a rank is. */
struct lrmoePlace {
  int32_t device; /* node: GPU or NUMA node */
  int32_t host;   /* number of the host, from 0 */
  int32_t domain; /* number of the NVLink domain, from 0 */
  int32_t numPorts;
  const int32_t *ports; /* nodes, into lrmoeTopology.ports */
};

/* One direction of a link that the traffic of several ranks goes through. */
struct lrmoeResource {
  char name[lrmoeNameBytes];
  int32_t node;
  bool up; /* towards the root (out of a port); else away from it */
  bool guessed;
  int64_t bytesPerSecond;
  int64_t firstMember; /* in lrmoeTopology.members */
  int64_t numMembers;
};

struct lrmoeTopology {
  int32_t numRanks;
  int32_t numCores;
  int32_t numNumaNodes;
  int32_t numHosts;
  int32_t numDomains;
  bool calibrated;
  uint64_t machineKey;
  lrmoeLink_t self;   /* from a rank to itself */
  lrmoeLink_t memory; /* of lrmoeTopologyCreate: to any other rank */
  /* What follows is empty after lrmoeTopologyCreate: places is NULL. */
  struct lrmoeMachine machine;
  struct lrmoePlace *places; /* [numRanks] */
  int32_t *hostNumbers;      /* [numNodes] -1 where a node joins hosts */
  int32_t *firstRanks;       /* [numNodes] of a device, else -1 */
  int32_t *rankCounts;       /* [numNodes] */
  int32_t *ports;            /* what places point to */
  struct lrmoeResource *resources;
  int32_t *members; /* ranks, what resources point to */
  int32_t numResources;
  struct lrmoeClassFigure classes[lrmoeNumLinkClasses];
};

/* For ranks in range; never fails. */
lrmoeLink_t lrmoeTopologyLink(const struct lrmoeTopology *topology,
                              int32_t from, int32_t to);
int32_t lrmoeTopologyHost(const struct lrmoeTopology *topology, int32_t rank);
int32_t lrmoeTopologyDomain(const struct lrmoeTopology *topology, int32_t rank);

/* Takes the figures of a class from a profile: every link of the class then
 * has them and is not guessed, and resources that only such links go through
 * are scaled with them.  For the reader of profiles. */
void lrmoeTopologyCalibrateClass(struct lrmoeTopology *topology,
                                 lrmoeLinkClass_t linkClass,
                                 struct lrmoeClassFigure figure);

#endif
