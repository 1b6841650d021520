/* Rows that cross between nodes once (lrmoeWireNode).
 *
 * Nodes and their relays are the planner's (planner/nodes.h).  A row that
 * several ranks of another node need goes to one of them, the relay of its
 * source there, which hands it on; on the way home the relay adds the node's
 * rows before they leave. */
#ifndef LRMOE_COLLECTIVES_NODE_H
#define LRMOE_COLLECTIVES_NODE_H

#include "collectives/step.h"
#include "planner/nodes.h"

/* Whether `rank` is of this rank's node, ... */
int lrmoeNodeIsNear(const struct lrmoeStep *step, int32_t rank);

/* ... is this rank's relay in another node, ... */
int lrmoeNodeIsRelay(const struct lrmoeStep *step, int32_t rank);

/* ... or is one of another node, whose relay this rank is. */
int lrmoeNodeIsRelayed(const struct lrmoeStep *step, int32_t rank);

/* Whether rows go by relays: the wire says so and there are nodes. */
int lrmoeNodeIsUsed(const struct lrmoeLayer *layer, lrmoeWire_t wire);

/* lrmoeInvalidArgument if they would, and the planner leaves out what relays
 * hold though memory is limited. */
lrmoeResult_t lrmoeNodeCheck(const struct lrmoeLayer *layer, lrmoeWire_t wire);

/* A wire that carries a row per (token, rank), or fewer. */
int lrmoeWireIsDedup(const struct lrmoeStep *step);

/* Bytes of rows, by the rank that they are sent to, that leave the node. */
int64_t lrmoeNodeBytes(const struct lrmoeStep *step, const int64_t *offsets);

/* Rows of one kind on their way from sources to executors, or home. */
struct lrmoeWay {
  /* As source: rows of each token and executor; once routed, those that it
   * sends. */
  int64_t *offsets; /* [G + 1] by rank; written */
  int64_t *tokens;  /* of each, ascending for a rank; replaced */
  /* As executor. */
  const int64_t *recvOffsets; /* [G + 1] rows of each source */
  /* Device: where they are. */
  void *sourceRows;
  void *executorRows;
  int relay; /* lrmoeRelayRows or lrmoeRelayX: what keeps the route */
};

/* What a source tells relays, by relay: of each way its counts (rows of the
 * union, then of each rank of the node), and lists of each rank's rows among
 * the union's. */
struct lrmoeNotice {
  int64_t *countOffsets; /* [G + 1] into counts */
  int64_t *listOffsets;  /* [G + 1] into lists */
  int64_t *counts;
  int32_t *lists;
  int64_t *marks; /* [numTokens] room */
};

/* As source: makes offsets and tokens of the ways those of the rows that leave,
 * and the notice.  The ways are of distinct relays.  Local. */
lrmoeResult_t lrmoeNodeUnite(struct lrmoeStep *step, struct lrmoeWay *ways,
                             int numWays, struct lrmoeNotice *notice);

/* As relay, from what the sources told, by source: counts first, which say
 * where the lists of each begin, listOffsets [G + 1] ... */
lrmoeResult_t lrmoeNodeLayOut(struct lrmoeStep *step,
                              const struct lrmoeWay *ways, int numWays,
                              const int64_t *counts, int64_t *listOffsets);

/* ... then the lists.  The step's relays are whole then.  Both local. */
lrmoeResult_t lrmoeNodeTake(struct lrmoeStep *step, const struct lrmoeWay *ways,
                            int numWays, const int32_t *lists);

/* These three, and between them two small exchanges of host memory. */
lrmoeResult_t lrmoeNodeRoute(struct lrmoeStep *step, struct lrmoeWay *ways,
                             int numWays);

/* Rows from sources to executors; adds what goes to other ranks to *bytes. */
lrmoeResult_t lrmoeNodeSend(struct lrmoeStep *step, const struct lrmoeWay *way,
                            int64_t *bytes);

/* Their sums home, by the same route; the same bytes. */
lrmoeResult_t lrmoeNodeReturn(struct lrmoeStep *step,
                              const struct lrmoeWay *way, int64_t *bytes);

#endif
