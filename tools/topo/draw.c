/* lrmoe-topo --svg: on the left the tree of devices, one a line, with the rate
 * of the link above each as the width of its line; on the right the matrix of
 * ranks, shaded by the logarithm of the rate, each cell with its class. */
#include "tools/topo/topo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  margin = 20,
  top = 64,        /* below the heads */
  lineHeight = 20, /* of the tree */
  indentWidth = 22,
  maxLines = 400,  /* of the tree; the rest is told by number */
  maxLabelled = 64 /* ranks whose cells have text */
};

static const char *const nodeColours[] = {"#e8ecef", "#cfe3d4", "#e3dcef",
                                          "#9ecae1", "#fdd9a5", "#fce9c8",
                                          "#c6b8dd"};

/* ---- Tree --------------------------------------------------------------- */

struct tree {
  const struct topoShown *shown;
  struct toolSvg *svg;
  double *parentY; /* [numNodes] where a node was drawn */
  double width;
};

/* Thicker for faster, by the logarithm. */
static double lineWidth(int64_t bytesPerSecond) {
  double decades = log10((double)(bytesPerSecond > 1 ? bytesPerSecond : 1)) - 8;
  return decades < 0.5 ? 0.5 : decades > 6 ? 6 : decades;
}

static void drawLink(const struct tree *tree, const lrmoeTopologyNode_t *node,
                     double x, double y) {
  double spine = x - indentWidth + 8;
  const char *colour = node->guessed ? "#c8cdd1" : "#5b6770";
  struct toolSvgPoint points[] = {
      {spine, tree->parentY[node->parent]}, {spine, y}, {x, y}};
  toolSvgPolyline(tree->svg, points, 3, colour,
                  lineWidth(node->bytesPerSecond));
}

static void drawNode(struct tree *tree, int index, double y) {
  lrmoeTopologyNode_t node = topoNode(tree->shown, index);
  char name[topoNameBytes], ranks[topoNameBytes], text[2 * topoNameBytes + 8];
  char rate[topoNameBytes] = "";
  double x = margin + indentWidth * topoDepth(tree->shown, index);
  topoNodeName(&node, name);
  topoRankName(&node, ranks);
  snprintf(text, sizeof text, "%s%s%s", name, *ranks ? ": " : "", ranks);
  double width = toolSvgTextWidth(text) + 12;
  struct toolSvgBox box = {x, y - 8, width, lineHeight - 4};
  if (node.parent >= 0) {
    drawLink(tree, &node, x, y);
    snprintf(rate, sizeof rate, "%.1f GB/s%s",
             (double)node.bytesPerSecond * 1e-9,
             node.guessed ? " guessed" : "");
  }
  toolSvgRect(tree->svg, &box, nodeColours[node.kind], NULL);
  toolSvgText(tree->svg, x + 6, y + 4, toolSvgStart, "%s", text);
  toolSvgNote(tree->svg, x + width + 6, y + 4, toolSvgStart, "%s", rate);
  tree->parentY[index] = y + 8;
  double end = x + width + 6 + toolSvgTextWidth(rate);
  if (end > tree->width) tree->width = end;
}

/* Draws the tree; its lower end. */
static double drawTree(struct tree *tree, const int *order) {
  int count = tree->shown->info.numNodes;
  int numLines = count < maxLines ? count : maxLines;
  double y = top;
  toolSvgHead(tree->svg, margin, 48, "Devices");
  for (int i = 0; i < numLines; i++, y += lineHeight)
    drawNode(tree, order[i], y);
  if (numLines < count)
    toolSvgNote(tree->svg, margin, y, toolSvgStart, "... and %d more",
                count - numLines);
  if (!count)
    toolSvgNote(tree->svg, margin, y, toolSvgStart,
                "ranks in one machine's memory");
  if (tree->width < 240) tree->width = 240;
  return y + lineHeight;
}

/* ---- Matrix ------------------------------------------------------------- */

struct matrix {
  const struct topoShown *shown;
  struct toolSvg *svg;
  double x;
  double y;
  double cell;
  double least; /* logarithms of the rates */
  double most;
};

static double logOf(int64_t rate) {
  return log((double)(rate > 1 ? rate : 1));
}

static void findRange(struct matrix *matrix) {
  struct topoClassStats stats[topoNumClasses];
  topoClassCount(matrix->shown, stats);
  matrix->least = INFINITY;
  matrix->most = -INFINITY;
  for (int c = 0; c < topoNumClasses; c++) {
    if (!stats[c].numPairs || c == lrmoeLinkNone) continue;
    matrix->least = fmin(matrix->least, logOf(stats[c].leastRate));
    matrix->most = fmax(matrix->most, logOf(stats[c].mostRate));
  }
}

/* The fastest is deepest; where all are alike, in the middle. */
static double shadeOf(const struct matrix *matrix, int64_t rate) {
  double range = matrix->most - matrix->least;
  if (!(range > 0)) return 0.5;
  return 0.1 + 0.9 * (logOf(rate) - matrix->least) / range;
}

static double shadeOfLink(const struct matrix *matrix,
                          const lrmoeLink_t *link) {
  return link->linkClass == lrmoeLinkNone
             ? 0
             : shadeOf(matrix, link->bytesPerSecond);
}

