/* Prices of ports, and what they prove.
 *
 * Weak duality: let all of port k be worth y[k] pairs.  Quotas that fit take at
 * most the whole of each port, so they keep no more than
 *   sum y[k] + sum over e of max over K (K - what K pairs of e pay at least).
 * The pairs of an expert are a line of ordinals, cut by its sources and, at
 * other places, by its instances: with prices fixed a dynamic program over
 * (source, instance) says where they pay least, exactly, since the best cuts of
 * instances are among those of sources.  What moved and dropped pairs take
 * besides is left out, which only makes the bound larger.
 *
 * Good prices come by subgradients: a port that the best quotas overrun gets
 * dearer, one that they leave empty cheaper, by Polyak's step towards the pairs
 * that are known to fit; a step that has not helped for a while is halved.  All
 * in integers, bounded by counts. */
#include "planner/planner.h"
#include "planner/port.h"
#include "planner/scale.h"

#include <string.h>

enum {
  maxRounds = 384,
  patience = 12,
  maxWork = 1 << 22, /* sources passed in all rounds */
  pairBits = 40,     /* pays are in 2^-pairBits pairs, */
  tollBits = 20      /* tolls in 2^-tollBits */
};

static const int64_t maxExact = 1 << 14; /* quotas looked at one by one */

/* ---- Pays --------------------------------------------------------------- */

static void setPays(struct lrmoePorts *p, const int64_t *tolls) {
  const lrmoeWide most = (lrmoeWide)1 << 60;
  int isAgain = p->planner->config.savedState == lrmoeSavedNone;
  int64_t cells = (int64_t)p->plan->numRanks * p->plan->numRanks;
  for (int64_t cell = 0; cell < cells; cell++) {
    lrmoeWide pay = 0;
    for (int32_t k = 0; k < p->count && pay < most; k++) {
      lrmoeWide part = p->cost[cell * p->max + k];
      if (isAgain) part += p->more[cell * p->max + k];
      pay += part * tolls[k] >> (60 + tollBits - pairBits);
    }
    p->pays[cell] = pay < most ? pay : most;
  }
}

/* One source's pairs, on the cheapest way there is by now. */
static void passSource(const struct lrmoePorts *p, int32_t e, int32_t s,
                       int64_t rows) {
  const struct lrmoePlan *plan = p->plan;
  int32_t first = plan->instanceOffsets[e];
  int32_t count = plan->instanceOffsets[e + 1] - first;
  int32_t *ways = &p->ways[(int64_t)s * count], from = 0;
  const lrmoeWide *pays = &p->pays[(int64_t)s * plan->numRanks];
  lrmoeWide least = p->least[0];
  for (int32_t i = 0; i < count; i++) {
    if (p->least[i] < least) {
      least = p->least[i];
      from = i;
    }
    ways[i] = from;
    p->least[i] = least + rows * pays[plan->instanceRanks[first + i]];
  }
}

/* The least that `quota` pairs of e pay; kept, if not NULL, gets their
 * instances. */
static lrmoeWide payOf(const struct lrmoePorts *p, int32_t e, int64_t quota,
                       int64_t *kept) {
  const struct lrmoePlan *plan = p->plan;
  int32_t first = plan->instanceOffsets[e], best = 0;
  int32_t count = plan->instanceOffsets[e + 1] - first;
  int64_t before = 0, from = 0, rest, pairs = plan->totals[e];
  if (!pairs) return 0;
  memset(p->least, 0, (size_t)count * sizeof *p->least);
  for (int32_t s = 0; s < plan->numRanks; s++) {
    before += plan->demand[(int64_t)s * plan->numExperts + e];
    int64_t to = lrmoeScale(before, quota, pairs, &rest);
    passSource(p, e, s, to - from);
    from = to;
  }
  for (int32_t i = 1; i < count; i++)
    if (p->least[i] < p->least[best]) best = i;
  lrmoeWide least = p->least[best];
  if (!kept) return least;
  memset(kept, 0, (size_t)count * sizeof *kept);
  for (int32_t s = plan->numRanks - 1; s >= 0; s--) {
    before -= plan->demand[(int64_t)s * plan->numExperts + e];
    int64_t low = lrmoeScale(before, quota, pairs, &rest);
    kept[best] += from - low;
    from = low;
    best = p->ways[s * count + best];
  }
  return least;
}

/* ---- Rounds ------------------------------------------------------------- */

