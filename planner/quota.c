/* Quotas: how many pairs of each expert backward keeps (paper 3.3).
 *
 * none     K[e] = n[e]
 * uniform  K[e] = ceil(retainPpm * n[e] / 10^6)
 *
 * The paper leaves rounding open; rounding up keeps at least one pair of every
 * expert that has any, so that no expert goes without a weight gradient
 * unless nothing is to be retained at all. */
#include "planner/planner.h"

enum {
  million = 1000000
};

/* n = q * 10^6 + r: both products fit an int64 for every n. */
static int64_t retained(int64_t pairs, int64_t retainPpm) {
  int64_t whole = pairs / million * retainPpm;
  int64_t part = pairs % million * retainPpm;
  return whole + (part + million - 1) / million;
}

void lrmoeQuotaFill(const struct lrmoePlanner *planner, const int64_t *pairs,
                    int64_t *quotas) {
  for (int32_t e = 0; e < planner->numExperts; e++)
    quotas[e] = planner->quota == lrmoeQuotaNone
                    ? pairs[e]
                    : retained(pairs[e], planner->retainPpm);
}
