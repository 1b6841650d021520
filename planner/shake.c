/* Where the search of fill.c begins again: near the best plan, by chance that
 * is the same for the same load. */
#include "planner/planner.h"
#include "planner/port.h"

static int64_t randomBelow(uint64_t *random, int64_t bound) {
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((*random >> 33) % (uint64_t)bound);
}

/* At quotas that are fixed, some pairs go to other instances. */
static void stir(struct lrmoePlan *plan, uint64_t *random) {
  for (int n = 0; n < 6; n++) {
    int32_t e = (int32_t)randomBelow(random, plan->numExperts);
    int32_t first = plan->instanceOffsets[e];
    int32_t count = plan->instanceOffsets[e + 1] - first;
    int32_t from = first + (int32_t)randomBelow(random, count);
    int32_t to = first + (int32_t)randomBelow(random, count);
    int64_t most = plan->keptPairs[from];
    if (most <= 0) continue;
    int64_t pairs = 1 + randomBelow(random, most < 8 ? most : 8);
    plan->keptPairs[from] -= pairs;
    plan->keptPairs[to] += pairs;
  }
}

/* Some experts lose some pairs. */
static void shake(struct lrmoePlan *plan,
                  const struct lrmoeRetainSearch *search, uint64_t *random) {
  for (int n = 0; n < 3; n++) {
    int32_t i = (int32_t)randomBelow(random, plan->numInstances), e = 0;
    while (i >= plan->instanceOffsets[e + 1])
      e++;
    int64_t most =
        plan->quotas[e] - lrmoeRetained(plan->totals[e], search->least);
    if (plan->keptPairs[i] < most) most = plan->keptPairs[i];
    if (most <= 0) continue;
    int64_t pairs = 1 + randomBelow(random, most < 8 ? most : 8);
    plan->quotas[e] -= pairs;
    plan->keptPairs[i] -= pairs;
  }
}

void lrmoePortsShake(struct lrmoePorts *ports,
                     const struct lrmoeRetainSearch *search, uint64_t *random) {
  if (search->least == search->ceiling)
    stir(ports->plan, random);
  else
    shake(ports->plan, search, random);
  lrmoePortsSum(ports);
}