static lrmoeWide worthOf(const struct lrmoePorts *p, const int64_t *tolls,
                         int isCapped) {
  lrmoeWide sum = 0;
  for (int32_t k = 0; k < p->count; k++)
    sum += isCapped ? ((lrmoeWide)tolls[k] * (p->caps[k] >> 20) >> 40)
                    : (lrmoeWide)tolls[k];
  return sum << (pairBits - tollBits);
}

/* The quotas that these tolls ask for, in the plan; what they promise. */
static lrmoeWide ask(struct lrmoePorts *p,
                     const struct lrmoeRetainSearch *search,
                     const int64_t *tolls) {
  struct lrmoePlan *plan = p->plan;
  setPays(p, tolls);
  lrmoeWide sum = worthOf(p, tolls, 1);
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int64_t *kept = &plan->keptPairs[plan->instanceOffsets[e]];
    int64_t low = lrmoeRetained(plan->totals[e], search->least);
    int64_t high = lrmoeRetained(plan->totals[e], search->ceiling);
    lrmoeWide pay = payOf(p, e, high, kept);
    lrmoeWide worth = ((lrmoeWide)high << pairBits) - pay;
    plan->quotas[e] = high;
    if (worth < 0) {
      worth = ((lrmoeWide)low << pairBits) - payOf(p, e, low, kept);
      plan->quotas[e] = low;
    }
    sum += worth;
  }
  return sum;
}

/* Polyak's step of 2^-shift; 0: nothing is overrun or left. */
static int step(struct lrmoePorts *p, lrmoeWide gap, int shift) {
  lrmoeWide norm = 0;
  for (int32_t k = 0; k < p->count; k++) {
    lrmoeWide left = (p->caps[k] - p->totals[k]) >> 40;
    if (left > 0 && !p->tolls[k]) continue;
    norm += left * left;
  }
  if (!norm) return 0;
  for (int32_t k = 0; k < p->count; k++) {
    lrmoeWide left = (p->caps[k] - p->totals[k]) >> 40;
    const lrmoeWide most = (lrmoeWide)1 << 60, scale = (lrmoeWide)1 << 20;
    lrmoeWide toll = p->tolls[k] - ((gap * left * scale / norm) >> shift);
    p->tolls[k] = (int64_t)(toll < 0 ? 0 : toll > most ? most : toll);
  }
  return 1;
}

void lrmoeTollsFind(struct lrmoePorts *p,
                    const struct lrmoeRetainSearch *search, int64_t kept) {
  size_t bytes = (size_t)p->count * sizeof *p->tolls;
  int64_t passes = (int64_t)p->plan->numRanks *
                   (p->plan->numInstances + p->plan->numExperts);
  int64_t rounds = (p->work < maxWork ? p->work : maxWork) / passes;
  int shift = 0, idle = 0;
  lrmoeWide best = 0, goal = (lrmoeWide)kept << pairBits;
  if (rounds > maxRounds) rounds = maxRounds;
  memcpy(p->tolls, p->bestTolls, bytes);
  for (int64_t round = 0; round < rounds; round++) {
    p->work -= passes;
    lrmoeWide sum = ask(p, search, p->tolls);
    if (!round || sum < best) {
      best = sum;
      idle = 0;
      memcpy(p->bestTolls, p->tolls, bytes);
    } else if (++idle == patience) {
      idle = 0;
      shift++;
      memcpy(p->tolls, p->bestTolls, bytes);
      ask(p, search, p->tolls);
    }
    if (sum <= goal || shift > 20) break;
    lrmoePortsSum(p);
    if (!step(p, (sum - goal) >> (pairBits - tollBits), shift)) break;
  }
  memcpy(p->tolls, p->bestTolls, bytes);
  ask(p, search, p->tolls);
  p->work -= passes;
  lrmoePortsSum(p);
}

/* ---- The bound ---------------------------------------------------------- */

/* How much less than in proportion quotas of e may pay, since the rows of a
 * source are rounded down. */
static lrmoeWide roundingOf(const struct lrmoePorts *p, int32_t e) {
  const struct lrmoePlan *plan = p->plan;
  lrmoeWide sum = 0, before = 0;
  for (int32_t s = 0; s < plan->numRanks; s++) {
    const lrmoeWide *pays = &p->pays[(int64_t)s * plan->numRanks];
    lrmoeWide low = 0, high = 0;
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++) {
      lrmoeWide pay = pays[plan->instanceRanks[i]];
      if (i == plan->instanceOffsets[e] || pay < low) low = pay;
      if (pay > high) high = pay;
    }
    if (s && before > low) sum += before - low;
    before = high;
  }
  return sum;
}

