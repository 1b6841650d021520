/* One expert instance on many rows: see expert.h.
 *
 * The paper (3.4) runs one grouped GEMM over the packed rows of all experts.
 * On a CPU a GEMM of a few hundred rows is already at its peak, so each
 * instance is a loop over tiles of rows whose intermediates stay in the
 * caches; M is never padded.
 *
 *   forward   fc1 = x W1^T;  phi = act(fc1);  y += alpha (phi W2^T)
 *   backward  gPhi = g W2;  dAlpha = <gPhi, phi>;  dW2 += g^T (alpha phi);
 *             dFc1 = act'(fc1) (alpha gPhi);  dx = dFc1 W1;  dW1 += dFc1^T x */
#include "kernels/expert.h"

#include "base/param.h"
#include "kernels/cpu_convert.h"

enum {
  maxTileRows = 256,
  minTileRows = 64,
  maxTileBytes = 8 << 20,
  scratchAlignment = 64
};

/* The scratch of a tile.  g and x, fc1 and dFc1, y and dx are never needed at
 * the same time and share their places. */
struct tileSpace {
  void *w1; /* weights in the operand type, if it is not the layer's */
  void *w2;
  void *rows;      /* [tile, H] x or g, operand */
  void *fc1;       /* [tile, 2F or F] fc1 in fp32, or dFc1 in operand */
  void *saved;     /* [tile, 2F or F] fc1 in the layer type, if recomputed */
  void *phi;       /* [tile, F] operand */
  float *gPhi;     /* [tile, F] */
  float *out;      /* [tile, H] the expert's output, or dx */
  float *dWeights; /* [tile] */
};

static int64_t fc1Width(const struct lrmoeExpertContext *context) {
  return lrmoeFc1Width(context->shape.activation, context->shape.ffn);
}

/* The next block of the scratch; base NULL: only counts. */
static void *carve(char *base, int64_t bytes, int64_t *usedBytes) {
  void *block = base ? base + *usedBytes : NULL;
  *usedBytes +=
      (bytes + scratchAlignment - 1) / scratchAlignment * scratchAlignment;
  return block;
}

/* Places the scratch at base and returns its size. */
static int64_t layOut(const struct lrmoeExpertContext *context, char *base,
                      struct tileSpace *space) {
  const struct lrmoeExpertShape *shape = &context->shape;
  int64_t used = 0;
  int64_t elements = context->tileRows;
  int64_t operandBytes = elementBytes(context->operand);
  int64_t width = fc1Width(context);
  *space = (struct tileSpace){0};
  if (context->operand != shape->type) {
    space->w1 = carve(base, width * shape->hidden * operandBytes, &used);
    space->w2 = carve(base, shape->ffn * shape->hidden * operandBytes, &used);
  }
  space->rows = carve(base, elements * shape->hidden * operandBytes, &used);
  space->fc1 = carve(base, elements * width * (int64_t)sizeof(float), &used);
  space->saved =
      carve(base, elements * width * elementBytes(shape->type), &used);
  space->phi = carve(base, elements * shape->ffn * operandBytes, &used);
  int64_t floats = elements * (int64_t)sizeof(float);
  space->gPhi = carve(base, floats * shape->ffn, &used);
  space->out = carve(base, floats * shape->hidden, &used);
  space->dWeights = carve(base, floats, &used);
  return used;
}

int64_t lrmoeExpertScratchBytes(const struct lrmoeExpertContext *context) {
  struct tileSpace space;
  return layOut(context, NULL, &space);
}

/* As many rows as keep a tile's intermediates within maxTileBytes. */
static int64_t chooseTileRows(const struct lrmoeExpertContext *context) {
  const struct lrmoeExpertShape *shape = &context->shape;
  int64_t rowBytes = (2 * shape->hidden + 2 * shape->ffn + fc1Width(context)) *
                     (int64_t)sizeof(float);
  int64_t tileRows = maxTileRows;
  while (tileRows > minTileRows && tileRows * rowBytes > maxTileBytes)
    tileRows /= 2;
  return tileRows;
}

