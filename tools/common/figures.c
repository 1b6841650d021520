/* Figures of plans: see figures.h. */
#include "tools/common/figures.h"

#include <stdlib.h>

static void addExpert(const lrmoePlanView_t *view, int32_t expert,
                      struct toolPlanFigures *figures) {
  int32_t end = view->instanceOffsets[expert + 1];
  for (int32_t i = view->instanceOffsets[expert]; i < end; i++) {
    int32_t rank = view->instanceRanks[i];
    figures->rankForward[rank] += view->forwardPairs[i];
    figures->rankKept[rank] += view->keptPairs[i];
    if (rank == view->homes[expert]) continue;
    figures->rankSlots[rank]++;
    figures->moved += view->keptPairs[i];
  }
}

enum toolExit toolPlanFiguresMake(const lrmoePlanView_t *view,
                                  struct toolPlanFigures *figures,
                                  struct toolError *error) {
  size_t ranks = (size_t)view->numRanks;
  struct toolPlanFigures made = {
      .rankForward = calloc(ranks, sizeof *made.rankForward),
      .rankKept = calloc(ranks, sizeof *made.rankKept),
      .rankSlots = calloc(ranks, sizeof *made.rankSlots)};
  if (!made.rankForward || !made.rankKept || !made.rankSlots) {
    toolPlanFiguresFree(&made);
    return toolFail(error, toolRunFailed, "no memory for %zu ranks", ranks);
  }
  for (int32_t e = 0; e < view->numExperts; e++)
    addExpert(view, e, &made);
  made.peak = view->peakKept;
  made.mean = (double)view->kept / view->numRanks;
  made.imbalance = view->kept ? (double)made.peak / made.mean : 1;
  made.retention = view->pairs ? (double)view->kept / (double)view->pairs : 1;
  *figures = made;
  return toolGood;
}

void toolPlanFiguresFree(struct toolPlanFigures *figures) {
  free(figures->rankForward);
  free(figures->rankKept);
  free(figures->rankSlots);
  *figures = (struct toolPlanFigures){0};
}
