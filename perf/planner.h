/* planner_perf's parts: one shape with one routing, under several policies. */
#ifndef LRMOE_PERF_PLANNER_H
#define LRMOE_PERF_PLANNER_H

#include "tools/common/planning.h"
#include "tools/common/trace.h"

struct plannerShape {
  int64_t experts;
  int64_t ranks;
  int64_t slots;
};

/* How a planner gets its demand. */
enum plannerWay {
  plannerCopies,  /* lrmoePlanMake: reads [G, E] and copies it */
  plannerBorrows, /* reads it */
  plannerTotals,  /* the pairs of each expert only */
  plannerNumWays
};

/* What is known of one policy on one shape and routing. */
struct plannerRival {
  lrmoePolicy_t policy;
  struct toolPlanner planner;
  int32_t slots;
  double *us[plannerNumWays]; /* [numLoads] each */
  double *imbalance;          /* [numLoads] */
  double *gap;
  double replicas; /* sum */
};

struct plannerBench {
  struct plannerShape shape;
  const char *routing; /* a name of it */
  struct toolTrace *trace;
  struct plannerRival rivals[toolNumPolicies];
  lrmoePolicy_t policies[toolNumPolicies];
  int numPolicies;
  int64_t numLoads;
  double retain;
  double tolerance;
  double *readUs; /* [numLoads] */
};

/* Makes the planners of bench->policies and room for the figures of numLoads
 * loads; the trace is open. */
enum toolExit plannerRivalsOpen(struct plannerBench *bench,
                                struct toolError *error);

/* Makes and verifies every policy's plan of every load, in turns. */
enum toolExit plannerMeasure(struct plannerBench *bench,
                             struct toolError *error);

/* Releases planners, figures and the trace; the options stay. */
void plannerBenchClose(struct plannerBench *bench);

#endif
