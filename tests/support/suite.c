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