static lrmoeWide bestOf(const struct lrmoePorts *p, int32_t e, int64_t low,
                        int64_t high, int isExact) {
  const lrmoeWide pair = (lrmoeWide)1 << pairBits;
  int64_t pairs = p->plan->totals[e];
  if (!pairs) return 0;
  if (isExact) {
    lrmoeWide best = low * pair - payOf(p, e, low, NULL);
    for (int64_t quota = low + 1; quota <= high; quota++) {
      lrmoeWide worth = quota * pair - payOf(p, e, quota, NULL);
      if (worth > best) best = worth;
    }
    return best;
  }
  lrmoeWide worth = pair - payOf(p, e, pairs, NULL) / pairs; /* of one */
  return (worth > 0 ? high : low) * worth + roundingOf(p, e);
}

static int standsOn(const struct lrmoePlan *plan, int32_t e, int32_t g) {
  for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
       i++)
    if (plan->instanceRanks[i] == g) return 1;
  return 0;
}

/* The most pairs of which none has a row to another rank: such plans need no
 * latency, which ports count on.  A source has none of K kept pairs only while
 * its part of them is less than one. */
static int64_t ownMost(const struct lrmoePlan *plan) {
  int64_t sum = 0;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int64_t pairs = plan->totals[e], most = pairs;
    for (int32_t s = 0; s < plan->numRanks; s++) {
      int64_t rows = plan->demand[(int64_t)s * plan->numExperts + e];
      if (!rows || standsOn(plan, e, s)) continue;
      if ((pairs - 1) / rows < most) most = (pairs - 1) / rows;
    }
    sum += most;
  }
  return sum;
}

int64_t lrmoeTollsBound(struct lrmoePorts *p,
                        const struct lrmoeRetainSearch *search) {
  const struct lrmoePlan *plan = p->plan;
  int64_t quotas = 0, own = ownMost(plan);
  for (int32_t k = 0; k < p->count; k++)
    p->tolls[k] = p->isProof[k] ? p->bestTolls[k] : 0;
  setPays(p, p->tolls);
  lrmoeWide sum = worthOf(p, p->tolls, 0);
  for (int32_t e = 0; e < plan->numExperts; e++)
    quotas += lrmoeRetained(plan->totals[e], search->ceiling) -
              lrmoeRetained(plan->totals[e], search->least) + 1;
  for (int32_t e = 0; e < plan->numExperts; e++)
    sum += bestOf(p, e, lrmoeRetained(plan->totals[e], search->least),
                  lrmoeRetained(plan->totals[e], search->ceiling),
                  quotas <= maxExact);
  sum >>= pairBits;
  if (sum < own) sum = own;
  return sum < plan->pairs ? (int64_t)sum : plan->pairs;
}

/* ---- The bound of a common rate ----------------------------------------- */

int64_t lrmoeRateBelow(const struct lrmoePlan *plan, int64_t ppm) {
  const int64_t million = 1000000;
  int64_t below = -1, rest;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int64_t kept = lrmoeRetained(plan->totals[e], ppm);
    if (!kept) continue;
    int64_t rate = lrmoeScale(kept - 1, million, plan->totals[e], &rest);
    if (rate > below) below = rate;
  }
  return below;
}

/* The least that a common rate pays; in proportion, which grows with it, or to
 * the pair. */
static lrmoeWide payOfRate(const struct lrmoePorts *p, int64_t ppm,
                           int isExact) {
  const struct lrmoePlan *plan = p->plan;
  lrmoeWide sum = 0;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int64_t pairs = plan->totals[e], kept = lrmoeRetained(pairs, ppm);
    if (!pairs) continue;
    if (isExact)
      sum += payOf(p, e, kept, NULL);
    else
      sum += kept * (payOf(p, e, pairs, NULL) / pairs) - roundingOf(p, e);
  }
  return sum;
}

int64_t lrmoeTollsRate(struct lrmoePorts *p,
                       const struct lrmoeRetainSearch *search) {
  int64_t low = search->least, high = search->ceiling;
  for (int32_t k = 0; k < p->count; k++)
    p->tolls[k] = p->isProof[k] ? p->bestTolls[k] : 0;
  setPays(p, p->tolls);
  lrmoeWide worth = worthOf(p, p->tolls, 0);
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (payOfRate(p, middle, 0) > worth)
      high = middle - 1;
    else
      low = middle;
  }
  for (int64_t left = maxExact / p->plan->numExperts;
       left > 0 && high > search->least && payOfRate(p, high, 1) > worth;
       left--)
    high = lrmoeRateBelow(p->plan, high);
  return high > search->least ? high : search->least;
}

int64_t lrmoeTollsOwn(const struct lrmoePorts *p) {
  return ownMost(p->plan);
}
