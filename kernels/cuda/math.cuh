/* The activations of a chunk: kernels/cpu_math.h and activation_cpu.h with
 * contracted arithmetic, written out so that host and device round alike.
 *
 *   SwiGLU  phi = gate * sigmoid(gate) * up
 *   GELU    phi = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) */
#ifndef LRMOE_KERNELS_CUDA_MATH_CUH
#define LRMOE_KERNELS_CUDA_MATH_CUH

#include "kernels/cuda/elements.cuh"

namespace lrmoeCuda {

/* exp(x) for x <= 0: x = n ln 2 + r, exp(r) = 1 + r + r^2 q(r).  Below -87,
 * where the result would be subnormal, it is 0; a NaN stays one. */
__device__ __forceinline__ float expOfNegative(float x) {
  const float log2e = 0x1.715476p+0f;
  const float ln2High = 0x1.62ep-1f;
  const float ln2Low = 0x1.0bfbe8p-15f;
  const float rounder = 0x1.8p+23f; /* adding it rounds to an integer */
  float shifted = __fmaf_rn(x, log2e, rounder);
  float n = __fadd_rn(shifted, -rounder);
  float r = __fmaf_rn(n, -ln2High, x);
  r = __fmaf_rn(n, -ln2Low, r);
  float q = 0x1.6a23dp-10f;
  q = __fmaf_rn(q, r, 0x1.123a2p-7f);
  q = __fmaf_rn(q, r, 0x1.5558f2p-5f);
  q = __fmaf_rn(q, r, 0x1.555492p-3f);
  q = __fmaf_rn(q, r, 0x1.fffffcp-2f);
  float p = __fadd_rn(1.0f, __fmaf_rn(__fmul_rn(r, r), q, r));
  uint32_t exponent = __float_as_uint(shifted) - __float_as_uint(rounder) + 127;
  return x < -87.0f ? 0.0f : __fmul_rn(p, __uint_as_float(exponent << 23));
}

/* 1 / y for 1 <= y <= 2, to a unit in the last place: the quadratic
 * (1 + T3(2y - 3) / 99) / y is off by 1/99, and each of Newton's steps squares
 * that.  Unlike a division it has no slow path, for which registers would be
 * spilled. */
__device__ __forceinline__ float inverseOf(float y) {
  float r = __fmaf_rn(32.0f / 99, y, -144.0f / 99);
  r = __fmaf_rn(r, y, 210.0f / 99);
  r = __fmaf_rn(r, __fmaf_rn(-y, r, 1.0f), r);
  return __fmaf_rn(r, __fmaf_rn(-y, r, 1.0f), r);
}

struct Sigmoid {
  float value;
  float complement; /* 1 - value */
};

/* With e = exp(-|z|) nothing overflows or cancels. */
__device__ __forceinline__ Sigmoid sigmoidOf(float z) {
  float e = expOfNegative(-fabsf(z));
  float larger = inverseOf(__fadd_rn(1.0f, e));
  float smaller = __fmul_rn(e, larger);
  bool isNegative = z < 0;
  return {isNegative ? smaller : larger, isNegative ? larger : smaller};
}

/* phi and its derivatives; a column at a time. */
struct Slopes {
  float phi;
  float dGate;
  float dUp;
};

struct Swiglu {
  static constexpr bool hasUp = true;

  static __device__ __forceinline__ float phi(float gate, float up) {
    return __fmul_rn(__fmul_rn(gate, sigmoidOf(gate).value), up);
  }
  static __device__ __forceinline__ Slopes slopes(float gate, float up) {
    Sigmoid s = sigmoidOf(gate);
    float silu = __fmul_rn(gate, s.value);
    float slope = __fmul_rn(s.value, __fmaf_rn(gate, s.complement, 1.0f));
    return {__fmul_rn(silu, up), __fmul_rn(slope, up), silu};
  }
};

struct Gelu {
  static constexpr bool hasUp = false;

  static __device__ __forceinline__ float argument(float x) {
    const float twoRootTwoOverPi = 0x1.988454p+0f;
    const float cubic = 0x1.6e4e26p-5f;
    float square = __fmul_rn(x, x);
    float factor = __fmaf_rn(cubic, square, 1.0f);
    return __fmul_rn(twoRootTwoOverPi, __fmul_rn(x, factor));
  }
  /* Derivative of the argument. */
  static __device__ __forceinline__ float argumentSlope(float x) {
    const float twoRootTwoOverPi = 0x1.988454p+0f;
    const float cubicTimes3 = 0x1.12ba9cp-3f;
    float factor = __fmaf_rn(cubicTimes3, __fmul_rn(x, x), 1.0f);
    return __fmul_rn(twoRootTwoOverPi, factor);
  }
  static __device__ __forceinline__ float phi(float x, float) {
    return __fmul_rn(x, sigmoidOf(argument(x)).value);
  }
  static __device__ __forceinline__ Slopes slopes(float x, float) {
    Sigmoid s = sigmoidOf(argument(x));
    float bell = __fmul_rn(s.value, s.complement);
    float slope = __fmaf_rn(__fmul_rn(x, argumentSlope(x)), bell, s.value);
    return {__fmul_rn(x, s.value), slope, 0.0f};
  }
};

} // namespace lrmoeCuda

#endif
