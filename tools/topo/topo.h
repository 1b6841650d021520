/* lrmoe-topo: what its parts share. */
#ifndef LRMOE_TOOLS_TOPO_H
#define LRMOE_TOOLS_TOPO_H

#include "lrmoe.h"
#include "tools/common/fail.h"
#include "tools/common/json.h"
#include "tools/common/svg.h"

#include <stdint.h>

enum {
  topoNumClasses = lrmoeLinkNone + 1,
  topoNameBytes = 160
};

/* A topology that is shown.  All figures of it that are asked for exist, so
 * the functions of the library that give them cannot fail. */
struct topoShown {
  lrmoeTopology_t topology;
  lrmoeTopologyInfo_t info;
  const char *source; /* for people: a path, "this machine" */
};

/* "NVLink", and a letter for narrow cells. */
const char *topoClassName(lrmoeLinkClass_t linkClass);
char topoClassLetter(lrmoeLinkClass_t linkClass);

lrmoeTopologyNode_t topoNode(const struct topoShown *shown, int node);
lrmoeLink_t topoLink(const struct topoShown *shown, int from, int to);

/* "GPU 0000:07:00.0", "NUMA node 1": a node in a few words. */
void topoNodeName(const lrmoeTopologyNode_t *node, char text[topoNameBytes]);

/* "rank 3", "ranks 4-7", "" without any. */
void topoRankName(const lrmoeTopologyNode_t *node, char text[topoNameBytes]);

/* Nodes above it. */
int topoDepth(const struct topoShown *shown, int node);

/* Nodes in the order of the tree, parents before children and hosts one after
 * the other; [info.numNodes], free() it, NULL: no memory. */
int *topoOrder(const struct topoShown *shown);

/* Links of one class between different ranks. */
struct topoClassStats {
  int64_t numPairs;
  int64_t leastRate;
  int64_t mostRate;
  int64_t leastNs;
  int64_t mostNs;
  int64_t numGuessed;
};
void topoClassCount(const struct topoShown *shown,
                    struct topoClassStats stats[topoNumClasses]);

enum toolExit topoPrint(const struct topoShown *shown, struct toolError *error);
void topoPutJson(const struct topoShown *shown, struct toolJson *json);
enum toolExit topoDraw(const struct topoShown *shown, const char *path,
                       struct toolError *error);

#endif
