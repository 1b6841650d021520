/* The dense parameters, or their gradients: one array, and where its parts are.
 * The experts' are elsewhere: each rank has its own. */
#ifndef LRMOE_PERF_TRAIN_PARAMS_H
#define LRMOE_PERF_TRAIN_PARAMS_H

#include "perf/train/config.h"

struct trainLayerParams {
  float *attentionNorm; /* [dim] */
  float *qkv;           /* [3 dim, dim] rows of queries, keys, values */
  float *out;           /* [dim, dim] */
  float *moeNorm;       /* [dim] */
  float *router;        /* [experts, dim] */
};

struct trainParams {
  float *all; /* [count] */
  int64_t count;
  float *embedding; /* [vocabulary, dim] */
  float *grams;     /* [grams, gramRows, dim] */
  float *finalNorm; /* [dim] */
  float *head;      /* [vocabulary, dim] */
  struct trainLayerParams *layers;
};

/* All zero; trainParamsFree releases them. */
struct trainParams trainParamsMake(const struct trainShape *shape);
void trainParamsFree(struct trainParams *params);

/* Starting values: the same for a seed, on every rank. */
void trainParamsStart(const struct trainShape *shape, int64_t seed,
                      struct trainParams *params);

/* Starting values of an expert, w1 [2 ffn, dim] and w2 [dim, ffn]. */
void trainExpertStart(const struct trainShape *shape, int64_t seed,
                      int64_t layer, int64_t expert, float *w1, float *w2);

#endif
