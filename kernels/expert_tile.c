/* The passes of one tile: see expert_cpu.h.
 *
 *   forward   fc1 = x W1^T;  phi = act(fc1);  y = alpha (phi W2^T)
 *   backward  gPhi = g W2;  dAlpha = <gPhi, phi>;  dW2 += g^T (alpha phi);
 *             dFc1 = act'(fc1) (alpha gPhi);  dx = dFc1 W1;  dW1 += dFc1^T x */
#include "kernels/cpu_convert.h"
#include "kernels/expert_cpu.h"

static int64_t fc1Width(const struct lrmoeExpertContext *context) {
  return lrmoeFc1Width(context->shape.activation, context->shape.ffn);
}

/* Rows [first, ...) of indexed rows. */
static struct lrmoeRows rowsFrom(const struct lrmoeRows *rows, int64_t first) {
  struct lrmoeRows from = *rows;
  if (from.index)
    from.index += first;
  else
    from.data = elementAt(from.data, from.type, first * from.width);
  return from;
}

static void gatherTile(const struct lrmoeExpertContext *context,
                       const struct lrmoeRows *rows,
                       const struct lrmoeTile *tile, void *to) {
  struct lrmoeRows from = rowsFrom(rows, tile->first);
  context->kernels->gather(&from, tile->rows, context->operand, to);
}

/* Modules give no text: the message is made here. */
static lrmoeResult_t multiply(const struct lrmoeExpertContext *context,
                              const struct lrmoeGemm *gemm) {
  lrmoeResult_t result = context->gemm->multiply(gemm);
  if (result == lrmoeSuccess) return result;
  return LRMOE_FAIL(result, "GEMM %s failed on [%lld, %lld] x [%lld, %lld]",
                    context->gemm->name, (long long)gemm->m, (long long)gemm->k,
                    (long long)gemm->k, (long long)gemm->n);
}

/* c [m, n] = a [m, k] w, or a w^T. */
static lrmoeResult_t multiplyWeights(const struct lrmoeExpertContext *context,
                                     const int64_t size[3], const void *a,
                                     const void *w, int transposed, float *c) {
  const struct lrmoeGemm gemm = {
      .m = size[0],
      .n = size[1],
      .k = size[2],
      .a = a,
      .lda = size[2],
      .b = w,
      .ldb = transposed ? size[2] : size[1],
      .transB = transposed,
      .c = c,
      .ldc = size[1],
      .operand = context->operand,
  };
  return multiply(context, &gemm);
}

/* dw [m, n] += a [k, m]^T b [k, n]. */
static lrmoeResult_t addWeightGradient(const struct lrmoeExpertContext *context,
                                       const int64_t size[3], const void *a,
                                       const void *b, float *dw) {
  const struct lrmoeGemm gemm = {
      .m = size[0],
      .n = size[1],
      .k = size[2],
      .a = a,
      .lda = size[0],
      .transA = 1,
      .b = b,
      .ldb = size[1],
      .c = dw,
      .ldc = size[1],
      .operand = context->operand,
      .accumulate = 1,
  };
  return multiply(context, &gemm);
}

static int isPre(const struct lrmoeExpertContext *context) {
  return context->shape.convention == lrmoeWeightPre;
}

lrmoeResult_t lrmoeTileForward(const struct lrmoeExpertContext *context,
                               const struct lrmoeExpertForward *args,
                               const struct lrmoeTile *tile) {
  const struct lrmoeExpertShape *shape = &context->shape;
  const struct lrmoeTileSpace *space = tile->space;
  int64_t width = fc1Width(context);
  const int64_t fc1Size[3] = {tile->rows, width, shape->hidden};
  const int64_t fc2Size[3] = {tile->rows, shape->hidden, shape->ffn};
  gatherTile(context, &args->x, tile, space->rows);
  LRMOE_CHECK(multiplyWeights(context, fc1Size, space->rows, tile->operands->w1,
                              1, space->fc1));
  const struct lrmoeActivationForward activation = {
      .activation = shape->activation,
      .type = shape->type,
      .operand = context->operand,
      .ffn = shape->ffn,
      .numRows = tile->rows,
      .fc1 = space->fc1,
      .weights = isPre(context) ? args->alpha + tile->first : NULL,
      .saved = args->saved ? elementAtMutable(args->saved, shape->type,
                                              tile->first * width)
                           : space->saved,
      .phi = space->phi,
      .phiNorm = args->phiNorm + tile->first,
  };
  context->kernels->activationForward(&activation);
  LRMOE_CHECK(multiplyWeights(context, fc2Size, space->phi, tile->operands->w2,
                              1, space->out));
  context->kernels->scaleRows(
      shape->hidden, tile->rows, space->out,
      isPre(context) || args->isUnscaled ? NULL : args->alpha + tile->first,
      shape->type,
      elementAtMutable(args->y, shape->type, tile->first * shape->hidden));
  return lrmoeSuccess;
}

/* The FC1 output of a tile as forward saved it: as it is, or computed again
 * and rounded the same way. */
