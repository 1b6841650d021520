/* Scores of this rank's pairs, in sorted order (paper 3.2, Eq. 3).
 *
 * With weight convention `post` the row that a plain backward would send is
 * alpha g and FC2's input is phi, so that sqrt(R) = |alpha| |g| |phi|.  With
 * `pre` FC2's input, whose norm came home, has alpha in it already.  |g| is
 * computed once per token; |phi| came home with the combine. */
#include "collectives/score.h"

#include "base/hash.h"

static lrmoeResult_t tokenNorms(struct lrmoeStep *step, const void *g,
                                float **norms) {
  const struct lrmoeLayer *layer = step->layer;
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockNorms, step->numTokens * (int64_t)sizeof(float), norms));
  const struct lrmoeNorms args = {{g, NULL, layer->type, layer->hidden},
                                  step->numTokens,
                                  step->config.metric == lrmoeMetricGrad1,
                                  *norms};
  LRMOE_RUN(layer->backend, norms, &args, step->stream);
  return lrmoeSuccess;
}

/* What the ids of this rank's pairs are mixed with: seed, step and rank. */
static uint64_t saltOf(const struct lrmoeStep *step) {
  uint64_t mixed =
      lrmoeMix(step->config.seed + lrmoeMix((uint64_t)step->number));
  return mixed ^ (uint64_t)step->layer->comm->rank << 40;
}

lrmoeResult_t lrmoeScorePairs(struct lrmoeStep *step, const void *g) {
  const struct lrmoeLayer *layer = step->layer;
  float *norms = NULL;
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockKeys, step->numPairs * (int64_t)sizeof *step->deviceKeys,
      &step->deviceKeys));
  LRMOE_CHECK(tokenNorms(step, g, &norms));
  const struct lrmoeScores args = {
      .metric = step->config.metric,
      .numPairs = step->numPairs,
      .weights = layer->convention == lrmoeWeightPre
                     ? NULL
                     : step->device.sortedWeights,
      .phiNorms = step->phiSorted,
      .tokens = step->device.sortedTokens,
      .gNorms = norms,
      .pairs = step->device.sorted,
      .salt = saltOf(step),
      .keys = step->deviceKeys,
  };
  LRMOE_RUN(layer->backend, scores, &args, step->stream);
  return lrmoeSuccess;
}
