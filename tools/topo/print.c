/* lrmoe-topo: the text, and the JSON results.
 *
 * JSON has a result per thing, told apart by "item": "topology" (one), "node",
 * "wire", "rank" (with its row of the matrix: classes, bytes_per_second,
 * latency_ns, guessed, by destination), "resource" and "note". */
#include "tools/common/table.h"
#include "tools/topo/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxMatrixRanks = 32, /* a wider matrix is not read */
  maxWires = 64,
  maxShownRanks = 16
};

static double toGb(int64_t bytesPerSecond) {
  return (double)bytesPerSecond * 1e-9;
}

/* ---- Devices and links -------------------------------------------------- */

static void printNode(const struct topoShown *shown, int index) {
  lrmoeTopologyNode_t node = topoNode(shown, index);
  char name[topoNameBytes], ranks[topoNameBytes], rate[topoNameBytes] = "";
  topoNodeName(&node, name);
  topoRankName(&node, ranks);
  if (node.parent >= 0)
    snprintf(rate, sizeof rate, "%.1f GB/s%s", toGb(node.bytesPerSecond),
             node.guessed ? " (guessed)" : "");
  if (node.kind == lrmoeNodeNuma && node.numCores)
    snprintf(rate + strlen(rate), sizeof rate - strlen(rate), ", %d cores",
             node.numCores);
  int indent = 2 * topoDepth(shown, index);
  int width = 40 - indent;
  printf("  %*s%-*s%-12s%s\n", indent, "", width > 0 ? width : 0, name, ranks,
         rate);
}

static enum toolExit printTree(const struct topoShown *shown,
                               struct toolError *error) {
  int *order = topoOrder(shown);
  if (!order) return toolFail(error, toolRunFailed, "out of memory");
  toolTableNote(stdout, "devices, with the rate of the link to what is above");
  for (int i = 0; i < shown->info.numNodes; i++)
    printNode(shown, order[i]);
  free(order);
  return toolGood;
}

static lrmoeTopologyWire_t wireOf(const struct topoShown *shown, int wire) {
  lrmoeTopologyWire_t view = LRMOE_TOPOLOGY_WIRE_INITIALIZER;
  lrmoeTopologyGetWire(shown->topology, wire, &view);
  return view;
}

/* A link has two directions, of which the first is shown. */
static void printWires(const struct topoShown *shown) {
  int numShown = 0, numLeft = 0;
  if (shown->info.numWires)
    toolTableNote(stdout, "links beside the tree, each way");
  for (int i = 0; i < shown->info.numWires; i++) {
    lrmoeTopologyWire_t wire = wireOf(shown, i);
    if (wire.from > wire.to) continue;
    if (numShown++ >= maxWires) {
      numLeft++;
      continue;
    }
    lrmoeTopologyNode_t from = topoNode(shown, wire.from);
    lrmoeTopologyNode_t to = topoNode(shown, wire.to);
    char names[2][topoNameBytes];
    topoNodeName(&from, names[0]);
    topoNodeName(&to, names[1]);
    printf("  %-7s %-24s %-24s", wire.kind, names[0], names[1]);
    if (wire.count) printf(" %3d x", wire.count);
    printf(" %8.1f GB/s%s\n", toGb(wire.bytesPerSecond),
           wire.guessed ? " (guessed)" : "");
  }
  if (numLeft) toolTableNote(stdout, "... and %d more", numLeft);
}

/* ---- Ranks -------------------------------------------------------------- */

static void printClasses(const struct topoShown *shown) {
  struct topoClassStats stats[topoNumClasses];
  topoClassCount(shown, stats);
  toolTableNote(stdout, "links between ranks, by class");
  for (int c = 0; c < topoNumClasses; c++) {
    if (!stats[c].numPairs) continue;
    printf("  %c  %-12s %9lld  %8.1f to %8.1f GB/s  %7.1f to %7.1f us%s\n",
           topoClassLetter((lrmoeLinkClass_t)c),
           topoClassName((lrmoeLinkClass_t)c), (long long)stats[c].numPairs,
           toGb(stats[c].leastRate), toGb(stats[c].mostRate),
           (double)stats[c].leastNs * 1e-3, (double)stats[c].mostNs * 1e-3,
           stats[c].numGuessed ? "  (guessed)" : "");
  }
}

