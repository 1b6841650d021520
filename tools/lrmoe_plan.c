/* lrmoe-plan: plans for measured or made expert loads.
 *
 * For every layer of a trace and every policy asked for: where replicas go,
 * how level the ranks become, what it moves, what fits, and how long planning
 * took.  Or, with --capacity-factor, what a hard capacity per expert drops and
 * wastes.  Every plan is verified before it is printed
 * (tools/common/figures.h); one that breaks a rule ends the run with 7. */
#include "tools/common/stats.h"
#include "tools/plan/plan.h"

#include <stdio.h>
#include <string.h>

/* Says on stderr how far a long run is, every two seconds. */
struct progress {
  int64_t nextNs;
  int64_t numLayers;
};

static const int64_t progressNs = 2000000000;

static void sayProgress(struct progress *progress, int64_t done) {
  int64_t now = toolWallNs();
  if (now < progress->nextNs) return;
  fprintf(stderr, "lrmoe-plan: %lld of %lld layers\n", (long long)done,
          (long long)progress->numLayers);
  progress->nextNs = now + progressNs;
}

/* Everything of a run; unwound by closeRun. */
struct run {
  struct toolJson *json;
  struct toolTrace *trace;
  struct planRival rivals[toolNumPolicies];
  struct planDrawing *drawing;
  struct planReport report;
};

static enum toolExit planSection(struct run *run,
                                 const struct toolTraceSection *section,
                                 struct toolError *error) {
  enum toolExit code = toolGood;
  for (int i = 0; i < planSettings.numPolicies && code == toolGood; i++) {
    struct toolPlan plan;
    code = planLayer(&run->rivals[i], section, &plan, error);
    if (code) return code;
    planReportRow(&run->report, i, section, &plan);
    planDrawingAdd(run->drawing, i, section, &plan);
    toolPlanFree(&plan);
  }
  return code;
}

static enum toolExit planAll(struct run *run, struct toolError *error) {
  int64_t length = toolTraceLength(run->trace);
  enum toolExit code =
      planRivalsOpen(toolTraceExperts(run->trace), run->rivals, error);
  if (code == toolGood) code = planDrawingBegin(&run->drawing, error);
  if (code) return code;
  struct progress progress = {toolWallNs() + progressNs, length};
  planReportBegin(&run->report, run->json);
  for (int64_t i = 0; i < length && code == toolGood; i++) {
    struct toolTraceSection section;
    code = toolTraceRead(run->trace, i, &section, error);
    if (code == toolGood) code = planSection(run, &section, error);
    sayProgress(&progress, i + 1);
  }
  if (code) return code;
  planReportEnd(&run->report);
  struct planDrawing *drawing = run->drawing;
  run->drawing = NULL;
  return planDrawingEnd(drawing, error);
}

static enum toolExit factorAll(struct run *run, struct toolError *error) {
  int64_t numGuessed = 0, length = toolTraceLength(run->trace);
  enum toolExit code = toolGood;
  struct toolTable table;
  planCapacityBegin(&table, run->json);
  for (int64_t i = 0; i < length && code == toolGood; i++) {
    struct toolTraceSection section;
    code = toolTraceRead(run->trace, i, &section, error);
    if (code) return code;
    planCapacityRow(&table, &section);
    numGuessed += section.importance == NULL;
  }
  if (numGuessed)
    toolTableNote(stdout,
                  "aux_loss of %lld layers takes f for P: the load has no "
                  "column importance",
                  (long long)numGuessed);
  return code;
}

static void sayWhat(const char *name, const struct toolTrace *trace) {
  const struct planSettings *s = &planSettings;
  toolTableNote(stdout, "%s %d.%d.%d: %lld ranks, %lld spare slots, %d experts",
                name, LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                (long long)s->numRanks, (long long)s->numSlots,
                toolTraceExperts(trace));
  toolTableNote(stdout, "%s", toolTraceSource(trace));
}

static void closeRun(struct run *run) {
  planDrawingDrop(run->drawing);
  planRivalsClose(run->rivals);
  toolTraceClose(run->trace);
  toolJsonDrop(run->json);
}

static enum toolExit runAll(const struct toolProgram *program,
                            struct toolError *error) {
  struct run run = {0};
  enum toolExit code = planSettingsFinish(error);
  if (code == toolGood)
    code = toolTraceOpen(&planSettings.trace, &run.trace, error);
  if (code == toolGood) code = toolJsonBegin(program, &run.json, error);
  if (code == toolGood) {
    sayWhat(program->name, run.trace);
    code = planWantsCapacity() ? factorAll(&run, error) : planAll(&run, error);
  }
  if (code == toolGood) {
    code = toolJsonEnd(run.json, error);
    run.json = NULL;
  }
  closeRun(&run);
  return code;
}

int main(int argc, char **argv) {
  struct toolProgram program = {
      .name = "lrmoe-plan",
      .summary =
          "Plans where experts run, for measured or made loads, and says "
          "how good the plans are.",
      .args = planArgs};
  return toolMain(&program, argc, argv, runAll);
}
