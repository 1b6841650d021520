/* Loads and stores that are checked for alignment and counted.  lrmoeLoad and
 * lrmoeStore exist in both faces: kernels use them where bytes matter. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_DEVICE_ACCESS_H
#define LRMOE_TESTS_SUPPORT_SIMT_DEVICE_ACCESS_H

#include "thread.h"

namespace simt {

/* Keeps a template argument from being deduced. */
template <class T>
struct Same {
  using type = T;
};
template <class T>
using SameType = typename Same<T>::type;

SIMT_UNSEEN inline void countStep(const Site &site) {
  if (++view.steps > view.maxSteps) tooManySteps(site);
}

SIMT_UNSEEN inline void countLoad(const Site &site, size_t bytes) {
  view.bytesLoaded += bytes;
  countStep(site);
}

SIMT_UNSEEN inline void countStore(const Site &site, size_t bytes) {
  view.bytesStored += bytes;
  countStep(site);
}

template <class T>
inline void checkAligned(const Site &site, const T *pointer) {
  static_assert((sizeof(T) & (sizeof(T) - 1)) == 0 && sizeof(T) <= 16,
                "hardware moves 1, 2, 4, 8 or 16 bytes at once");
  if (reinterpret_cast<uintptr_t>(pointer) % sizeof(T))
    fail(site, "misaligned access of %zu bytes at %p", sizeof(T),
         static_cast<const void *>(pointer));
}

template <class T>
inline T checkedLoad(const Site &site, const T *pointer) {
  checkAligned(site, pointer);
  countLoad(site, sizeof(T));
  noteAccess(site, pointer, sizeof(T), false);
  return *pointer;
}

template <class T>
inline void checkedStore(const Site &site, T *pointer, const T &value) {
  checkAligned(site, pointer);
  countStore(site, sizeof(T));
  noteAccess(site, pointer, sizeof(T), true);
  *pointer = value;
}

} // namespace simt

#define SIMT_LOAD(name)                                       \
  template <class T>                                          \
  inline T name(const T *pointer, SIMT_CALLER) {              \
    return ::simt::checkedLoad<T>(SIMT_SITE(#name), pointer); \
  }
SIMT_LOAD(lrmoeLoad)
SIMT_LOAD(__ldg)
SIMT_LOAD(__ldca)
SIMT_LOAD(__ldcg)
SIMT_LOAD(__ldcs)
SIMT_LOAD(__ldlu)
SIMT_LOAD(__ldcv)
#undef SIMT_LOAD

#define SIMT_STORE(name)                                                 \
  template <class T>                                                     \
  inline void name(T *pointer, ::simt::SameType<T> value, SIMT_CALLER) { \
    ::simt::checkedStore<T>(SIMT_SITE(#name), pointer, value);           \
  }
SIMT_STORE(lrmoeStore)
SIMT_STORE(__stwb)
SIMT_STORE(__stcg)
SIMT_STORE(__stcs)
SIMT_STORE(__stwt)
#undef SIMT_STORE

#endif
