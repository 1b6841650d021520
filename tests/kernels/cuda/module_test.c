/* The module that nvcc built: it loads, and where there is no device it says
 * so. */
#include "kernels/backend.h"
#include "support/suite.h"

#include <string.h>

START_TEST(theModuleLoads) {
  const struct lrmoeBackend *backend = NULL;
  lrmoeResult_t result = lrmoeBackendLoad("cuda", &backend);
  if (result == lrmoeSuccess) {
    ck_assert_str_eq(backend->name, "cuda");
    return;
  }
  ck_assert_int_eq(result, lrmoeNotInstalled);
  ck_assert_msg(strstr(lrmoeGetLastError(), "cudaGetDeviceCount") != NULL, "%s",
                lrmoeGetLastError());
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_module");
  TCase *tests = tcase_create("module");
  tcase_add_test(tests, theModuleLoads);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