static lrmoeResult_t checkShape(const struct lrmoeExpertShape *shape) {
  LRMOE_REQUIRE(shape->hidden > 0 && shape->ffn > 0,
                "an expert of hidden %lld, ffn %lld", (long long)shape->hidden,
                (long long)shape->ffn);
  LRMOE_REQUIRE(shape->type == lrmoeBfloat16 || shape->type == lrmoeFloat16 ||
                    shape->type == lrmoeFloat32,
                "data type %d: rows are bf16, fp16 or fp32", (int)shape->type);
  LRMOE_REQUIRE(shape->activation == lrmoeSwiglu ||
                    shape->activation == lrmoeGelu,
                "no activation %d", (int)shape->activation);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertContextInit(const struct lrmoeExpertShape *shape,
                                     const char *gemm,
                                     struct lrmoeExpertContext *context) {
  LRMOE_CHECK(checkShape(shape));
  struct lrmoeExpertContext made = {.shape = *shape};
  LRMOE_CHECK(lrmoeRowKernelsGet(&made.kernels));
  const char *name = gemm ? gemm : lrmoeParamGetText(lrmoeParamGemm);
  LRMOE_CHECK(lrmoeGemmLoad(name, &made.gemm));
  made.operand = made.gemm->operandType(shape->type);
  made.tileRows = chooseTileRows(&made);
  *context = made;
  return lrmoeSuccess;
}

void lrmoeExpertContextFree(struct lrmoeExpertContext *context) {
  lrmoeBufferFree(&context->scratch);
  *context = (struct lrmoeExpertContext){0};
}

/* A matrix of the layer in the operand type: itself, or converted to `to`. */
static const void *operandMatrix(const struct lrmoeExpertContext *context,
                                 const void *matrix, int64_t numRows,
                                 int64_t width, void *to) {
  if (context->operand == context->shape.type) return matrix;
  const struct lrmoeRows rows = {matrix, NULL, context->shape.type, width};
  context->kernels->gather(&rows, numRows, context->operand, to);
  return to;
}

struct operands {
  const void *w1;
  const void *w2;
};

/* Scratch in place, weights as operands. */
static lrmoeResult_t prepare(struct lrmoeExpertContext *context,
                             const struct lrmoeExpertWeights *weights,
                             struct tileSpace *space,
                             struct operands *operands) {
  size_t bytes = (size_t)lrmoeExpertScratchBytes(context);
  LRMOE_CHECK(lrmoeBufferReserve(&context->scratch, bytes));
  layOut(context, context->scratch.data, space);
  int64_t hidden = context->shape.hidden;
  int64_t ffn = context->shape.ffn;
  operands->w1 =
      operandMatrix(context, weights->w1, fc1Width(context), hidden, space->w1);
  operands->w2 = operandMatrix(context, weights->w2, hidden, ffn, space->w2);
  return lrmoeSuccess;
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
                       const struct lrmoeRows *rows, int64_t first,
                       int64_t numRows, void *to) {
  struct lrmoeRows from = rowsFrom(rows, first);
  context->kernels->gather(&from, numRows, context->operand, to);
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

static lrmoeResult_t forwardTile(const struct lrmoeExpertContext *context,
                                 const struct lrmoeExpertForward *args,
                                 const struct operands *operands,
                                 const struct tileSpace *space, int64_t first,
                                 int64_t rows) {
  const struct lrmoeExpertShape *shape = &context->shape;
  int64_t width = fc1Width(context);
  const int64_t fc1Size[3] = {rows, width, shape->hidden};
  const int64_t fc2Size[3] = {rows, shape->hidden, shape->ffn};
  gatherTile(context, &args->x, first, rows, space->rows);
  LRMOE_CHECK(multiplyWeights(context, fc1Size, space->rows, operands->w1, 1,
                              space->fc1));
  const struct lrmoeActivationForward activation = {
      .activation = shape->activation,
      .type = shape->type,
      .operand = context->operand,
      .ffn = shape->ffn,
      .numRows = rows,
      .fc1 = space->fc1,
      .weights = isPre(context) ? args->alpha + first : NULL,
      .saved = args->saved
                   ? elementAtMutable(args->saved, shape->type, first * width)
                   : space->saved,
      .phi = space->phi,
      .phiNorm = args->phiNorm + first,
  };
  context->kernels->activationForward(&activation);
  LRMOE_CHECK(multiplyWeights(context, fc2Size, space->phi, operands->w2, 1,
                              space->out));
  context->kernels->addRows(
      shape->hidden, rows, space->out,
      isPre(context) || args->isUnscaled ? NULL : args->alpha + first,
      args->yIndex + first, args->y);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertRunForward(struct lrmoeExpertContext *context,
                                    const struct lrmoeExpertForward *args) {
  if (args->numRows == 0) return lrmoeSuccess;
  struct tileSpace space;
  struct operands operands;
  LRMOE_CHECK(prepare(context, &args->weights, &space, &operands));
  for (int64_t first = 0; first < args->numRows; first += context->tileRows) {
    int64_t left = args->numRows - first;
    int64_t rows = left < context->tileRows ? left : context->tileRows;
    LRMOE_CHECK(forwardTile(context, args, &operands, &space, first, rows));
  }
  return lrmoeSuccess;
}

/* The FC1 output of a tile as forward saved it: as it is, or computed again
 * and rounded the same way. */
static lrmoeResult_t savedTile(const struct lrmoeExpertContext *context,
                               const struct lrmoeExpertBackward *args,
                               const struct operands *operands,
                               const struct tileSpace *space,
                               const int64_t tile[2], struct lrmoeRows *saved) {
  if (args->saved.data) {
    *saved = rowsFrom(&args->saved, tile[0]);
    return lrmoeSuccess;
  }
  int64_t width = fc1Width(context);
  const int64_t size[3] = {tile[1], width, context->shape.hidden};
  gatherTile(context, &args->x, tile[0], tile[1], space->rows);
  LRMOE_CHECK(
      multiplyWeights(context, size, space->rows, operands->w1, 1, space->fc1));
  const struct lrmoeRows fc1 = {space->fc1, NULL, lrmoeFloat32, width};
  context->kernels->gather(&fc1, tile[1], context->shape.type, space->saved);
  *saved = (struct lrmoeRows){space->saved, NULL, context->shape.type, width};
  return lrmoeSuccess;
}

/* From g to dFc1, alpha phi and d(alpha), and dW2 while g is at hand. */
static lrmoeResult_t backwardFc2(const struct lrmoeExpertContext *context,
                                 const struct lrmoeExpertBackward *args,
                                 const struct operands *operands,
                                 const struct tileSpace *space, int64_t first,
                                 int64_t rows) {
  const struct lrmoeExpertShape *shape = &context->shape;
  const int64_t gPhiSize[3] = {rows, shape->ffn, shape->hidden};
  const int64_t dw2Size[3] = {shape->hidden, shape->ffn, rows};
  const int64_t tile[2] = {first, rows};
  struct lrmoeRows saved;
  LRMOE_CHECK(savedTile(context, args, operands, space, tile, &saved));
  gatherTile(context, &args->g, first, rows, space->rows);
  LRMOE_CHECK(multiplyWeights(context, gPhiSize, space->rows, operands->w2, 0,
                              space->gPhi));
  const struct lrmoeActivationBackward activation = {
      .activation = shape->activation,
      .type = shape->type,
      .operand = context->operand,
      .ffn = shape->ffn,
      .numRows = rows,
      .saved = saved,
      .weights = args->alpha + first,
      .isPre = isPre(context),
      .gPhi = space->gPhi,
      .phi = space->phi,
      .dFc1 = space->fc1,
      .dWeights = space->dWeights,
  };
  context->kernels->activationBackward(&activation);
  if (!args->weights.dw2) return lrmoeSuccess;
  return addWeightGradient(context, dw2Size, space->rows, space->phi,
                           args->weights.dw2);
}

/* From dFc1 to dx and dW1. */
static lrmoeResult_t backwardFc1(const struct lrmoeExpertContext *context,
                                 const struct lrmoeExpertBackward *args,
                                 const struct operands *operands,
                                 const struct tileSpace *space, int64_t first,
                                 int64_t rows) {
  int64_t hidden = context->shape.hidden;
  int64_t width = fc1Width(context);
  const int64_t dxSize[3] = {rows, hidden, width};
  const int64_t dw1Size[3] = {width, hidden, rows};
  LRMOE_CHECK(multiplyWeights(context, dxSize, space->fc1, operands->w1, 0,
                              space->out));
  if (!args->weights.dw1) return lrmoeSuccess;
  gatherTile(context, &args->x, first, rows, space->rows);
  return addWeightGradient(context, dw1Size, space->fc1, space->rows,
                           args->weights.dw1);
}

static lrmoeResult_t backwardTile(const struct lrmoeExpertContext *context,
                                  const struct lrmoeExpertBackward *args,
                                  const struct operands *operands,
                                  const struct tileSpace *space, int64_t first,
                                  int64_t rows) {
  LRMOE_CHECK(backwardFc2(context, args, operands, space, first, rows));
  LRMOE_CHECK(backwardFc1(context, args, operands, space, first, rows));
  return args->sink(args->user, first, rows, space->out, space->dWeights);
}

lrmoeResult_t lrmoeExpertRunBackward(struct lrmoeExpertContext *context,
                                     const struct lrmoeExpertBackward *args) {
  if (args->numRows == 0) return lrmoeSuccess;
  struct tileSpace space;
  struct operands operands;
  LRMOE_CHECK(prepare(context, &args->weights, &space, &operands));
  for (int64_t first = 0; first < args->numRows; first += context->tileRows) {
    int64_t left = args->numRows - first;
    int64_t rows = left < context->tileRows ? left : context->tileRows;
    LRMOE_CHECK(backwardTile(context, args, &operands, &space, first, rows));
  }
  return lrmoeSuccess;
}

/* gPhi, then the activation's backward for its d(alpha) only. */
static lrmoeResult_t alphaTile(const struct lrmoeExpertContext *context,
                               const struct lrmoeExpertAlpha *args,
                               const struct tileSpace *space, const void *w2,
                               const int64_t tile[2]) {
  const struct lrmoeExpertShape *shape = &context->shape;
  const int64_t size[3] = {tile[1], shape->ffn, shape->hidden};
  gatherTile(context, &args->g, tile[0], tile[1], space->rows);
  LRMOE_CHECK(multiplyWeights(context, size, space->rows, w2, 0, space->gPhi));
  for (int64_t i = 0; i < tile[1]; i++)
    space->dWeights[i] = 0; /* alpha of what is not wanted */
  const struct lrmoeActivationBackward activation = {
      .activation = shape->activation,
      .type = shape->type,
      .operand = context->operand,
      .ffn = shape->ffn,
      .numRows = tile[1],
      .saved = rowsFrom(&args->saved, tile[0]),
      .weights = space->dWeights,
      .isPre = isPre(context),
      .gPhi = space->gPhi,
      .phi = space->phi,
      .dFc1 = space->fc1,
      .dWeights = args->dAlpha + tile[0],
  };
  context->kernels->activationBackward(&activation);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertRunAlpha(struct lrmoeExpertContext *context,
                                  const struct lrmoeExpertAlpha *args) {
  if (args->numRows == 0) return lrmoeSuccess;
  struct tileSpace space;
  size_t bytes = (size_t)lrmoeExpertScratchBytes(context);
  LRMOE_CHECK(lrmoeBufferReserve(&context->scratch, bytes));
  layOut(context, context->scratch.data, &space);
  const void *w2 = operandMatrix(context, args->w2, context->shape.hidden,
                                 context->shape.ffn, space.w2);
  for (int64_t first = 0; first < args->numRows; first += context->tileRows) {
    int64_t left = args->numRows - first;
    const int64_t tile[2] = {
        first, left < context->tileRows ? left : context->tileRows};
    LRMOE_CHECK(alphaTile(context, args, &space, w2, tile));
  }
  return lrmoeSuccess;
}
