/* milp_perf's parts: the planner's answers against those of a MILP solver.
 *   solver.c     CBC as a process of its own, models as LP files
 *   placement.c  the least peak over all placements
 *   retention.c  the largest retention on one placement
 * Models are written from the sentences of lrmoe.h and know nothing of how the
 * planner searches. */
#ifndef LRMOE_PERF_MILP_H
#define LRMOE_PERF_MILP_H

#include "tools/common/planning.h"

#include <stdio.h>

/* ---- Solver ------------------------------------------------------------- */

struct milpSolver {
  char folder[64]; /* of its files, removed by milpSolverClose */
  FILE *model;     /* the LP file that is being written, or NULL */
  int64_t maxSeconds;
};

/* Of a minimum.  `bound` is proven whether or not there was time enough: no
 * solution is below it.  value is HUGE_VAL where none was found. */
struct milpAnswer {
  double value;
  double bound;
  double seconds;
  int isInfeasible;
  int isProven; /* value is the minimum */
};

/* toolNotInstalled where there is no cbc. */
enum toolExit milpSolverOpen(int64_t maxSeconds, struct milpSolver *solver,
                             struct toolError *error);
void milpSolverClose(struct milpSolver *solver);

/* Begins solver->model, to be written in CPLEX's LP format. */
enum toolExit milpModelBegin(struct milpSolver *solver,
                             struct toolError *error);

/* Ends the model, with what its writing cost checked, and solves it. */
enum toolExit milpModelSolve(struct milpSolver *solver,
                             struct milpAnswer *answer,
                             struct toolError *error);

/* ---- Models ------------------------------------------------------------- */

/* The least highest load of a rank, as a model: pairs may be divided, so the
 * least peak in whole pairs is the minimum rounded up (with the replicas
 * fixed, a split of pairs is a flow). */
void milpPlacementWrite(FILE *model, const lrmoePlanView_t *view,
                        int32_t slots);

/* What limits retention on the instances and forward pairs of a plan. */
struct milpRetention {
  const lrmoePlanView_t *view;
  const lrmoePlannerConfig_t *config;
  int64_t rowNs;     /* with a window: what a row to another rank takes, */
  int64_t selfRowNs; /*   to the rank itself, */
  int64_t latencyNs; /*   and the first of them */
};

/* Minus the largest rate in millionths (quota uniform), or minus the most kept
 * pairs (overload).  A window is in the model for savedState none only: else
 * input rows of moves are rounded up by source, which is not linear. */
void milpRetentionWrite(FILE *model, const struct milpRetention *retention);

#endif
