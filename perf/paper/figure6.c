/* Figure 6: effective throughput under memory pressure.
 *
 * At multiplier m a rank's tokens are m times the base batch.  The effective
 * throughput of a layer is the part of the batch whose backward fits every
 * rank: the least over ranks of (budget - slots * replica) / (pairs on the
 * rank * pairBytes), at most 1; the figure shows the mean over layers.
 *   fixed     no slots
 *   SYMI      policy proportional
 *   UltraEP   policy quota
 *   ideal     perfectly level, replicas free
 *   ours      policy lrmoe at the largest retention of 1, 0.9, ... that fits,
 *             else at the least: then part of the kept pairs fits (Algorithm 1)
 * A replica is charged in all layers of a rank at once, 6 bytes a parameter. */
#include "perf/paper/paper.h"

#include <math.h>
#include <stdlib.h>

enum curve {
  curveFixed,
  curveSymi,
  curveUltraep,
  curveIdeal,
  curveOurs,
  numCurves
};

static const char *const curveNames[numCurves] = {
    "fixed (Megatron-LM)", "proportional (SYMI)", "quota (UltraEP)",
    "ideal, not calibrated", "ours, calibrated"};
static const char *const curveKeys[numCurves] = {"fixed", "symi", "ultraep",
                                                 "ideal", "ours"};
static const int curveColours[numCurves] = {7, 3, 2, 0, 5};

/* One multiplier. */
struct point {
  double part[numCurves]; /* of the batch, mean over layers */
  double retention;       /* of ours */
  double replicas;        /* of ours, over all ranks */
};

static double replicaBytes(const struct paperModel *model) {
  double parameters = 3.0 * (double)(model->hidden * model->ffn);
  return 6 * parameters * (double)model->numLayers;
}

/* The part of a load that fits when its highest rank has `peak` pairs. */
static double partThatFits(const struct paperModel *model, int64_t slots,
                           double peak) {
  double room = model->budgetGib * 0x1p30 - (double)slots * replicaBytes(model);
  if (peak == 0) return 1;
  return fmax(0, fmin(1, room / (peak * (double)model->pairBytes)));
}

static enum toolExit addRival(const struct paperRun *run,
                              const struct paperAsked *asked, double *part,
                              struct toolError *error) {
  struct toolPlan plan;
  enum toolExit code = paperPlan(run, asked, &plan, error);
  if (code) return code;
  *part += partThatFits(run->model, asked->slots, (double)plan.view.peakKept);
  toolPlanFree(&plan);
  return toolGood;
}

/* Candidates in decreasing order, as Algorithm 1 tests them. */
static enum toolExit addOurs(const struct paperRun *run, struct point *point,
                             struct toolError *error) {
  const struct paperModel *model = run->model;
  for (int i = 0;; i++) {
    double retain = fmax(1 - i / 10.0, model->leastRetain);
    const struct paperAsked asked = {lrmoePolicyLrmoe, model->oursSlots,
                                     retain};
    struct toolPlan plan;
    enum toolExit code = paperPlan(run, &asked, &plan, error);
    if (code) return code;
    double part =
        partThatFits(model, model->oursSlots, (double)plan.view.peakKept);
    int isLast = part >= 1 || retain <= model->leastRetain;
    if (isLast) {
      point->part[curveOurs] += part;
      point->retention += plan.figures.retention;
      point->replicas += (double)plan.view.numReplicas;
    }
    toolPlanFree(&plan);
    if (isLast) return toolGood;
  }
}

static enum toolExit addLayer(struct paperRun *run, int64_t layer,
                              int64_t multiplier, struct point *point,
                              struct toolError *error) {
  const struct paperModel *model = run->model;
  const struct paperAsked rivals[] = {
      [curveFixed] = {lrmoePolicyFixed, 0, 1},
      [curveSymi] = {lrmoePolicyProportional, model->symiSlots, 1},
      [curveUltraep] = {lrmoePolicyQuota, model->ultraepSlots, 1}};
  int64_t tokens = multiplier * model->baseTokens;
  enum toolExit code = paperDemand(run, layer, tokens, error);
  for (int i = 0; i < curveIdeal && code == toolGood; i++)
    code = addRival(run, &rivals[i], &point->part[i], error);
  if (code) return code;
  point->part[curveIdeal] +=
      partThatFits(model, 0, (double)(tokens * model->topk));
  return addOurs(run, point, error);
}

