/* The topology: what the planner knows about the machine. */
#ifndef LRMOE_TOPO_TOPOLOGY_H
#define LRMOE_TOPO_TOPOLOGY_H

#include "base/result.h"

struct lrmoeTopology {
  int32_t numRanks;
  int32_t numCores;
  int32_t numNumaNodes;
  lrmoeLink_t self;   /* from a rank to itself */
  lrmoeLink_t memory; /* to any other: the ranks share one machine */
};

#endif