static void drawCell(const struct matrix *matrix, int from, int to) {
  lrmoeLink_t link = topoLink(matrix->shown, from, to);
  char text[32], tip[160];
  double rate = (double)link.bytesPerSecond * 1e-9;
  struct toolSvgBox box = {matrix->x + to * matrix->cell,
                           matrix->y + from * matrix->cell, matrix->cell - 1,
                           matrix->cell - 1};
  if (from == to) {
    toolSvgRect(matrix->svg, &box, "#eef0f2", NULL);
    return;
  }
  snprintf(text, sizeof text, "%.*f%c", rate < 9.95 ? 1 : 0, rate,
           topoClassLetter(link.linkClass));
  snprintf(tip, sizeof tip, "rank %d to %d: %s, %.1f GB/s, %.1f us%s", from, to,
           topoClassName(link.linkClass), rate, (double)link.latencyNs * 1e-3,
           link.guessed ? ", guessed" : "");
  toolSvgCell(matrix->svg, &box, shadeOfLink(matrix, &link), text, tip);
}

/* A row of many ranks: what is alike and side by side is one rectangle. */
static void drawRuns(const struct matrix *matrix, int from) {
  int numRanks = matrix->shown->info.numRanks;
  for (int first = 0, next; first < numRanks; first = next) {
    lrmoeLink_t link = topoLink(matrix->shown, from, first);
    const char *shade =
        first == from ? "#eef0f2" : toolSvgShade(shadeOfLink(matrix, &link));
    for (next = first + 1; next < numRanks; next++) {
      lrmoeLink_t other = topoLink(matrix->shown, from, next);
      if (first == from || next == from ||
          other.bytesPerSecond != link.bytesPerSecond ||
          other.linkClass != link.linkClass)
        break;
    }
    struct toolSvgBox box = {matrix->x + first * matrix->cell,
                             matrix->y + from * matrix->cell,
                             (next - first) * matrix->cell, matrix->cell};
    toolSvgRect(matrix->svg, &box, shade, NULL);
  }
}

static void drawLegend(const struct matrix *matrix, double y) {
  struct topoClassStats stats[topoNumClasses];
  topoClassCount(matrix->shown, stats);
  for (int c = 0; c < topoNumClasses; c++) {
    if (!stats[c].numPairs) continue;
    struct toolSvgBox box = {matrix->x, y - 11, 30, 15};
    char letter[2] = {topoClassLetter((lrmoeLinkClass_t)c), '\0'};
    toolSvgCell(matrix->svg, &box, shadeOf(matrix, stats[c].mostRate), letter,
                NULL);
    toolSvgText(matrix->svg, matrix->x + 38, y, toolSvgStart,
                "%s, %.1f to %.1f GB/s%s", topoClassName((lrmoeLinkClass_t)c),
                (double)stats[c].leastRate * 1e-9,
                (double)stats[c].mostRate * 1e-9,
                stats[c].numGuessed ? ", guessed" : "");
    y += lineHeight;
  }
}

static void drawNumbers(const struct matrix *matrix) {
  int numRanks = matrix->shown->info.numRanks;
  int step = numRanks <= maxLabelled ? 1 : (numRanks + 31) / 32;
  for (int rank = 0; rank < numRanks; rank += step) {
    double middle = (rank + 0.5) * matrix->cell;
    toolSvgNote(matrix->svg, matrix->x + middle, matrix->y - 5, toolSvgMiddle,
                "%d", rank);
    toolSvgNote(matrix->svg, matrix->x - 5, matrix->y + middle + 4,
                toolSvgEndAnchor, "%d", rank);
  }
}

/* Draws the matrix; its lower right corner. */
static struct toolSvgPoint drawMatrix(struct matrix *matrix) {
  int numRanks = matrix->shown->info.numRanks;
  toolSvgHead(matrix->svg, matrix->x, 48,
              "From rank (row) to rank (column), GB/s");
  findRange(matrix);
  matrix->y = top + 16;
  matrix->cell = numRanks <= maxLabelled ? 40 : numRanks <= 256 ? 6 : 2;
  if (numRanks <= maxLabelled && numRanks > 16) matrix->cell = 34;
  drawNumbers(matrix);
  for (int from = 0; from < numRanks; from++) {
    if (numRanks > maxLabelled) drawRuns(matrix, from);
    for (int to = 0; to < numRanks && numRanks <= maxLabelled; to++)
      drawCell(matrix, from, to);
  }
  double end = matrix->y + numRanks * matrix->cell;
  drawLegend(matrix, end + 24);
  double width = numRanks * matrix->cell;
  return (struct toolSvgPoint){matrix->x + (width < 340 ? 340 : width),
                               end + 24 + topoNumClasses * 0.5 * lineHeight};
}

/* ---- All ---------------------------------------------------------------- */

enum toolExit topoDraw(const struct topoShown *shown, const char *path,
                       struct toolError *error) {
  struct toolSvg *svg = NULL;
  char title[topoNameBytes];
  snprintf(title, sizeof title, "%s: %d ranks", shown->source,
           shown->info.numRanks);
  enum toolExit code = toolSvgBegin(path, title, &svg, error);
  if (code != toolGood || !svg) return code;
  int *order = topoOrder(shown);
  struct tree tree = {
      shown, svg, calloc((size_t)shown->info.numNodes + 1, sizeof(double)), 0};
  if (!order || !tree.parentY) {
    free(order);
    free(tree.parentY);
    toolSvgDrop(svg);
    return toolFail(error, toolRunFailed, "no memory for --svg");
  }
  toolSvgHead(svg, margin, 24, "%s", title);
  double treeEnd = drawTree(&tree, order);
  struct matrix matrix = {.shown = shown, .svg = svg, .x = tree.width + 50};
  struct toolSvgPoint corner = drawMatrix(&matrix);
  free(order);
  free(tree.parentY);
  return toolSvgEnd(svg, corner.x + margin,
                    (treeEnd > corner.y ? treeEnd : corner.y) + margin, error);
}
