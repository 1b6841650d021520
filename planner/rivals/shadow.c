/* Policy shadow: the hottest experts stand on every rank, and their pairs stay
 * where the tokens are, as FasterMoE's dynamic shadowing does.
 *
 * Experts are taken hottest first, while the modelled time falls: the pairs of
 * the most loaded rank, and for every shadowed expert what it costs to bring
 * its weights out and its gradient home.  It stops at the first that does not
 * pay, or for which some rank has no slot left.
 *
 * Departures: FasterMoE models compute, rows and weights each from a profiled
 * rate; here a pair costs pairNs and a replica materialiseNs + reduceNs, and
 * without these only the load counts.  It keeps no bound on memory; here slots
 * bound the number.  A rank with no pairs of a shadowed expert gets no
 * instance of it, though the model charges all.  Its smart schedule and its
 * topology-aware gate are no placement.  Homes stay. */
#include "planner/rivals/pack.h"
#include "planner/rivals/rivals.h"

#include <string.h>

/* a * b, or the most that an int64 holds. */
static int64_t product(int64_t a, int64_t b) {
  return b && a > INT64_MAX / b ? INT64_MAX : a * b;
}

static int64_t cost(const struct lrmoeLayout *layout, int32_t numShadows) {
  int64_t pairs = product(lrmoePackPeak(layout), layout->input->pairNs);
  int64_t replicas = product(numShadows, layout->input->replicaNs);
  return pairs > INT64_MAX - replicas ? INT64_MAX : pairs + replicas;
}

static int64_t demandOf(const struct lrmoeLayout *layout, int32_t rank,
                        int32_t e) {
  return layout->input->demand[(int64_t)rank * layout->numExperts + e];
}

/* Whether every rank but the home has a slot. */
static int hasRoom(const struct lrmoeLayout *layout, int32_t e) {
  for (int32_t g = 0; g < layout->numRanks; g++)
    if (g != layout->homes[e] && !lrmoeLayoutRoom(layout, g)) return 0;
  return 1;
}

/* Loads with (sign 1) or without (-1) the shadow of e. */
static void shiftLoads(struct lrmoeLayout *layout, int32_t e, int sign) {
  layout->loads[layout->homes[e]] -= sign * layout->input->pairs[e];
  for (int32_t g = 0; g < layout->numRanks; g++)
    layout->loads[g] += sign * demandOf(layout, g, e);
}

static void addShadow(struct lrmoeLayout *layout, int32_t e) {
  const int32_t *experts = layout->experts;
  int32_t home = layout->homes[e], slot = layout->slotOffsets[home];
  while (experts[slot] != e)
    slot++;
  layout->shares[slot] = demandOf(layout, home, e);
  for (int32_t g = 0; g < layout->numRanks; g++)
    if (g != home) lrmoeLayoutAdd(layout, g, e, demandOf(layout, g, e));
}

void lrmoeRivalShadow(struct lrmoeLayout *layout) {
  lrmoeLayoutHomes(layout);
  lrmoeSortDescending(layout->order, layout->input->pairs, layout->numExperts);
  int64_t least = cost(layout, 0);
  for (int32_t k = 0; k < layout->numExperts; k++) {
    int32_t e = layout->order[k];
    if (!hasRoom(layout, e)) return;
    shiftLoads(layout, e, 1);
    int64_t next = cost(layout, k + 1);
    if (next >= least) return;
    least = next;
    addShadow(layout, e);
  }
}
