/* What the sanitizers must be told about fibers; nothing in plain builds. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_SANITIZER_H
#define LRMOE_TESTS_SUPPORT_SIMT_SANITIZER_H

#include <stddef.h>

/* The scheduler is compiled without TSan, so the build says what the kernels
 * have: LRMOE_SIMT_TSAN. */
#if defined(LRMOE_SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" void AnnotateIgnoreWritesBegin(const char *file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif
#if defined(LRMOE_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {

#if defined(LRMOE_SIMT_TSAN)
constexpr bool tsan = true;
inline void *tsanCurrent() {
  return __tsan_get_current_fiber();
}
inline void *tsanCreate() {
  return __tsan_create_fiber(0);
}
inline void tsanDestroy(void *fiber) {
  __tsan_destroy_fiber(fiber);
}
/* 1: the switch itself orders nothing. */
inline void tsanSwitch(void *fiber) {
  __tsan_switch_to_fiber(fiber, 1);
}
inline void tsanRelease(void *cell) {
  __tsan_release(cell);
}
/* The release, which nobody acquires, begins a new epoch: else TSan of LLVM 14
 * may have no stack of the accesses that follow, and keeps their races to
 * itself. */
inline void tsanAcquire(void *cell) {
  static char nobody;
  __tsan_acquire(cell);
  __tsan_release(&nobody);
}
/* Between the two, what is freed and mapped is new memory for TSan. */
inline void tsanForgetBegin() {
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void tsanForgetEnd() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}
#else
constexpr bool tsan = false;
inline void *tsanCurrent() {
  return nullptr;
}
inline void *tsanCreate() {
  return nullptr;
}
inline void tsanDestroy(void *) {
}
inline void tsanSwitch(void *) {
}
inline void tsanRelease(void *) {
}
inline void tsanAcquire(void *) {
}
inline void tsanForgetBegin() {
}
inline void tsanForgetEnd() {
}
#endif

#if defined(LRMOE_SIMT_ASAN)
inline void asanLeave(void **fake, const void *stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake, stack, bytes);
}
inline void asanArrive(void *fake, const void **stack, size_t *bytes) {
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
}
inline void asanPoison(const void *start, size_t bytes) {
  __asan_poison_memory_region(start, bytes);
}
inline void asanUnpoison(const void *start, size_t bytes) {
  __asan_unpoison_memory_region(start, bytes);
}
#else
inline void asanLeave(void **, const void *, size_t) {
}
inline void asanArrive(void *, const void **, size_t *) {
}
inline void asanPoison(const void *, size_t) {
}
inline void asanUnpoison(const void *, size_t) {
}
#endif

} // namespace simt

#endif
