/* paper_figures: the paper's Figures 1, 4, 6 and 7 from stated models
 * (paper.h), as SVG and JSON, with the paper's numbers beside ours.  Every
 * plan behind them is verified. */
#include "perf/paper/paper.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Qwen3-30B-A3B's shape on 8 GPUs, and the budget of section 4.4. */
static struct paperModel model = {.numRanks = 8,
                                  .numExperts = 128,
                                  .numLayers = 48,
                                  .topk = 8,
                                  .hidden = 2048,
                                  .ffn = 768,
                                  .seed = 1,
                                  .baseTokens = 2048,
                                  .pairBytes = 65536,
                                  .offered = 20,
                                  .maxMultiplier = 24,
                                  .layerTokens = 32768,
                                  .oursSlots = 1,
                                  .symiSlots = 1,
                                  .ultraepSlots = 3,
                                  .skew = 2,
                                  .budgetGib = 16,
                                  .leastRetain = 0.7,
                                  .layerRetain = 0.8};

static const char *folder = "figures";
static struct toolIntList figures = {{1, 4, 6, 7}, 4};

#define LIST(list, low, high) \
  .kind = toolArgIntList, .value = &(list), .minimum = (low), .maximum = (high)

static const struct toolArg args[] = {
    {.name = "out",
     .letter = 'o',
     .kind = toolArgText,
     .value = &folder,
     .meta = "FOLDER",
     .help = "Where figureN.svg and figureN.json go; it is made."},
    {.name = "figures", LIST(figures, 1, 7), .help = "1, 4, 6, 7 or some."},
    {.name = "skew",
     TOOL_REAL(model.skew, 1.01, 8),
     .help = "Peak / mean of every layer, experts at home."},
    {.name = "seed",
     TOOL_INTEGER(model.seed, 0, 9e15),
     .help = "Of the trace."},
    {.name = "ranks",
     .letter = 'g',
     TOOL_INTEGER(model.numRanks, 2, 1024),
     .help = "GPUs."},
    {.name = "experts",
     TOOL_INTEGER(model.numExperts, 2, 1 << 16),
     .help = "Experts."},
    {.name = "layers",
     TOOL_INTEGER(model.numLayers, 1, 4096),
     .help = "MoE layers."},
    {.name = "topk",
     .letter = 'k',
     TOOL_INTEGER(model.topk, 1, 64),
     .help = "Routing slots per token."},
    {.name = "hidden",
     TOOL_INTEGER(model.hidden, 8, 1 << 20),
     .help = "Hidden size."},
    {.name = "ffn",
     TOOL_INTEGER(model.ffn, 8, 1 << 20),
     .help = "Expert intermediate size."},
    {.name = "budget-gib",
     TOOL_REAL(model.budgetGib, 0.001, 1e6),
     .help = "Memory of a GPU for token buffers and replicas, all layers."},
    {.name = "pair-bytes",
     TOOL_INTEGER(model.pairBytes, 1, 1 << 30),
     .help = "Of the budget, a pair of the batch takes this."},
    {.name = "base-tokens",
     TOOL_INTEGER(model.baseTokens, 1, 1 << 24),
     .help = "Tokens of a GPU at multiplier 1."},
    {.name = "offered",
     TOOL_INTEGER(model.offered, 1, 1000),
     .help = "Multiplier of Figure 1."},
    {.name = "multipliers",
     TOOL_INTEGER(model.maxMultiplier, 1, 1000),
     .help = "Figure 6 goes from 1 to this."},
    {.name = "least-retain",
     TOOL_REAL(model.leastRetain, 0.01, 1),
     .help = "Lowest retention that ours may take; candidates are 1, 0.9, ..."},
    {.name = "slots",
     TOOL_INTEGER(model.oursSlots, 0, 1024),
     .help = "Spare slots per GPU, ours."},
    {.name = "symi-slots",
     TOOL_INTEGER(model.symiSlots, 0, 1024),
     .help = "Of SYMI in Figure 6; in Figure 7 it has none."},
    {.name = "ultraep-slots",
     TOOL_INTEGER(model.ultraepSlots, 0, 1024),
     .help = "Of UltraEP."},
    {.name = "layer-tokens",
     TOOL_INTEGER(model.layerTokens, 1, 1 << 24),
     .help = "Tokens of a GPU in Figure 7."},
    {.name = "layer-retain",
     TOOL_REAL(model.layerRetain, 0.01, 1),
     .help = "Our retention in Figure 7."},
    {.name = "rows",
     LIST(paperFigure4Rows, 0, toolMaxList - 1),
     .help = "Figure 4: expert of each pair."},
    {.name = "dropped",
     LIST(paperFigure4Dropped, 0, toolMaxList - 1),
     .help = "Figure 4: places of dropped pairs, from 0."},
    {.name = "row-limit",
     .kind = toolArgInt,
     .value = &paperFigure4Limit,
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "Figure 4: rows that a rank can run."},
    {0}};

static const struct toolColumn columns[] = {
    {"figure", "", 8},     {"number", "", 28}, {"unit", "", 6},
    {"paper", "", 11},     {"ours", "", 11},   {"difference", "%", 10},
    {"explanation", "", 1}};

