/* Calibrating a topology: the fits of patterns, and what they say about the
 * traffic of ranks that share one machine's memory. */
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

/* Whether lrmoeTopologyCrowdNs can tell. */
bool lrmoeTopologyHasCrowd(const struct lrmoeTopology *topology);

/* As lrmoeTopologyTrafficIn, of ranks in one memory that a calibration has
 * seen compete for its cores; room is for lrmoeTopologyCrowdRoom numbers. */
int64_t lrmoeTopologyCrowdRoom(const struct lrmoeTopology *topology);
lrmoeResult_t lrmoeTopologyCrowdNs(const struct lrmoeTopology *topology,
                                   const int64_t *bytes, int64_t *room,
                                   int64_t *ns);

#endif
