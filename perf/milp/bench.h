/* milp_perf's questions and its table. */
#ifndef LRMOE_PERF_MILP_BENCH_H
#define LRMOE_PERF_MILP_BENCH_H

#include "perf/milp/milp.h"
#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/table.h"
#include "tools/common/trace.h"
#include "tools/common/workload.h"

struct milpSettings {
  const char *routing;
  int problem; /* 0 placement, 1 retention */
  int limit;   /* of retention, into milpLimitNames; 0: all */
  int quota;   /* into milpQuotaNames; 0: all */
  int64_t numExperts;
  int64_t numRanks;
  int64_t numSlots;
  int64_t numDraws;
  int64_t numTokens;
  int64_t topk;
  int64_t seed;
  int64_t maxSeconds;
};

extern struct milpSettings milpSettings;
extern const char *const milpLimitNames[];
extern const char *const milpQuotaNames[];

struct milpBench {
  struct milpSolver solver;
  lrmoeTopology_t topology;
  struct toolTable table;
  char routing[64]; /* of the load at hand */
  int64_t seed;
  int64_t numAsked;  /* with an answer that the planner is held to */
  int64_t numProven; /* of these the solver had time enough for */
  int64_t numNear;   /* placement: within a thousandth; retention: equal */
  double worst;      /* farthest from the solver's answer, in percent */
};

/* solver is open; the rest is 0. */
enum toolExit milpBenchOpen(struct milpBench *bench, struct toolError *error);
void milpBenchClose(struct milpBench *bench);

void milpTableBegin(struct milpBench *bench, struct toolJson *json);
void milpTableEnd(const struct milpBench *bench);

enum toolExit milpAskPlacement(struct milpBench *bench,
                               const struct toolTraceSection *section,
                               struct toolError *error);
enum toolExit milpAskRetention(struct milpBench *bench,
                               const struct toolTraceSection *section,
                               struct toolError *error);

/* The plan of a load by a planner that is made for it. */
enum toolExit milpPlanMake(const struct milpBench *bench,
                           const lrmoePlannerConfig_t *config,
                           const struct toolTraceSection *section,
                           struct toolPlan *plan, struct toolError *error);

/* Adds one comparison to the sums. */
void milpCount(struct milpBench *bench, const struct milpAnswer *answer,
               double offPercent, int isNear);

#endif
