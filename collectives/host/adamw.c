/* The arithmetic of the host optimizer: see adamw.h.
 *
 * Plain C that vectorises with four lanes on any x86-64.  That is enough: an
 * update moves 32 bytes an element, which takes longer than its square root and
 * division. */
#include "collectives/host/adamw.h"

#include <math.h>
#include <string.h>

/* x^n by squaring; unlike pow() the same bits on every machine. */
static double powerOf(double x, int64_t n) {
  double power = 1;
  for (; n > 0; n /= 2, x *= x)
    if (n % 2) power *= x;
  return power;
}

struct lrmoeAdamwFactors
lrmoeAdamwFactorsMake(const struct lrmoeAdamwConfig *config, int64_t t,
                      double lr, double scale) {
  double firstSum = 1 - powerOf(config->beta1, t);
  double secondSum = 1 - powerOf(config->beta2, t);
  return (struct lrmoeAdamwFactors){
      .scale = (float)scale,
      .keepFirst = (float)config->beta1,
      .takeFirst = (float)(1 - config->beta1),
      .keepSecond = (float)config->beta2,
      .takeSecond = (float)(1 - config->beta2),
      .rootScale = (float)(1 / sqrt(secondSum)),
      .epsilon = (float)config->epsilon,
      .rate = (float)(lr / firstSum),
      .decay = (float)(lr * config->weightDecay),
  };
}

/* The decay is added to the update before the weight sees either: as a factor
 * 1 - decay of the weight it would be rounded away, as fp32 has no number
 * between 1 - 2^-24 and 1. */
static void updateRange(int64_t count, struct lrmoeAdamwFactors f,
                        float *restrict weights, float *restrict first,
                        float *restrict second, float *restrict gradient) {
  for (int64_t i = 0; i < count; i++) {
    float g = gradient[i] * f.scale;
    float m = f.keepFirst * first[i] + f.takeFirst * g;
    float v = f.keepSecond * second[i] + f.takeSecond * (g * g);
    float root = sqrtf(v) * f.rootScale + f.epsilon;
    weights[i] -= f.rate * (m / root) + f.decay * weights[i];
    first[i] = m;
    second[i] = v;
    gradient[i] = 0;
  }
}

void lrmoeAdamwUpdate(const struct lrmoeHostState *state, int64_t first,
                      int64_t end, const struct lrmoeAdamwFactors *factors) {
  updateRange(end - first, *factors, state->weights + first,
              state->first + first, state->second + first,
              state->gradient + first);
}

void lrmoeHostAdd(int64_t count, const float *restrict piece,
                  float *restrict sum) {
  for (int64_t i = 0; i < count; i++)
    sum[i] += piece[i];
}

/* As int32, because SSE compares no unsigned integers. */
uint32_t lrmoeHostLargest(int64_t count, const float *values) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    int32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return (uint32_t)largest;
}
