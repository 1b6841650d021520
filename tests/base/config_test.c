/* Versioned structs, read and written by prefix. */
#include "base/config.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

/* As this library knows it ... */
struct known {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int64_t first;
  int64_t second;
};

/* ... and as a newer header has it. */
struct newer {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int64_t first;
  int64_t second;
  int64_t third;
};

/* What an older one had. */
struct older {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int64_t first;
};

static const struct known defaults = {sizeof(struct known), LRMOE_MAGIC,
                                      LRMOE_VERSION, 11, 22};

START_TEST(sameVersion) {
  struct known given = defaults, copy = defaults;
  given.first = 1;
  given.second = 2;
  ASSERT_OK(lrmoeConfigRead("x", &given, sizeof copy, &copy));
  ck_assert_int_eq(copy.first, 1);
  ck_assert_int_eq(copy.second, 2);
}
END_TEST

/* What an older caller does not have keeps its default, and nothing past the
 * caller's struct is read (it ends with its block, so ASan looks). */
START_TEST(olderCaller) {
  struct older *given = malloc(sizeof *given);
  struct known copy = defaults;
  ck_assert_ptr_nonnull(given);
  *given = (struct older){sizeof *given, LRMOE_MAGIC, LRMOE_VERSION - 1, 5};
  ASSERT_OK(lrmoeConfigRead("x", given, sizeof copy, &copy));
  ck_assert_int_eq(copy.first, 5);
  ck_assert_int_eq(copy.second, 22);
  free(given);
}
END_TEST

START_TEST(headerOnly) {
  struct known given = defaults, copy = defaults;
  given.size = offsetof(struct known, first);
  given.first = 5;
  ASSERT_OK(lrmoeConfigRead("x", &given, sizeof copy, &copy));
  ck_assert_int_eq(copy.first, 11);
}
END_TEST

/* A newer caller is taken as long as it asks for nothing new. */
START_TEST(newerCaller) {
  struct newer given = {sizeof given, LRMOE_MAGIC, LRMOE_VERSION + 1, 3, 4, 0};
  struct known copy = defaults;
  ASSERT_OK(lrmoeConfigRead("x", &given, sizeof copy, &copy));
  ck_assert_int_eq(copy.first, 3);
  ck_assert_int_eq(copy.second, 4);
  given.third = 1;
  copy = defaults;
  ASSERT_RESULT(lrmoeConfigRead("thing config", &given, sizeof copy, &copy),
                lrmoeUnsupported);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "thing config"));
  ck_assert_int_eq(copy.first, 11);
}
END_TEST

START_TEST(badHeaders) {
  struct known given = defaults, copy = defaults;
  ASSERT_RESULT(lrmoeConfigRead("x", NULL, sizeof copy, &copy),
                lrmoeInvalidArgument);
  given.magic = 0;
  ASSERT_RESULT(lrmoeConfigRead("x", &given, sizeof copy, &copy),
                lrmoeInvalidArgument);
  given.magic = LRMOE_MAGIC ^ 1;
  ASSERT_RESULT(lrmoeConfigRead("x", &given, sizeof copy, &copy),
                lrmoeInvalidArgument);
  given = defaults;
  given.size = 15;
  ASSERT_RESULT(lrmoeConfigRead("x", &given, sizeof copy, &copy),
                lrmoeInvalidArgument);
  given.size = 0;
  ASSERT_RESULT(lrmoeConfigRead("x", &given, sizeof copy, &copy),
                lrmoeInvalidArgument);
  given.size = SIZE_MAX;
  ASSERT_RESULT(lrmoeConfigRead("x", &given, sizeof copy, &copy),
                lrmoeInvalidArgument);
  ck_assert_mem_eq(&copy, &defaults, sizeof copy);
}
END_TEST

START_TEST(viewsAreWrittenByPrefix) {
  struct known full = defaults;
  struct newer given = {sizeof given, LRMOE_MAGIC, 99, -1, -2, -3};
  ASSERT_OK(lrmoeViewWrite("x", &full, sizeof full, &given));
  ck_assert_uint_eq(given.size, sizeof given); /* the caller's own */
  ck_assert_uint_eq(given.version, 99);
  ck_assert_int_eq(given.first, 11);
  ck_assert_int_eq(given.second, 22);
  ck_assert_int_eq(given.third, -3);

  struct older *older = malloc(sizeof *older);
  ck_assert_ptr_nonnull(older);
  *older = (struct older){sizeof *older, LRMOE_MAGIC, LRMOE_VERSION, -1};
  ASSERT_OK(lrmoeViewWrite("x", &full, sizeof full, older));
  ck_assert_int_eq(older->first, 11);
  older->magic = 1;
  ASSERT_RESULT(lrmoeViewWrite("x", &full, sizeof full, older),
                lrmoeInvalidArgument);
  free(older);
  ASSERT_RESULT(lrmoeViewWrite("x", &full, sizeof full, NULL),
                lrmoeInvalidArgument);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("config");
  TCase *tcase = tcase_create("config");
  tcase_add_test(tcase, sameVersion);
  tcase_add_test(tcase, olderCaller);
  tcase_add_test(tcase, headerOnly);
  tcase_add_test(tcase, newerCaller);
  tcase_add_test(tcase, badHeaders);
  tcase_add_test(tcase, viewsAreWrittenByPrefix);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
