/* The sigmoid behind both activations, as vectorisable plain C.
 *
 * libm's exp and tanh do not vectorise and give other bits on other machines;
 * these have the same bits everywhere.  With e = exp(-|z|) nothing overflows or
 * cancels:
 *   sigmoid(z) = 1 / (1 + e) for z >= 0, e / (1 + e) for z < 0.
 * Errors are below 3 units in the last place over the whole range, subnormal
 * results included. */
#ifndef LRMOE_KERNELS_CPU_MATH_H
#define LRMOE_KERNELS_CPU_MATH_H

#include "kernels/cpu_convert.h"

/* exp(x) for x <= 0: x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 q(r)
 * with q of degree 4 fitted for the least relative error (2^-28); scaled by
 * 2^n in two steps, because n may be below the least normal exponent. */
static inline float expOfNegative(float x) {
  const float log2e = 0x1.715476p+0f;
  const float ln2High = 0x1.62ep-1f; /* 12 bits: n * ln2High is exact */
  const float ln2Low = 0x1.0bfbe8p-15f;
  const float rounder = 0x1.8p+23f; /* adding it rounds to an integer */
  x = x < -104.0f ? -104.0f : x;    /* exp(-104) rounds to 0; keeps NaN */
  float shifted = x * log2e + rounder;
  float n = shifted - rounder;
  float r = (x - n * ln2High) - n * ln2Low;
  float q = 0x1.6a23dp-10f;
  q = q * r + 0x1.123a2p-7f;
  q = q * r + 0x1.5558f2p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  float p = 1.0f + (r + r * r * q);
  int32_t exponent = (int32_t)(bitsOfFloat(shifted) - bitsOfFloat(rounder));
  int32_t half = exponent >> 1;
  uint32_t first = (uint32_t)(half + 127) << 23;
  uint32_t second = (uint32_t)(exponent - half + 127) << 23;
  return p * floatOfBits(first) * floatOfBits(second);
}

struct sigmoid {
  float value;
  float complement; /* 1 - value */
};

static inline struct sigmoid sigmoidOf(float z) {
  float e = expOfNegative(floatOfBits(bitsOfFloat(z) | 0x80000000u));
  int negative = (int32_t)bitsOfFloat(z) < 0;
  struct sigmoid result;
  result.value = (negative ? e : 1.0f) / (1.0f + e);
  /* e / (1 + e), or 1 - value where value is at most a half. */
  result.complement = negative ? 1.0f - result.value : e * result.value;
  return result;
}

#endif
