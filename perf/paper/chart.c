/* Axes and keys: see paper.h. */
#include "perf/paper/paper.h"

#include <math.h>
#include <stdio.h>

struct toolSvgPoint paperChartAt(const struct paperChart *chart, double x,
                                 double y) {
  const struct toolSvgBox *box = &chart->box;
  return (struct toolSvgPoint){box->x + box->width * x / chart->xMost,
                               box->y + box->height * (1 - y / chart->yMost)};
}

double paperChartStep(double most) {
  double step = pow(10, floor(log10(most / 8)));
  for (int i = 0; most / step > 8; i++)
    step *= i % 3 == 1 ? 2.5 : 2;
  return step;
}

/* Half a step beyond the end is still the end: steps are not exact. */
static int isWithin(double value, double step, double most) {
  return value < most + step / 1000;
}

static void drawRows(const struct paperChart *chart,
                     const struct paperAxes *axes) {
  for (int i = 0; isWithin(i * axes->yStep, axes->yStep, chart->yMost); i++) {
    struct toolSvgPoint left = paperChartAt(chart, 0, i * axes->yStep);
    struct toolSvgPoint right =
        paperChartAt(chart, chart->xMost, i * axes->yStep);
    char text[32];
    /* The format is one of this program's own. */
    snprintf(text, sizeof text, axes->yFormat, i * axes->yStep);
    toolSvgLine(chart->svg, left, right, i ? "#dddddd" : "#333333", 1);
    toolSvgNote(chart->svg, left.x - 6, left.y + 4, toolSvgEndAnchor, "%s",
                text);
  }
}

static void drawColumns(const struct paperChart *chart,
                        const struct paperAxes *axes) {
  for (int i = 0; isWithin(i * axes->xStep, axes->xStep, chart->xMost); i++) {
    struct toolSvgPoint at = paperChartAt(chart, i * axes->xStep, 0);
    toolSvgLine(chart->svg, at, (struct toolSvgPoint){at.x, at.y + 4},
                "#333333", 1);
    toolSvgNote(chart->svg, at.x, at.y + 16, toolSvgMiddle, "%g",
                i * axes->xStep);
  }
}

void paperChartAxes(const struct paperChart *chart,
                    const struct paperAxes *axes) {
  const struct toolSvgBox *box = &chart->box;
  drawRows(chart, axes);
  drawColumns(chart, axes);
  toolSvgText(chart->svg, box->x + box->width / 2, box->y + box->height + 34,
              toolSvgMiddle, "%s", axes->x);
  toolSvgText(chart->svg, box->x - 44, box->y - 10, toolSvgStart, "%s",
              axes->y);
}

void paperChartKey(struct toolSvg *svg, double x, double y, const char *colour,
                   const char *text) {
  toolSvgRect(svg, &(struct toolSvgBox){x, y - 9, 10, 10}, colour, NULL);
  toolSvgText(svg, x + 15, y, toolSvgStart, "%s", text);
}
