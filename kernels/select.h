/* Scores and exact selection: the contract (paper 3.2; Algorithm 1, 13-14).
 *
 * A key is an uint32 that orders like the score: the bits of a non-negative
 * fp32, with every non-finite score mapped to 0xffffffff, above all finite
 * ones.  Among equal keys the lower index wins, so callers list pairs in
 * ascending pair id. */
#ifndef LRMOE_KERNELS_SELECT_H
#define LRMOE_KERNELS_SELECT_H

#include "base/result.h"

#define LRMOE_KEY_NON_FINITE 0xffffffffu

/* Key of a score (taken as |score|; -0 and +0 are equal). */
uint32_t lrmoeScoreKey(float score);

/* With weights NULL alpha is 1.  keys[i] = key of (|weights[i]| *
 * gNorm[token[i]]) * phiNorm[i], in this order of multiplication, fp32: the
 * square root of Eq. 3. */
void lrmoeScoreLrm(int64_t numPairs, const float *weights, const int64_t *token,
                   const float *gNorm, const float *phiNorm, uint32_t *keys);

/* kept[i] = 1 for the `quota` largest of keys[0 .. numPairs), else 0; ties to
 * the lower i.  0 <= quota <= numPairs.  O(numPairs), independent of quota:
 * radix histograms find the threshold. */
void lrmoeSelectTop(int64_t numPairs, const uint32_t *keys, int64_t quota,
                    uint8_t *kept);

#endif
