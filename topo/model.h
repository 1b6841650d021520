/* Inside the model: the steps of lrmoeModelBuild, in their order. */
#ifndef LRMOE_TOPO_MODEL_H
#define LRMOE_TOPO_MODEL_H

#include "topo/topology.h"

/* Ranks to devices: places with device and host, firstRanks, rankCounts. */
lrmoeResult_t lrmoeModelPlace(struct lrmoeTopology *topology,
                              const struct lrmoeModelConfig *config);

/* Which ports carry a rank's traffic to other hosts, and slots. */
lrmoeResult_t lrmoeModelPorts(struct lrmoeTopology *topology);

/* What each rank can move to and from other hosts.  A step of the former. */
lrmoeResult_t lrmoeModelReach(struct lrmoeTopology *topology);

/* NVSwitches of GPUs, and domains. */
lrmoeResult_t lrmoeModelDomains(struct lrmoeTopology *topology);

/* Edges that several ranks use. */
lrmoeResult_t lrmoeModelResources(struct lrmoeTopology *topology);

/* The machine's key; after all else and before any profile. */
uint64_t lrmoeModelKey(const struct lrmoeTopology *topology);

#endif
