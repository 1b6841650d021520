/* The largest common rate under a window, where experts have replicas.
 *
 * At one rate the quotas are known and the question is whether some split of
 * them fits: fill.c moves pairs between the instances of an expert until it
 * does, from the split that the prices ask for (toll.c).  Prices for one rate
 * rule out higher ones too: whatever split, K(r) pairs pay at least what the
 * dynamic program says, and no more than the worth of all ports.  So rates are
 * tried from the largest that is not ruled out, then, where that does not meet
 * one that fits, between the two by halves.  Bounded by the number of rates. */
#include "planner/planner.h"
#include "planner/port.h"
#include "planner/scale.h"

#include <string.h>

enum {
  maxTop = 12,  /* rates tried from above, */
  maxRates = 32 /* and in all */
};

static int64_t keptAt(const struct lrmoePlan *plan, int64_t ppm) {
  int64_t sum = 0;
  for (int32_t e = 0; e < plan->numExperts; e++)
    sum += lrmoeRetained(plan->totals[e], ppm);
  return sum;
}

static void setQuotas(struct lrmoePlan *plan, int64_t ppm) {
  for (int32_t e = 0; e < plan->numExperts; e++)
    plan->quotas[e] = lrmoeRetained(plan->totals[e], ppm);
}

/* Quotas of a rate, in proportion to forward pairs. */
static void begin(struct lrmoePlan *plan, int64_t ppm) {
  setQuotas(plan, ppm);
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int32_t first = plan->instanceOffsets[e];
    int64_t pairs = plan->totals[e], left = plan->quotas[e], rest;
    for (int32_t i = first + 1; i < plan->instanceOffsets[e + 1]; i++) {
      plan->keptPairs[i] = pairs ? lrmoeScale(plan->forwardPairs[i],
                                              plan->quotas[e], pairs, &rest)
                                 : 0;
      left -= plan->keptPairs[i];
    }
    plan->keptPairs[first] = left;
  }
}

static lrmoeResult_t tryRate(struct lrmoePorts *p,
                             const struct lrmoeRetainSearch *search,
                             int64_t ppm, int *fits) {
  struct lrmoeRetainSearch fixed = *search;
  fixed.least = fixed.ceiling = ppm;
  begin(p->plan, ppm);
  lrmoePlanSum(p->plan);
  lrmoePortsSum(p);
  return lrmoePortsFill(p, &fixed, p->plan, fits);
}

lrmoeResult_t lrmoePortsRate(struct lrmoePorts *p,
                             const struct lrmoeRetainSearch *search,
                             struct lrmoePlan *plan, int64_t ppm, int *fits) {
  size_t bytes = (size_t)plan->numInstances * sizeof *plan->keptPairs;
  int64_t bound = plan->boundRetained, high = search->ceiling, proven = high;
  int64_t low = *fits ? ppm : search->least - 1;
  ppm = low;
  memcpy(p->rateKept, plan->keptPairs, bytes);
  for (int i = 0; i < maxRates && high >= search->least && p->work > 0; i++) {
    int isFound = 0;
    if (*fits && keptAt(plan, high) <= keptAt(plan, low)) break;
    int64_t rate = i < maxTop ? high : low + (high - low + 1) / 2;
    plan->boundRetained = bound;
    LRMOE_CHECK(tryRate(p, search, rate, &isFound));
    if (isFound) {
      *fits = 1;
      low = ppm = rate;
      memcpy(p->rateKept, plan->keptPairs, bytes);
      continue;
    }
    int64_t most = lrmoeTollsRate(p, search);
    high = lrmoeRateBelow(plan, rate);
    if (most < proven) proven = most;
    if (proven < high) high = proven;
  }
  int64_t most = keptAt(plan, proven), own = lrmoeTollsOwn(p);
  if (most < own) most = own;
  plan->boundRetained = most < bound ? most : bound;
  setQuotas(plan, *fits ? ppm : search->least);
  memcpy(plan->keptPairs, p->rateKept, bytes);
  lrmoePlanSum(plan);
  return lrmoePlanMeasure(p->planner, plan);
}