static void printMatrix(const struct topoShown *shown) {
  int numRanks = shown->info.numRanks;
  if (numRanks > maxMatrixRanks) {
    toolTableNote(stdout, "the matrix of %d ranks: see --svg and --json",
                  numRanks);
    return;
  }
  toolTableNote(stdout, "from rank (row) to rank (column), GB/s and class");
  printf("      ");
  for (int to = 0; to < numRanks; to++)
    printf(" %6d ", to);
  putchar('\n');
  for (int from = 0; from < numRanks; from++) {
    printf("  %4d", from);
    for (int to = 0; to < numRanks; to++) {
      lrmoeLink_t link = topoLink(shown, from, to);
      if (from == to)
        printf(" %6s ", ".");
      else
        printf(" %6.1f%c", toGb(link.bytesPerSecond),
               topoClassLetter(link.linkClass));
    }
    putchar('\n');
  }
}

/* "0-3 8-11": ascending ranks, runs joined. */
static void printRanks(const int32_t *ranks, int64_t count) {
  int numShown = 0;
  for (int64_t first = 0, next; first < count; first = next) {
    next = first + 1;
    while (next < count && ranks[next] == ranks[next - 1] + 1)
      next++;
    if (numShown++ == maxShownRanks) {
      printf(" ...");
      return;
    }
    printf(" %d", ranks[first]);
    if (next - first > 1) printf("-%d", ranks[next - 1]);
  }
}

static lrmoeTopologyResource_t resourceOf(const struct topoShown *shown,
                                          int resource) {
  lrmoeTopologyResource_t view = LRMOE_TOPOLOGY_RESOURCE_INITIALIZER;
  lrmoeTopologyGetResource(shown->topology, resource, &view);
  return view;
}

static void printResources(const struct topoShown *shown) {
  if (shown->info.numResources)
    toolTableNote(stdout, "what several ranks share, one direction");
  for (int i = 0; i < shown->info.numResources; i++) {
    lrmoeTopologyResource_t resource = resourceOf(shown, i);
    printf("  %-36s %8.1f GB/s%s  ranks", resource.name,
           toGb(resource.bytesPerSecond), resource.guessed ? " (guessed)" : "");
    printRanks(resource.ranks, resource.numRanks);
    putchar('\n');
  }
}

static const char *noteOf(const struct topoShown *shown, int note) {
  const char *text = "";
  lrmoeTopologyGetNote(shown->topology, note, &text);
  return text;
}

enum toolExit topoPrint(const struct topoShown *shown,
                        struct toolError *error) {
  const lrmoeTopologyInfo_t *info = &shown->info;
  int numCores = 0, numNodes = 0;
  lrmoeTopologyGetCores(shown->topology, &numCores, &numNodes);
  toolTableNote(stdout, "%s", shown->source);
  toolTableNote(stdout, "ranks %d, hosts %d, NVLink or memory domains %d",
                info->numRanks, info->numHosts, info->numDomains);
  toolTableNote(stdout, "NUMA nodes %d, cores %d, machine %016llx, %s",
                numNodes, numCores, (unsigned long long)info->machineKey,
                info->calibrated ? "calibrated" : "not calibrated");
  enum toolExit code = printTree(shown, error);
  if (code != toolGood) return code;
  printWires(shown);
  printClasses(shown);
  printMatrix(shown);
  printResources(shown);
  if (info->numNotes) toolTableNote(stdout, "guesses and oddities");
  for (int i = 0; i < info->numNotes; i++)
    printf("  %s\n", noteOf(shown, i));
  return toolGood;
}

/* ---- JSON --------------------------------------------------------------- */

static void beginItem(struct toolJson *json, const char *item) {
  toolJsonRow(json);
  toolJsonText(json, "item", item);
}

static void putTopology(const struct topoShown *shown, struct toolJson *json) {
  char key[20];
  snprintf(key, sizeof key, "%016llx",
           (unsigned long long)shown->info.machineKey);
  int numCores = 0, numNodes = 0;
  lrmoeTopologyGetCores(shown->topology, &numCores, &numNodes);
  beginItem(json, "topology");
  toolJsonText(json, "source", shown->source);
  toolJsonText(json, "machine", key);
  toolJsonInt(json, "ranks", shown->info.numRanks);
  toolJsonInt(json, "hosts", shown->info.numHosts);
  toolJsonInt(json, "domains", shown->info.numDomains);
  toolJsonInt(json, "numa_nodes", numNodes);
  toolJsonInt(json, "cores", numCores);
  toolJsonInt(json, "calibrated", shown->info.calibrated);
}

