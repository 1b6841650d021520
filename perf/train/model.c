/* The language model: see model.h.  A layer is
 *
 *   middle = x + out attention(norm(x) qkv)
 *   next = middle + moe(norm(middle))
 *
 * and backward goes the same way back, with the gradient of the residual stream
 * in model->flow. */
#include "perf/train/model.h"

#include "perf/train/dense.h"
#include "perf/train/grams.h"

#include <stdlib.h>
#include <string.h>

/* ---- Making -------------------------------------------------------------- */

static float *rowsOf(const struct trainModel *model, int64_t width) {
  return trainRoom(model->team.maxTokens * width, sizeof(float));
}

static void openLayer(struct trainModel *model, struct trainLayer *layer) {
  const struct trainShape *shape = &model->config->shape;
  int64_t maxTokens = model->team.maxTokens;
  layer->x = rowsOf(model, shape->dim);
  layer->normed = rowsOf(model, shape->dim);
  layer->inverse = rowsOf(model, 1);
  layer->qkv = rowsOf(model, 3 * shape->dim);
  layer->saved = trainRoom(maxTokens / shape->context *
                               trainAttentionSaved(&model->attention),
                           sizeof(float));
  layer->attended = rowsOf(model, shape->dim);
  layer->middle = rowsOf(model, shape->dim);
  layer->moeIn = rowsOf(model, shape->dim);
  layer->moeInverse = rowsOf(model, 1);
  layer->routing = (struct trainRouting){
      .numExperts = shape->numExperts,
      .topk = shape->topk,
      .probabilities = rowsOf(model, shape->numExperts),
      .experts = trainRoom(maxTokens * shape->topk, sizeof(int64_t)),
      .weights = rowsOf(model, shape->topk)};
}

static void closeLayer(struct trainLayer *layer) {
  void *blocks[] = {layer->x,
                    layer->normed,
                    layer->inverse,
                    layer->qkv,
                    layer->saved,
                    layer->attended,
                    layer->middle,
                    layer->moeIn,
                    layer->moeInverse,
                    layer->routing.probabilities,
                    layer->routing.experts,
                    layer->routing.weights};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    free(blocks[i]);
  trainMoeClose(&layer->moe);
}

static void openRows(struct trainModel *model) {
  const struct trainShape *shape = &model->config->shape;
  model->bytes = trainRoom(model->team.maxTokens, 1);
  model->targets = trainRoom(model->team.maxTokens, 1);
  model->last = rowsOf(model, shape->dim);
  model->finalNormed = rowsOf(model, shape->dim);
  model->finalInverse = rowsOf(model, 1);
  model->logits = rowsOf(model, trainVocabulary);
  model->flow = rowsOf(model, shape->dim);
  model->rows = rowsOf(model, 3 * shape->dim);
  model->others = rowsOf(model, shape->dim);
  model->dlogits = rowsOf(model, shape->numExperts);
  model->dweights = rowsOf(model, shape->topk);
  model->pulls = trainRoom(shape->numExperts, sizeof *model->pulls);
  model->mass = trainRoom(shape->numExperts, sizeof *model->mass);
}

static void startExperts(struct trainModel *model, int64_t layer) {
  struct trainMoe *moe = &model->layers[layer].moe;
  for (int i = 0; i < moe->numLocal; i++)
    trainExpertStart(&model->config->shape, model->config->seed, layer,
                     moe->local[i], moe->parts[i],
                     moe->parts[moe->numLocal + i]);
}

enum toolExit trainModelOpen(const struct toolRank *self,
                             const struct trainConfig *config,
                             struct trainModel *model) {
  const struct trainShape *shape = &config->shape;
  *model = (struct trainModel){.config = config};
  enum toolExit code = trainTeamOpen(self, config, &model->team);
  if (code) return code;
  model->params = trainParamsMake(shape);
  model->gradients = trainParamsMake(shape);
  model->attention =
      trainAttentionMake(shape->context, shape->dim, shape->numHeads);
  model->layers = trainRoom(shape->numLayers, sizeof *model->layers);
  openRows(model);
  trainParamsStart(shape, config->seed, &model->params);
  for (int64_t i = 0; i < shape->numLayers && code == toolGood; i++) {
    openLayer(model, &model->layers[i]);
    code = trainMoeOpen(&model->team, &model->layers[i].moe);
    if (code == toolGood) startExperts(model, i);
  }
  trainMatrixOpen(config->gemm);
  return code;
}

