/* Experts forward, stage by stage over a batch: gather x, FC1, activation and
 * |phi|, FC2.  With `post` weights alpha multiplies FC2's input, at width F,
 * after phi's norm is taken. */
#include "kernels/cuda/calls.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/run.h"

/* Where the tile's FC1 output goes. */
static char *savedRows(const struct lrmoeRun *run,
                       const struct lrmoeCudaTile *tile) {
  const struct lrmoeExpertForward *args =
      lrmoeArgsOf<struct lrmoeExpertForward>(run, tile);
  int64_t rowBytes = run->context->fc1Width * run->context->elementBytes;
  if (!args->saved) return run->space.fc1 + tile->row * rowBytes;
  return static_cast<char *>(args->saved) + tile->first * rowBytes;
}

static lrmoeResult_t runFc1(const struct lrmoeRun *run) {
  const struct lrmoeExpertContext *context = run->context;
  const struct lrmoeLinear fc1 = {context->shape.hidden, context->fc1Width, 1};
  struct lrmoeGatherTiles gather = {};
  struct lrmoeGemmList list = {run, 0, {}};
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    const struct lrmoeExpertForward *args =
        lrmoeArgsOf<struct lrmoeExpertForward>(run, tile);
    const char *x =
        lrmoeOperandRows(run, tile, &args->x, run->space.rows, &gather);
    lrmoeGemmListAddRows(&list, &fc1, tile->numRows, x, args->weights.w1,
                         savedRows(run, tile));
  }
  LRMOE_CHECK(lrmoeCudaGatherTiles(&gather, run->slot->stream));
  return lrmoeGemmListRun(&list);
}

static lrmoeResult_t runActivation(const struct lrmoeRun *run) {
  const struct lrmoeExpertShape *shape = &run->context->shape;
  struct lrmoeActivationTiles activation = {};
  activation.ffn = shape->ffn;
  activation.numRows = run->batch->numRows;
  activation.isPre = shape->convention == lrmoeWeightPre;
  activation.numTiles = run->batch->numTiles;
  activation.phi = run->space.phi;
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    const struct lrmoeExpertForward *args =
        lrmoeArgsOf<struct lrmoeExpertForward>(run, tile);
    int hasAlpha = activation.isPre || !args->isUnscaled;
    activation.tiles[t] = {tile->row, savedRows(run, tile), NULL,
                           hasAlpha ? args->alpha + tile->first : NULL,
                           args->phiNorm + tile->first};
  }
  return lrmoeCudaActivationForward(shape, &activation, run->slot->stream);
}

static lrmoeResult_t runFc2(const struct lrmoeRun *run) {
  const struct lrmoeExpertContext *context = run->context;
  const struct lrmoeExpertShape *shape = &context->shape;
  const struct lrmoeLinear fc2 = {shape->ffn, shape->hidden, 1};
  struct lrmoeGemmList list = {run, 0, {}};
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    const struct lrmoeExpertForward *args =
        lrmoeArgsOf<struct lrmoeExpertForward>(run, tile);
    lrmoeGemmListAddRows(
        &list, &fc2, tile->numRows,
        run->space.phi + tile->row * shape->ffn * context->elementBytes,
        args->weights.w2,
        static_cast<char *>(args->y) +
            tile->first * shape->hidden * context->elementBytes);
  }
  return lrmoeGemmListRun(&list);
}

static lrmoeResult_t runForward(const struct lrmoeRun *run) {
  LRMOE_CHECK(runFc1(run));
  LRMOE_CHECK(runActivation(run));
  return runFc2(run);
}

lrmoeResult_t lrmoeCudaExpertForward(struct lrmoeExpertContext *context,
                                     int32_t numInstances,
                                     const struct lrmoeExpertForward *args,
                                     lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeExpertPlanReserve(&context->plan, numInstances));
  for (int32_t i = 0; i < numInstances; i++) {
    context->plan.entries[i] = {args[i].numRows, args[i].weights.w1};
    if (args[i].numRows == 0) continue;
    LRMOE_CHECK(lrmoeCheckRows(context, &args[i].x, context->shape.hidden));
    LRMOE_CHECK(lrmoeCudaCheckAligned(args[i].saved));
  }
  const struct lrmoePass pass = {args, 0, runForward, NULL, NULL};
  return lrmoeExpertRun(context, numInstances, &pass, stream);
}
