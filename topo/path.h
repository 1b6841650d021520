/* Paths through the machine, as edges.
 *
 * An edge is one direction of a link: 2 * node is the link of a node to its
 * parent, upwards (of a port: out into the network), 2 * node + 1 downwards;
 * 2 * numNodes + i is wire i. */
#ifndef LRMOE_TOPO_PATH_H
#define LRMOE_TOPO_PATH_H

#include "topo/topology.h"

/* Called for each edge in turn.  `parts` > 1: only that part of the traffic
 * goes this way (several ports).  isNear: on the sender's side of the path. */
struct lrmoeVisitor {
  void (*visit)(void *context, int32_t edge, int32_t parts, bool isNear);
  void *context;
};

/* The class of the way from one rank to another, and its edges; visitor NULL:
 * class only.  Self, Memory, Device and None have no edges. */
lrmoeLinkClass_t lrmoePathWalk(const struct lrmoeTopology *topology,
                               int32_t from, int32_t to,
                               const struct lrmoeVisitor *visitor);

/* The edges from a node to another of its host through the tree; the class
 * says how far that is. */
lrmoeLinkClass_t lrmoeTreeWalk(const struct lrmoeTopology *topology,
                               int32_t from, int32_t to,
                               const struct lrmoeVisitor *visitor);

/* Between a rank's device and the network, through all of its ports: out
 * (isNear) or in. */
void lrmoePortWalk(const struct lrmoeTopology *topology,
                   const struct lrmoePlace *place, bool isNear,
                   const struct lrmoeVisitor *visitor);

/* The wire of a kind between two nodes, -1: none. */
int32_t lrmoeWireFind(const struct lrmoeMachine *machine, int32_t from,
                      int32_t to, enum lrmoeWireKind kind);

/* The class of links whose measured figures tell about an edge. */
lrmoeLinkClass_t lrmoeEdgeClass(const struct lrmoeTopology *topology,
                                int32_t edge);

/* At least 1; unchanged where the scale is {0, 0}. */
int64_t lrmoeScaleRate(const struct lrmoeScale *scale, int64_t rate);

/* What a message of the class between two ranks takes besides its bytes. */
int64_t lrmoeLinkLatencyNs(const struct lrmoeTopology *topology,
                           lrmoeLinkClass_t linkClass, int32_t from,
                           int32_t to);

/* Bytes per second, calibrated if there is a profile. */
int64_t lrmoeEdgeRate(const struct lrmoeTopology *topology, int32_t edge);
bool lrmoeEdgeGuessed(const struct lrmoeTopology *topology, int32_t edge);
int32_t lrmoeNumEdges(const struct lrmoeTopology *topology);

#endif
