/* An optimizer with random weights: see fixture.h. */
#include "fixture.h"

#include <stdlib.h>

const struct fixtureShape smallShape = {3, 3, {37, 130, 1}};
const struct fixtureShape largeShape = {2, 2, {3 * PIECE_ELEMENTS, 70001}};

/* Elements of the first numTensors tensors of an expert. */
static int64_t elementsOf(const struct fixtureShape *shape,
                          int32_t numTensors) {
  int64_t sum = 0;
  for (int32_t t = 0; t < numTensors; t++)
    sum += shape->elements[t];
  return sum;
}

int64_t fixtureFirst(const struct fixtureShape *shape, int32_t expert,
                     int32_t tensor) {
  return expert * elementsOf(shape, shape->numTensors) +
         elementsOf(shape, tensor);
}

int64_t fixtureElements(const struct fixtureShape *shape) {
  return shape->numExperts * elementsOf(shape, shape->numTensors);
}

lrmoeHostOptimizerConfig_t fixtureConfig(const struct fixtureShape *shape) {
  lrmoeHostOptimizerConfig_t config = LRMOE_HOST_OPTIMIZER_CONFIG_INITIALIZER;
  config.numExperts = shape->numExperts;
  config.numTensors = shape->numTensors;
  config.tensorElements = shape->elements;
  return config;
}

lrmoeHostOptimizer_t fixtureCreate(const lrmoeHostOptimizerConfig_t *config,
                                   lrmoeDataType_t type, const void *weights) {
  const char *next = weights;
  int32_t numTensors = config->numTensors;
  int32_t numPointers = config->numExperts * numTensors;
  const void **pointers = calloc((size_t)numPointers, sizeof *pointers);
  ck_assert_ptr_nonnull(pointers);
  for (int32_t i = 0; i < numPointers; i++) {
    pointers[i] = next;
    next +=
        (size_t)config->tensorElements[i % numTensors] * naiveTypeBytes(type);
  }
  lrmoeHostOptimizer_t optimizer = NULL;
  ASSERT_OK(lrmoeHostOptimizerCreate(config, type, pointers, &optimizer));
  free(pointers);
  return optimizer;
}

lrmoeHostOptimizer_t fixtureRandom(const lrmoeHostOptimizerConfig_t *config) {
  int64_t perExpert = 0;
  for (int32_t t = 0; t < config->numTensors; t++)
    perExpert += config->tensorElements[t];
  struct naiveRandom random = {42};
  float *weights = naiveRandomArray(&random, lrmoeFloat32,
                                    config->numExperts * perExpert, 2);
  lrmoeHostOptimizer_t optimizer = fixtureCreate(config, lrmoeFloat32, weights);
  free(weights);
  return optimizer;
}

void fixturePush(lrmoeHostOptimizer_t optimizer, const float *gradients) {
  for (int32_t e = 0; e < optimizer->numExperts; e++)
    for (int32_t t = 0; t < optimizer->numTensors; t++) {
      int64_t count = lrmoeHostTensorElements(optimizer, t);
      ASSERT_OK(lrmoeHostOptimizerPush(optimizer, e, t, gradients, count));
      gradients += count;
    }
}

void *fixturePull(lrmoeHostOptimizer_t optimizer, lrmoeDataType_t type) {
  size_t elementBytes = naiveTypeBytes(type);
  char *weights = malloc((size_t)optimizer->state.numElements * elementBytes);
  ck_assert_ptr_nonnull(weights);
  char *to = weights;
  for (int32_t e = 0; e < optimizer->numExperts; e++)
    for (int32_t t = 0; t < optimizer->numTensors; t++) {
      ASSERT_OK(lrmoeHostOptimizerPull(optimizer, e, t, type, to));
      to += (size_t)lrmoeHostTensorElements(optimizer, t) * elementBytes;
    }
  return weights;
}

void fixtureStep(lrmoeHostOptimizer_t optimizer, double lr, double scale) {
  int32_t isSkipped = -1;
  ASSERT_OK(lrmoeHostOptimizerStep(optimizer, lr, scale, &isSkipped));
  ck_assert_int_eq(isSkipped, 0);
}

char *fixtureSave(lrmoeHostOptimizer_t optimizer, size_t *bytes) {
  ASSERT_OK(lrmoeHostOptimizerSave(optimizer, NULL, bytes));
  char *saved = malloc(*bytes);
  ck_assert_ptr_nonnull(saved);
  ASSERT_OK(lrmoeHostOptimizerSave(optimizer, saved, bytes));
  return saved;
}

void fixtureSame(lrmoeHostOptimizer_t a, lrmoeHostOptimizer_t b) {
  size_t bytesOfA, bytesOfB;
  char *savedA = fixtureSave(a, &bytesOfA);
  char *savedB = fixtureSave(b, &bytesOfB);
  ck_assert_uint_eq(bytesOfA, bytesOfB);
  ck_assert_mem_eq(savedA, savedB, bytesOfA);
  free(savedA);
  free(savedB);
}

lrmoeHostOptimizerStats_t fixtureStats(lrmoeHostOptimizer_t optimizer) {
  lrmoeHostOptimizerStats_t stats = LRMOE_HOST_OPTIMIZER_STATS_INITIALIZER;
  ASSERT_OK(lrmoeHostOptimizerGetStats(optimizer, &stats));
  return stats;
}