static void putNode(const struct topoShown *shown, int index,
                    struct toolJson *json) {
  static const char *const kinds[] = {"host", "numa", "bridge", "gpu",
                                      "nic",  "port", "switch"};
  lrmoeTopologyNode_t node = topoNode(shown, index);
  beginItem(json, "node");
  toolJsonInt(json, "node", index);
  toolJsonText(json, "kind", kinds[node.kind]);
  toolJsonText(json, "name", node.name);
  toolJsonText(json, "bus", node.bus);
  toolJsonInt(json, "parent", node.parent);
  toolJsonInt(json, "host", node.host);
  toolJsonInt(json, "bytes_per_second", node.bytesPerSecond);
  toolJsonInt(json, "guessed", node.guessed);
  toolJsonInt(json, "first_rank", node.firstRank);
  toolJsonInt(json, "ranks", node.numRanks);
}

static void putWire(const struct topoShown *shown, int index,
                    struct toolJson *json) {
  lrmoeTopologyWire_t wire = wireOf(shown, index);
  beginItem(json, "wire");
  toolJsonText(json, "kind", wire.kind);
  toolJsonInt(json, "from", wire.from);
  toolJsonInt(json, "to", wire.to);
  toolJsonInt(json, "count", wire.count);
  toolJsonInt(json, "bytes_per_second", wire.bytesPerSecond);
  toolJsonInt(json, "guessed", wire.guessed);
}

/* words [4, numRanks] is room. */
static void putRank(const struct topoShown *shown, int rank, int64_t *words,
                    struct toolJson *json) {
  int64_t numRanks = shown->info.numRanks;
  lrmoeTopologyRank_t view = LRMOE_TOPOLOGY_RANK_INITIALIZER;
  lrmoeTopologyGetRank(shown->topology, rank, &view);
  beginItem(json, "rank");
  toolJsonInt(json, "rank", rank);
  toolJsonInt(json, "node", view.node);
  toolJsonInt(json, "host", view.host);
  toolJsonInt(json, "domain", view.domain);
  for (int to = 0; to < numRanks; to++) {
    lrmoeLink_t link = topoLink(shown, rank, to);
    words[to] = (int64_t)link.linkClass;
    words[numRanks + to] = link.bytesPerSecond;
    words[2 * numRanks + to] = link.latencyNs;
    words[3 * numRanks + to] = link.guessed;
  }
  toolJsonInts(json, "classes", words, numRanks);
  toolJsonInts(json, "bytes_per_second", words + numRanks, numRanks);
  toolJsonInts(json, "latency_ns", words + 2 * numRanks, numRanks);
  toolJsonInts(json, "guessed", words + 3 * numRanks, numRanks);
}

static void putResource(const struct topoShown *shown, int index,
                        int64_t *words, struct toolJson *json) {
  lrmoeTopologyResource_t resource = resourceOf(shown, index);
  beginItem(json, "resource");
  toolJsonText(json, "name", resource.name);
  toolJsonInt(json, "node", resource.node);
  toolJsonInt(json, "bytes_per_second", resource.bytesPerSecond);
  toolJsonInt(json, "guessed", resource.guessed);
  for (int64_t i = 0; i < resource.numRanks; i++)
    words[i] = resource.ranks[i];
  toolJsonInts(json, "ranks", words, resource.numRanks);
}

void topoPutJson(const struct topoShown *shown, struct toolJson *json) {
  const lrmoeTopologyInfo_t *info = &shown->info;
  int64_t *words = calloc((size_t)info->numRanks, 4 * sizeof *words);
  if (!words || !json) {
    free(words);
    return;
  }
  putTopology(shown, json);
  for (int i = 0; i < info->numNodes; i++)
    putNode(shown, i, json);
  for (int i = 0; i < info->numWires; i++)
    putWire(shown, i, json);
  for (int i = 0; i < info->numRanks; i++)
    putRank(shown, i, words, json);
  for (int i = 0; i < info->numResources; i++)
    putResource(shown, i, words, json);
  for (int i = 0; i < info->numNotes; i++) {
    beginItem(json, "note");
    toolJsonText(json, "text", noteOf(shown, i));
  }
  free(words);
}
