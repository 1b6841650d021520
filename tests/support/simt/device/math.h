/* Integer and floating-point intrinsics.  Those with a rounding mode give the
 * device's bits; the fast ones (__expf, __fdividef) only come near. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_DEVICE_MATH_H
#define LRMOE_TESTS_SUPPORT_SIMT_DEVICE_MATH_H

#include "thread.h"

#include <algorithm>

namespace simt {

template <class To, class From>
inline To sameBits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are kept");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

} // namespace simt

inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __popcll(unsigned long long bits) {
  return __builtin_popcountll(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
inline int __ffsll(long long bits) {
  return __builtin_ffsll(bits);
}
inline int __clz(int bits) {
  return bits ? __builtin_clz(static_cast<unsigned>(bits)) : 32;
}
inline int __clzll(long long bits) {
  return bits ? __builtin_clzll(static_cast<unsigned long long>(bits)) : 64;
}
inline unsigned __brev(unsigned bits) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; i++)
    reversed |= ((bits >> i) & 1u) << (31 - i);
  return reversed;
}
inline unsigned long long __brevll(unsigned long long bits) {
  unsigned long long low = __brev(static_cast<unsigned>(bits));
  return low << 32 | __brev(static_cast<unsigned>(bits >> 32));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}

inline int __float_as_int(float value) {
  return simt::sameBits<int>(value);
}
inline unsigned __float_as_uint(float value) {
  return simt::sameBits<unsigned>(value);
}
inline float __int_as_float(int bits) {
  return simt::sameBits<float>(bits);
}
inline float __uint_as_float(unsigned bits) {
  return simt::sameBits<float>(bits);
}
inline long long __double_as_longlong(double value) {
  return simt::sameBits<long long>(value);
}
inline double __longlong_as_double(long long bits) {
  return simt::sameBits<double>(bits);
}

inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline float __frcp_rn(float a) {
  return 1.0f / a;
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __expf(float a) {
  return std::exp(a);
}
inline float __logf(float a) {
  return std::log(a);
}
inline float rsqrtf(float a) {
  return 1.0f / std::sqrt(a);
}

using std::max;
using std::min;

#endif
