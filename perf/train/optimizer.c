/* One update of all parameters: see optimizer.h. */
#include "perf/train/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct toolRank *selfOf(const struct trainOptimizer *optimizer) {
  return optimizer->model->team.self;
}

/* Layer and local number of expert optimizer i. */
static struct trainMoe *moeOf(const struct trainOptimizer *optimizer, int64_t i,
                              int *local) {
  struct trainModel *model = optimizer->model;
  int64_t numLocal = optimizer->numExperts / model->config->shape.numLayers;
  *local = (int)(i % numLocal);
  return &model->layers[i / numLocal].moe;
}

/* ---- Making -------------------------------------------------------------- */

static enum toolExit openOne(const struct toolRank *self,
                             const int64_t *elements, int numTensors,
                             const void *const *weights,
                             lrmoeHostOptimizer_t *optimizer) {
  lrmoeHostOptimizerConfig_t config = LRMOE_HOST_OPTIMIZER_CONFIG_INITIALIZER;
  config.tensorElements = elements;
  config.numTensors = numTensors;
  config.numExperts = 1;
  config.beta2 = 0.95;
  config.queueBytes = 0;
  for (int i = 0; i < numTensors; i++)
    config.queueBytes += elements[i] * (int64_t)sizeof(float);
  TOOL_RANK_OK(self, lrmoeHostOptimizerCreate(&config, lrmoeFloat32, weights,
                                              optimizer));
  return toolGood;
}

static enum toolExit openExpert(struct trainOptimizer *optimizer, int64_t i) {
  const struct trainShape *shape = &optimizer->model->config->shape;
  const int64_t elements[] = {trainExpertCount(shape, 0),
                              trainExpertCount(shape, 1)};
  int local = 0;
  const struct trainMoe *moe = moeOf(optimizer, i, &local);
  const void *weights[] = {moe->parts[local],
                           moe->parts[moe->numLocal + local]};
  return openOne(selfOf(optimizer), elements, 2, weights,
                 &optimizer->experts[i]);
}

enum toolExit trainOptimizerOpen(struct trainModel *model,
                                 struct trainOptimizer *optimizer) {
  const void *weights[] = {model->params.all};
  *optimizer = (struct trainOptimizer){.model = model};
  enum toolExit code = openOne(model->team.self, &model->params.count, 1,
                               weights, &optimizer->dense);
  int64_t count =
      model->config->shape.numLayers * model->layers[0].moe.numLocal;
  optimizer->experts = trainRoom(count, sizeof(lrmoeHostOptimizer_t));
  optimizer->numExperts = count;
  for (int64_t i = 0; i < count && code == toolGood; i++)
    code = openExpert(optimizer, i);
  return code;
}

void trainOptimizerClose(struct trainOptimizer *optimizer) {
  for (int64_t i = 0; optimizer->experts && i < optimizer->numExperts; i++)
    lrmoeHostOptimizerDestroy(optimizer->experts[i]);
  lrmoeHostOptimizerDestroy(optimizer->dense);
  free(optimizer->experts);
  *optimizer = (struct trainOptimizer){0};
}

double trainLearningRate(const struct trainConfig *config, int64_t step) {
  const double pi = 3.141592653589793;
  double rate = config->learningRate;
  if (step < config->warmup)
    return rate * (double)(step + 1) / (double)config->warmup;
  double left = (double)(config->numSteps - config->warmup);
  double done = left > 0 ? (double)(step - config->warmup) / left : 1;
  return rate * (0.55 + 0.45 * cos(pi * (done < 1 ? done : 1)));
}

/* ---- Gradients ----------------------------------------------------------- */

enum toolExit trainOptimizerGather(struct trainModel *model) {
  const struct trainTeam *team = &model->team;
  enum toolExit code = toolGood;
  for (int64_t i = 0; i < model->config->shape.numLayers && code == toolGood;
       i++)
    code = trainMoeReduce(&model->layers[i].moe);
  if (code) return code;
  float *all = model->gradients.all;
  TOOL_RANK_OK(team->self,
               lrmoeAllReduce(all, all, (size_t)model->gradients.count,
                              lrmoeFloat32, lrmoeSum, team->comm, NULL));
  return toolGood;
}

static double squares(const float *values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += (double)values[i] * (double)values[i];
  return sum;
}

