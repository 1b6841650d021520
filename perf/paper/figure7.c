/* Figure 7: memory of one layer on the rank that needs the most.
 *
 *   base      experts at home, weights and gradient: 6 bytes a parameter
 *   replicas  instances away from home that the plan puts on the rank
 *   buffers   kept pairs of the rank * (4H + 6F) elements
 * Mean over the layers of the trace of the rank with the largest sum.
 *
 * What the paper's bars say, and what is taken here:
 *   SYMI's bar is Megatron-LM's to the last digit, so its number of slots was
 *   that of experts, each of which needs one: no replica is left.
 *   Ours is 0.795 of the mean: retention 0.8 when level (Figure 6 needs 0.7).
 *   UltraEP's is 1.21 times the mean, though its compute time in Figure 8 is
 *   that of a level load: the two cannot be the same load. */
#include "perf/paper/paper.h"

#include <stdio.h>

enum {
  numBars = 4
};

struct bar {
  const char *name;
  struct paperAsked asked;
  double paperTotal; /* GiB */
  double paperBuffers;
  const char *why;
  double base; /* GiB */
  double replicas;
  double buffers;
};

/* What the paper's fixed bar leaves beside its buffers. */
static const double paperBase = 12.88 - 12.46;

static double expertGib(const struct paperModel *model) {
  return 6 * 3.0 * (double)(model->hidden * model->ffn) / 0x1p30;
}

static double pairGib(const struct paperModel *model) {
  return 2 * (4.0 * (double)model->hidden + 6.0 * (double)model->ffn) / 0x1p30;
}

/* Experts whose home is the rank. */
static double countHome(const lrmoePlanView_t *view, int32_t rank) {
  double count = 0;
  for (int32_t e = 0; e < view->numExperts; e++)
    count += view->homes[e] == rank;
  return count;
}

static void addRank(const struct paperModel *model, const struct toolPlan *plan,
                    struct bar *bar) {
  struct bar most = {0};
  for (int32_t g = 0; g < plan->view.numRanks; g++) {
    struct bar here = {
        .base = countHome(&plan->view, g) * expertGib(model),
        .replicas = plan->figures.rankSlots[g] * expertGib(model),
        .buffers = (double)plan->figures.rankKept[g] * pairGib(model)};
    if (here.base + here.replicas + here.buffers >
        most.base + most.replicas + most.buffers)
      most = here;
  }
  double layers = (double)model->numLayers;
  bar->base += most.base / layers;
  bar->replicas += most.replicas / layers;
  bar->buffers += most.buffers / layers;
}

static enum toolExit fillBar(struct paperRun *run, struct bar *bar,
                             struct toolError *error) {
  const struct paperModel *model = run->model;
  for (int64_t i = 0; i < model->numLayers; i++) {
    struct toolPlan plan;
    enum toolExit code = paperDemand(run, i, model->layerTokens, error);
    if (code == toolGood) code = paperPlan(run, &bar->asked, &plan, error);
    if (code) return code;
    addRank(model, &plan, bar);
    toolPlanFree(&plan);
  }
  return toolGood;
}

static double totalOf(const struct bar *bar) {
  return bar->base + bar->replicas + bar->buffers;
}

static void drawPiece(const struct paperChart *chart, int row, double from,
                      double to, const char *colour) {
  struct toolSvgPoint left = paperChartAt(chart, from, row + 0.75);
  struct toolSvgPoint right = paperChartAt(chart, to, row + 0.25);
  toolSvgRect(
      chart->svg,
      &(struct toolSvgBox){left.x, left.y, right.x - left.x, right.y - left.y},
      colour, NULL);
}

static void drawBar(const struct paperChart *chart, int row,
                    const struct bar *bar) {
  double two = bar->base + bar->replicas, all = totalOf(bar);
  drawPiece(chart, row, 0, bar->base, toolSvgColour(7));
  drawPiece(chart, row, bar->base, two, "#d55e00");
  drawPiece(chart, row, two, all, toolSvgColour(4));
  struct toolSvgPoint at = paperChartAt(chart, all, row + 0.45);
  struct toolSvgPoint name = paperChartAt(chart, 0, row + 0.45);
  toolSvgText(chart->svg, at.x + 8, at.y, toolSvgStart, "%.2f", all);
  toolSvgText(chart->svg, name.x - 8, name.y, toolSvgEndAnchor, "%s",
              bar->name);
  toolSvgLine(chart->svg, paperChartAt(chart, bar->paperTotal, row + 0.15),
              paperChartAt(chart, bar->paperTotal, row + 0.85), "#111111", 2);
}

