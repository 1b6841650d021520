/* d(alpha) of rows that backward does not run on: g W2, then the activation
 * for its sum only. */
#include "kernels/cuda/calls.h"
#include "kernels/cuda/run.h"

static lrmoeResult_t runGPhi(const struct lrmoeRun *run) {
  const struct lrmoeExpertShape *shape = &run->context->shape;
  const struct lrmoeLinear fc2 = {shape->hidden, shape->ffn, 0};
  struct lrmoeGatherTiles gather = {};
  struct lrmoeGemmList list = {run, 0, {}};
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    const struct lrmoeExpertAlpha *args =
        lrmoeArgsOf<struct lrmoeExpertAlpha>(run, tile);
    const char *g =
        lrmoeOperandRows(run, tile, &args->g, run->space.rows, &gather);
    lrmoeGemmListAddRows(&list, &fc2, tile->numRows, g, args->w2,
                         run->space.phi + tile->row * shape->ffn *
                                              run->context->elementBytes);
  }
  LRMOE_CHECK(lrmoeCudaGatherTiles(&gather, run->slot->stream));
  return lrmoeGemmListRun(&list);
}

static lrmoeResult_t runAlpha(const struct lrmoeRun *run) {
  const struct lrmoeExpertContext *context = run->context;
  int64_t savedBytes = context->fc1Width * context->elementBytes;
  LRMOE_CHECK(runGPhi(run));
  struct lrmoeActivationTiles activation = {};
  activation.ffn = context->shape.ffn;
  activation.numRows = run->batch->numRows;
  activation.isPre = context->shape.convention == lrmoeWeightPre;
  activation.numTiles = run->batch->numTiles;
  activation.phi = run->space.phi;
  for (int t = 0; t < run->batch->numTiles; t++) {
    const struct lrmoeCudaTile *tile = &run->tiles[t];
    const struct lrmoeExpertAlpha *args =
        lrmoeArgsOf<struct lrmoeExpertAlpha>(run, tile);
    const struct lrmoeRows *saved = &args->saved;
    const char *data = static_cast<const char *>(saved->data);
    activation.tiles[t] = {
        tile->row, saved->index ? data : data + tile->first * savedBytes,
        saved->index ? saved->index + tile->first : NULL, NULL,
        args->dAlpha + tile->first};
  }
  return lrmoeCudaActivationBackward(&context->shape, &activation,
                                     run->slot->stream);
}

lrmoeResult_t lrmoeCudaExpertAlpha(struct lrmoeExpertContext *context,
                                   int32_t numInstances,
                                   const struct lrmoeExpertAlpha *args,
                                   lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeExpertPlanReserve(&context->plan, numInstances));
  for (int32_t i = 0; i < numInstances; i++) {
    context->plan.entries[i] = {args[i].numRows, args[i].w2};
    if (args[i].numRows == 0) continue;
    LRMOE_CHECK(lrmoeCheckRows(context, &args[i].g, context->shape.hidden));
    LRMOE_CHECK(lrmoeCheckRows(context, &args[i].saved, context->fc1Width));
  }
  const struct lrmoePass pass = {args, 0, runAlpha, NULL, NULL};
  return lrmoeExpertRun(context, numInstances, &pass, stream);
}
