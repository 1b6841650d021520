/* Experts on the CPU: see expert_cpu.h.
 *
 * The paper (3.4) runs one grouped GEMM over the packed rows of all experts.
 * On a CPU a GEMM of a few hundred rows is already at its peak, so each
 * instance is a loop over tiles of rows whose intermediates stay in the
 * caches; M is never padded. */
#include "kernels/expert_cpu.h"

#include "base/param.h"
#include "kernels/cpu_convert.h"

enum {
  maxTileRows = 256,
  minTileRows = 64,
  maxTileBytes = 8 << 20,
  scratchAlignment = 64
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
                      struct lrmoeTileSpace *space) {
  const struct lrmoeExpertShape *shape = &context->shape;
  int64_t used = 0;
  int64_t elements = context->tileRows;
  int64_t operandBytes = elementBytes(context->operand);
  int64_t width = fc1Width(context);
  *space = (struct lrmoeTileSpace){0};
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
  space->weights = carve(base, floats, &used);
  return used;
}

int64_t lrmoeExpertCpuScratchBytes(const struct lrmoeExpertContext *context) {
  struct lrmoeTileSpace space;
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

static const char *const usualGemm = "openblas";

static lrmoeResult_t fill(const struct lrmoeExpertShape *shape,
                          const char *gemm,
                          struct lrmoeExpertContext *context) {
  context->shape = *shape;
  LRMOE_CHECK(lrmoeRowKernelsGet(&context->kernels));
  const char *name = gemm ? gemm : lrmoeParamGetText(lrmoeParamGemm);
  if (!gemm && !*name) name = usualGemm;
  LRMOE_CHECK(lrmoeGemmLoad(name, &context->gemm));
  context->operand = context->gemm->operandType(shape->type);
  context->tileRows = chooseTileRows(context);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertCpuOpen(const struct lrmoeExpertShape *shape,
                                 const char *gemm,
                                 struct lrmoeExpertContext **context) {
  LRMOE_CHECK(checkShape(shape));
  struct lrmoeExpertContext *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  lrmoeResult_t result = fill(shape, gemm, made);
  if (result == lrmoeSuccess)
    *context = made;
  else
    lrmoeFree(made);
  return result;
}

void lrmoeExpertCpuClose(struct lrmoeExpertContext *context) {
  if (!context) return;
  lrmoeBufferFree(&context->scratch);
  lrmoeFree(context);
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

/* Scratch in place, weights as operands. */
static lrmoeResult_t prepare(struct lrmoeExpertContext *context,
                             const struct lrmoeExpertWeights *weights,
                             struct lrmoeTileSpace *space,
                             struct lrmoeOperands *operands) {
  size_t bytes = (size_t)lrmoeExpertCpuScratchBytes(context);
  LRMOE_CHECK(lrmoeBufferReserve(&context->scratch, bytes));
  layOut(context, context->scratch.data, space);
  int64_t hidden = context->shape.hidden;
  int64_t ffn = context->shape.ffn;
  operands->w1 = NULL;
  if (weights->w1)
    operands->w1 = operandMatrix(context, weights->w1, fc1Width(context),
                                 hidden, space->w1);
  operands->w2 = operandMatrix(context, weights->w2, hidden, ffn, space->w2);
  return lrmoeSuccess;
}

/* A pass of one tile, of args of the pass's own type. */
typedef lrmoeResult_t (*tilePass)(const struct lrmoeExpertContext *context,
                                  const void *args,
                                  const struct lrmoeTile *tile);

static lrmoeResult_t runTiles(struct lrmoeExpertContext *context,
                              const struct lrmoeExpertWeights *weights,
                              int64_t numRows, tilePass pass,
                              const void *args) {
  struct lrmoeTileSpace space;
  struct lrmoeOperands operands;
  if (!numRows) return lrmoeSuccess;
  LRMOE_CHECK(prepare(context, weights, &space, &operands));
  for (int64_t first = 0; first < numRows; first += context->tileRows) {
    int64_t left = numRows - first;
    const struct lrmoeTile tile = {
        &space, &operands, first,
        left < context->tileRows ? left : context->tileRows};
    LRMOE_CHECK(pass(context, args, &tile));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t forwardTile(const struct lrmoeExpertContext *context,
                                 const void *args,
                                 const struct lrmoeTile *tile) {
  return lrmoeTileForward(context, args, tile);
}

static lrmoeResult_t backwardTile(const struct lrmoeExpertContext *context,
                                  const void *args,
                                  const struct lrmoeTile *tile) {
  return lrmoeTileBackward(context, args, tile);
}

static lrmoeResult_t alphaTile(const struct lrmoeExpertContext *context,
                               const void *args, const struct lrmoeTile *tile) {
  return lrmoeTileAlpha(context, args, tile);
}

lrmoeResult_t lrmoeExpertCpuForward(struct lrmoeExpertContext *context,
                                    int32_t numInstances,
                                    const struct lrmoeExpertForward *args,
                                    lrmoeStream_t stream) {
  (void)stream;
  for (int32_t i = 0; i < numInstances; i++)
    LRMOE_CHECK(runTiles(context, &args[i].weights, args[i].numRows,
                         forwardTile, &args[i]));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertCpuBackward(struct lrmoeExpertContext *context,
                                     int32_t numInstances,
                                     const struct lrmoeExpertBackward *args,
                                     lrmoeStream_t stream) {
  (void)stream;
  for (int32_t i = 0; i < numInstances; i++)
    LRMOE_CHECK(runTiles(context, &args[i].weights, args[i].numRows,
                         backwardTile, &args[i]));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeExpertCpuAlpha(struct lrmoeExpertContext *context,
                                  int32_t numInstances,
                                  const struct lrmoeExpertAlpha *args,
                                  lrmoeStream_t stream) {
  (void)stream;
  for (int32_t i = 0; i < numInstances; i++) {
    const struct lrmoeExpertWeights weights = {.w2 = args[i].w2};
    LRMOE_CHECK(
        runTiles(context, &weights, args[i].numRows, alphaTile, &args[i]));
  }
  return lrmoeSuccess;
}
