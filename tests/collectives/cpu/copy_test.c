/* Copies of messages, at every distance of the addresses that the order of the
 * lines could depend on: each byte comes over, and none beside it changes. */
#include "collectives/cpu/copy.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

enum {
  pageBytes = 4096,
  mostBytes = (256 << 10) + 5 * pageBytes,
  guardBytes = 128,
  roomBytes = mostBytes + 2 * pageBytes /* whole pages; 2 guards in it */
};

static unsigned char *from;
static unsigned char *to;
static unsigned char *expected;

static unsigned char *take(void) {
  unsigned char *memory = aligned_alloc(pageBytes, 2 * (size_t)roomBytes);
  ck_assert_ptr_nonnull(memory);
  return memory;
}

static void open(void) {
  uint64_t state = 1;
  from = take();
  to = take();
  expected = take();
  for (size_t i = 0; i < roomBytes; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    from[i] = (unsigned char)(state >> 56);
  }
}

static void shut(void) {
  free(from);
  free(to);
  free(expected);
}

static void checkCopy(size_t toOffset, size_t fromOffset, size_t bytes) {
  memset(to, 0xa5, roomBytes);
  memset(expected, 0xa5, roomBytes);
  memcpy(expected + guardBytes + toOffset, from + fromOffset, bytes);
  lrmoeCopy(to + guardBytes + toOffset, from + fromOffset, bytes);
  ck_assert_msg(!memcmp(to, expected, roomBytes),
                "%zu bytes from offset %zu to offset %zu", bytes, fromOffset,
                toOffset);
}

START_TEST(every_distance_of_lines) {
  const size_t lengths[] = {256 << 10, mostBytes - 1};
  for (size_t l = 0; l < 2; l++)
    for (size_t offset = 0; offset < pageBytes; offset += 64) {
      checkCopy(0, offset, lengths[l]);
      checkCopy(offset, 0, lengths[l]);
    }
}
END_TEST

START_TEST(odd_addresses_and_lengths) {
  for (size_t offset = 1; offset < 64; offset += 5)
    for (size_t bytes = mostBytes - 67; bytes < mostBytes; bytes += 11) {
      checkCopy(offset, 64 - offset, bytes);
      checkCopy(64 - offset, offset, bytes);
    }
}
END_TEST

START_TEST(small_and_empty) {
  for (size_t bytes = 0; bytes < 300; bytes += 7)
    checkCopy(3, 5, bytes);
  checkCopy(0, 0, (256 << 10) - 1);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {every_distance_of_lines,
                                odd_addresses_and_lengths, small_and_empty};
  Suite *suite = suite_create("cpu_copy");
  TCase *tcase = tcase_create("cpu_copy");
  tcase_set_timeout(tcase, 120);
  tcase_add_unchecked_fixture(tcase, open, shut);
  for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
    tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
