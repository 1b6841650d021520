/* Copies of messages: see copy.h.
 *
 * A large message meets memory, not the cache.  Two things make it faster than
 * memcpy there: stores that go past the cache, so that lines are not read
 * before they are overwritten; and four pages at a time, a line of each in
 * turn, so that several streams of the memory are open at once (measured on
 * Zen 4: 1.3 to 2 times memcpy's speed between processes).  What is small
 * enough to be found in the cache by its reader goes through lrmoeCopyBytes.
 *
 * A load whose address ends in the same 12 bits as a store that is still under
 * way waits for it.  Buffers mostly begin at a page, so the same line of two
 * pages must not be read and written at once (a quarter of the speed): each
 * page is some lines ahead of the one before.
 *
 * Sanitizers see through memcpy only, so their builds use that. */
#include "collectives/cpu/copy.h"

#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIN_COPY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLAIN_COPY 1
#endif
#endif

#if defined(__SSE2__) && !defined(PLAIN_COPY)
#include <emmintrin.h>

enum {
  minStreamBytes = 256 << 10,
  lineBytes = 64,
  pageBytes = 4096,
  numPages = 4,
  aheadBytes = 8 * lineBytes
};

/* One line; `to` is aligned. */
static inline void streamLine(char *to, const char *from) {
  const __m128i *in = (const void *)from;
  __m128i *out = (void *)to;
  __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
  __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

static inline void streamPages(char *to, const char *from) {
  for (size_t line = 0; line < pageBytes; line += lineBytes)
    for (size_t page = 0; page < numPages; page++) {
      size_t at = page * pageBytes + (line + page * aheadBytes) % pageBytes;
      streamLine(to + at, from + at);
    }
}

void lrmoeCopy(void *to, const void *from, size_t bytes) {
  const size_t stepBytes = (size_t)numPages * pageBytes;
  if (bytes < minStreamBytes) {
    lrmoeCopyBytes(to, from, bytes);
    return;
  }
  char *out = to;
  const char *in = from;
  size_t head = -(uintptr_t)out % lineBytes;
  memcpy(out, in, head);
  size_t at = head;
  for (; bytes - at >= stepBytes; at += stepBytes)
    streamPages(out + at, in + at);
  _mm_sfence(); /* before any store that publishes the data */
  lrmoeCopyBytes(out + at, in + at, bytes - at);
}
#else
void lrmoeCopy(void *to, const void *from, size_t bytes) {
  lrmoeCopyBytes(to, from, bytes);
}
#endif
