/* Load per rank before and after, as SVG: a row per layer, a panel per policy,
 * and in it two bars a rank: kept pairs with every expert at home and nothing
 * dropped, and under the plan.  All panels of a layer have one scale; the line
 * is the mean of the demand.  Layers beyond maxDrawn are left out, and the
 * picture says so. */
#include "tools/common/svg.h"
#include "tools/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

enum {
  maxDrawn = 64, /* layers */
  panelHeight = 96,
  panelGap = 40,
  leftEdge = 110,
  topEdge = 76
};

struct planDrawing {
  struct toolSvg *svg;
  int64_t *before; /* [G] of the layer that is drawn */
  int64_t scale;   /* its highest bar */
  int64_t numLayers;
  double panelWidth;
};

static const char *const beforeColour = "#b8bec6";

enum toolExit planDrawingBegin(struct planDrawing **drawing,
                               struct toolError *error) {
  *drawing = NULL;
  if (!planSettings.svg) return toolGood;
  struct planDrawing *made = calloc(1, sizeof *made);
  int64_t *before = calloc((size_t)planSettings.numRanks, sizeof *before);
  if (!made || !before) {
    free(made);
    free(before);
    return toolFail(error, toolRunFailed, "no memory for --svg");
  }
  double wanted = 14.0 * (double)planSettings.numRanks;
  *made = (struct planDrawing){.before = before,
                               .panelWidth = wanted < 230   ? 230
                                             : wanted > 900 ? 900
                                                            : wanted};
  enum toolExit code =
      toolSvgBegin(planSettings.svg, "Load per rank before and after planning",
                   &made->svg, error);
  if (code == toolGood)
    *drawing = made;
  else
    planDrawingDrop(made);
  return code;
}

static double panelLeft(const struct planDrawing *drawing, int rival) {
  return leftEdge + rival * (drawing->panelWidth + panelGap);
}

static double panelBottom(int64_t layer) {
  return topEdge + (double)layer * (panelHeight + panelGap) + panelHeight;
}

/* Pairs per rank with every expert at home: what the bars compare with. */
static void findBefore(struct planDrawing *drawing,
                       const struct toolTraceSection *section) {
  int64_t ranks = planSettings.numRanks, experts = section->numExperts;
  for (int64_t g = 0; g < ranks; g++)
    drawing->before[g] = 0;
  for (int64_t e = 0; e < experts; e++)
    drawing->before[e * ranks / experts] += section->counts[e];
  drawing->scale = 1;
  for (int64_t g = 0; g < ranks; g++)
    if (drawing->before[g] > drawing->scale)
      drawing->scale = drawing->before[g];
}

static void drawLayerName(struct planDrawing *drawing,
                          const struct toolTraceSection *section) {
  double y = panelBottom(drawing->numLayers - 1);
  toolSvgText(drawing->svg, 12, y - panelHeight / 2.0 - 4, toolSvgStart,
              "layer %lld", (long long)section->layer);
  toolSvgNote(drawing->svg, 12, y - panelHeight / 2.0 + 12, toolSvgStart,
              "step %lld", (long long)section->step);
  toolSvgNote(drawing->svg, leftEdge - 8, y - panelHeight + 8, toolSvgEndAnchor,
              "%lld", (long long)drawing->scale);
}

static void drawBar(struct planDrawing *drawing, double x, double width,
                    int64_t pairs, const char *colour, const char *tip) {
  double height = panelHeight * (double)pairs / (double)drawing->scale;
  double y = panelBottom(drawing->numLayers - 1);
  toolSvgRect(drawing->svg, &(struct toolSvgBox){x, y - height, width, height},
              colour, tip);
}

