/* Copies of messages: see copy.h.
 *
 * Large messages meet memory, not the cache.  The string instruction writes
 * whole lines without reading them first and is up to 1.4 times as fast as
 * memcpy there; CPUs that are good at it say so (ERMS).  Sanitizers see
 * through memcpy only, so their builds use that. */
#include "collectives/cpu/copy.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIN_COPY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLAIN_COPY 1
#endif
#endif

#if defined(__x86_64__) && !defined(PLAIN_COPY)
#include <cpuid.h>
#include <stdatomic.h>

enum {
  minStringBytes = 64 << 10,
  bitErms = 1 << 9
};

static int hasFastStrings(void) {
  static atomic_int known; /* 0 not asked, 1 no, 2 yes */
  int answer = atomic_load_explicit(&known, memory_order_relaxed);
  if (!answer) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    int isKnown = __get_cpuid_count(7, 0, &a, &b, &c, &d);
    answer = isKnown && (b & bitErms) ? 2 : 1;
    atomic_store_explicit(&known, answer, memory_order_relaxed);
  }
  return answer == 2;
}

void lrmoeCopy(void *to, const void *from, size_t bytes) {
  if (bytes < minStringBytes || !hasFastStrings()) {
    memcpy(to, from, bytes);
    return;
  }
  __asm__ volatile("rep movsb"
                   : "+D"(to), "+S"(from), "+c"(bytes)
                   :
                   : "memory");
}
#else
void lrmoeCopy(void *to, const void *from, size_t bytes) {
  memcpy(to, from, bytes);
}
#endif
