/* The order in which a rank turns to its peers in an all-to-all. */
#ifndef LRMOE_COLLECTIVES_ORDER_H
#define LRMOE_COLLECTIVES_ORDER_H

#include "topo/topology.h"

/* Fills targets [G] and sources [G] for one rank of topology: in step t it
 * sends to targets[t] and receives from sources[t], whose target in step t it
 * is.  All ranks of the same topology together: in each step every rank sends
 * once and receives once, and of the ranks that share links as many use them
 * as in any other step. */
lrmoeResult_t lrmoeOrderMake(const struct lrmoeTopology *topology, int32_t rank,
                             int32_t *targets, int32_t *sources);

#endif