void paperCompare(struct paperRun *run, const struct paperNumber *number) {
  double difference =
      number->paper != 0 ? 100 * (number->ours / number->paper - 1) : NAN;
  toolTableInt(run->compared, number->figure);
  toolTableText(run->compared, number->name);
  toolTableText(run->compared, number->unit);
  toolTableReal(run->compared, number->paper, 2);
  toolTableReal(run->compared, number->ours, 2);
  toolTableReal(run->compared, difference, 1);
  toolTableText(run->compared, number->why);
}

/* ---- One figure --------------------------------------------------------- */

struct figure {
  int number;
  const char *title;
  enum toolExit (*make)(struct paperRun *run, struct paperSize *size,
                        struct toolError *error);
};

static const struct figure known[] = {
    {1, "Peak load before calibration", paperFigure1},
    {4, "Mask, pack, count", paperFigure4},
    {6, "Batch whose backward fits", paperFigure6},
    {7, "Memory of one layer", paperFigure7}};

static const struct figure *findFigure(int64_t number) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].number == number) return &known[i];
  return NULL;
}

static enum toolExit makeFigure(struct paperRun *run,
                                const struct toolProgram *program,
                                const struct figure *figure,
                                struct toolError *error) {
  char json[1024], svg[1024];
  snprintf(json, sizeof json, "%.1000s/figure%d.json", folder, figure->number);
  snprintf(svg, sizeof svg, "%.1000s/figure%d.svg", folder, figure->number);
  struct toolProgram document = *program;
  document.json = json;
  struct paperSize size = {0};
  enum toolExit code = toolJsonBegin(&document, &run->json, error);
  if (code == toolGood)
    code = toolSvgBegin(svg, figure->title, &run->svg, error);
  if (code == toolGood) code = figure->make(run, &size, error);
  if (code) {
    toolJsonDrop(run->json);
    toolSvgDrop(run->svg);
  } else {
    code = toolJsonEnd(run->json, error);
    if (code == toolGood)
      code = toolSvgEnd(run->svg, size.width, size.height, error);
    else
      toolSvgDrop(run->svg);
  }
  run->json = NULL;
  run->svg = NULL;
  return code;
}

/* ---- All ---------------------------------------------------------------- */

static enum toolExit checkOptions(struct toolError *error) {
  for (int i = 0; i < figures.count; i++)
    if (!findFigure(figures.values[i]))
      return toolFail(error, toolBadInput,
                      "option --figures: there is no figure %lld here, only "
                      "1, 4, 6 and 7",
                      (long long)figures.values[i]);
  if (mkdir(folder, 0777) == 0) return toolGood;
  struct stat status;
  if (stat(folder, &status) == 0 && S_ISDIR(status.st_mode)) return toolGood;
  return toolFail(error, toolBadInput, "option --out: no folder \"%.200s\"",
                  folder);
}

static enum toolExit openRun(struct paperRun *run, struct toolError *error) {
  run->demand =
      calloc((size_t)(model.numRanks * model.numExperts), sizeof *run->demand);
  if (!run->demand) return toolFail(error, toolRunFailed, "no memory");
  lrmoeResult_t result =
      lrmoeTopologyCreate((int)model.numRanks, &run->topology);
  if (result != lrmoeSuccess) return toolCallFailed(result, "topology", error);
  return paperTraceSolve(&model, &run->shares, error);
}

static void sayWhat(const char *name) {
  toolTableNote(stdout,
                "%s %d.%d.%d: %lld GPUs, %lld experts, top-%lld, H %lld, F "
                "%lld, %lld layers of skew %g, seed %lld",
                name, LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                (long long)model.numRanks, (long long)model.numExperts,
                (long long)model.topk, (long long)model.hidden,
                (long long)model.ffn, (long long)model.numLayers, model.skew,
                (long long)model.seed);
  toolTableNote(stdout, "pictures and their numbers are in %s", folder);
}

static enum toolExit runAll(const struct toolProgram *program,
                            struct toolError *error) {
  struct toolTable table = {.out = stdout,
                            .columns = columns,
                            .numColumns = sizeof columns / sizeof *columns};
  struct paperRun run = {.model = &model, .compared = &table};
  struct toolJson *json = NULL;
  enum toolExit code = checkOptions(error);
  if (code == toolGood) code = openRun(&run, error);
  if (code == toolGood) code = toolJsonBegin(program, &json, error);
  if (code == toolGood) {
    sayWhat(program->name);
    table.json = json;
    toolTableBegin(&table);
  }
  for (int i = 0; i < figures.count && code == toolGood; i++)
    code = makeFigure(&run, program, findFigure(figures.values[i]), error);
  if (code == toolGood)
    code = toolJsonEnd(json, error);
  else
    toolJsonDrop(json);
  lrmoeTopologyDestroy(run.topology);
  free(run.shares);
  free(run.demand);
  return code;
}

int main(int argc, char **argv) {
  struct toolProgram program = {
      .name = "paper_figures",
      .summary = "Makes the paper's Figures 1, 4, 6 and 7 from stated models.",
      .args = args};
  return toolMain(&program, argc, argv, runAll);
}
