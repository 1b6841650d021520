/* lrmoe-plan's parts.  Each takes the settings and one layer at a time:
 *   options.c   the command line
 *   layer.c     one layer under each policy
 *   report.c    the table of plans and its summary
 *   capacity.c  what a hard capacity does (its own header)
 *   factor.c    the table of it
 *   draw.c      load per rank as SVG */
#ifndef LRMOE_TOOLS_PLAN_PLAN_H
#define LRMOE_TOOLS_PLAN_PLAN_H

#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/planning.h"
#include "tools/common/table.h"
#include "tools/common/trace.h"

/* What the command line says. */
struct planSettings {
  struct toolTraceConfig trace;
  int64_t numRanks;
  int64_t numExperts;
  int64_t topk;
  int64_t seed;
  int64_t numSlots;
  int64_t numRounds;
  int64_t hidden;
  int64_t ffn;
  int64_t minReplicaPairs;
  int64_t maxReplicas;
  double retain;
  double minRetain;
  double memoryGib;
  double windowUs;
  int64_t windowWork;
  int64_t copies;
  double capacityFactor;
  double tolerance;
  double balanced;
  double hysteresis;
  double history;
  double gigabytesPerSecond;
  double teraflops;
  const char *policy;
  const char *topology;
  const char *svg;
  int quota;
  int type;
  int activation;
  int routerGrad;
  int savedState;
  int isGrid;
  int hasRelays;

  lrmoePolicy_t policies[toolNumPolicies]; /* read from policy */
  int numPolicies;
};

extern struct planSettings planSettings;
extern const struct toolArg planArgs[];

/* Completes the settings and refuses those that contradict each other. */
enum toolExit planSettingsFinish(struct toolError *error);

/* Whether the table of capacities is wanted, not that of plans. */
int planWantsCapacity(void);

/* ---- One layer ---------------------------------------------------------- */

/* A policy and its planner.  `previous` is what it knows of the steps before,
 * layer by layer, where options need it. */
struct planRival {
  lrmoePolicy_t policy;
  struct toolPlanner planner;
  struct planPrevious *previous;
};

/* planSettings.numPolicies rivals; `numExperts` is the trace's. */
enum toolExit planRivalsOpen(int32_t numExperts,
                             struct planRival rivals[toolNumPolicies],
                             struct toolError *error);
void planRivalsClose(struct planRival rivals[toolNumPolicies]);

/* The plan of a layer, the one that comes nearest if nothing fits. */
enum toolExit planLayer(struct planRival *rival,
                        const struct toolTraceSection *section,
                        struct toolPlan *plan, struct toolError *error);

/* ---- What is said about it ---------------------------------------------- */

/* Sums over layers. */
struct planSummary {
  int64_t numLayers;
  int64_t numInfeasible;
  int64_t numReplicas;
  double pairs; /* sums of what may be near 2^63 each */
  double kept;
  double moved;
  double imbalance; /* sum */
  double worst;     /* largest imbalance */
  double gap;       /* largest peak / bound - 1 */
  double timeUs;    /* sum of medians */
};

struct planReport {
  struct toolTable table;
  struct planSummary summaries[toolNumPolicies]; /* as settings.policies */
};

void planReportBegin(struct planReport *report, struct toolJson *json);
void planReportRow(struct planReport *report, int rival,
                   const struct toolTraceSection *section,
                   const struct toolPlan *plan);
void planReportEnd(const struct planReport *report);

void planCapacityBegin(struct toolTable *table, struct toolJson *json);
void planCapacityRow(struct toolTable *table,
                     const struct toolTraceSection *section);

/* ---- Picture ------------------------------------------------------------ */

struct planDrawing;

/* Without --svg *drawing is NULL, which all take and ignore.  Fails now, not
 * after the run, when the file cannot be written. */
enum toolExit planDrawingBegin(struct planDrawing **drawing,
                               struct toolError *error);
void planDrawingAdd(struct planDrawing *drawing, int rival,
                    const struct toolTraceSection *section,
                    const struct toolPlan *plan);
enum toolExit planDrawingEnd(struct planDrawing *drawing,
                             struct toolError *error);
void planDrawingDrop(struct planDrawing *drawing);

#endif
