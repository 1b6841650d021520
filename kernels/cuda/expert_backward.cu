/* Experts backward, stage by stage over a batch:
 *
 *   g W2 -> activation: dFc1, alpha phi, d(alpha) -> dW2 += g^T (alpha phi)
 *   -> dx = dFc1 W1 -> dW1 += dFc1^T x
 *
 * alpha phi takes the place of g W2, and gathered x that of g.  Where a tile
 * has no saved FC1 output, x is gathered first, kept, and FC1 computed again;
 * dFc1 then takes the place of its output.
 *
 * In two phases the gradients come last, over all batches, from rows of g and
 * of x that are gathered once more: to keep them would take 2H a row. */
#include "kernels/cuda/calls.h"
#include "kernels/cuda/run.h"

/* Row `tile->row` of scratch rows of `width` elements. */
static char *rowsAt(const struct lrmoeRun *run,
                    const struct lrmoeCudaTile *tile, char *rows,
                    int64_t width) {
  return rows + tile->row * width * run->context->elementBytes;
}

/* The operands of a batch, tile by tile. */
struct operands {
  const char *of[LRMOE_MAX_GEMMS];
};

static lrmoeResult_t gatherX(const struct lrmoeRun *run, char *to,
                             struct operands *x) {
  struct lrmoeGatherTiles gather = {};
  for (int t = 0; t < run->batch->numTiles; t++)
    x->of[t] = lrmoeOperandRows(
        run, &run->tiles[t],
        &lrmoeArgsOf<struct lrmoeExpertBackward>(run, &run->tiles[t])->x, to,
        &gather);
  return lrmoeCudaGatherTiles(&gather, run->slot->stream);
}

static lrmoeResult_t gatherG(const struct lrmoeRun *run, struct operands *g) {
  struct lrmoeGatherTiles gather = {};
  for (int t = 0; t < run->batch->numTiles; t++)
    g->of[t] = lrmoeOperandRows(
        run, &run->tiles[t],
        &lrmoeArgsOf<struct lrmoeExpertBackward>(run, &run->tiles[t])->g,
        run->space.rows, &gather);
  return lrmoeCudaGatherTiles(&gather, run->slot->stream);
}

static lrmoeResult_t recomputeFc1(const struct lrmoeRun *run,
                                  const struct operands *x) {
  const struct lrmoeExpertContext *context = run->context;
  const struct lrmoeLinear fc1 = {context->shape.hidden, context->fc1Width, 1};
  struct lrmoeGemmList list = {run, 0, {}};
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    const struct lrmoeExpertBackward *args =
        lrmoeArgsOf<struct lrmoeExpertBackward>(run, tile);
    if (!args->saved.data)
      lrmoeGemmListAddRows(
          &list, &fc1, tile->numRows, x->of[t], args->weights.w1,
          rowsAt(run, tile, run->space.fc1, context->fc1Width));
  }
  return lrmoeGemmListRun(&list);
}

static lrmoeResult_t runGPhi(const struct lrmoeRun *run,
                             const struct operands *g) {
  const struct lrmoeExpertShape *shape = &run->context->shape;
  const struct lrmoeLinear fc2 = {shape->hidden, shape->ffn, 0};
  struct lrmoeGemmList list = {run, 0, {}};
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    lrmoeGemmListAddRows(
        &list, &fc2, tile->numRows, g->of[t],
        lrmoeArgsOf<struct lrmoeExpertBackward>(run, tile)->weights.w2,
        rowsAt(run, tile, run->space.phi, shape->ffn));
  }
  return lrmoeGemmListRun(&list);
}

static struct lrmoeActivationTile
activationTile(const struct lrmoeRun *run, const struct lrmoeCudaTile *tile) {
  const struct lrmoeExpertContext *context = run->context;
  const struct lrmoeExpertBackward *args =
      lrmoeArgsOf<struct lrmoeExpertBackward>(run, tile);
  const struct lrmoeRows *saved = &args->saved;
  struct lrmoeActivationTile made = {
      tile->row, rowsAt(run, tile, run->space.fc1, context->fc1Width), NULL,
      args->alpha + tile->first, args->dAlpha + tile->first};
  if (!saved->data) return made;
  made.saved = static_cast<const char *>(saved->data);
  if (saved->index)
    made.index = saved->index + tile->first;
  else
    made.saved += tile->first * context->fc1Width * context->elementBytes;
  return made;
}

static lrmoeResult_t runActivation(const struct lrmoeRun *run) {
  const struct lrmoeExpertShape *shape = &run->context->shape;
  struct lrmoeActivationTiles activation = {};
  activation.ffn = shape->ffn;
  activation.numRows = run->batch->numRows;
  activation.isPre = shape->convention == lrmoeWeightPre;
  activation.numTiles = run->batch->numTiles;
  activation.phi = run->space.phi;
  activation.dFc1 = run->space.fc1;
  for (int t = 0; t < run->batch->numTiles; t++)
    activation.tiles[t] = activationTile(run, &run->tiles[t]);
  return lrmoeCudaActivationBackward(shape, &activation, run->slot->stream);
}

static lrmoeResult_t addDw2(const struct lrmoeRun *run,
                            const struct operands *g) {
  const struct lrmoeExpertShape *shape = &run->context->shape;
  struct lrmoeGemmList list = {run, 0, {}};
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    float *dw2 =
        lrmoeArgsOf<struct lrmoeExpertBackward>(run, tile)->weights.dw2;
    if (dw2)
      lrmoeGemmListAddGradient(
          &list, shape->hidden, shape->ffn, tile->numRows, g->of[t],
          rowsAt(run, tile, run->space.phi, shape->ffn), dw2);
  }
  return lrmoeGemmListRun(&list);
}

