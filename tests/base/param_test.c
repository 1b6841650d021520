/* LRMOE_* parameters: values, refusals, the public table. */
#include "base/capture.h"
#include "base/param.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

static char text[2000];

START_TEST(defaultsWhenUnset) {
  clearenv();
  ck_assert_int_eq(lrmoeParamGet(lrmoeParamDebug), 1);
  ck_assert_int_eq(lrmoeParamGet(lrmoeParamTimeoutMs), 30000);
  ck_assert_str_eq(lrmoeParamGetText(lrmoeParamGemm), "");
  ck_assert_str_eq(lrmoeParamGetText(lrmoeParamIsa), "");
  setenv("LRMOE_TIMEOUT_MS", "", 1);
  setenv("LRMOE_GEMM", "", 1);
  ck_assert_int_eq(lrmoeParamGet(lrmoeParamTimeoutMs), 30000);
  ck_assert_str_eq(lrmoeParamGetText(lrmoeParamGemm), "");
}
END_TEST

START_TEST(valuesAreReadAnew) {
  setenv("LRMOE_TIMEOUT_MS", "1", 1);
  ck_assert_int_eq(lrmoeParamGet(lrmoeParamTimeoutMs), 1);
  setenv("LRMOE_TIMEOUT_MS", "86400000", 1);
  ck_assert_int_eq(lrmoeParamGet(lrmoeParamTimeoutMs), 86400000);
  setenv("LRMOE_GEMM", "reference", 1);
  ck_assert_str_eq(lrmoeParamGetText(lrmoeParamGemm), "reference");
}
END_TEST

START_TEST(badValuesGiveTheDefaultAndOneWarning) {
  static const char *const bad[] = {
      "0",   "86400001", "-1", "x",  "12x", "99999999999999999999",
      "1.5", "0x10",     "1 ", "1e3"};
  setenv("LRMOE_DEBUG", "1", 1);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    setenv("LRMOE_TIMEOUT_MS", bad[i], 1);
    struct capture capture = captureBegin();
    int64_t value = lrmoeParamGet(lrmoeParamTimeoutMs);
    captureEnd(&capture, text, sizeof text);
    ck_assert_int_eq(value, 30000);
    ck_assert_int_eq(countLines(text), 1);
    ck_assert_msg(strstr(text, "LRMOE_TIMEOUT_MS=") && strstr(text, bad[i]) &&
                      strstr(text, "1 to 86400000") && strstr(text, "30000"),
                  "%s", text);
  }
}
END_TEST

/* The log asks for LRMOE_DEBUG itself: a bad value must not recurse. */
START_TEST(badDebugIsTheDefault) {
  setenv("LRMOE_DEBUG", "loud", 1);
  ck_assert_int_eq(lrmoeParamGet(lrmoeParamDebug), 1);
  setenv("LRMOE_DEBUG", "4", 1);
  ck_assert_int_eq(lrmoeParamGet(lrmoeParamDebug), 1);
}
END_TEST

START_TEST(tableIsComplete) {
  clearenv();
  lrmoeParameter_t shown;
  int count = 0;
  for (; lrmoeGetParameter(count, &shown) == lrmoeSuccess; count++) {
    ck_assert_msg(strncmp(shown.name, "LRMOE_", 6) == 0, "%s", shown.name);
    ck_assert_ptr_nonnull(shown.defaultValue);
    ck_assert(*shown.defaultValue);
    size_t length = strlen(shown.description);
    ck_assert(length > 10 && shown.description[length - 1] == '.');
    for (int i = 0; i < count; i++) {
      lrmoeParameter_t other;
      ASSERT_OK(lrmoeGetParameter(i, &other));
      ck_assert_str_ne(other.name, shown.name);
    }
  }
  ck_assert_int_eq(count, lrmoeNumParams);
  ASSERT_RESULT(lrmoeGetParameter(count, &shown), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeGetParameter(-1, &shown), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeGetParameter(0, NULL), lrmoeInvalidArgument);
}
END_TEST

/* The default that is shown is the one that is used. */
START_TEST(shownDefaultsAreUsed) {
  clearenv();
  for (int i = 0; i < lrmoeNumParams; i++) {
    lrmoeParameter_t shown;
    ASSERT_OK(lrmoeGetParameter(i, &shown));
    char *end = NULL;
    long long number = strtoll(shown.defaultValue, &end, 10);
    if (*end) continue; /* a text */
    ck_assert_int_eq(lrmoeParamGet((enum lrmoeParam)i), number);
    /* The default is in its own range. */
    setenv("LRMOE_DEBUG", "1", 1);
    setenv(shown.name, shown.defaultValue, 1);
    struct capture capture = captureBegin();
    ck_assert_int_eq(lrmoeParamGet((enum lrmoeParam)i), number);
    captureEnd(&capture, text, sizeof text);
    ck_assert_str_eq(text, "");
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("param");
  TCase *tcase = tcase_create("param");
  tcase_add_test(tcase, defaultsWhenUnset);
  tcase_add_test(tcase, valuesAreReadAnew);
  tcase_add_test(tcase, badValuesGiveTheDefaultAndOneWarning);
  tcase_add_test(tcase, badDebugIsTheDefault);
  tcase_add_test(tcase, tableIsComplete);
  tcase_add_test(tcase, shownDefaultsAreUsed);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
