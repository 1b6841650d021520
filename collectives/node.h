/* Rows that cross between nodes once (lrmoeWireNode).
 *
 * Nodes and their relays are the planner's (planner/nodes.h).  A row of g that
 * several ranks of another node need goes to one of them, the relay of its
 * source there, which hands it on; on the way back the relay adds the node's
 * rows of dx before they leave. */
#ifndef LRMOE_COLLECTIVES_NODE_H
#define LRMOE_COLLECTIVES_NODE_H

#include "collectives/step.h"
#include "planner/nodes.h"

/* Whether this rank is the relay of rank `source`, which is of another node. */
int lrmoeNodeIsRelayed(const struct lrmoeStep *step, int32_t source);

/* Refuses relays under a limit of memory that leaves out what they hold. */
lrmoeResult_t lrmoeNodeCheck(const struct lrmoeLayer *layer, lrmoeWire_t wire);

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
