/* See brute.h. */
#include "planner/brute.h"

enum {
  maxRanks = 8,
  maxExperts = 8
};

struct splitting {
  const struct bruteProblem *problem;
  const unsigned *hosts;
  int64_t loads[maxRanks];
  int64_t best;
};

/* `left` pairs of expert e go to ranks from g on, then the next experts.  What
 * is as high as the best by then only gets higher. */
static void trySplits(struct splitting *splitting, int e, int g, int64_t left) {
  const struct bruteProblem *problem = splitting->problem;
  if (e == problem->numExperts) {
    int64_t peak = 0;
    for (int r = 0; r < problem->numRanks; r++)
      if (splitting->loads[r] > peak) peak = splitting->loads[r];
    if (peak < splitting->best) splitting->best = peak;
    return;
  }
  if (g == problem->numRanks) {
    int64_t next = e + 1 < problem->numExperts ? problem->loads[e + 1] : 0;
    if (left == 0) trySplits(splitting, e + 1, 0, next);
    return;
  }
  int64_t most = splitting->hosts[e] >> g & 1 ? left : 0;
  for (int64_t here = 0; here <= most; here++) {
    if (splitting->loads[g] + here >= splitting->best) break;
    splitting->loads[g] += here;
    trySplits(splitting, e, g + 1, left - here);
    splitting->loads[g] -= here;
  }
}

int64_t bruteSplitPeak(const struct bruteProblem *problem,
                       const unsigned *hosts) {
  struct splitting splitting = {problem, hosts, {0}, INT64_MAX};
  trySplits(&splitting, 0, 0, problem->loads[0]);
  return splitting.best;
}

int64_t bruteExcess(const struct bruteProblem *problem, const unsigned *hosts,
                    int64_t limit) {
  int64_t excess = 0;
  for (unsigned set = 1; set < 1u << problem->numRanks; set++) {
    int64_t over = -limit * __builtin_popcount(set);
    for (int e = 0; e < problem->numExperts; e++)
      if (!(hosts[e] & ~set)) over += problem->loads[e];
    if (over > excess) excess = over;
  }
  return excess;
}

int64_t bruteCutPeak(const struct bruteProblem *problem,
                     const unsigned *hosts) {
  int64_t peak = 0;
  for (unsigned set = 1; set < 1u << problem->numRanks; set++) {
    int64_t sum = 0, ranks = __builtin_popcount(set);
    for (int e = 0; e < problem->numExperts; e++)
      if (!(hosts[e] & ~set)) sum += problem->loads[e];
    int64_t mean = (sum + ranks - 1) / ranks;
    if (mean > peak) peak = mean;
  }
  return peak;
}

static int fitsSlots(const struct bruteProblem *problem,
                     const unsigned *hosts) {
  int used[maxRanks] = {0};
  for (int e = 0; e < problem->numExperts; e++)
    for (int g = 0; g < problem->numRanks; g++)
      used[g] += g != problem->homes[e] && (hosts[e] >> g & 1);
  for (int g = 0; g < problem->numRanks; g++)
    if (used[g] > problem->slots) return 0;
  return 1;
}

static void tryHosts(const struct bruteProblem *problem, unsigned *hosts, int e,
                     int64_t *best) {
  if (e < problem->numExperts) {
    for (hosts[e] = 1; hosts[e] < 1u << problem->numRanks; hosts[e]++)
      if (hosts[e] >> problem->homes[e] & 1)
        tryHosts(problem, hosts, e + 1, best);
    return;
  }
  if (!fitsSlots(problem, hosts)) return;
  int64_t peak = bruteCutPeak(problem, hosts);
  if (peak < *best) *best = peak;
}

int64_t brutePeak(const struct bruteProblem *problem) {
  unsigned hosts[maxExperts];
  int64_t best = INT64_MAX;
  tryHosts(problem, hosts, 0, &best);
  return best;
}
