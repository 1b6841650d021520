/* One update of all parameters: gradients of all ranks together, clipped to a
 * norm, then AdamW by the library's host optimizer: one for the dense
 * parameters, whose copies stay the same on every rank, and one for each expert
 * of this rank, so that an expert's state can move when ranks come or go. */
#ifndef LRMOE_PERF_TRAIN_OPTIMIZER_H
#define LRMOE_PERF_TRAIN_OPTIMIZER_H

#include "perf/train/model.h"

struct trainOptimizer {
  struct trainModel *model;
  lrmoeHostOptimizer_t dense;
  lrmoeHostOptimizer_t *experts; /* [layers, numLocal] */
  int64_t numExperts;            /* layers * numLocal */
};

/* Starts with the model's weights. */
enum toolExit trainOptimizerOpen(struct trainModel *model,
                                 struct trainOptimizer *optimizer);
void trainOptimizerClose(struct trainOptimizer *optimizer);

/* The learning rate of step `step`, from 0: a line up, then a cosine down to a
 * tenth. */
double trainLearningRate(const struct trainConfig *config, int64_t step);

/* Brings the gradients of all ranks together: replicas' to their homes, and
 * dense ones to their sum on every rank.  Collective; part of
 * trainOptimizerStep. */
enum toolExit trainOptimizerGather(struct trainModel *model);

/* Updates with the gradients in the model and sets them to zero; *norm gets
 * that of all gradients before clipping.  Collective. */
enum toolExit trainOptimizerStep(struct trainOptimizer *optimizer, double rate,
                                 double *norm);

/* Brings the optimizers' weights to the model. */
enum toolExit trainOptimizerPull(struct trainOptimizer *optimizer);

#endif
