/* Figure 1: peaks before calibration, layer by layer.
 *
 * The batch offered is `offered` times the base batch.  A layer's pairs are
 * over the limit of a rank (budget / pairBytes) even when they are perfectly
 * level: so no placement helps.  The paper's MILP is replaced by two things
 * that say more: the proven bound (no placement is lower) and a plan that was
 * made.  Beyond the figure: the same layers with the lowest retention. */
#include "perf/paper/paper.h"

#include <math.h>

struct layerPeaks {
  int64_t fixed;
  int64_t balanced;
  int64_t bound;
  int64_t calibrated;
};

static enum toolExit findPeaks(struct paperRun *run, int64_t layer,
                               struct layerPeaks *peaks,
                               struct toolError *error) {
  const struct paperModel *model = run->model;
  const struct paperAsked asked[] = {
      {lrmoePolicyFixed, 0, 1},
      {lrmoePolicyLrmoe, model->oursSlots, 1},
      {lrmoePolicyLrmoe, model->oursSlots, model->leastRetain}};
  int64_t found[3];
  int64_t bound = 0;
  enum toolExit code =
      paperDemand(run, layer, model->offered * model->baseTokens, error);
  for (int i = 0; i < 3 && code == toolGood; i++) {
    struct toolPlan plan;
    code = paperPlan(run, &asked[i], &plan, error);
    if (code) return code;
    found[i] = plan.view.peakKept;
    if (i == 1) bound = plan.view.boundKept;
    toolPlanFree(&plan);
  }
  *peaks = (struct layerPeaks){found[0], found[1], bound, found[2]};
  return code;
}

static void drawPeaks(const struct paperChart *chart, int64_t layer,
                      const struct layerPeaks *peaks) {
  double x = (double)layer;
  struct toolSvgPoint top = paperChartAt(chart, x + 0.15, (double)peaks->fixed);
  struct toolSvgPoint base = paperChartAt(chart, x + 0.85, 0);
  toolSvgRect(
      chart->svg,
      &(struct toolSvgBox){top.x, top.y, base.x - top.x, base.y - top.y},
      "#b8bec6", NULL);
  toolSvgLine(chart->svg, paperChartAt(chart, x, (double)peaks->balanced),
              paperChartAt(chart, x + 1, (double)peaks->balanced), "#0072b2",
              2);
  toolSvgLine(chart->svg, paperChartAt(chart, x, (double)peaks->calibrated),
              paperChartAt(chart, x + 1, (double)peaks->calibrated), "#009e73",
              2);
}

static void drawFrame(const struct paperChart *chart) {
  const struct paperAxes axes = {paperChartStep(chart->xMost),
                                 paperChartStep(chart->yMost), "MoE layer",
                                 "pairs / GPU", "%.0f"};
  paperChartAxes(chart, &axes);
  toolSvgHead(chart->svg, 12, 22, "Figure 1: peak load before calibration");
  paperChartKey(chart->svg, 70, 42, "#b8bec6", "every expert at home");
  paperChartKey(chart->svg, 240, 42, "#0072b2", "as level as can be");
  paperChartKey(chart->svg, 390, 42, "#009e73", "calibrated");
  paperChartKey(chart->svg, 490, 42, "#d55e00", "limit of a GPU");
}

/* Sums over layers. */
struct totals {
  int64_t boundOver; /* layers whose bound is over the limit */
  int64_t calibratedOver;
  double fixed; /* sum of peaks */
  double highest;
};

static void addLayer(struct paperRun *run, int64_t layer, double limit,
                     const struct layerPeaks *peaks, struct totals *totals) {
  totals->boundOver += (double)peaks->bound > limit;
  totals->calibratedOver += (double)peaks->calibrated > limit;
  totals->fixed += (double)peaks->fixed;
  if ((double)peaks->fixed > totals->highest)
    totals->highest = (double)peaks->fixed;
  toolJsonRow(run->json);
  toolJsonInt(run->json, "layer", layer);
  toolJsonInt(run->json, "fixed_peak", peaks->fixed);
  toolJsonInt(run->json, "balanced_peak", peaks->balanced);
  toolJsonInt(run->json, "balanced_bound", peaks->bound);
  toolJsonInt(run->json, "calibrated_peak", peaks->calibrated);
  toolJsonReal(run->json, "limit", limit);
}

static void compare(struct paperRun *run, double limit,
                    const struct totals *totals) {
  double layers = (double)run->model->numLayers;
  const struct paperNumber numbers[] = {
      {1, "limit of a GPU", "pairs", 262144, limit,
       "budget / bytes of a pair; the paper rounds to 262k"},
      {1, "layers over it when level", "layers", 48, (double)totals->boundOver,
       "by proof (bound), not by a solver's limit"},
      {1, "highest peak", "pairs", NAN, totals->highest,
       "not stated: the paper's axis ends at 800k; ours has one skew"},
      {1, "calibrated layers over it", "layers", 0,
       (double)totals->calibratedOver, "the point of calibration"}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    paperCompare(run, &numbers[i]);
  toolJsonRow(run->json);
  toolJsonReal(run->json, "mean_fixed_peak", totals->fixed / layers);
}

enum toolExit paperFigure1(struct paperRun *run, struct paperSize *size,
                           struct toolError *error) {
  const struct paperModel *model = run->model;
  double limit = model->budgetGib * 0x1p30 / (double)model->pairBytes;
  double mean = (double)(model->offered * model->baseTokens * model->topk);
  const struct paperChart chart = {.svg = run->svg,
                                   .box = {70, 70, 560, 260},
                                   .xMost = (double)model->numLayers,
                                   .yMost = 1.15 * model->skew * mean};
  struct totals totals = {0};
  drawFrame(&chart);
  for (int64_t i = 0; i < model->numLayers; i++) {
    struct layerPeaks peaks;
    enum toolExit code = findPeaks(run, i, &peaks, error);
    if (code) return code;
    addLayer(run, i, limit, &peaks, &totals);
    drawPeaks(&chart, i, &peaks);
  }
  toolSvgLine(run->svg, paperChartAt(&chart, 0, limit),
              paperChartAt(&chart, chart.xMost, limit), "#d55e00", 2);
  compare(run, limit, &totals);
  *size = (struct paperSize){660, 384};
  return toolGood;
}
