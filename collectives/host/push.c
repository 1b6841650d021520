/* Gradients into the host optimizer, and steps: see optimizer.h. */
#include "collectives/host/optimizer.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- Gradients -------------------------------------------------------- */

static lrmoeResult_t checkPush(const struct lrmoeHostOptimizer *optimizer,
                               int32_t expert, int32_t tensor,
                               const float *gradient, int64_t count) {
  LRMOE_CHECK(lrmoeHostCheckTensor(optimizer, expert, tensor));
  LRMOE_REQUIRE(gradient, "gradient is NULL");
  int64_t elements = lrmoeHostTensorElements(optimizer, tensor);
  LRMOE_REQUIRE(count == elements,
                "a gradient of %lld elements for tensor %d, which has %lld",
                (long long)count, tensor, (long long)elements);
  return lrmoeSuccess;
}

static void take(struct lrmoeHostOptimizer *optimizer, int64_t first,
                 const float *gradient, int64_t count) {
  optimizer->hasGradients = 1;
  optimizer->numPushes++;
  lrmoeHostTeamPush(&optimizer->team, first, gradient, count);
}

lrmoeResult_t lrmoeHostOptimizerPush(lrmoeHostOptimizer_t optimizer,
                                     int32_t expert, int32_t tensor,
                                     const float *gradient, int64_t count) {
  LRMOE_CHECK(checkPush(optimizer, expert, tensor, gradient, count));
  LRMOE_CHECK(lrmoeHostTeamStart(&optimizer->team));
  take(optimizer, lrmoeHostTensorFirst(optimizer, expert, tensor), gradient,
       count);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHostOptimizerTryPush(lrmoeHostOptimizer_t optimizer,
                                        int32_t expert, int32_t tensor,
                                        const float *gradient, int64_t count) {
  LRMOE_CHECK(checkPush(optimizer, expert, tensor, gradient, count));
  struct lrmoeHostTeam *team = &optimizer->team;
  LRMOE_REQUIRE(lrmoeHostNumPieces(count) <= team->numSlots,
                "tensor %d takes %lld pieces and the queue has %lld", tensor,
                (long long)lrmoeHostNumPieces(count),
                (long long)team->numSlots);
  LRMOE_CHECK(lrmoeHostTeamStart(team));
  if (!lrmoeHostTeamHasRoom(team, count)) return lrmoeInProgress;
  take(optimizer, lrmoeHostTensorFirst(optimizer, expert, tensor), gradient,
       count);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHostOptimizerFlush(lrmoeHostOptimizer_t optimizer) {
  LRMOE_CHECK(lrmoeHostCheck(optimizer));
  lrmoeHostTeamFlush(&optimizer->team);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHostOptimizerDiscard(lrmoeHostOptimizer_t optimizer) {
  LRMOE_CHECK(lrmoeHostCheck(optimizer));
  if (!optimizer->hasGradients) return lrmoeSuccess;
  const struct lrmoeHostJob job = {.kind = lrmoeHostClear};
  lrmoeHostTeamRun(&optimizer->team, &job);
  optimizer->hasGradients = 0;
  return lrmoeSuccess;
}

/* ---- Steps ------------------------------------------------------------ */

/* The largest gradient decides for all: rounding keeps the order, so if its
 * scaled square is finite, so is that of each. */
static int isFinite(struct lrmoeHostOptimizer *optimizer, double scale) {
  if (!optimizer->hasGradients) return 1;
  const struct lrmoeHostJob job = {.kind = lrmoeHostMeasure};
  uint32_t bits = lrmoeHostTeamRun(&optimizer->team, &job);
  float largest;
  memcpy(&largest, &bits, sizeof largest);
  largest *= (float)scale;
  return isfinite(largest * largest) != 0;
}

static lrmoeResult_t checkScale(double scale) {
  LRMOE_REQUIRE(scale >= FLT_MIN && scale <= FLT_MAX,
                "scale is %g, not a normal fp32 above 0", scale);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHostOptimizerCheck(lrmoeHostOptimizer_t optimizer,
                                      double scale, int32_t *finite) {
  LRMOE_CHECK(lrmoeHostCheck(optimizer));
  LRMOE_CHECK(checkScale(scale));
  LRMOE_REQUIRE(finite, "isFinite is NULL");
  *finite = isFinite(optimizer, scale);
  return lrmoeSuccess;
}

static lrmoeResult_t checkStep(const struct lrmoeHostOptimizer *optimizer,
                               double lr, double scale,
                               const int32_t *isSkipped) {
  LRMOE_CHECK(lrmoeHostCheck(optimizer));
  LRMOE_CHECK(checkScale(scale));
  LRMOE_REQUIRE(lr >= 0, "lr is %g, not at least 0", lr);
  LRMOE_REQUIRE(isSkipped, "isSkipped is NULL");
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHostOptimizerStep(lrmoeHostOptimizer_t optimizer, double lr,
                                     double scale, int32_t *isSkipped) {
  LRMOE_CHECK(checkStep(optimizer, lr, scale, isSkipped));
  struct lrmoeHostJob job = {lrmoeHostUpdate, {0}};
  job.factors = lrmoeAdamwFactorsMake(&optimizer->adamw,
                                      optimizer->numSteps + 1, lr, scale);
  LRMOE_REQUIRE(isfinite(job.factors.rate) && isfinite(job.factors.decay),
                "lr is %g, too large for fp32", lr);
  LRMOE_CHECK(lrmoeHostTeamStart(&optimizer->team));
  int hasOverflow = !isFinite(optimizer, scale);
  if (hasOverflow && optimizer->skipNonFinite) {
    LRMOE_CHECK(lrmoeHostOptimizerDiscard(optimizer));
    optimizer->numSkipped++;
  } else {
    lrmoeHostTeamRun(&optimizer->team, &job);
    optimizer->hasGradients = 0;
    optimizer->numSteps++;
  }
  *isSkipped = hasOverflow;
  return lrmoeSuccess;
}