void trainModelClose(struct trainModel *model) {
  int64_t numLayers = model->layers ? model->config->shape.numLayers : 0;
  for (int64_t i = 0; i < numLayers; i++)
    closeLayer(&model->layers[i]);
  void *blocks[] = {model->layers, model->bytes,       model->targets,
                    model->last,   model->finalNormed, model->finalInverse,
                    model->logits, model->flow,        model->rows,
                    model->others, model->dlogits,     model->dweights,
                    model->pulls,  model->mass};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    free(blocks[i]);
  trainAttentionFree(&model->attention);
  trainParamsFree(&model->params);
  trainParamsFree(&model->gradients);
  trainTeamClose(&model->team);
}

/* ---- Forward ------------------------------------------------------------- */

static struct trainMatrix tokens(const struct trainModel *model, float *data,
                                 int64_t width) {
  return trainMatrixMake(data, model->numTokens, width);
}

static void add(int64_t count, const float *from, const float *other,
                float *to) {
  for (int64_t i = 0; i < count; i++)
    to[i] = from[i] + other[i];
}

void trainModelSet(struct trainModel *model, const uint8_t *text,
                   const int64_t *starts, int64_t numWindows) {
  int64_t context = model->config->shape.context;
  model->numWindows = numWindows;
  model->numTokens = numWindows * context;
  for (int64_t i = 0; i < numWindows; i++) {
    memcpy(model->bytes + i * context, text + starts[i], (size_t)context);
    memcpy(model->targets + i * context, text + starts[i] + 1, (size_t)context);
  }
}

static void attentionForward(struct trainModel *model, int64_t i) {
  struct trainLayer *layer = &model->layers[i];
  const struct trainLayerParams *params = &model->params.layers[i];
  int64_t dim = model->config->shape.dim;
  struct trainMatrix x = tokens(model, layer->x, dim);
  trainNorm(x, params->attentionNorm, layer->inverse, layer->normed);
  trainLinear(tokens(model, layer->normed, dim),
              trainMatrixMake(params->qkv, 3 * dim, dim),
              tokens(model, layer->qkv, 3 * dim));
  trainAttend(&model->attention, model->numWindows, layer->qkv, layer->saved,
              layer->attended);
  memcpy(layer->middle, layer->x,
         (size_t)(model->numTokens * dim) * sizeof(float));
  trainMultiply(1, tokens(model, layer->attended, dim),
                trainMatrixTurn(trainMatrixMake(params->out, dim, dim)), 1,
                tokens(model, layer->middle, dim));
}

static enum toolExit moeForward(struct trainModel *model, int64_t i,
                                float *next) {
  struct trainLayer *layer = &model->layers[i];
  const struct trainLayerParams *params = &model->params.layers[i];
  int64_t dim = model->config->shape.dim;
  int64_t numExperts = model->config->shape.numExperts;
  trainNorm(tokens(model, layer->middle, dim), params->moeNorm,
            layer->moeInverse, layer->moeIn);
  trainLinear(tokens(model, layer->moeIn, dim),
              trainMatrixMake(params->router, numExperts, dim),
              tokens(model, layer->routing.probabilities, numExperts));
  layer->routing.numTokens = model->numTokens;
  trainRoute(&layer->routing);
  enum toolExit code =
      trainMoeForward(&layer->moe, &layer->routing, layer->moeIn, next);
  add(model->numTokens * dim, layer->middle, next, next);
  return code;
}

enum toolExit trainModelForward(struct trainModel *model) {
  const struct trainShape *shape = &model->config->shape;
  enum toolExit code = toolGood;
  trainEmbed(model->bytes, model->params.embedding,
             tokens(model, model->layers[0].x, shape->dim));
  trainGramsAdd(shape, model->bytes, model->params.grams,
                tokens(model, model->layers[0].x, shape->dim));
  for (int64_t i = 0; i < shape->numLayers && code == toolGood; i++) {
    attentionForward(model, i);
    code = moeForward(model, i,
                      i + 1 < shape->numLayers ? model->layers[i + 1].x
                                               : model->last);
  }
  trainNorm(tokens(model, model->last, shape->dim), model->params.finalNorm,
            model->finalInverse, model->finalNormed);
  trainLinear(tokens(model, model->finalNormed, shape->dim),
              trainMatrixMake(model->params.head, trainVocabulary, shape->dim),
              tokens(model, model->logits, trainVocabulary));
  return code;
}

struct trainModelLoss trainModelScore(struct trainModel *model,
                                      int64_t allTokens) {
  const struct trainShape *shape = &model->config->shape;
  double all = (double)allTokens;
  struct trainModelLoss sums = {0};
  sums.loss = trainLoss(model->targets, (float)(1 / all),
                        tokens(model, model->logits, trainVocabulary)) /
              all;
  double factor =
      model->config->auxiliary * (double)shape->numExperts / all / all;
  for (int64_t i = 0; i < shape->numLayers; i++) {
    const struct trainLayer *layer = &model->layers[i];
    trainRouteMass(&layer->routing, model->mass);
    for (int64_t e = 0; e < shape->numExperts; e++)
      sums.auxiliary += factor * (double)trainMoeLoad(&layer->moe, e) /
                        (double)shape->topk * model->mass[e];
  }
  return sums;
}