static enum toolExit findPoint(struct paperRun *run, int64_t multiplier,
                               struct point *point, struct toolError *error) {
  double layers = (double)run->model->numLayers;
  enum toolExit code = toolGood;
  *point = (struct point){0};
  for (int64_t i = 0; i < run->model->numLayers && code == toolGood; i++)
    code = addLayer(run, i, multiplier, point, error);
  for (int i = 0; i < numCurves; i++)
    point->part[i] /= layers;
  point->retention /= layers;
  point->replicas /= layers;
  return code;
}

/* ---- Picture and numbers ------------------------------------------------ */

static void writePoint(struct toolJson *json, int64_t multiplier,
                       const struct point *point) {
  toolJsonRow(json);
  toolJsonInt(json, "multiplier", multiplier);
  for (int i = 0; i < numCurves; i++)
    toolJsonReal(json, curveKeys[i], 100 * point->part[i]);
  toolJsonReal(json, "ours_retention", point->retention);
  toolJsonReal(json, "ours_replicas", point->replicas);
}

static void drawCurve(const struct paperChart *chart, int curve,
                      const struct point *points, int64_t count) {
  struct toolSvgPoint *line = calloc((size_t)count, sizeof *line);
  if (!line) return; /* toolSvgEnd will notice that memory has run out */
  for (int64_t i = 0; i < count; i++)
    line[i] = paperChartAt(chart, (double)(i + 1), 100 * points[i].part[curve]);
  const char *colour = toolSvgColour(curveColours[curve]);
  toolSvgPolyline(chart->svg, line, (int)count, colour, 2);
  paperChartKey(chart->svg, 500, 80 + 22 * curve, colour, curveNames[curve]);
  free(line);
}

static void draw(struct paperRun *run, const struct point *points,
                 int64_t count) {
  const struct paperModel *model = run->model;
  const struct paperChart chart = {.svg = run->svg,
                                   .box = {64, 66, 410, 260},
                                   .xMost = (double)count,
                                   .yMost = 100};
  const struct paperAxes axes = {paperChartStep((double)count), 20,
                                 "batch-size multiplier", "% of the batch",
                                 "%.0f"};
  paperChartAxes(&chart, &axes);
  toolSvgHead(run->svg, 12, 22, "Figure 6: batch whose backward fits");
  double full = model->budgetGib * 0x1p30 /
                (double)(model->pairBytes * model->baseTokens * model->topk);
  if (full <= (double)count) {
    toolSvgLine(run->svg, paperChartAt(&chart, full, 0),
                paperChartAt(&chart, full, 100), "#999999", 1);
    struct toolSvgPoint top = paperChartAt(&chart, full, 100);
    toolSvgNote(run->svg, top.x, top.y - 6, toolSvgMiddle, "full ideal limit");
  }
  for (int i = 0; i < numCurves; i++)
    drawCurve(&chart, i, points, count);
}

static void compare(struct paperRun *run, const struct point *at) {
  const struct paperNumber numbers[] = {
      {6, "20x, fixed", "%", 40.0, 100 * at->part[curveFixed],
       "budget / (20 * skew)"},
      {6, "20x, SYMI", "%", 44.9, 100 * at->part[curveSymi],
       "one slot a rank, equal split, contiguous slots"},
      {6, "20x, UltraEP", "%", 58.4, 100 * at->part[curveUltraep],
       "all reserved slots charged; the paper's count of them is not stated"},
      {6, "20x, ideal", "%", 80.0, 100 * at->part[curveIdeal],
       "budget / 20 base batches"},
      {6, "20x, ours", "%", 100.0, 100 * at->part[curveOurs],
       "at retention 0.7: the least of the paper's candidates"},
      {6, "20x, replicas of ours", "", 8, at->replicas,
       "the paper says 7 to 9; N ranks need N - 1 to be level"}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    paperCompare(run, &numbers[i]);
}

static enum toolExit findPoints(struct paperRun *run, struct point *points,
                                struct toolError *error) {
  enum toolExit code = toolGood;
  for (int64_t m = 1; m <= run->model->maxMultiplier && code == toolGood; m++) {
    code = findPoint(run, m, &points[m - 1], error);
    if (code == toolGood) writePoint(run->json, m, &points[m - 1]);
  }
  return code;
}

enum toolExit paperFigure6(struct paperRun *run, struct paperSize *size,
                           struct toolError *error) {
  int64_t count = run->model->maxMultiplier;
  struct point *points = calloc((size_t)count, sizeof *points);
  if (!points) return toolFail(error, toolRunFailed, "no memory for figure 6");
  enum toolExit code = findPoints(run, points, error);
  if (code == toolGood) {
    draw(run, points, count);
    if (count >= 20) compare(run, &points[19]);
  }
  free(points);
  *size = (struct paperSize){680, 380};
  return code;
}
