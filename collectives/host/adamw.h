/* The arithmetic of the host optimizer, on ranges of elements.
 *
 * AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization").  In
 * step t, with g the accumulated gradient times a scale:
 *
 *   m = beta1 m + (1 - beta1) g         v = beta2 v + (1 - beta2) g^2
 *   w = w - (lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon)
 *            + lr weightDecay w)
 *
 * What does not depend on the element is worked out in double, once a step.
 * Elements are independent of each other, so a result does not depend on how
 * the elements are shared out. */
#ifndef LRMOE_COLLECTIVES_HOST_ADAMW_H
#define LRMOE_COLLECTIVES_HOST_ADAMW_H

#include <stdint.h>

/* Arrays of [numElements]; expert e's tensors follow those of e - 1. */
struct lrmoeHostState {
  float *weights;
  float *first;  /* m */
  float *second; /* v */
  float *gradient;
  int64_t numElements;
};

struct lrmoeAdamwConfig {
  double beta1;
  double beta2;
  double epsilon;
  double weightDecay;
};

struct lrmoeAdamwFactors {
  float scale;
  float keepFirst;  /* beta1 */
  float takeFirst;  /* 1 - beta1 */
  float keepSecond; /* beta2 */
  float takeSecond; /* 1 - beta2 */
  float rootScale;  /* 1 / sqrt(1 - beta2^t) */
  float epsilon;
  float rate;  /* lr / (1 - beta1^t) */
  float decay; /* lr weightDecay */
};

/* The factors of step t, counted from 1. */
struct lrmoeAdamwFactors
lrmoeAdamwFactorsMake(const struct lrmoeAdamwConfig *config, int64_t t,
                      double lr, double scale);

/* Updates elements [first, end) and sets their gradient to zero. */
void lrmoeAdamwUpdate(const struct lrmoeHostState *state, int64_t first,
                      int64_t end, const struct lrmoeAdamwFactors *factors);

/* sum[0 .. count) += piece. */
void lrmoeHostAdd(int64_t count, const float *piece, float *sum);

/* The largest magnitude, as the bits of a float without the sign: in that
 * order every NaN is above infinity, and infinity above all else. */
uint32_t lrmoeHostLargest(int64_t count, const float *values);

#endif
