/* Policy eplb: the balancer of DeepSeek (EPLB), its global variant.
 *
 * Replicas are added one at a time to the expert with most load per replica
 * until every slot has one; then all are packed largest first, each rank with
 * exactly its number of slots.  Pairs are divided evenly over the replicas.
 *
 * Departures: loads are of the past only if the caller gives such; ranks may
 * have unequal numbers of slots; two copies that fall on one rank are one
 * instance.  The hierarchical variant, which packs groups of experts to hosts
 * first, needs a router with groups and is left out.  Homes move. */
#include "planner/rivals/pack.h"
#include "planner/rivals/rivals.h"

void lrmoeRivalEplb(struct lrmoeLayout *layout) {
  const int64_t *loads = layout->input->loads;
  lrmoeCountsByHeat(layout, loads, INT32_MAX);
  for (int32_t g = 0; g < layout->numRanks; g++)
    layout->savedUsed[g] = layout->slotOffsets[g + 1] - layout->slotOffsets[g];
  lrmoePackLargestFirst(layout, loads, layout->savedUsed);
  lrmoeLayoutSplitEven(layout);
}
