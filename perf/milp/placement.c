/* The placement of replicas as a mixed-integer program.
 *
 *   minimise T over
 *     x[e,g] >= 0   pairs of expert e that rank g, not its home, executes
 *     y[e,g] in {0, 1}   a replica of e stands on g
 *   such that
 *     L[g] - sum over experts at home on g and ranks h of x[e,h]
 *          + sum over other experts of x[e,g] <= T           for each rank g
 *     sum over g of x[e,g] <= n[e]                           for each expert e
 *     x[e,g] <= min(n[e], U) y[e,g]
 *     sum over e of y[e,g] <= S                              for each rank g
 *
 * L[g] is the load of g's own experts, U their highest: nothing better than no
 * replica at all brings more than U to a rank. */
#include "perf/milp/milp.h"

static int64_t highestAtHome(const lrmoePlanView_t *view) {
  int64_t most = 0;
  for (int32_t g = 0; g < view->numRanks; g++) {
    int64_t load = 0;
    for (int32_t e = 0; e < view->numExperts; e++)
      if (view->homes[e] == g) load += view->quotas[e];
    if (load > most) most = load;
  }
  return most;
}

static void writeRank(FILE *model, const lrmoePlanView_t *view, int32_t g) {
  int64_t own = 0;
  fprintf(model, " rank%d: - T", g);
  for (int32_t e = 0; e < view->numExperts; e++) {
    if (view->homes[e] != g) {
      fprintf(model, " + x%d_%d\n", e, g);
      continue;
    }
    own += view->quotas[e];
    for (int32_t h = 0; h < view->numRanks; h++)
      if (h != g) fprintf(model, " - x%d_%d\n", e, h);
  }
  fprintf(model, " <= %lld\n", -(long long)own);
}

static void writeExpert(FILE *model, const lrmoePlanView_t *view, int32_t e,
                        int64_t most) {
  int64_t pairs = view->quotas[e];
  fprintf(model, " expert%d:", e);
  for (int32_t g = 0; g < view->numRanks; g++)
    if (g != view->homes[e]) fprintf(model, " + x%d_%d", e, g);
  fprintf(model, " <= %lld\n", (long long)pairs);
  for (int32_t g = 0; g < view->numRanks; g++)
    if (g != view->homes[e])
      fprintf(model, " only%d_%d: x%d_%d - %lld y%d_%d <= 0\n", e, g, e, g,
              (long long)(pairs < most ? pairs : most), e, g);
}

static void writeSlots(FILE *model, const lrmoePlanView_t *view, int32_t g,
                       int32_t slots) {
  fprintf(model, " slots%d:", g);
  for (int32_t e = 0; e < view->numExperts; e++)
    if (view->homes[e] != g) fprintf(model, " + y%d_%d\n", e, g);
  fprintf(model, " <= %d\n", slots);
}

void milpPlacementWrite(FILE *model, const lrmoePlanView_t *view,
                        int32_t slots) {
  int64_t most = highestAtHome(view);
  fprintf(model, "Minimize\n cost: T\nSubject To\n");
  for (int32_t g = 0; g < view->numRanks; g++)
    writeRank(model, view, g);
  for (int32_t e = 0; e < view->numExperts; e++)
    writeExpert(model, view, e, most);
  for (int32_t g = 0; g < view->numRanks; g++)
    writeSlots(model, view, g, slots);
  fprintf(model, "Binary\n");
  for (int32_t e = 0; e < view->numExperts; e++)
    for (int32_t g = 0; g < view->numRanks; g++)
      if (g != view->homes[e]) fprintf(model, " y%d_%d\n", e, g);
  fprintf(model, "End\n");
}
