/* The paper's figures from stated models: parts of paper_figures.
 *
 * Model (all inputs are options; none is a result)
 *   trace    layers of zipf popularity over experts in random order, as many
 *            pairs as top-k routing of the tokens gives, the exponent of each
 *            solved so that its peak / mean with every expert at home is skew
 *   memory   a pair takes pairBytes of the budget over all layers (Figure 6),
 *            which is what the paper's limit of 262,144 pairs in 16 GiB says;
 *            in one layer it takes 4H + 6F elements (Figure 7): X, Y, dY and
 *            dX rows, gate and up, activation, its gradient and those of gate
 *            and up
 *   replica  bf16 weights and an fp32 gradient of 3HF parameters; slots are
 *            reserved, so each is charged whether it is used or not
 *
 * The paper's numbers stand beside ours with what explains a difference. */
#ifndef LRMOE_PERF_PAPER_PAPER_H
#define LRMOE_PERF_PAPER_PAPER_H

#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/planning.h"
#include "tools/common/svg.h"
#include "tools/common/table.h"

struct paperModel {
  int64_t numRanks;
  int64_t numExperts;
  int64_t numLayers;
  int64_t topk;
  int64_t hidden;
  int64_t ffn;
  int64_t seed;
  int64_t baseTokens; /* of a rank at multiplier 1 */
  int64_t pairBytes;  /* of the budget, over all layers */
  int64_t offered;    /* multiplier of Figure 1 */
  int64_t maxMultiplier;
  int64_t layerTokens; /* of a rank, Figure 7 */
  int64_t oursSlots;
  int64_t symiSlots;
  int64_t ultraepSlots;
  double skew;
  double budgetGib;
  double leastRetain; /* lowest of the candidates 1, 0.9, 0.8, ... */
  double layerRetain; /* of Figure 7 */
};

/* One figure's run. */
struct paperRun {
  const struct paperModel *model;
  lrmoeTopology_t topology;
  int64_t *shares;       /* [L, E] popularity of each layer in 2^-32 */
  int64_t *demand;       /* [G, E] of paperDemand */
  struct toolJson *json; /* of the figure */
  struct toolSvg *svg;
  struct toolTable *compared; /* paper's numbers and ours */
};

/* Solves the trace; free() shares with the run. */
enum toolExit paperTraceSolve(const struct paperModel *model, int64_t **shares,
                              struct toolError *error);

/* Fills run->demand for `tokens` a rank. */
enum toolExit paperDemand(struct paperRun *run, int64_t layer, int64_t tokens,
                          struct toolError *error);

/* A plan of run->demand, made and verified. */
struct paperAsked {
  lrmoePolicy_t policy;
  int64_t slots;
  double retain;
};
enum toolExit paperPlan(const struct paperRun *run,
                        const struct paperAsked *asked, struct toolPlan *plan,
                        struct toolError *error);

/* A number of the paper beside ours; why: what explains the difference. */
struct paperNumber {
  int figure;
  const char *name;
  const char *unit;
  double paper;
  double ours;
  const char *why;
};
void paperCompare(struct paperRun *run, const struct paperNumber *number);

/* The figures: data to run->json, picture to run->svg, numbers to compare.
 * *size is the picture's. */
struct paperSize {
  double width;
  double height;
};
enum toolExit paperFigure1(struct paperRun *run, struct paperSize *size,
                           struct toolError *error);
enum toolExit paperFigure4(struct paperRun *run, struct paperSize *size,
                           struct toolError *error);
enum toolExit paperFigure6(struct paperRun *run, struct paperSize *size,
                           struct toolError *error);
enum toolExit paperFigure7(struct paperRun *run, struct paperSize *size,
                           struct toolError *error);

/* Figure 4's inputs are lists. */
extern struct toolIntList paperFigure4Rows;    /* expert of each pair in turn */
extern struct toolIntList paperFigure4Dropped; /* places of those dropped */
extern int64_t paperFigure4Limit;              /* rows that a rank can run */

/* ---- Charts ------------------------------------------------------------- */

/* A chart with both axes from 0 on, in a box of the picture. */
struct paperChart {
  struct toolSvg *svg;
  struct toolSvgBox box;
  double xMost;
  double yMost;
};

struct toolSvgPoint paperChartAt(const struct paperChart *chart, double x,
                                 double y);

/* Axes with ticks every xStep and yStep, grid lines and what they are. */
struct paperAxes {
  double xStep;
  double yStep;
  const char *x;
  const char *y;
  const char *yFormat; /* of a double */
};
void paperChartAxes(const struct paperChart *chart,
                    const struct paperAxes *axes);

/* A round step that divides `most` into eight parts or fewer. */
double paperChartStep(double most);

/* A coloured square or line with text, at (x, y). */
void paperChartKey(struct toolSvg *svg, double x, double y, const char *colour,
                   const char *text);

#endif
