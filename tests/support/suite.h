/* What every test program shares: one suite, one main. */
#ifndef LRMOE_TESTS_SUPPORT_SUITE_H
#define LRMOE_TESTS_SUPPORT_SUITE_H

#include "lrmoe.h"

#include <check.h>

#include <stddef.h>

/* Asserts success and shows the library's last error otherwise. */
#define ASSERT_OK(call)                                            \
  do {                                                             \
    lrmoeResult_t got_ = (call);                                   \
    ck_assert_msg(got_ == lrmoeSuccess, "%s: %s: %s", #call,       \
                  lrmoeGetErrorString(got_), lrmoeGetLastError()); \
  } while (0)

#define ASSERT_RESULT(call, expected)                                        \
  do {                                                                       \
    lrmoeResult_t got_ = (call);                                             \
    ck_assert_msg(got_ == (expected), "%s: got %s, expected %s", #call,      \
                  lrmoeGetErrorString(got_), lrmoeGetErrorString(expected)); \
  } while (0)

/* Makes a suite of one case per test, with a time-out in seconds, runs it and
 * gives main's exit status. */
int suiteRunTests(const char *name, const TTest *const *tests, size_t numTests,
                  double timeout);

/* A case of its own for a test that runs with _i from 0 to count - 1. */
void suiteAddTest(Suite *suite, double timeout, const TTest *test, int count);

/* Runs the suite and gives main's exit status. */
int suiteRun(Suite *suite);

#endif
