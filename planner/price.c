/* Proofs that no larger retention fits where moves cost memory.
 *
 * Weak duality: give every byte of a rank a price p >= 0.  A split that fits
 * pays no more than sum p * budget, whatever the prices.  What the quota of an
 * expert must pay at least is simple to say: sure pairs where they are cheap,
 * the others where moving in is cheapest.  If that adds up to more, nothing
 * with these quotas fits, in whole pairs or not.  Good prices are those of the
 * flow (moving.c): a rank that is over has price 1, another one what its bytes
 * are worth there.
 *
 * The payment of an expert is convex in its quota between the quotas at which
 * an instance gets sure of its first pair, so its least over a range is found
 * by bisection, and ranges of rates are excluded at once.  A rate that is not
 * gets a flow and prices of its own.  Bounded by counts of both. */
#include "planner/price.h"

#include "planner/planner.h"

enum {
  unitPrice = 1 << 20,
  maxRanges = 256, /* that are looked at, and */
  maxFlows = 64,   /* rates that get a flow */
  maxWork = 1 << 18
};

__extension__ typedef __int128 wide;

struct pricing {
  const struct lrmoeRetainSearch *search;
  const struct lrmoeMoving *moving;
  const struct lrmoeInstances *instances;
  wide worth; /* of a kept pair */
};

/* ---- Payments ----------------------------------------------------------- */

static int64_t minimum(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Kept pairs cost each - dropped bytes up to the forward pairs and `each`
 * beyond; both lines are below that everywhere. */
static int isBeyond(const struct pricing *p, int32_t g) {
  return p->moving->unit.dropped &&
         p->moving->pairs[g] > p->moving->rankForward[g];
}

static int64_t keptBytes(const struct pricing *p, int32_t g) {
  const struct lrmoeUnitBytes *unit = &p->moving->unit;
  return unit->backward - (isBeyond(p, g) ? 0 : unit->dropped);
}

static wide budgets(const struct pricing *p) {
  const struct lrmoeMoving *m = p->moving;
  wide sum = 0;
  for (int32_t g = 0; g < p->search->work->numRanks; g++) {
    wide budget = m->budgets[g];
    if (isBeyond(p, g)) budget += (wide)m->rankForward[g] * m->unit.dropped;
    sum += budget * m->prices[g];
  }
  return sum;
}

static int64_t sureOf(const struct pricing *p, int32_t i, int64_t quota) {
  int64_t pairs = p->search->work->pairs[p->instances->experts[i]];
  int64_t sure = p->instances->forward[i] - (pairs - quota);
  return sure > 0 ? sure : 0;
}

/* Of a sure pair of instance i, and of one that moves. */
static int64_t payStay(const struct pricing *p, int32_t i) {
  int32_t g = p->instances->ranks[i];
  return keptBytes(p, g) * p->moving->prices[g];
}

static int64_t payMove(const struct pricing *p, int32_t i) {
  int32_t g = p->instances->ranks[i];
  return (keptBytes(p, g) + p->moving->unit.move) * p->moving->prices[g];
}

/* The cheapest instance after `last` to stay on; -1: none below `most`. */
static int32_t nextCheapest(const struct pricing *p, int32_t e, int32_t last,
                            int64_t most) {
  int32_t best = -1;
  for (int32_t i = p->instances->offsets[e]; i < p->instances->offsets[e + 1];
       i++) {
    int64_t pay = payStay(p, i), before = last < 0 ? -1 : payStay(p, last);
    if (pay >= most || pay < before || (pay == before && i <= last)) continue;
    if (best < 0 || pay < payStay(p, best)) best = i;
  }
  return best;
}

/* The least that expert e pays for this quota. */
static wide payment(const struct pricing *p, int32_t e, int64_t quota) {
  int64_t most = INT64_MAX, left = quota;
  wide sum = 0;
  for (int32_t i = p->instances->offsets[e]; i < p->instances->offsets[e + 1];
       i++)
    most = minimum(most, payMove(p, i));
  for (int32_t i = -1; left && (i = nextCheapest(p, e, i, most)) >= 0;) {
    int64_t stay = minimum(left, sureOf(p, i, quota));
    sum += (wide)stay * payStay(p, i);
    left -= stay;
  }
  return sum + (wide)left * most;
}

/* What a quota costs, less what its pairs are worth. */
static wide loss(const struct pricing *p, int32_t e, int64_t quota) {
  return payment(p, e, quota) - quota * p->worth;
}

/* The first quota after `low` at which an instance gets sure of a pair, or
 * high. */
static int64_t nextBend(const struct pricing *p, int32_t e, int64_t low,
                        int64_t high) {
  int64_t pairs = p->search->work->pairs[e];
  for (int32_t i = p->instances->offsets[e]; i < p->instances->offsets[e + 1];
       i++) {
    int64_t bend = pairs - p->instances->forward[i];
    if (bend > low && bend < high) high = bend;
  }
  return high;
}

/* Of a convex part. */
static wide leastOfPart(const struct pricing *p, int32_t e, int64_t low,
                        int64_t high) {
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (loss(p, e, middle + 1) < loss(p, e, middle))
      low = middle + 1;
    else
      high = middle;
  }
  return loss(p, e, low);
}

