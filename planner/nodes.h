/* Nodes: ranks that reach each other without a NIC, that is those of a host,
 * or of an NVLink domain where that is larger; and who hands rows on between
 * them (lrmoeWireNode). */
#ifndef LRMOE_PLANNER_NODES_H
#define LRMOE_PLANNER_NODES_H

#include "planner/plan.h"

struct lrmoeNodes {
  int32_t numNodes;
  int32_t *of;     /* [G] node of a rank */
  int32_t *places; /* [G] its place in it */
  int32_t *firsts; /* [numNodes + 1] into ... */
  int32_t *ranks;  /* [G] by node, ascending */
};

/* From the numbers of each rank's host and domain, both [numRanks]. */
lrmoeResult_t lrmoeNodesMake(int32_t numRanks, const int32_t *hosts,
                             const int32_t *domains, struct lrmoeNodes **nodes);
void lrmoeNodesFree(struct lrmoeNodes *nodes);

static inline int32_t lrmoeNodeSize(const struct lrmoeNodes *nodes,
                                    int32_t node) {
  return nodes->firsts[node + 1] - nodes->firsts[node];
}

/* Whom rank `source` gives its rows for a node that is not its own.  Relays of
 * the ranks of a node differ, so that all NICs are used. */
static inline int32_t lrmoeNodeRelay(const struct lrmoeNodes *nodes,
                                     int32_t source, int32_t node) {
  int32_t member = nodes->places[source] % lrmoeNodeSize(nodes, node);
  return nodes->ranks[nodes->firsts[node] + member];
}

/* pairs[g] = pairs that may pass rank g as relay in one direction: those of the
 * sources that it is the relay of, of experts that stand in its node.  A bound
 * of rows whatever is kept, for each goes to, or comes from, an instance.
 * The plan has its demand; `room` is of [numNodes]. */
void lrmoeNodesPassing(const struct lrmoeNodes *nodes,
                       const struct lrmoePlan *plan, int64_t *room,
                       int64_t *pairs);

#endif
