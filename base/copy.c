/* Copies of rows and messages: see copy.h.
 *
 * glibc copies more than about 2 KiB by `rep movsb`.  Zen 3 and 4 do that byte
 * by byte when the target's place in its page is a little ahead of the
 * source's: 2 GB/s in place of 40, at 1 to 24 bytes (measured; 25 to 31 are
 * taken along).  A row out of a page-aligned buffer into one that malloc placed
 * 16 bytes behind the page's start is such a pair.  Pieces below 2 KiB take
 * memcpy's other way. */
#include "base/copy.h"

#include <stdint.h>
#include <string.h>

enum {
  pageBytes = 4096,
  slowDistance = 32,
  pieceBytes = 2048
};

void lrmoeCopyBytes(void *to, const void *from, size_t bytes) {
  uintptr_t distance = ((uintptr_t)to - (uintptr_t)from) % pageBytes;
  size_t piece = distance && distance < slowDistance ? pieceBytes : bytes;
  char *out = to;
  const char *in = from;
  for (size_t at = 0; at < bytes; at += piece) {
    if (piece > bytes - at) piece = bytes - at;
    memcpy(out + at, in + at, piece);
  }
}
