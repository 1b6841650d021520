/* Copies at every small distance of the addresses' places in their pages: each
 * byte comes over, and none beside it changes. */
#include "base/copy.h"
#include "support/suite.h"

#include <string.h>

enum {
  pageBytes = 4096,
  mostBytes = 5000,
  roomBytes = 3 * pageBytes
};

static unsigned char from[roomBytes] __attribute__((aligned(pageBytes)));
static unsigned char to[roomBytes] __attribute__((aligned(pageBytes)));
static unsigned char expected[roomBytes];

static void checkCopy(size_t toOffset, size_t fromOffset, size_t bytes) {
  memset(to, 0xa5, roomBytes);
  memset(expected, 0xa5, roomBytes);
  memcpy(expected + toOffset, from + fromOffset, bytes);
  lrmoeCopyBytes(to + toOffset, from + fromOffset, bytes);
  ck_assert_msg(!memcmp(to, expected, roomBytes),
                "%zu bytes from offset %zu to offset %zu", bytes, fromOffset,
                toOffset);
}

START_TEST(every_distance) {
  for (size_t i = 0; i < roomBytes; i++)
    from[i] = (unsigned char)(i * 131 + i / 256);
  for (size_t offset = 0; offset < 70; offset++) {
    const size_t lengths[] = {0, 1, 2047, 2048, 2049, 4096, 4097, mostBytes};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
      checkCopy(100 + offset, 100, lengths[i]);
      checkCopy(100, 100 + offset, lengths[i]);
      checkCopy(offset, pageBytes - 8, lengths[i]);
    }
  }
}
END_TEST

START_TEST(nothing) {
  lrmoeCopyBytes(NULL, NULL, 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {every_distance, nothing};
  return suiteRunTests("base_copy", tests, sizeof tests / sizeof tests[0], 60);
}
