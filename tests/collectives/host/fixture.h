/* An optimizer with random weights, and what is in it. */
#ifndef LRMOE_TESTS_COLLECTIVES_HOST_FIXTURE_H
#define LRMOE_TESTS_COLLECTIVES_HOST_FIXTURE_H

#include "collectives/host/optimizer.h"
#include "kernels/naive.h"
#include "support/suite.h"

enum {
  fixtureMaxTensors = 4
};

#define PIECE_ELEMENTS ((int64_t)lrmoeHostPieceElements)
#define PIECE_BYTES    (4 * PIECE_ELEMENTS)

/* Experts and tensors of a test: the offsets are those of its state. */
struct fixtureShape {
  int32_t numExperts;
  int32_t numTensors;
  int64_t elements[fixtureMaxTensors];
};

extern const struct fixtureShape smallShape; /* odd sizes, a few hundred */
extern const struct fixtureShape largeShape; /* tensors of several pieces */

int64_t fixtureElements(const struct fixtureShape *shape);

/* The first element of a tensor in arrays of fixtureElements(). */
int64_t fixtureFirst(const struct fixtureShape *shape, int32_t expert,
                     int32_t tensor);

lrmoeHostOptimizerConfig_t fixtureConfig(const struct fixtureShape *shape);

/* An optimizer with the weights of an array of `type`. */
lrmoeHostOptimizer_t fixtureCreate(const lrmoeHostOptimizerConfig_t *config,
                                   lrmoeDataType_t type, const void *weights);

/* The same with weights from a fixed seed. */
lrmoeHostOptimizer_t fixtureRandom(const lrmoeHostOptimizerConfig_t *config);

/* Pushes all tensors from an array of gradients. */
void fixturePush(lrmoeHostOptimizer_t optimizer, const float *gradients);

/* Pulls all tensors into a malloc'ed array of `type`. */
void *fixturePull(lrmoeHostOptimizer_t optimizer, lrmoeDataType_t type);

/* Steps, and asserts that nothing was skipped. */
void fixtureStep(lrmoeHostOptimizer_t optimizer, double lr, double scale);

/* What Save writes, malloc'ed. */
char *fixtureSave(lrmoeHostOptimizer_t optimizer, size_t *bytes);

/* Asserts that two optimizers hold the same bits. */
void fixtureSame(lrmoeHostOptimizer_t a, lrmoeHostOptimizer_t b);

lrmoeHostOptimizerStats_t fixtureStats(lrmoeHostOptimizer_t optimizer);

#endif
