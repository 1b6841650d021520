/* Life of a host optimizer, and its weights: see optimizer.h. */
#include "collectives/host/optimizer.h"

#include "base/config.h"

#include <float.h>
#include <string.h>

/* Bounds under which no product or sum here leaves int64. */
#define MAX_ELEMENTS    ((int64_t)1 << 40)
#define MAX_QUEUE_BYTES ((int64_t)1 << 40)

/* ---- Checks ----------------------------------------------------------- */

lrmoeResult_t lrmoeHostCheck(const struct lrmoeHostOptimizer *optimizer) {
  LRMOE_REQUIRE(optimizer, "optimizer is NULL");
  return lrmoeHostTeamCheck(&optimizer->team);
}

lrmoeResult_t lrmoeHostCheckTensor(const struct lrmoeHostOptimizer *optimizer,
                                   int32_t expert, int32_t tensor) {
  LRMOE_CHECK(lrmoeHostCheck(optimizer));
  LRMOE_REQUIRE(expert >= 0 && expert < optimizer->numExperts,
                "expert is %d, of %d", expert, optimizer->numExperts);
  LRMOE_REQUIRE(tensor >= 0 && tensor < optimizer->numTensors,
                "tensor is %d, of %d", tensor, optimizer->numTensors);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHostCheckType(lrmoeDataType_t type) {
  LRMOE_REQUIRE(type == lrmoeFloat32 || type == lrmoeBfloat16 ||
                    type == lrmoeFloat16,
                "weights of type %d: not fp32, bf16 or fp16", (int)type);
  return lrmoeSuccess;
}

static lrmoeResult_t checkShapes(const lrmoeHostOptimizerConfig_t *config) {
  LRMOE_REQUIRE(
      config->numExperts >= 1 && config->numExperts <= lrmoeMaxHostExperts,
      "numExperts is %d, not 1 to %d", config->numExperts, lrmoeMaxHostExperts);
  LRMOE_REQUIRE(
      config->numTensors >= 1 && config->numTensors <= lrmoeMaxHostTensors,
      "numTensors is %d, not 1 to %d", config->numTensors, lrmoeMaxHostTensors);
  LRMOE_REQUIRE(config->tensorElements, "tensorElements is NULL");
  int64_t most = MAX_ELEMENTS / config->numExperts, sum = 0;
  for (int32_t i = 0; i < config->numTensors; i++) {
    int64_t elements = config->tensorElements[i];
    LRMOE_REQUIRE(elements >= 1, "tensor %d has %lld elements", i,
                  (long long)elements);
    LRMOE_REQUIRE(elements <= most - sum,
                  "up to tensor %d, %d experts have more than %lld elements", i,
                  config->numExperts, (long long)MAX_ELEMENTS);
    sum += elements;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t checkConfig(const lrmoeHostOptimizerConfig_t *config) {
  LRMOE_CHECK(checkShapes(config));
  LRMOE_REQUIRE(config->queueBytes >= 1 &&
                    config->queueBytes <= MAX_QUEUE_BYTES,
                "queueBytes is %lld, not 1 to %lld",
                (long long)config->queueBytes, (long long)MAX_QUEUE_BYTES);
  LRMOE_REQUIRE(
      config->numThreads >= 1 && config->numThreads <= lrmoeMaxHostThreads,
      "numThreads is %d, not 1 to %d", config->numThreads, lrmoeMaxHostThreads);
  LRMOE_REQUIRE(config->skipNonFinite == 0 || config->skipNonFinite == 1,
                "skipNonFinite is %d, not 0 or 1", config->skipNonFinite);
  /* Each comparison is false for a NaN. */
  LRMOE_REQUIRE(config->beta1 >= 0 && config->beta1 < 1,
                "beta1 is %g, not in [0, 1)", config->beta1);
  LRMOE_REQUIRE(config->beta2 >= 0 && config->beta2 < 1,
                "beta2 is %g, not in [0, 1)", config->beta2);
  LRMOE_REQUIRE(config->epsilon >= FLT_MIN && config->epsilon <= FLT_MAX,
                "epsilon is %g, not a normal fp32 above 0", config->epsilon);
  LRMOE_REQUIRE(config->weightDecay >= 0 && config->weightDecay <= FLT_MAX,
                "weightDecay is %g, not in [0, %g]", config->weightDecay,
                (double)FLT_MAX);
  return lrmoeSuccess;
}

static lrmoeResult_t checkWeights(const lrmoeHostOptimizerConfig_t *config,
                                  lrmoeDataType_t type,
                                  const void *const *weights) {
  LRMOE_CHECK(lrmoeHostCheckType(type));
  LRMOE_REQUIRE(weights, "weights is NULL");
  int64_t numPointers = (int64_t)config->numExperts * config->numTensors;
  for (int64_t i = 0; i < numPointers; i++)
    LRMOE_REQUIRE(weights[i],
                  "the weights of expert %lld, tensor %lld are NULL",
                  (long long)(i / config->numTensors),
                  (long long)(i % config->numTensors));
  return lrmoeSuccess;
}

/* ---- Life ------------------------------------------------------------- */

/* The four arrays, each from a cache line on, all but the weights zeroed. */
static lrmoeResult_t makeState(struct lrmoeHostOptimizer *optimizer) {
  struct lrmoeHostState *state = &optimizer->state;
  int64_t numElements =
      optimizer->numExperts * optimizer->tensorOffsets[optimizer->numTensors];
  int64_t stride = (numElements + 15) / 16 * 16;
  size_t strideBytes = (size_t)stride * sizeof(float);
  LRMOE_CHECK(lrmoeBufferReserve(&optimizer->memory, 4 * strideBytes));
  state->numElements = numElements;
  state->weights = optimizer->memory.data;
  state->first = state->weights + stride;
  state->second = state->first + stride;
  state->gradient = state->second + stride;
  memset(state->first, 0, 3 * strideBytes);
  return lrmoeSuccess;
}

/* count numbers of one type as another. */
static void convert(const struct lrmoeHostOptimizer *optimizer, int64_t count,
                    struct lrmoeRows from, lrmoeDataType_t type, void *out) {
  from.width = count;
  optimizer->kernels->gather(&from, 1, type, out);
}

static void loadWeights(struct lrmoeHostOptimizer *optimizer,
                        lrmoeDataType_t type, const void *const *weights) {
  for (int32_t e = 0; e < optimizer->numExperts; e++)
    for (int32_t t = 0; t < optimizer->numTensors; t++) {
      const void *from = weights[(int64_t)e * optimizer->numTensors + t];
      convert(optimizer, lrmoeHostTensorElements(optimizer, t),
              (struct lrmoeRows){.data = from, .type = type}, lrmoeFloat32,
              optimizer->state.weights + lrmoeHostTensorFirst(optimizer, e, t));
    }
}

static lrmoeResult_t makeOptimizer(struct lrmoeHostOptimizer *optimizer,
                                   const lrmoeHostOptimizerConfig_t *config) {
  optimizer->adamw = (struct lrmoeAdamwConfig){
      config->beta1, config->beta2, config->epsilon, config->weightDecay};
  optimizer->numExperts = config->numExperts;
  optimizer->numTensors = config->numTensors;
  optimizer->skipNonFinite = config->skipNonFinite;
  LRMOE_CHECK(lrmoeRowKernelsGet(&optimizer->kernels));
  LRMOE_CHECK(
      LRMOE_ALLOCATE(config->numTensors + 1, &optimizer->tensorOffsets));
  for (int32_t i = 0; i < config->numTensors; i++)
    optimizer->tensorOffsets[i + 1] =
        optimizer->tensorOffsets[i] + config->tensorElements[i];
  LRMOE_CHECK(makeState(optimizer));
  return lrmoeHostTeamInit(&optimizer->team, &optimizer->state,
                           config->numThreads, config->queueBytes);
}

lrmoeResult_t lrmoeHostOptimizerCreate(const lrmoeHostOptimizerConfig_t *config,
                                       lrmoeDataType_t type,
                                       const void *const *weights,
                                       lrmoeHostOptimizer_t *optimizer) {
  lrmoeHostOptimizerConfig_t own = LRMOE_HOST_OPTIMIZER_CONFIG_INITIALIZER;
  LRMOE_CHECK(
      lrmoeConfigRead("lrmoeHostOptimizerConfig_t", config, sizeof own, &own));
  LRMOE_REQUIRE(optimizer, "optimizer is NULL");
  LRMOE_CHECK(checkConfig(&own));
  LRMOE_CHECK(checkWeights(&own, type, weights));
  struct lrmoeHostOptimizer *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  lrmoeResult_t result = makeOptimizer(made, &own);
  if (result != lrmoeSuccess) {
    lrmoeHostOptimizerDestroy(made);
    return result;
  }
  loadWeights(made, type, weights);
  *optimizer = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHostOptimizerDestroy(lrmoeHostOptimizer_t optimizer) {
  if (!optimizer) return lrmoeSuccess;
  lrmoeHostTeamFree(&optimizer->team);
  lrmoeBufferFree(&optimizer->memory);
  lrmoeFree(optimizer->tensorOffsets);
  lrmoeFree(optimizer);
  return lrmoeSuccess;
}

/* ---- What it holds ---------------------------------------------------- */

lrmoeResult_t lrmoeHostOptimizerPull(lrmoeHostOptimizer_t optimizer,
                                     int32_t expert, int32_t tensor,
                                     lrmoeDataType_t type, void *out) {
  LRMOE_CHECK(lrmoeHostCheckTensor(optimizer, expert, tensor));
  LRMOE_CHECK(lrmoeHostCheckType(type));
  LRMOE_REQUIRE(out, "out is NULL");
  const float *from = optimizer->state.weights +
                      lrmoeHostTensorFirst(optimizer, expert, tensor);
  convert(optimizer, lrmoeHostTensorElements(optimizer, tensor),
          (struct lrmoeRows){.data = from, .type = lrmoeFloat32}, type, out);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHostOptimizerGetStats(lrmoeHostOptimizer_t optimizer,
                                         lrmoeHostOptimizerStats_t *stats) {
  LRMOE_CHECK(lrmoeHostCheck(optimizer));
  lrmoeHostOptimizerStats_t full = LRMOE_HOST_OPTIMIZER_STATS_INITIALIZER;
  const struct lrmoeHostTeam *team = &optimizer->team;
  full.steps = optimizer->numSteps;
  full.skippedSteps = optimizer->numSkipped;
  full.pushes = optimizer->numPushes;
  full.waits = team->numWaits;
  full.stateBytes = 4 * optimizer->state.numElements * (int64_t)sizeof(float);
  full.queueBytes =
      team->numSlots * lrmoeHostPieceElements * (int64_t)sizeof(float);
  return lrmoeViewWrite("lrmoeHostOptimizerStats_t", &full, sizeof full, stats);
}
