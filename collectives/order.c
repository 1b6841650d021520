/* The order of peers: see order.h.
 *
 * Going round (rank + step) makes every rank one target per step, but ranks of
 * one host begin with each other, then all leave it at once: the NICs that they
 * share idle first and are crowded later.  Here the ranks are H groups of k
 * that share links (hosts, else NVLink domains, else NUMA nodes), and in step
 * (i, j), i < H, j < k, member l of group h sends to
 *     member (l + j) mod k of group (h + i + l) mod H.
 * Target (g, m) has one source, l = m - j, h = g - i - l, so a step is a
 * permutation; over all steps each pair comes once.  In every step the members
 * of a group turn to as many different groups as there are, and k - k/H of them
 * leave it: the links that they share carry the same in every step, out and in.
 *
 * Where groups differ in size, or there is but one, ranks go round. */
#include "collectives/order.h"

#include "base/alloc.h"

#include <string.h>

/* Ranks by group. */
struct groups {
  int32_t *of;     /* [G] group of a rank, then its number from 0 */
  int32_t *member; /* [G] place of a rank in its group */
  int32_t *ranks;  /* [G] by group, place */
  int32_t numGroups;
  int32_t numMembers; /* of each */
};

/* ---- Grouping ----------------------------------------------------------- */

enum level {
  byHost,
  byDomain,
  byNuma,
  numLevels
};

static int32_t numaOf(const struct lrmoeTopology *topology, int32_t rank) {
  int32_t node = topology->places[rank].device;
  const struct lrmoeNode *nodes = topology->machine.nodes;
  while (node >= 0 && nodes[node].kind != lrmoeNodeNuma)
    node = nodes[node].parent;
  return node;
}

static int32_t idOf(const struct lrmoeTopology *topology, enum level level,
                    int32_t rank) {
  if (level == byHost) return lrmoeTopologyHost(topology, rank);
  if (level == byDomain) return lrmoeTopologyDomain(topology, rank);
  return topology->places ? numaOf(topology, rank) : 0;
}

/* Numbers the ids of the ranks from 0 in the order of their first rank, and the
 * members of each; whether there are several groups of one size above 1.
 * firsts [G] is room for the first rank of each group. */
static bool number(const struct lrmoeTopology *topology, enum level level,
                   struct groups *groups, int32_t *firsts) {
  int32_t numRanks = topology->numRanks, numGroups = 0;
  for (int32_t r = 0; r < numRanks; r++) {
    int32_t id = idOf(topology, level, r), g = 0;
    while (g < numGroups && idOf(topology, level, firsts[g]) != id)
      g++;
    if (g == numGroups) firsts[numGroups++] = r;
    groups->of[r] = g;
  }
  groups->numGroups = numGroups;
  if (numGroups < 2 || numRanks % numGroups) return false;
  groups->numMembers = numRanks / numGroups;
  if (groups->numMembers < 2) return false;
  int32_t *counts = firsts;
  memset(counts, 0, (size_t)numGroups * sizeof *counts);
  for (int32_t r = 0; r < numRanks; r++) {
    int32_t place = counts[groups->of[r]]++;
    if (place == groups->numMembers) return false;
    groups->member[r] = place;
    groups->ranks[groups->of[r] * groups->numMembers + place] = r;
  }
  return true;
}

/* All ranks are one group each: going round. */
static void separate(int32_t numRanks, struct groups *groups) {
  groups->numGroups = numRanks;
  groups->numMembers = 1;
  for (int32_t r = 0; r < numRanks; r++) {
    groups->of[r] = groups->ranks[r] = r;
    groups->member[r] = 0;
  }
}

/* ---- Order -------------------------------------------------------------- */

static int32_t wrap(int64_t value, int32_t count) {
  int64_t rest = value % count;
  return (int32_t)(rest < 0 ? rest + count : rest);
}

static void fill(const struct groups *groups, int32_t rank, int32_t *targets,
                 int32_t *sources) {
  int32_t numMembers = groups->numMembers, numGroups = groups->numGroups;
  int64_t h = groups->of[rank], l = groups->member[rank];
  for (int32_t step = 0; step < numGroups * numMembers; step++) {
    int64_t i = step / numMembers, j = step % numMembers;
    int32_t to = wrap(h + i + l, numGroups);
    targets[step] = groups->ranks[to * numMembers + wrap(l + j, numMembers)];
    int32_t from = wrap(l - j, numMembers);
    sources[step] =
        groups->ranks[wrap(h - i - from, numGroups) * numMembers + from];
  }
}

lrmoeResult_t lrmoeOrderMake(const struct lrmoeTopology *topology, int32_t rank,
                             int32_t *targets, int32_t *sources) {
  int64_t numRanks = topology->numRanks;
  struct groups groups = {0};
  LRMOE_CHECK(LRMOE_ALLOCATE(4 * numRanks, &groups.of));
  groups.member = groups.of + numRanks;
  groups.ranks = groups.member + numRanks;
  bool found = false;
  for (int level = byHost; level < numLevels && !found; level++)
    found =
        number(topology, (enum level)level, &groups, groups.ranks + numRanks);
  if (!found) separate(topology->numRanks, &groups);
  fill(&groups, rank, targets, sources);
  lrmoeFree(groups.of);
  return lrmoeSuccess;
}
