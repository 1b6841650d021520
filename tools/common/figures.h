/* What programs say about a plan, worked out from what lrmoePlanGetView shows.
 */
#ifndef LRMOE_TOOLS_FIGURES_H
#define LRMOE_TOOLS_FIGURES_H

#include "lrmoe.h"
#include "tools/common/fail.h"

#include <stdint.h>

struct toolPlanFigures {
  int64_t *rankForward; /* [G] pairs in forward */
  int64_t *rankKept;    /* [G] kept pairs */
  int32_t *rankSlots;   /* [G] replicas */
  int64_t peak;         /* most of rankKept */
  double mean;
  double imbalance; /* peak / mean; 1 without pairs */
  double retention; /* kept of pairs; 1 without pairs */
  int64_t moved;    /* kept pairs that run away from their expert's home */
};

/* Of a view that has been verified; toolPlanFiguresFree releases figures. */
enum toolExit toolPlanFiguresMake(const lrmoePlanView_t *view,
                                  struct toolPlanFigures *figures,
                                  struct toolError *error);
void toolPlanFiguresFree(struct toolPlanFigures *figures);

#endif