static lrmoeResult_t runDx(const struct lrmoeRun *run) {
  const struct lrmoeExpertContext *context = run->context;
  int64_t hidden = context->shape.hidden;
  const struct lrmoeLinear fc1 = {context->fc1Width, hidden, 0};
  struct lrmoeGemmList list = {run, 0, {}};
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    const struct lrmoeExpertBackward *args =
        lrmoeArgsOf<struct lrmoeExpertBackward>(run, tile);
    lrmoeGemmListAddRows(&list, &fc1, tile->numRows,
                         rowsAt(run, tile, run->space.fc1, context->fc1Width),
                         args->weights.w1,
                         static_cast<char *>(args->dx) +
                             tile->first * hidden * context->elementBytes);
  }
  return lrmoeGemmListRun(&list);
}

static lrmoeResult_t addDw1(const struct lrmoeRun *run,
                            const struct operands *x) {
  const struct lrmoeExpertContext *context = run->context;
  struct lrmoeGemmList list = {run, 0, {}};
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    float *dw1 =
        lrmoeArgsOf<struct lrmoeExpertBackward>(run, tile)->weights.dw1;
    if (dw1)
      lrmoeGemmListAddGradient(
          &list, context->fc1Width, context->shape.hidden, tile->numRows,
          rowsAt(run, tile, run->space.fc1, context->fc1Width), x->of[t], dw1);
  }
  return lrmoeGemmListRun(&list);
}

static int wants(const struct lrmoeRun *run,
                 float *lrmoeExpertWeights::*gradient) {
  for (int t = 0; t < run->batch->numTiles; t++)
    if (lrmoeArgsOf<struct lrmoeExpertBackward>(run, &run->tiles[t])->weights.*
        gradient)
      return 1;
  return 0;
}

/* Up to the activation; g and, where it was needed, x are left gathered. */
static lrmoeResult_t runUpToActivation(const struct lrmoeRun *run,
                                       struct operands *g, struct operands *x) {
  char *kept = run->space.kept;
  if (kept) {
    LRMOE_CHECK(gatherX(run, kept, x));
    LRMOE_CHECK(recomputeFc1(run, x));
  }
  LRMOE_CHECK(gatherG(run, g));
  LRMOE_CHECK(runGPhi(run, g));
  return runActivation(run);
}

static lrmoeResult_t runBackward(const struct lrmoeRun *run) {
  struct operands g;
  struct operands x;
  LRMOE_CHECK(runUpToActivation(run, &g, &x));
  LRMOE_CHECK(addDw2(run, &g));
  LRMOE_CHECK(runDx(run));
  if (!wants(run, &lrmoeExpertWeights::dw1)) return lrmoeSuccess;
  if (!run->space.kept) LRMOE_CHECK(gatherX(run, run->space.rows, &x));
  return addDw1(run, &x);
}

static lrmoeResult_t runInputGradients(const struct lrmoeRun *run) {
  struct operands g;
  struct operands x;
  LRMOE_CHECK(runUpToActivation(run, &g, &x));
  return runDx(run);
}

/* The terms of a sum are those of runBackward, in its order. */
static lrmoeResult_t runWeightGradients(const struct lrmoeRun *run) {
  struct operands rows;
  if (wants(run, &lrmoeExpertWeights::dw2)) {
    LRMOE_CHECK(gatherG(run, &rows));
    LRMOE_CHECK(addDw2(run, &rows));
  }
  if (!wants(run, &lrmoeExpertWeights::dw1)) return lrmoeSuccess;
  LRMOE_CHECK(gatherX(run, run->space.rows, &rows));
  return addDw1(run, &rows);
}

/* Fills the plan's entries and looks at the rows; *needsKept: some have no
 * saved state. */
static lrmoeResult_t takeArgs(struct lrmoeExpertContext *context,
                              int32_t numInstances,
                              const struct lrmoeExpertBackward *args,
                              int *needsKept) {
  LRMOE_CHECK(lrmoeExpertPlanReserve(&context->plan, numInstances));
  for (int32_t i = 0; i < numInstances; i++) {
    context->plan.entries[i] = {args[i].numRows, args[i].weights.w1};
    if (args[i].numRows == 0) continue;
    LRMOE_CHECK(lrmoeCheckRows(context, &args[i].g, context->shape.hidden));
    LRMOE_CHECK(lrmoeCheckRows(context, &args[i].x, context->shape.hidden));
    if (args[i].saved.data)
      LRMOE_CHECK(lrmoeCheckRows(context, &args[i].saved, context->fc1Width));
    else
      *needsKept = 1;
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaExpertBackward(struct lrmoeExpertContext *context,
                                      int32_t numInstances,
                                      const struct lrmoeExpertBackward *args,
                                      lrmoeStream_t stream) {
  int needsKept = 0;
  LRMOE_CHECK(takeArgs(context, numInstances, args, &needsKept));
  const struct lrmoePass pass = {args, needsKept, runBackward, NULL, NULL};
  return lrmoeExpertRun(context, numInstances, &pass, stream);
}

lrmoeResult_t lrmoeCudaExpertBackwardSplit(
    struct lrmoeExpertContext *context, int32_t numInstances,
    const struct lrmoeExpertBackward *args, void *event, lrmoeStream_t stream) {
  int needsKept = 0;
  LRMOE_CHECK(takeArgs(context, numInstances, args, &needsKept));
  const struct lrmoePass pass = {args, needsKept, runInputGradients,
                                 runWeightGradients,
                                 static_cast<cudaEvent_t>(event)};
  return lrmoeExpertRun(context, numInstances, &pass, stream);
}
