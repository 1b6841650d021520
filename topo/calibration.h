/* Calibrating a topology: the fits of patterns, and what they say about ranks
 * that share one machine's memory or a link. */
#ifndef LRMOE_TOPO_CALIBRATION_H
#define LRMOE_TOPO_CALIBRATION_H

#include "topo/topology.h"

enum {
  lrmoeNumPatterns = lrmoePatternAll + 1
};

/* "gather", "memory": what messages and profiles call them; NULL: out of
 * range. */
const char *lrmoePatternName(lrmoePattern_t pattern);
const char *lrmoeLinkClassName(lrmoeLinkClass_t linkClass);

/* Gives the topology a copy of fits [numFits], in place of those it had, and
 * the figures of classes that they hold.  The topology stays as it was if it
 * fails.  lrmoeInvalidArgument where two are of one pattern and class. */
lrmoeResult_t lrmoeTopologyApplyFits(struct lrmoeTopology *topology,
                                     const struct lrmoeFit *fits,
                                     int32_t numFits);

/* The fit of a pattern and class, NULL if there is none. */
const struct lrmoeFit *
lrmoeTopologyFindFit(const struct lrmoeTopology *topology,
                     lrmoePattern_t pattern, lrmoeLinkClass_t linkClass);

/* Of the rate of an edge to what it moves for several ranks at once, where a
 * gather (of what ranks receive) or a scatter (of what they send) was slower
 * than the figures of single messages say: topology->crowded[isSending], by the
 * class of the edge that such a gather or scatter is limited by.  After the
 * figures of classes; room is [2, numEdges]. */
void lrmoeTopologyCrowdEdges(struct lrmoeTopology *topology, int64_t *room);

/* Whether lrmoeTopologyCrowdNs can tell. */
bool lrmoeTopologyHasCrowd(const struct lrmoeTopology *topology);

/* The time of traffic, as in lrmoeTopologyTrafficNs, of ranks that are
 * processes of one machine and that a calibration has seen compete for its
 * cores.  Without what links between its NUMA nodes take. */
lrmoeResult_t lrmoeTopologyCrowdNs(const struct lrmoeTopology *topology,
                                   const int64_t *bytes, int64_t *ns);

#endif
