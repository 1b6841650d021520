/* Barriers, fences, and the warp operations of CUDA with the suffix _sync. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_DEVICE_SYNC_H
#define LRMOE_TESTS_SUPPORT_SIMT_DEVICE_SYNC_H

#include "thread.h"

namespace simt {

template <class T>
inline T shuffleValue(Exchange exchange, T value) {
  static_assert(sizeof(T) <= 16 && std::is_trivially_copyable<T>::value,
                "a shuffle moves up to 16 plain bytes");
  T result = value;
  exchange.bytes = static_cast<int>(sizeof(T));
  exchange.value = &value;
  exchange.result = &result;
  warpExchange(exchange);
  return result;
}

/* Of 4 bytes in and 4 out. */
template <class T>
inline T combineValue(const Site &site, Op op, unsigned mask, T value) {
  static_assert(sizeof(T) == 4, "a vote or reduction is of 32 bits");
  return shuffleValue<T>({site, op, mask, 4, 0, warpSize, nullptr, nullptr},
                         value);
}

template <class T>
inline unsigned matchValue(const Site &site, Op op, unsigned mask, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "32 or 64 bits are matched");
  uint64_t wide = 0;
  __builtin_memcpy(&wide, &value, sizeof value);
  uint64_t lanes = shuffleValue<uint64_t>(
      {site, op, mask, 8, 0, warpSize, nullptr, nullptr}, wide);
  return static_cast<unsigned>(lanes);
}

} // namespace simt

inline void __syncthreads(SIMT_CALLER) {
  ::simt::blockBarrier(SIMT_SITE("__syncthreads"), ::simt::Vote::none, false);
}

inline int __syncthreads_count(int predicate, SIMT_CALLER) {
  return ::simt::blockBarrier(SIMT_SITE("__syncthreads_count"),
                              ::simt::Vote::count, predicate != 0);
}

inline int __syncthreads_and(int predicate, SIMT_CALLER) {
  return ::simt::blockBarrier(SIMT_SITE("__syncthreads_and"), ::simt::Vote::all,
                              predicate != 0);
}

inline int __syncthreads_or(int predicate, SIMT_CALLER) {
  return ::simt::blockBarrier(SIMT_SITE("__syncthreads_or"), ::simt::Vote::any,
                              predicate != 0);
}

inline void __syncwarp(unsigned mask = ~0u, SIMT_CALLER) {
  ::simt::warpExchange({SIMT_SITE("__syncwarp"), ::simt::Op::sync, mask, 0, 0,
                        warpSize, nullptr, nullptr});
}

#define SIMT_SHUFFLE(name, operation, Argument)                              \
  template <class T>                                                         \
  inline T name(unsigned mask, T value, Argument argument,                   \
                int width = warpSize, SIMT_CALLER) {                         \
    return ::simt::shuffleValue<T>({SIMT_SITE(#name), ::simt::Op::operation, \
                                    mask, 0, static_cast<int>(argument),     \
                                    width, nullptr, nullptr},                \
                                   value);                                   \
  }
SIMT_SHUFFLE(__shfl_sync, shuffle, int)
SIMT_SHUFFLE(__shfl_up_sync, shuffleUp, unsigned)
SIMT_SHUFFLE(__shfl_down_sync, shuffleDown, unsigned)
SIMT_SHUFFLE(__shfl_xor_sync, shuffleXor, int)
#undef SIMT_SHUFFLE

inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_CALLER) {
  return ::simt::combineValue<unsigned>(
      SIMT_SITE("__ballot_sync"), ::simt::Op::ballot, mask, predicate != 0);
}

inline int __any_sync(unsigned mask, int predicate, SIMT_CALLER) {
  return ::simt::combineValue<int>(SIMT_SITE("__any_sync"), ::simt::Op::any,
                                   mask, predicate != 0);
}

inline int __all_sync(unsigned mask, int predicate, SIMT_CALLER) {
  return ::simt::combineValue<int>(SIMT_SITE("__all_sync"), ::simt::Op::all,
                                   mask, predicate != 0);
}

/* The lanes that call it together: those that wait for nothing else. */
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, SIMT_CALLER) {
  return ::simt::matchValue<T>(SIMT_SITE("__match_any_sync"),
                               ::simt::Op::matchAny, mask, value);
}

template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int *same,
                                 SIMT_CALLER) {
  unsigned lanes = ::simt::matchValue<T>(SIMT_SITE("__match_all_sync"),
                                         ::simt::Op::matchAll, mask, value);
  *same = lanes != 0;
  return lanes;
}

#define SIMT_REDUCE(name, T, operation)                                     \
  inline T name(unsigned mask, T value, SIMT_CALLER) {                      \
    return ::simt::combineValue<T>(SIMT_SITE(#name), ::simt::Op::operation, \
                                   mask, value);                            \
  }
SIMT_REDUCE(__reduce_add_sync, unsigned, add)
SIMT_REDUCE(__reduce_add_sync, int, add)
SIMT_REDUCE(__reduce_min_sync, unsigned, minUnsigned)
SIMT_REDUCE(__reduce_min_sync, int, minSigned)
SIMT_REDUCE(__reduce_max_sync, unsigned, maxUnsigned)
SIMT_REDUCE(__reduce_max_sync, int, maxSigned)
SIMT_REDUCE(__reduce_and_sync, unsigned, bitAnd)
SIMT_REDUCE(__reduce_or_sync, unsigned, bitOr)
SIMT_REDUCE(__reduce_xor_sync, unsigned, bitXor)
#undef SIMT_REDUCE

inline void __threadfence_block(SIMT_CALLER) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  ::simt::mayYield(SIMT_SITE("__threadfence_block"));
}

inline void __threadfence(SIMT_CALLER) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  ::simt::mayYield(SIMT_SITE("__threadfence"));
}

inline void __threadfence_system(SIMT_CALLER) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  ::simt::mayYield(SIMT_SITE("__threadfence_system"));
}

inline void __nanosleep(unsigned, SIMT_CALLER) {
  ::simt::yield(SIMT_SITE("__nanosleep"));
}

[[noreturn]] inline void __trap(SIMT_CALLER) {
  ::simt::fail(SIMT_SITE("__trap"), "the kernel trapped");
}

#endif
