/* Nodes, and what their relays may have to hand on: see nodes.h. */
#include "planner/nodes.h"

#include "base/alloc.h"

#include <string.h>

/* Hosts lie within domains, or domains within hosts. */
static void numberNodes(int32_t numRanks, const int32_t *hosts,
                        const int32_t *domains, struct lrmoeNodes *nodes) {
  for (int32_t r = 0; r < numRanks; r++) {
    int32_t near = r - 1;
    while (near >= 0 && hosts[near] != hosts[r] && domains[near] != domains[r])
      near--;
    nodes->of[r] = near >= 0 ? nodes->of[near] : nodes->numNodes++;
  }
}

static void listRanks(int32_t numRanks, struct lrmoeNodes *nodes) {
  int32_t next = 0;
  for (int32_t n = 0; n < nodes->numNodes; n++) {
    nodes->firsts[n] = next;
    for (int32_t r = 0; r < numRanks; r++) {
      if (nodes->of[r] != n) continue;
      nodes->places[r] = next - nodes->firsts[n];
      nodes->ranks[next++] = r;
    }
  }
  nodes->firsts[nodes->numNodes] = next;
}

lrmoeResult_t lrmoeNodesMake(int32_t numRanks, const int32_t *hosts,
                             const int32_t *domains,
                             struct lrmoeNodes **nodes) {
  struct lrmoeNodes *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  lrmoeResult_t result = LRMOE_ALLOCATE(4 * (int64_t)numRanks + 1, &made->of);
  if (result != lrmoeSuccess) {
    lrmoeNodesFree(made);
    return result;
  }
  made->places = made->of + numRanks;
  made->ranks = made->places + numRanks;
  made->firsts = made->ranks + numRanks;
  numberNodes(numRanks, hosts, domains, made);
  listRanks(numRanks, made);
  *nodes = made;
  return lrmoeSuccess;
}

void lrmoeNodesFree(struct lrmoeNodes *nodes) {
  if (!nodes) return;
  lrmoeFree(nodes->of);
  lrmoeFree(nodes);
}

/* Pairs of one expert with `node`, which has an instance, to its relays. */
static void passPairs(const struct lrmoeNodes *nodes,
                      const struct lrmoePlan *plan, int32_t expert,
                      int32_t node, int64_t *pairs) {
  for (int32_t s = 0; s < plan->numRanks; s++)
    if (nodes->of[s] != node)
      pairs[lrmoeNodeRelay(nodes, s, node)] +=
          plan->demand[(int64_t)s * plan->numExperts + expert];
}

void lrmoeNodesPassing(const struct lrmoeNodes *nodes,
                       const struct lrmoePlan *plan, int64_t *room,
                       int64_t *pairs) {
  memset(pairs, 0, (size_t)plan->numRanks * sizeof *pairs);
  for (int32_t n = 0; n < nodes->numNodes; n++)
    room[n] = -1; /* the last expert that was found there */
  for (int32_t e = 0; e < plan->numExperts; e++)
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++) {
      int32_t node = nodes->of[plan->instanceRanks[i]];
      if (room[node] == e) continue;
      room[node] = e;
      passPairs(nodes, plan, e, node, pairs);
    }
}