static wide leastLoss(const struct pricing *p, int32_t e, int64_t low,
                      int64_t high) {
  wide least = loss(p, e, low);
  while (low < high) {
    int64_t next = nextBend(p, e, low, high);
    wide part = leastOfPart(p, e, low, next);
    if (part < least) least = part;
    low = next;
  }
  return least;
}

/* ---- Prices ------------------------------------------------------------- */

/* Of the ranks in moving->isChanged, and of those whose bytes help them. */
static void setPrices(struct lrmoeMoving *moving) {
  lrmoeMovingLabel(moving, unitPrice);
  for (int32_t g = 0; g < moving->work->numRanks; g++)
    moving->prices[g] =
        moving->arriving[g] == INT64_MAX
            ? 0
            : (int64_t)unitPrice * unitPrice / moving->arriving[g];
}

static int64_t allowed(const struct lrmoeRetainSearch *search, int32_t most) {
  int64_t count = maxWork / search->instances->count / search->work->numRanks;
  return count < 8 ? 8 : minimum(count, most);
}

/* ---- Rates -------------------------------------------------------------- */

/* No rate from low to high fits. */
static int isExcluded(const struct pricing *p, int64_t low, int64_t high) {
  const int64_t *pairs = p->search->work->pairs;
  wide sum = -budgets(p);
  for (int32_t e = 0; e < p->search->work->numExperts; e++)
    sum += leastLoss(p, e, lrmoeRetained(pairs[e], low),
                     lrmoeRetained(pairs[e], high));
  return sum > 0;
}

/* Whether a rate fits; if not, there are new prices. */
static int fitsAt(const struct pricing *p, int64_t rate) {
  struct lrmoeMoving *moving = p->search->moving;
  for (int32_t e = 0; e < p->search->work->numExperts; e++)
    p->search->quotas[e] = lrmoeRetained(p->search->work->pairs[e], rate);
  if (lrmoeMovingSplit(moving)) return 1;
  for (int32_t g = 0; g < moving->work->numRanks; g++)
    moving->isChanged[g] = moving->bytes[g] > moving->budgets[g];
  setPrices(moving);
  return 0;
}

/* The lowest rate with the quotas of this one. */
static int64_t lowestAlike(const struct pricing *p, int64_t rate) {
  int64_t low = 0;
  for (int32_t e = 0; e < p->search->work->numExperts; e++) {
    int64_t pairs = p->search->work->pairs[e];
    int64_t quota = lrmoeRetained(pairs, rate);
    if (!quota) continue;
    int64_t below = (int64_t)((wide)(quota - 1) * 1000000 / pairs);
    if (below + 1 > low) low = below + 1;
  }
  return low;
}

void lrmoePriceRate(const struct lrmoeRetainSearch *search, int64_t *rate,
                    int64_t *bound) {
  struct pricing p = {search, search->moving, search->instances, 0};
  int64_t high = search->ceiling, width = high - *rate;
  int64_t ranges = allowed(search, maxRanges),
          flows = allowed(search, maxFlows);
  if (high > *rate && fitsAt(&p, *rate + 1)) ++*rate;
  while (high > *rate && ranges-- > 0) {
    int64_t alike = lowestAlike(&p, high), low = high - width + 1;
    if (alike <= *rate) alike = *rate + 1;
    if (low > alike) low = alike;
    if (low <= *rate) low = *rate + 1;
    if (isExcluded(&p, low, high)) {
      high = low - 1;
      width *= 2;
    } else if (low < alike) {
      width = (high - low + 1) / 2;
    } else if (flows-- > 0 && fitsAt(&p, high)) {
      *rate = high;
    } else if (flows < 0 || !isExcluded(&p, low, high)) {
      break;
    }
  }
  *bound = high;
}

/* ---- Pairs -------------------------------------------------------------- */

/* A byte is worth a pair's part where lone experts could have more pairs. */
static int markDropped(const struct pricing *p) {
  struct lrmoeMoving *moving = p->search->moving;
  int32_t first = -1;
  for (int32_t g = 0; g < moving->work->numRanks; g++)
    moving->isChanged[g] = 0;
  for (int32_t e = 0; e < p->search->work->numExperts; e++) {
    int32_t i = p->instances->offsets[e], g = p->instances->ranks[i];
    int64_t pairs = p->search->work->pairs[e];
    if (p->instances->offsets[e + 1] - i > 1 ||
        p->search->quotas[e] >= lrmoeRetained(pairs, p->search->ceiling))
      continue;
    moving->isChanged[g] = 1;
    if (first < 0) first = g;
  }
  return first;
}

int64_t lrmoePricePairs(const struct lrmoeRetainSearch *search) {
  struct pricing p = {search, search->moving, search->instances, 0};
  const int64_t *pairs = search->work->pairs;
  int64_t all = 0;
  int32_t rank = markDropped(&p);
  for (int32_t e = 0; e < search->work->numExperts; e++)
    all += lrmoeRetained(pairs[e], search->ceiling);
  if (rank < 0) return all;
  setPrices(search->moving);
  p.worth = (wide)keptBytes(&p, rank) * unitPrice;
  wide sum = budgets(&p);
  for (int32_t e = 0; e < search->work->numExperts; e++)
    sum -= leastLoss(&p, e, lrmoeRetained(pairs[e], search->least),
                     lrmoeRetained(pairs[e], search->ceiling));
  wide most = sum / p.worth;
  return most < all ? (int64_t)most : all;
}
