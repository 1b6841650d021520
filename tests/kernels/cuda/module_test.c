/* The module that nvcc built: it loads, and where there is no device it says
 * so. */
#include "kernels/backend.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
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

/* The table is given without a device, too. */
static const struct lrmoeBackend *tableOf(void) {
  char path[512];
  lrmoeBackendEntry entry = NULL;
  const struct lrmoeBackend *backend = NULL;
  snprintf(path, sizeof path, "%s/liblrmoe_cuda.so",
           getenv("LRMOE_MODULE_PATH"));
  void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(module != NULL, "%s", dlerror());
  *(void **)&entry = dlsym(module, LRMOE_BACKEND_ENTRY);
  ck_assert(entry != NULL);
  entry(&backend);
  ck_assert_ptr_nonnull(backend);
  return backend;
}

/* What NCCL wants is filled in by its own header: more signals, other bytes. */
START_TEST(theGinOfOneNccl) {
  const struct lrmoeGinBackend *gin = tableOf()->gin;
  char few[1024] = {0};
  char many[1024] = {0};
  ck_assert_ptr_nonnull(gin);
  if (!gin->version) return; /* no such header was found */
  ck_assert_int_ge(gin->version, 22807);
  ck_assert_uint_ge(gin->commBytes, sizeof(void *));
  ck_assert_uint_le(gin->needsBytes, sizeof few);
  gin->needs(3, few);
  gin->needs(300, many);
  ck_assert_int_ne(memcmp(few, many, gin->needsBytes), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_module");
  TCase *tests = tcase_create("module");
  tcase_add_test(tests, theModuleLoads);
  tcase_add_test(tests, theGinOfOneNccl);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
