/* lrmoe-topo: names, and what is counted. */
#include "tools/topo/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  char letter;
} classes[topoNumClasses] = {
    [lrmoeLinkSelf] = {"self", '.'},
    [lrmoeLinkMemory] = {"memory", 'm'},
    [lrmoeLinkDevice] = {"same device", 'd'},
    [lrmoeLinkDirect] = {"direct", 'N'},
    [lrmoeLinkSwitched] = {"switched", 'S'},
    [lrmoeLinkPci] = {"PCI", 'p'},
    [lrmoeLinkHostBridge] = {"host bridge", 'h'},
    [lrmoeLinkSockets] = {"sockets", 'x'},
    [lrmoeLinkNic] = {"NIC", 'n'},
    [lrmoeLinkNone] = {"none", '-'},
};

const char *topoClassName(lrmoeLinkClass_t linkClass) {
  return classes[linkClass].name;
}

char topoClassLetter(lrmoeLinkClass_t linkClass) {
  return classes[linkClass].letter;
}

lrmoeTopologyNode_t topoNode(const struct topoShown *shown, int node) {
  lrmoeTopologyNode_t view = LRMOE_TOPOLOGY_NODE_INITIALIZER;
  lrmoeTopologyGetNode(shown->topology, node, &view);
  return view;
}

lrmoeLink_t topoLink(const struct topoShown *shown, int from, int to) {
  lrmoeLink_t link = {lrmoeLinkNone, 0, 0, 0};
  lrmoeTopologyGetLink(shown->topology, from, to, &link);
  return link;
}

void topoNodeName(const lrmoeTopologyNode_t *node, char text[topoNameBytes]) {
  static const char *const kinds[] = {"host", "NUMA node", "bridge",  "GPU",
                                      "NIC",  "port",      "NVSwitch"};
  const char *kind = kinds[node->kind];
  if (node->kind == lrmoeNodeHost)
    snprintf(text, topoNameBytes, "host %d%s%s", node->host,
             *node->name ? " " : "", node->name);
  else if (node->kind == lrmoeNodeNuma && node->index >= 0)
    snprintf(text, topoNameBytes, "%s %d", kind, node->index);
  else if (*node->name && strcmp(node->name, kind) != 0)
    snprintf(text, topoNameBytes, "%s %s", kind, node->name);
  else
    snprintf(text, topoNameBytes, "%s", kind);
}

void topoRankName(const lrmoeTopologyNode_t *node, char text[topoNameBytes]) {
  if (node->numRanks == 1)
    snprintf(text, topoNameBytes, "rank %d", node->firstRank);
  else if (node->numRanks > 1)
    snprintf(text, topoNameBytes, "ranks %d-%d", node->firstRank,
             node->firstRank + node->numRanks - 1);
  else
    text[0] = '\0';
}

int topoDepth(const struct topoShown *shown, int node) {
  int depth = 0;
  for (int at = topoNode(shown, node).parent; at >= 0;
       at = topoNode(shown, at).parent)
    depth++;
  return depth;
}

/* ---- The order of the tree ---------------------------------------------- */

/* First child and next sibling of each node; children in their order, because
 * they are linked from the last node to the first. */
struct family {
  int child;
  int sibling;
};

static int firstRoot(const struct topoShown *shown, struct family *family) {
  int root = -1;
  for (int i = 0; i < shown->info.numNodes; i++)
    family[i] = (struct family){-1, -1};
  for (int i = shown->info.numNodes - 1; i >= 0; i--) {
    int parent = topoNode(shown, i).parent;
    int *first = parent < 0 ? &root : &family[parent].child;
    family[i].sibling = *first;
    *first = i;
  }
  return root;
}

int *topoOrder(const struct topoShown *shown) {
  int count = shown->info.numNodes;
  int *order = calloc((size_t)count + 1, sizeof *order);
  struct family *family = calloc((size_t)count + 1, sizeof *family);
  int next = order && family ? firstRoot(shown, family) : -1;
  for (int placed = 0; next >= 0; placed++) {
    int at = next;
    order[placed] = at;
    next = family[at].child;
    while (next < 0 && at >= 0) { /* up, until there is a sibling */
      next = family[at].sibling;
      at = topoNode(shown, at).parent;
    }
  }
  if (!family) {
    free(order);
    order = NULL;
  }
  free(family);
  return order;
}

/* ---- Classes ------------------------------------------------------------ */

static void count(struct topoClassStats *stats, const lrmoeLink_t *link) {
  int isFirst = !stats->numPairs++;
  if (isFirst || link->bytesPerSecond < stats->leastRate)
    stats->leastRate = link->bytesPerSecond;
  if (isFirst || link->bytesPerSecond > stats->mostRate)
    stats->mostRate = link->bytesPerSecond;
  if (isFirst || link->latencyNs < stats->leastNs)
    stats->leastNs = link->latencyNs;
  if (isFirst || link->latencyNs > stats->mostNs)
    stats->mostNs = link->latencyNs;
  stats->numGuessed += link->guessed;
}

void topoClassCount(const struct topoShown *shown,
                    struct topoClassStats stats[topoNumClasses]) {
  for (int c = 0; c < topoNumClasses; c++)
    stats[c] = (struct topoClassStats){0};
  for (int from = 0; from < shown->info.numRanks; from++)
    for (int to = 0; to < shown->info.numRanks; to++) {
      if (from == to) continue;
      lrmoeLink_t link = topoLink(shown, from, to);
      count(&stats[link.linkClass], &link);
    }
}
