/* Quotas: how many pairs of each expert backward keeps (paper 3.3).
 *
 * none     K[e] = n[e]
 * uniform  K[e] = ceil(retainPpm * n[e] / 10^6)
 * capacity K[e] = min(n[e], ceil(capacityPpm * N / (E * 10^6))), N all pairs:
 *          the expert capacity of GShard and Switch.  They apply it to the
 *          tokens of each source, in forward; here it is one limit over all
 *          sources, and only backward keeps to it.  DeepSpeed's least capacity
 *          and its padding to the fullest expert are left out.
 *
 * overload begins as uniform; retain.c lowers it where it must.  No expert gets
 * less than ceil(minRetainPpm * n[e] / 10^6).
 *
 * The paper leaves rounding open; rounding up keeps at least one pair of every
 * expert that has any, so that no expert goes without a weight gradient
 * unless nothing is to be retained at all. */
#include "planner/planner.h"

enum {
  million = 1000000
};

/* n = q * 10^6 + r: both products fit an int64 for every n. */
int64_t lrmoeRetained(int64_t pairs, int64_t retainPpm) {
  if (retainPpm == million || !retainPpm) return retainPpm ? pairs : 0;
  int64_t whole = pairs / million * retainPpm;
  int64_t part = pairs % million * retainPpm;
  return whole + (part + million - 1) / million;
}

/* ceil(ppm * total / (experts * 10^6)), at most INT64_MAX.  With total =
 * q d + r, d = experts * 10^6 < 2^40, it is ppm * q and the rest, in which the
 * ppm are taken apart so that no product overflows. */
static int64_t capacity(int64_t total, int64_t ppm, int64_t experts) {
  int64_t divisor = experts * million;
  int64_t quotient = total / divisor, rest = total % divisor;
  if (quotient && ppm > INT64_MAX / quotient) return INT64_MAX;
  int64_t whole = ppm / million * rest; /* over experts */
  int64_t part = whole % experts * million + ppm % million * rest;
  int64_t small = whole / experts + part / divisor + (part % divisor != 0);
  int64_t large = ppm * quotient;
  return large > INT64_MAX - small ? INT64_MAX : large + small;
}

void lrmoeQuotaFill(const struct lrmoePlanner *planner, const int64_t *pairs,
                    int64_t *quotas) {
  int64_t total = 0, most = INT64_MAX, ppm = planner->config.retainPpm;
  for (int32_t e = 0; e < planner->numExperts; e++)
    total += pairs[e];
  if (planner->config.quota == lrmoeQuotaCapacity)
    most = capacity(total, planner->config.capacityPpm, planner->numExperts);
  for (int32_t e = 0; e < planner->numExperts; e++) {
    int64_t least = lrmoeRetained(pairs[e], planner->config.minRetainPpm);
    if (planner->config.quota == lrmoeQuotaUniform ||
        planner->config.quota == lrmoeQuotaOverload)
      quotas[e] = lrmoeRetained(pairs[e], ppm);
    else
      quotas[e] = pairs[e] < most ? pairs[e] : most;
    if (quotas[e] < least) quotas[e] = least;
  }
}