static void draw(struct paperRun *run, const struct bar bars[numBars]) {
  double most = 0;
  for (int i = 0; i < numBars; i++)
    if (totalOf(&bars[i]) > most) most = totalOf(&bars[i]);
  if (most < 13) most = 13;
  const struct paperChart chart = {.svg = run->svg,
                                   .box = {110, 62, 470, 200},
                                   .xMost = 1.12 * most,
                                   .yMost = numBars};
  double step = paperChartStep(chart.xMost);
  toolSvgHead(run->svg, 12, 22, "Figure 7: memory of one layer, fullest GPU");
  paperChartKey(run->svg, 110, 44, toolSvgColour(7), "base placement");
  paperChartKey(run->svg, 230, 44, "#d55e00", "replicas");
  paperChartKey(run->svg, 316, 44, toolSvgColour(4), "token buffers");
  paperChartKey(run->svg, 426, 44, "#111111", "the paper's sum");
  for (int i = 0; i * step < chart.xMost; i++) {
    double x = i * step;
    struct toolSvgPoint at = paperChartAt(&chart, x, 0);
    toolSvgLine(run->svg, at, paperChartAt(&chart, x, numBars), "#dddddd", 1);
    toolSvgNote(run->svg, at.x, at.y + 16, toolSvgMiddle, "%g", x);
  }
  toolSvgText(run->svg, 345, 300, toolSvgMiddle, "GiB / GPU");
  for (int i = 0; i < numBars; i++)
    drawBar(&chart, numBars - 1 - i, &bars[i]);
}

static void write(struct paperRun *run, const struct bar *bar) {
  toolJsonRow(run->json);
  toolJsonText(run->json, "system", bar->name);
  toolJsonReal(run->json, "base_gib", bar->base);
  toolJsonReal(run->json, "replica_gib", bar->replicas);
  toolJsonReal(run->json, "buffer_gib", bar->buffers);
  toolJsonReal(run->json, "total_gib", totalOf(bar));
  char name[64];
  snprintf(name, sizeof name, "%s, buffers", bar->name);
  paperCompare(run, &(struct paperNumber){7, name, "GiB", bar->paperBuffers,
                                          bar->buffers, bar->why});
  snprintf(name, sizeof name, "%s, replicas", bar->name);
  paperCompare(
      run, &(struct paperNumber){
               7, name, "GiB", bar->paperTotal - bar->paperBuffers - paperBase,
               bar->replicas, "the paper's: its sum less the rest, to 0.01"});
  snprintf(name, sizeof name, "%s, all", bar->name);
  paperCompare(run, &(struct paperNumber){7, name, "GiB", bar->paperTotal,
                                          totalOf(bar), bar->why});
}

enum toolExit paperFigure7(struct paperRun *run, struct paperSize *size,
                           struct toolError *error) {
  const struct paperModel *model = run->model;
  struct bar bars[numBars] = {
      {.name = "Megatron-LM",
       .asked = {lrmoePolicyFixed, 0, 1},
       .paperTotal = 12.88,
       .paperBuffers = 12.46,
       .why = "skew 2.0 against the 1.994 that the paper's bar implies"},
      {.name = "UltraEP",
       .asked = {lrmoePolicyQuota, model->ultraepSlots, 1},
       .paperTotal = 8.03,
       .paperBuffers = 7.55,
       .why = "the paper's buffers are 1.21 of the mean, its compute time "
              "that of a level load"},
      {.name = "SYMI",
       .asked = {lrmoePolicyProportional, 0, 1},
       .paperTotal = 12.88,
       .paperBuffers = 12.46,
       .why = "as many slots as experts: no replica is left"},
      {.name = "ours",
       .asked = {lrmoePolicyLrmoe, model->oursSlots, model->layerRetain},
       .paperTotal = 5.44,
       .paperBuffers = 4.97,
       .why = "retention 0.8, level; the paper's bar implies 0.795"}};
  for (int i = 0; i < numBars; i++) {
    enum toolExit code = fillBar(run, &bars[i], error);
    if (code) return code;
    write(run, &bars[i]);
  }
  paperCompare(run, &(struct paperNumber){7, "base placement", "GiB", paperBase,
                                          bars[0].base,
                                          "experts at home, weights and fp32 "
                                          "gradient"});
  draw(run, bars);
  *size = (struct paperSize){620, 316};
  return toolGood;
}
