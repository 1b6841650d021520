/* The filler with the real libnccl.so.2: with or without a GPU. */
#include "collectives/nccl/call.h"
#include "support/suite.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

static const struct lrmoeNccl *load(void) {
  const struct lrmoeNccl *nccl = NULL;
  setenv("LRMOE_BACKEND", "cuda", 1);
  setenv("LRMOE_NCCL_PATH", NCCL_FILE, 1);
  ASSERT_OK(lrmoeNcclLoad(0, &nccl));
  return nccl;
}

START_TEST(config_is_as_initialised) {
  ck_assert_uint_eq(testNcclConfigMagic(), LRMOE_NCCL_CONFIG_MAGIC);
  ck_assert_int_eq(testNcclConfigUnset(), INT_MIN);
}
END_TEST

START_TEST(every_symbol_is_there) {
  const struct lrmoeNccl *nccl = load();
  ck_assert_int_ge(nccl->version, 22700);
  ck_assert_ptr_nonnull(strstr(nccl->file, "libnccl.so"));
#define PRESENT(type, field, symbol, parameters) \
  ck_assert_msg(nccl->api.field != NULL, "no %s in %s", #symbol, nccl->file);
  LRMOE_NCCL_REQUIRED(PRESENT)
  LRMOE_NCCL_OPTIONAL_227(PRESENT)
  if (nccl->version >= 22800) {
    LRMOE_NCCL_OPTIONAL_228(PRESENT)
    LRMOE_NCCL_OPTIONAL_DEVICE(PRESENT)
  }
  if (nccl->version >= 22900) {
    LRMOE_NCCL_OPTIONAL_229(PRESENT)
  }
}
END_TEST

START_TEST(ids_are_unique) {
  lrmoeUniqueId ids[2];
  load();
  ASSERT_OK(lrmoeGetUniqueId(&ids[0]));
  ASSERT_OK(lrmoeGetUniqueId(&ids[1]));
  ck_assert(memcmp(&ids[0], &ids[1], sizeof ids[0]) != 0);
}
END_TEST

/* Where there is a GPU, one rank; elsewhere NCCL's own words. */
START_TEST(a_rank_or_a_clear_error) {
  lrmoeUniqueId id;
  lrmoeComm_t comm = NULL;
  int count = 0;
  load();
  ASSERT_OK(lrmoeGetUniqueId(&id));
  lrmoeResult_t result = lrmoeCommInitRank(1, &id, 0, NULL, &comm);
  if (result == lrmoeSuccess) {
    ASSERT_OK(lrmoeCommCount(comm, &count));
    ck_assert_int_eq(count, 1);
    ASSERT_OK(lrmoeCommDestroy(comm));
    return;
  }
  ck_assert_ptr_null(comm);
  ck_assert_int_eq(result, lrmoeUnhandledCudaError);
  ck_assert_msg(strstr(lrmoeGetLastError(), "ncclCommInitRankConfig") &&
                    strstr(lrmoeGetLastError(), "uda"),
                "%s", lrmoeGetLastError());
}
END_TEST

/* Refused before they reach NCCL, whose groups stay in balance. */
START_TEST(wrong_calls) {
  const struct lrmoeTransport *transport = NULL;
  lrmoeUniqueId id;
  lrmoeComm_t comm = NULL;
  load();
  ASSERT_OK(lrmoeNcclTransportGet(0, &transport));
  ASSERT_RESULT(transport->groupEnd(), lrmoeInvalidUsage);
  ASSERT_OK(transport->groupStart());
  ASSERT_RESULT(transport->send(&id, 1, lrmoeInt8, 0, NULL, NULL),
                lrmoeInvalidArgument);
  ASSERT_RESULT(transport->groupEnd(), lrmoeInvalidArgument);
  memset(&id, 0, sizeof id);
  ASSERT_RESULT(lrmoeCommInitRank(2, &id, 2, NULL, &comm),
                lrmoeInvalidArgument);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {config_is_as_initialised, every_symbol_is_there,
                                ids_are_unique, a_rank_or_a_clear_error,
                                wrong_calls};
  return suiteRunTests("nccl_real", tests, sizeof tests / sizeof tests[0], 60);
}