static void drawBars(struct planDrawing *drawing, double left,
                     const struct toolPlan *plan) {
  int64_t ranks = planSettings.numRanks;
  double step = drawing->panelWidth / (double)ranks;
  for (int64_t g = 0; g < ranks; g++) {
    char tip[96];
    snprintf(tip, sizeof tip, "rank %lld: %lld before, %lld after",
             (long long)g, (long long)drawing->before[g],
             (long long)plan->figures.rankKept[g]);
    double x = left + step * (double)g;
    drawBar(drawing, x, step * 0.42, drawing->before[g], beforeColour, tip);
    drawBar(drawing, x + step * 0.42, step * 0.42, plan->figures.rankKept[g],
            toolSvgColour(4), tip);
  }
}

static void drawPanel(struct planDrawing *drawing, int rival,
                      const struct toolTraceSection *section,
                      const struct toolPlan *plan) {
  double left = panelLeft(drawing, rival);
  double right = left + drawing->panelWidth;
  double bottom = panelBottom(drawing->numLayers - 1);
  double mean = (double)section->pairs / (double)planSettings.numRanks;
  double meanY = bottom - panelHeight * mean / (double)drawing->scale;
  drawBars(drawing, left, plan);
  toolSvgLine(drawing->svg, (struct toolSvgPoint){left, bottom},
              (struct toolSvgPoint){right, bottom}, "#333333", 1);
  toolSvgLine(drawing->svg, (struct toolSvgPoint){left, meanY},
              (struct toolSvgPoint){right, meanY}, "#d55e00", 1);
  toolSvgNote(drawing->svg, left, bottom + 14, toolSvgStart,
              "peak/mean %.3f, %lld replicas, %.0f%% kept",
              plan->figures.imbalance, (long long)plan->view.numReplicas,
              100 * plan->figures.retention);
}

void planDrawingAdd(struct planDrawing *drawing, int rival,
                    const struct toolTraceSection *section,
                    const struct toolPlan *plan) {
  if (!drawing) return;
  if (rival == 0) drawing->numLayers++;
  if (drawing->numLayers > maxDrawn) return;
  if (rival == 0) {
    findBefore(drawing, section);
    drawLayerName(drawing, section);
  }
  drawPanel(drawing, rival, section, plan);
}

static void drawHead(struct planDrawing *drawing) {
  struct toolSvg *svg = drawing->svg;
  toolSvgHead(svg, 12, 22, "Load per rank before and after planning");
  toolSvgRect(svg, &(struct toolSvgBox){12, 34, 10, 10}, beforeColour, NULL);
  toolSvgText(svg, 27, 43, toolSvgStart, "all pairs at their experts' homes");
  toolSvgRect(svg, &(struct toolSvgBox){232, 34, 10, 10}, toolSvgColour(4),
              NULL);
  toolSvgText(svg, 247, 43, toolSvgStart, "kept pairs, planned");
  toolSvgLine(svg, (struct toolSvgPoint){372, 39},
              (struct toolSvgPoint){392, 39}, "#d55e00", 1);
  toolSvgText(svg, 397, 43, toolSvgStart, "mean of all pairs");
  for (int i = 0; i < planSettings.numPolicies; i++)
    toolSvgText(svg, panelLeft(drawing, i), 66, toolSvgStart, "%s",
                toolPolicyNames[planSettings.policies[i]]);
}

enum toolExit planDrawingEnd(struct planDrawing *drawing,
                             struct toolError *error) {
  if (!drawing) return toolGood;
  int64_t shown = drawing->numLayers < maxDrawn ? drawing->numLayers : maxDrawn;
  double bottom = panelBottom(shown - 1) + 30;
  double right = panelLeft(drawing, planSettings.numPolicies);
  drawHead(drawing);
  if (shown < drawing->numLayers)
    toolSvgNote(drawing->svg, 12, bottom + 6, toolSvgStart,
                "%lld more layers are not drawn",
                (long long)(drawing->numLayers - shown));
  enum toolExit code =
      toolSvgEnd(drawing->svg, right > 520 ? right : 520, bottom + 14, error);
  drawing->svg = NULL;
  planDrawingDrop(drawing);
  return code;
}

void planDrawingDrop(struct planDrawing *drawing) {
  if (!drawing) return;
  toolSvgDrop(drawing->svg);
  free(drawing->before);
  free(drawing);
}
