/* The table of plans and its summary: see plan.h. */
#include "tools/plan/plan.h"

static const struct toolColumn columns[] = {
    {"step", "", 6},           {"layer", "", 6},     {"policy", "", 12},
    {"peak", "kept", 9},       {"mean", "kept", 11}, {"bound", "kept", 9},
    {"imbalance", "", 9},      {"replicas", "", 8},  {"moved", "pairs", 9},
    {"worst_moves", "in", 11}, {"retention", "", 9}, {"time_us", "us", 9}};

void planReportBegin(struct planReport *report, struct toolJson *json) {
  *report = (struct planReport){
      .table = {.out = stdout,
                .json = json,
                .columns = columns,
                .numColumns = sizeof columns / sizeof *columns}};
  toolTableBegin(&report->table);
}

static void addToSummary(struct planSummary *summary,
                         const struct toolPlan *plan) {
  const lrmoePlanView_t *view = &plan->view;
  double gap = (double)view->gapKeptPpm / 1e6;
  summary->numLayers++;
  summary->numInfeasible += view->constraintSlack < 0;
  summary->numReplicas += view->numReplicas;
  summary->pairs += (double)view->pairs;
  summary->kept += (double)view->kept;
  summary->moved += (double)plan->figures.moved;
  summary->imbalance += plan->figures.imbalance;
  if (plan->figures.imbalance > summary->worst)
    summary->worst = plan->figures.imbalance;
  if (gap > summary->gap) summary->gap = gap;
  summary->timeUs += plan->medianUs;
}

static int64_t peakMemory(const lrmoePlanView_t *view) {
  int64_t peak = 0;
  for (int32_t g = 0; view->memory && g < view->numRanks; g++)
    if (view->memory[g].peakBytes > peak) peak = view->memory[g].peakBytes;
  return peak;
}

static int64_t mostRelayed(const lrmoePlanView_t *view) {
  int64_t most = 0;
  for (int32_t g = 0; g < view->numRanks; g++)
    if (view->memory[g].relayBytes > most) most = view->memory[g].relayBytes;
  return most;
}

/* What the table has no room for. */
static void addToJson(struct toolJson *json, const struct toolPlan *plan) {
  const lrmoePlanView_t *view = &plan->view;
  toolJsonInt(json, "pairs", view->pairs);
  toolJsonInt(json, "kept", view->kept);
  toolJsonInt(json, "forward_peak", view->peakForward);
  toolJsonInt(json, "forward_bound", view->boundForward);
  toolJsonInts(json, "rank_forward", plan->figures.rankForward, view->numRanks);
  toolJsonInts(json, "rank_kept", plan->figures.rankKept, view->numRanks);
  toolJsonText(json, "constraint", toolConstraintNames[view->constraint]);
  toolJsonInt(json, "constraint_rank", view->constraintRank);
  toolJsonInt(json, "constraint_slack", view->constraintSlack);
  if (!view->memory) return;
  toolJsonInt(json, "peak_bytes", peakMemory(view));
  if (planSettings.hasRelays)
    toolJsonInt(json, "relay_bytes", mostRelayed(view));
  toolJsonInt(json, "comm_ns", view->commNs);
  toolJsonInt(json, "cross_node_bytes", view->crossNodeBytes);
}

static void sayMissing(const lrmoePlanView_t *view) {
  static const char *const units[] = {"", "pairs", "bytes", "bytes", "ns"};
  if (view->constraintSlack >= 0) return;
  toolTableNote(stdout, "not feasible: %s of %s %d, %lld %s are missing",
                toolConstraintNames[view->constraint],
                view->constraintRank < 0 ? "all ranks" : "rank",
                view->constraintRank, -(long long)view->constraintSlack,
                units[view->constraint]);
}

void planReportRow(struct planReport *report, int rival,
                   const struct toolTraceSection *section,
                   const struct toolPlan *plan) {
  struct toolTable *table = &report->table;
  const lrmoePlanView_t *view = &plan->view;
  toolTableInt(table, section->step);
  toolTableInt(table, section->layer);
  toolTableText(table, toolPolicyNames[planSettings.policies[rival]]);
  toolTableInt(table, plan->figures.peak);
  toolTableReal(table, plan->figures.mean, 1);
  toolTableInt(table, view->boundKept);
  toolTableReal(table, plan->figures.imbalance, 4);
  toolTableInt(table, view->numReplicas);
  toolTableInt(table, plan->figures.moved);
  toolTableInt(table, view->movesIn);
  toolTableReal(table, plan->figures.retention, 4);
  toolTableReal(table, plan->medianUs, 2);
  addToJson(table->json, plan);
  sayMissing(view);
  addToSummary(&report->summaries[rival], plan);
}

void planReportEnd(const struct planReport *report) {
  static const struct toolColumn heads[] = {
      {"policy", "", 12},        {"layers", "", 6},
      {"imbalance", "mean", 9},  {"imbalance", "most", 9},
      {"gap", "most, %", 7},     {"replicas", "a layer", 8},
      {"moved", "% of kept", 9}, {"retention", "", 9},
      {"time_us", "mean", 9},    {"infeasible", "layers", 10}};
  struct toolTable table = {.out = stdout,
                            .columns = heads,
                            .numColumns = sizeof heads / sizeof *heads};
  toolTableBegin(&table);
  for (int i = 0; i < planSettings.numPolicies; i++) {
    const struct planSummary *s = &report->summaries[i];
    double layers = (double)s->numLayers;
    toolTableText(&table, toolPolicyNames[planSettings.policies[i]]);
    toolTableInt(&table, s->numLayers);
    toolTableReal(&table, s->imbalance / layers, 4);
    toolTableReal(&table, s->worst, 4);
    toolTableReal(&table, 100 * s->gap, 3);
    toolTableReal(&table, (double)s->numReplicas / layers, 2);
    toolTableReal(&table, 100 * s->moved / s->kept, 2);
    toolTableReal(&table, s->kept / s->pairs, 4);
    toolTableReal(&table, s->timeUs / layers, 2);
    toolTableInt(&table, s->numInfeasible);
  }
}