static lrmoeResult_t savedTile(const struct lrmoeExpertContext *context,
                               const struct lrmoeExpertBackward *args,
                               const struct lrmoeTile *tile,
                               struct lrmoeRows *saved) {
  if (args->saved.data) {
    *saved = rowsFrom(&args->saved, tile->first);
    return lrmoeSuccess;
  }
  const struct lrmoeTileSpace *space = tile->space;
  int64_t width = fc1Width(context);
  const int64_t size[3] = {tile->rows, width, context->shape.hidden};
  gatherTile(context, &args->x, tile, space->rows);
  LRMOE_CHECK(multiplyWeights(context, size, space->rows, tile->operands->w1, 1,
                              space->fc1));
  const struct lrmoeRows fc1 = {space->fc1, NULL, lrmoeFloat32, width};
  context->kernels->gather(&fc1, tile->rows, context->shape.type, space->saved);
  *saved = (struct lrmoeRows){space->saved, NULL, context->shape.type, width};
  return lrmoeSuccess;
}

/* gPhi = g W2, and what is to be done with it. */
static lrmoeResult_t openActivation(const struct lrmoeExpertContext *context,
                                    const struct lrmoeRows *g, const void *w2,
                                    const struct lrmoeTile *tile,
                                    struct lrmoeActivationBackward *args) {
  const struct lrmoeExpertShape *shape = &context->shape;
  const struct lrmoeTileSpace *space = tile->space;
  const int64_t size[3] = {tile->rows, shape->ffn, shape->hidden};
  gatherTile(context, g, tile, space->rows);
  LRMOE_CHECK(multiplyWeights(context, size, space->rows, w2, 0, space->gPhi));
  *args = (struct lrmoeActivationBackward){
      .activation = shape->activation,
      .type = shape->type,
      .operand = context->operand,
      .ffn = shape->ffn,
      .numRows = tile->rows,
      .isPre = isPre(context),
      .gPhi = space->gPhi,
      .phi = space->phi,
      .dFc1 = space->fc1,
  };
  return lrmoeSuccess;
}

/* From g to dFc1, alpha phi and d(alpha), and dW2 while g is at hand. */
static lrmoeResult_t backwardFc2(const struct lrmoeExpertContext *context,
                                 const struct lrmoeExpertBackward *args,
                                 const struct lrmoeTile *tile) {
  const struct lrmoeExpertShape *shape = &context->shape;
  const int64_t dw2Size[3] = {shape->hidden, shape->ffn, tile->rows};
  struct lrmoeActivationBackward activation;
  struct lrmoeRows saved;
  LRMOE_CHECK(savedTile(context, args, tile, &saved));
  LRMOE_CHECK(
      openActivation(context, &args->g, tile->operands->w2, tile, &activation));
  activation.saved = saved;
  activation.weights = args->alpha + tile->first;
  activation.dWeights = args->dAlpha + tile->first;
  context->kernels->activationBackward(&activation);
  if (!args->weights.dw2) return lrmoeSuccess;
  return addWeightGradient(context, dw2Size, tile->space->rows,
                           tile->space->phi, args->weights.dw2);
}

/* From dFc1 to dx and dW1. */
static lrmoeResult_t backwardFc1(const struct lrmoeExpertContext *context,
                                 const struct lrmoeExpertBackward *args,
                                 const struct lrmoeTile *tile) {
  const struct lrmoeTileSpace *space = tile->space;
  int64_t hidden = context->shape.hidden;
  int64_t width = fc1Width(context);
  const int64_t dxSize[3] = {tile->rows, hidden, width};
  const int64_t dw1Size[3] = {width, hidden, tile->rows};
  LRMOE_CHECK(multiplyWeights(context, dxSize, space->fc1, tile->operands->w1,
                              0, space->out));
  context->kernels->scaleRows(
      hidden, tile->rows, space->out, NULL, context->shape.type,
      elementAtMutable(args->dx, context->shape.type, tile->first * hidden));
  if (!args->weights.dw1) return lrmoeSuccess;
  gatherTile(context, &args->x, tile, space->rows);
  return addWeightGradient(context, dw1Size, space->fc1, space->rows,
                           args->weights.dw1);
}

lrmoeResult_t lrmoeTileBackward(const struct lrmoeExpertContext *context,
                                const struct lrmoeExpertBackward *args,
                                const struct lrmoeTile *tile) {
  LRMOE_CHECK(backwardFc2(context, args, tile));
  return backwardFc1(context, args, tile);
}

/* The activation's backward for its d(alpha) only; alpha, which is not at hand,
 * plays no part in it. */
lrmoeResult_t lrmoeTileAlpha(const struct lrmoeExpertContext *context,
                             const struct lrmoeExpertAlpha *args,
                             const struct lrmoeTile *tile) {
  struct lrmoeActivationBackward activation;
  LRMOE_CHECK(
      openActivation(context, &args->g, tile->operands->w2, tile, &activation));
  for (int64_t i = 0; i < tile->rows; i++)
    tile->space->weights[i] = 0;
  activation.saved = rowsFrom(&args->saved, tile->first);
  activation.weights = tile->space->weights;
  activation.dWeights = args->dAlpha + tile->first;
  context->kernels->activationBackward(&activation);
  return lrmoeSuccess;
}