static int64_t expertsCount(const struct trainModel *model) {
  const struct trainShape *shape = &model->config->shape;
  return model->layers[0].moe.numLocal *
         (trainExpertCount(shape, 0) + trainExpertCount(shape, 1));
}

static enum toolExit findNorm(struct trainModel *model, double *norm) {
  double sum = 0;
  for (int64_t i = 0; i < model->config->shape.numLayers; i++)
    sum += squares(model->layers[i].moe.gradients, expertsCount(model));
  TOOL_RANK_OK(model->team.self,
               lrmoeAllReduce(&sum, &sum, 1, lrmoeFloat64, lrmoeSum,
                              model->team.comm, NULL));
  *norm = sqrt(sum + squares(model->gradients.all, model->gradients.count));
  return toolGood;
}

/* ---- The update ---------------------------------------------------------- */

static enum toolExit pushAll(struct trainOptimizer *optimizer) {
  const struct toolRank *self = selfOf(optimizer);
  const struct trainModel *model = optimizer->model;
  for (int64_t i = 0; i < 2 * optimizer->numExperts; i++) {
    int local = 0;
    int tensor = (int)(i % 2);
    const struct trainMoe *moe = moeOf(optimizer, i / 2, &local);
    TOOL_RANK_OK(self, lrmoeHostOptimizerPush(
                           optimizer->experts[i / 2], 0, tensor,
                           moe->parts[(2 + tensor) * moe->numLocal + local],
                           trainExpertCount(&model->config->shape, tensor)));
  }
  TOOL_RANK_OK(self, lrmoeHostOptimizerPush(optimizer->dense, 0, 0,
                                            model->gradients.all,
                                            model->gradients.count));
  return toolGood;
}

static enum toolExit stepOne(const struct toolRank *self,
                             lrmoeHostOptimizer_t optimizer, double rate,
                             double scale) {
  int32_t isSkipped = 0;
  TOOL_RANK_OK(self,
               lrmoeHostOptimizerStep(optimizer, rate, scale, &isSkipped));
  if (isSkipped)
    return toolRankFail(self, lrmoeSuccess,
                        "a gradient is not finite: the run has diverged");
  return toolGood;
}

static void clearGradients(struct trainModel *model) {
  memset(model->gradients.all, 0,
         (size_t)model->gradients.count * sizeof(float));
  for (int64_t i = 0; i < model->config->shape.numLayers; i++)
    memset(model->layers[i].moe.gradients, 0,
           (size_t)expertsCount(model) * sizeof(float));
}

enum toolExit trainOptimizerStep(struct trainOptimizer *optimizer, double rate,
                                 double *norm) {
  struct trainModel *model = optimizer->model;
  const struct toolRank *self = selfOf(optimizer);
  double clip = model->config->clip;
  enum toolExit code = trainOptimizerGather(model);
  if (code == toolGood) code = findNorm(model, norm);
  if (code == toolGood) code = pushAll(optimizer);
  double scale = clip > 0 && *norm > clip ? clip / *norm : 1;
  if (code == toolGood) code = stepOne(self, optimizer->dense, rate, scale);
  for (int64_t i = 0; i < optimizer->numExperts && code == toolGood; i++)
    code = stepOne(self, optimizer->experts[i], rate, scale);
  clearGradients(model);
  return code == toolGood ? trainOptimizerPull(optimizer) : code;
}

enum toolExit trainOptimizerPull(struct trainOptimizer *optimizer) {
  const struct toolRank *self = selfOf(optimizer);
  struct trainModel *model = optimizer->model;
  TOOL_RANK_OK(self, lrmoeHostOptimizerPull(optimizer->dense, 0, 0,
                                            lrmoeFloat32, model->params.all));
  for (int64_t i = 0; i < 2 * optimizer->numExperts; i++) {
    int local = 0;
    int tensor = (int)(i % 2);
    const struct trainMoe *moe = moeOf(optimizer, i / 2, &local);
    TOOL_RANK_OK(self, lrmoeHostOptimizerPull(
                           optimizer->experts[i / 2], 0, tensor, lrmoeFloat32,
                           moe->parts[tensor * moe->numLocal + local]));
  }
  for (int64_t i = 0; i < model->config->shape.numLayers; i++)
    TOOL_RANK_OK(self, lrmoeLayerAdvanceVersion(model->layers[i].moe.layer));
  return toolGood;
}
