/* One suite, one main: see suite.h. */
#include "support/suite.h"

#include <stdlib.h>

int suiteRun(Suite *suite) {
  setenv("LRMOE_DEBUG", "0", 0); /* errors are provoked here */
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  int numFailed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return numFailed ? EXIT_FAILURE : EXIT_SUCCESS;
}

void suiteAddTest(Suite *suite, double timeout, const TTest *test, int count) {
  TCase *group = tcase_create(test->name);
  tcase_set_timeout(group, timeout);
  tcase_add_loop_test(group, test, 0, count);
  suite_add_tcase(suite, group);
}

int suiteRunTests(const char *name, const TTest *const *tests, size_t numTests,
                  double timeout) {
  Suite *suite = suite_create(name);
  for (size_t i = 0; i < numTests; i++) {
    TCase *group = tcase_create(tests[i]->name);
    tcase_set_timeout(group, timeout);
    tcase_add_test(group, tests[i]);
    suite_add_tcase(suite, group);
  }
  return suiteRun(suite);
}
