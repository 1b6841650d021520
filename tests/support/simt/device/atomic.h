/* Atomics on 32- and 64-bit integers.  There are none on floats: sums would
 * depend on the order of threads.  An atomic counts as a load and a store,
 * and under TSan as an acquire and a release. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_DEVICE_ATOMIC_H
#define LRMOE_TESTS_SUPPORT_SIMT_DEVICE_ATOMIC_H

#include "access.h"

namespace simt {

template <class T, class Function>
inline T readModifyWrite(const Site &site, T *pointer, Function function) {
  static_assert(std::is_integral<T>::value, "no atomics on floats");
  static_assert(sizeof(T) == 4 || sizeof(T) == 8,
                "atomics are of 32 or 64 bits");
  mayYield(site);
  checkAligned(site, pointer);
  countLoad(site, sizeof(T));
  countStore(site, sizeof(T));
  noteAccess(site, pointer, sizeof(T), true);
  T before = __atomic_load_n(pointer, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(pointer, &before, function(before), false,
                                      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return before;
}

/* Sums wrap, as in hardware. */
template <class T>
inline T wrappedSum(T left, T right) {
  T sum;
  (void)__builtin_add_overflow(left, right, &sum);
  return sum;
}

template <class T>
inline T wrappedDifference(T left, T right) {
  T difference;
  (void)__builtin_sub_overflow(left, right, &difference);
  return difference;
}

} // namespace simt

#define SIMT_ATOMIC(name, expression)                                   \
  template <class T>                                                    \
  inline T name(T *pointer, ::simt::SameType<T> value, SIMT_CALLER) {   \
    return ::simt::readModifyWrite(                                     \
        SIMT_SITE(#name), pointer,                                      \
        [value](T before) -> T { return static_cast<T>(expression); }); \
  }
SIMT_ATOMIC(atomicAdd, ::simt::wrappedSum<T>(before, value))
SIMT_ATOMIC(atomicSub, ::simt::wrappedDifference<T>(before, value))
SIMT_ATOMIC(atomicMin, value < before ? value : before)
SIMT_ATOMIC(atomicMax, before < value ? value : before)
SIMT_ATOMIC(atomicAnd, (before & value))
SIMT_ATOMIC(atomicOr, before | value)
SIMT_ATOMIC(atomicXor, before ^ value)
SIMT_ATOMIC(atomicExch, ((void)before, value))
SIMT_ATOMIC(atomicInc, before >= value ? 0 : before + 1)
SIMT_ATOMIC(atomicDec, before == 0 || before > value ? value : before - 1)
#undef SIMT_ATOMIC

template <class T>
inline T atomicCAS(T *pointer, ::simt::SameType<T> expected,
                   ::simt::SameType<T> value, SIMT_CALLER) {
  return ::simt::readModifyWrite(SIMT_SITE("atomicCAS"), pointer,
                                 [expected, value](T before) -> T {
                                   return before == expected ? value : before;
                                 });
}

#endif
