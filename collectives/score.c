/* Scores of this rank's pairs, in sorted order (paper 3.2, Eq. 3).
 *
 * With weight convention `post` the row that a plain backward would send is
 * alpha g and FC2's input is phi, so that sqrt(R) = |alpha| |g| |phi|.  With
 * `pre` FC2's input, whose norm came home, has alpha in it already.  |g| is
 * computed once per token; |phi| came home with the combine. */
#include "collectives/score.h"

#include "base/hash.h"
#include "kernels/select.h"

#include <math.h>

static void tokenNorms(const struct lrmoeStep *step, const void *g,
                       float *norms) {
  const struct lrmoeLayer *layer = step->layer;
  const struct lrmoeRows rows = {g, NULL, layer->type, layer->hidden};
  const struct lrmoeRowKernels *kernels = layer->experts.kernels;
  if (step->config.metric == lrmoeMetricGrad1) {
    kernels->sumAbs(&rows, step->numTokens, norms);
    return;
  }
  kernels->sumSquares(&rows, step->numTokens, norms);
  for (int64_t t = 0; t < step->numTokens; t++)
    norms[t] = sqrtf(norms[t]);
}

/* A hash of (seed, step, source, pair), below every non-finite key.  A token
 * whose g is not finite still goes first (design invariant 8). */
static uint32_t randomKey(const struct lrmoeStep *step, int64_t pair,
                          float norm) {
  if (!isfinite(norm)) return LRMOE_KEY_NON_FINITE;
  uint64_t id = ((uint64_t)step->layer->comm->rank << 40) + (uint64_t)pair;
  uint64_t mixed =
      lrmoeMix(step->config.seed + lrmoeMix((uint64_t)step->number));
  return (uint32_t)(lrmoeMix(mixed ^ id) >> 33);
}

lrmoeResult_t lrmoeScorePairs(struct lrmoeStep *step, const void *g) {
  float *norms = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch2, step->numTokens, &norms));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayKeys, step->numPairs, &step->keys));
  tokenNorms(step, g, norms);
  const int64_t *tokens = step->sortedTokens;
  switch (step->config.metric) {
  case lrmoeMetricLrm:
    lrmoeScoreLrm(step->numPairs,
                  step->layer->experts.shape.convention == lrmoeWeightPre
                      ? NULL
                      : step->sortedWeights,
                  tokens, norms, step->phiSorted, step->keys);
    break;
  case lrmoeMetricRandom:
    for (int64_t i = 0; i < step->numPairs; i++)
      step->keys[i] = randomKey(step, step->sorted[i], norms[tokens[i]]);
    break;
  default: /* grad1, grad2 */
    for (int64_t i = 0; i < step->numPairs; i++)
      step->keys[i] = lrmoeScoreKey(norms[tokens[i]]);
    break;
  }
  return lrmoeSuccess;
}
