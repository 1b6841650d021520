/* The dense parameters: see params.h.
 *
 * Weights start uniform with deviation 1 / sqrt(inputs), those that write to
 * the residual stream smaller by sqrt(2 layers), as GPT-2's; the head small,
 * so that the first loss is that of the uniform distribution; the tables of
 * grams with zeros, so that bytes say all until these have learned. */
#include "perf/train/params.h"

#include "perf/train/grams.h"
#include "tools/common/tensor.h"

#include <math.h>
#include <stdlib.h>

static float *take(float *all, int64_t *used, int64_t count) {
  float *part = all ? all + *used : NULL;
  *used += count;
  return part;
}

/* Lays the parts out; without params->all it only counts. */
static int64_t layOut(const struct trainShape *shape,
                      struct trainParams *params) {
  int64_t used = 0;
  float *all = params->all;
  int64_t dim = shape->dim;
  params->embedding = take(all, &used, trainVocabulary * dim);
  params->grams = take(all, &used, trainGramsCount(shape));
  params->finalNorm = take(all, &used, dim);
  params->head = take(all, &used, trainVocabulary * dim);
  for (int64_t i = 0; i < shape->numLayers; i++) {
    struct trainLayerParams *layer = &params->layers[i];
    layer->attentionNorm = take(all, &used, dim);
    layer->qkv = take(all, &used, 3 * dim * dim);
    layer->out = take(all, &used, dim * dim);
    layer->moeNorm = take(all, &used, dim);
    layer->router = take(all, &used, shape->numExperts * dim);
  }
  return used;
}

struct trainParams trainParamsMake(const struct trainShape *shape) {
  struct trainParams params = {
      .layers = trainRoom(shape->numLayers, sizeof *params.layers)};
  params.count = layOut(shape, &params);
  params.all = trainRoom(params.count, sizeof *params.all);
  layOut(shape, &params);
  return params;
}

void trainParamsFree(struct trainParams *params) {
  free(params->all);
  free(params->layers);
  *params = (struct trainParams){0};
}

static void draw(int64_t count, double deviation, struct toolRandom *random,
                 float *out) {
  toolTensorRandom(lrmoeFloat32, count, deviation, random, out);
}

static void ones(int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++)
    out[i] = 1;
}

void trainParamsStart(const struct trainShape *shape, int64_t seed,
                      struct trainParams *params) {
  struct toolRandom random = toolRandomMake((uint64_t)seed, 1u << 20);
  int64_t dim = shape->dim;
  double width = 1 / sqrt((double)dim);
  double shrink = 1 / sqrt(2 * (double)shape->numLayers);
  draw(trainVocabulary * dim, 0.1, &random, params->embedding);
  draw(trainVocabulary * dim, 0.02, &random, params->head);
  ones(dim, params->finalNorm);
  for (int64_t i = 0; i < shape->numLayers; i++) {
    struct trainLayerParams *layer = &params->layers[i];
    ones(dim, layer->attentionNorm);
    ones(dim, layer->moeNorm);
    draw(3 * dim * dim, width, &random, layer->qkv);
    draw(dim * dim, width * shrink, &random, layer->out);
    draw(shape->numExperts * dim, width, &random, layer->router);
  }
}

void trainExpertStart(const struct trainShape *shape, int64_t seed,
                      int64_t layer, int64_t expert, float *w1, float *w2) {
  uint64_t stream = (uint64_t)(layer * shape->numExperts + expert);
  struct toolRandom random =
      toolRandomMake((uint64_t)seed, ((uint64_t)1 << 32) + stream);
  double shrink = 1 / sqrt(2 * (double)shape->numLayers);
  draw(2 * shape->ffn * shape->dim, 1 / sqrt((double)shape->dim), &random, w1);
  draw(shape->dim * shape->ffn, shrink / sqrt((double)shape->ffn), &random, w2);
}
