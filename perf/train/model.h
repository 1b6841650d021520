/* The language model: forward, loss and backward of one rank's windows. */
#ifndef LRMOE_PERF_TRAIN_MODEL_H
#define LRMOE_PERF_TRAIN_MODEL_H

#include "perf/train/attention.h"
#include "perf/train/moe.h"
#include "perf/train/params.h"

/* What a layer keeps from forward to backward; rows are [T, dim]. */
struct trainLayer {
  float *x;        /* its input */
  float *normed;   /* what attention gets */
  float *inverse;  /* [T] of that norm */
  float *qkv;      /* [T, 3 dim] */
  float *saved;    /* attention weights */
  float *attended; /* heads' outputs */
  float *middle;   /* x + attention */
  float *moeIn;    /* what router and experts get */
  float *moeInverse;
  struct trainRouting routing;
  struct trainMoe moe;
};

struct trainModel {
  const struct trainConfig *config;
  struct trainTeam team;
  struct trainParams params;
  struct trainParams gradients;
  struct trainAttention attention;
  struct trainLayer *layers;
  int64_t numWindows; /* of the batch that is set */
  int64_t numTokens;
  uint8_t *bytes;   /* [maxTokens] */
  uint8_t *targets; /* the bytes after them */
  float *last;      /* [T, dim] output of the last layer */
  float *finalNormed;
  float *finalInverse;
  float *logits;   /* [T, vocabulary]; after the loss their gradient */
  float *flow;     /* [T, dim] gradient of the residual stream */
  float *rows;     /* [T, 3 dim] scratch */
  float *others;   /* [T, dim] scratch */
  float *dlogits;  /* [T, E] of the router */
  float *dweights; /* [T, k] */
  float *pulls;    /* [E] */
  double *mass;    /* [E] */
};

/* Joins the ranks and makes the model with its starting values.  Collective.
 * trainModelClose releases it, also what an error left. */
enum toolExit trainModelOpen(const struct toolRank *self,
                             const struct trainConfig *config,
                             struct trainModel *model);
void trainModelClose(struct trainModel *model);

/* Sets this rank's windows: window i begins at text + starts[i]. */
void trainModelSet(struct trainModel *model, const uint8_t *text,
                   const int64_t *starts, int64_t numWindows);

/* To the logits.  Collective. */
enum toolExit trainModelForward(struct trainModel *model);

/* This rank's part of the mean loss over `allTokens` of all ranks, and of the
 * auxiliary loss; readies the logits for backward. */
struct trainModelLoss {
  double loss; /* nats a byte */
  double auxiliary;
};
struct trainModelLoss trainModelScore(struct trainModel *model,
                                      int64_t allTokens);

/* Adds the gradients of the sum of both to model->gradients and the blocks'.
 * Collective. */
enum toolExit trainModelBackward(struct trainModel *model, int64_t allTokens,
                                 uint64_t seed,
                                 struct trainMoeFigures *figures);

/* Ends the blocks' steps. */
void trainModelEnd(struct trainModel *model);

#endif