/* ---- Backward ------------------------------------------------------------ */

/* From the gradient of the block's output, which is that of the residual
 * stream, to what its input adds to it. */
static enum toolExit moeBackward(struct trainModel *model, int64_t i,
                                 int64_t allTokens, uint64_t seed,
                                 struct trainMoeFigures *figures) {
  const struct trainShape *shape = &model->config->shape;
  struct trainLayer *layer = &model->layers[i];
  struct trainLayerParams *gradients = &model->gradients.layers[i];
  const struct trainLayerParams *params = &model->params.layers[i];
  double all = (double)allTokens;
  const struct trainMoeRows rows = {layer->moeIn, model->flow, model->others,
                                    model->dweights};
  enum toolExit code =
      trainMoeBackward(&layer->moe, seed + (uint64_t)i, &rows, figures);
  if (code) return code;
  for (int64_t e = 0; e < shape->numExperts; e++)
    model->pulls[e] =
        (float)(model->config->auxiliary * (double)shape->numExperts *
                (double)trainMoeLoad(&layer->moe, e) / (double)shape->topk /
                all / all);
  trainRouteBackward(&layer->routing, model->dweights, model->pulls,
                     model->dlogits);
  trainLinearBackward(
      tokens(model, model->dlogits, shape->numExperts),
      tokens(model, layer->moeIn, shape->dim),
      trainMatrixMake(params->router, shape->numExperts, shape->dim),
      trainMatrixMake(gradients->router, shape->numExperts, shape->dim),
      tokens(model, model->others, shape->dim), 1);
  trainNormBackward(tokens(model, layer->middle, shape->dim), params->moeNorm,
                    layer->moeInverse, model->others, gradients->moeNorm,
                    model->flow);
  return toolGood;
}

static void attentionBackward(struct trainModel *model, int64_t i) {
  int64_t dim = model->config->shape.dim;
  struct trainLayer *layer = &model->layers[i];
  struct trainLayerParams *gradients = &model->gradients.layers[i];
  const struct trainLayerParams *params = &model->params.layers[i];
  struct trainMatrix others = tokens(model, model->others, dim);
  trainLinearBackward(tokens(model, model->flow, dim),
                      tokens(model, layer->attended, dim),
                      trainMatrixMake(params->out, dim, dim),
                      trainMatrixMake(gradients->out, dim, dim), others, 0);
  trainAttendBackward(&model->attention, model->numWindows, layer->qkv,
                      layer->saved, model->others, model->rows);
  trainLinearBackward(tokens(model, model->rows, 3 * dim),
                      tokens(model, layer->normed, dim),
                      trainMatrixMake(params->qkv, 3 * dim, dim),
                      trainMatrixMake(gradients->qkv, 3 * dim, dim), others, 0);
  trainNormBackward(tokens(model, layer->x, dim), params->attentionNorm,
                    layer->inverse, model->others, gradients->attentionNorm,
                    model->flow);
}

enum toolExit trainModelBackward(struct trainModel *model, int64_t allTokens,
                                 uint64_t seed,
                                 struct trainMoeFigures *figures) {
  const struct trainShape *shape = &model->config->shape;
  int64_t count = model->numTokens * shape->dim;
  enum toolExit code = toolGood;
  trainLinearBackward(
      tokens(model, model->logits, trainVocabulary),
      tokens(model, model->finalNormed, shape->dim),
      trainMatrixMake(model->params.head, trainVocabulary, shape->dim),
      trainMatrixMake(model->gradients.head, trainVocabulary, shape->dim),
      tokens(model, model->others, shape->dim), 0);
  memset(model->flow, 0, (size_t)count * sizeof(float));
  trainNormBackward(tokens(model, model->last, shape->dim),
                    model->params.finalNorm, model->finalInverse, model->others,
                    model->gradients.finalNorm, model->flow);
  for (int64_t i = shape->numLayers - 1; i >= 0 && code == toolGood; i--) {
    code = moeBackward(model, i, allTokens, seed, figures);
    if (code == toolGood) attentionBackward(model, i);
  }
  trainEmbedBackward(model->bytes, tokens(model, model->flow, shape->dim),
                     model->gradients.embedding);
  trainGramsBackward(shape, model->bytes,
                     tokens(model, model->flow, shape->dim),
                     model->gradients.grams);
  return code;
}

void trainModelEnd(struct trainModel *model) {
  for (int64_t i = 0; i < model->config->shape.numLayers; i++)
    trainMoeEnd(&model->layers[i].moe);
}
