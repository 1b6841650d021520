/* Rows that cross between nodes once (lrmoeWireNode).
 *
 * A node is what ranks reach without a NIC: a host, or an NVLink domain where
 * that is larger.  A row of g that several ranks of another node need goes to
 * one of them, the relay of its source there, which hands it on; on the way
 * back the relay adds the node's rows of dx before they leave.  Relays of the
 * ranks of a node differ, so that all NICs are used. */
#ifndef LRMOE_COLLECTIVES_NODE_H
#define LRMOE_COLLECTIVES_NODE_H

#include "collectives/step.h"

/* Ranks by node; part of the layer. */
struct lrmoeNodes {
  int32_t numNodes;
  int32_t *of;     /* [G] node of a rank */
  int32_t *places; /* [G] its place in it */
  int32_t *firsts; /* [numNodes + 1] into ... */
  int32_t *ranks;  /* [G] by node, ascending */
};

lrmoeResult_t lrmoeNodesMake(const struct lrmoePlanner *planner,
                             struct lrmoeNodes *nodes);
void lrmoeNodesFree(struct lrmoeNodes *nodes);

/* Whom rank `source` gives its rows for a node that is not its own. */
int32_t lrmoeNodeRelay(const struct lrmoeNodes *nodes, int32_t source,
                       int32_t node);

/* Whether this rank is the relay of rank `source`, which is of another node. */
int lrmoeNodeIsRelayed(const struct lrmoeStep *step, int32_t source);

/* Whether rows of g go by relays: the wire says so and there are nodes. */
int lrmoeNodeIsUsed(const struct lrmoeStep *step);

/* A wire that carries a row per (token, rank), or fewer. */
int lrmoeWireIsDedup(const struct lrmoeStep *step);

/* After lrmoeCompactRoute: backOffsets and backTokens become the rows that
 * leave this rank, and step->relay what it hands on.  Two small exchanges of
 * host memory. */
lrmoeResult_t lrmoeNodeRoute(struct lrmoeStep *step);

/* Rows of the send region to their executors' recv regions ... */
lrmoeResult_t lrmoeNodeSend(struct lrmoeStep *step);

/* ... and sums of the send region, by source, to the sources' back regions. */
lrmoeResult_t lrmoeNodeReturn(struct lrmoeStep *step);

/* Bytes of rows of g that leave this rank's node.  On the host's route. */
int64_t lrmoeNodeBytes(const struct lrmoeStep *step);

#endif
