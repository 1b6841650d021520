/* NCCL linked into the program, whose names are global, with an interposer in
 * front of one of them. */
#include "collectives/nccl/load.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

static int numInterposed;

/* Stronger than the weak twin of pncclGetUniqueId. */
lrmoeResult_t ncclGetUniqueId(lrmoeUniqueId *id);
lrmoeResult_t ncclGetUniqueId(lrmoeUniqueId *id) {
  (void)id;
  numInterposed++;
  return lrmoeInternalError;
}

START_TEST(the_linked_one_is_found) {
  const struct lrmoeNccl *nccl = NULL;
  unsetenv("LRMOE_NCCL_PATH");
  ASSERT_OK(lrmoeNcclLoad(1, &nccl));
  ck_assert_int_eq(nccl->version, 22809);
  ck_assert_msg(strstr(nccl->file, "nccl_static") != NULL, "%s", nccl->file);
}
END_TEST

START_TEST(interposers_are_not_called) {
  lrmoeUniqueId id;
  setenv("LRMOE_BACKEND", "cuda", 1);
  ck_assert_int_eq(ncclGetUniqueId(&id), lrmoeInternalError);
  ASSERT_OK(lrmoeGetUniqueId(&id));
  ck_assert_int_eq(numInterposed, 1);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {the_linked_one_is_found,
                                interposers_are_not_called};
  return suiteRunTests("nccl_static", tests, sizeof tests / sizeof tests[0],
                       60);
}
