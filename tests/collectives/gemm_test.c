/* LRMOE_GEMM on the CUDA backend: the GEMM that it names multiplies, each
 * gives the oracle's results, and they agree; another name is refused. */
#include "driver.h"
#include "support/simt/simt.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
  numRanks = 3,
  maxResults = 1 << 14
};

/* dx of every rank, by the GEMM that made it; ranks are processes. */
struct results {
  struct oracleCase spec;
  int isGrouped; /* whether grouped calls must be seen */
  int which;
  int64_t count;
  float dx[2][numRanks][maxResults];
};

static void keepResults(struct driver *d, struct results *results) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t count = spec->numTokens[d->self->rank] * spec->hidden;
  oracleConvert(spec->type, d->dx, lrmoeFloat32, count,
                results->dx[results->which][d->self->rank]);
}

/* A grouped call has its pointers stored on the device. */
static int checkCalls(const struct testRank *self, int isGrouped) {
  struct simtCounters counters;
  simtGetCounters("storePointersKernel", &counters);
  RANK_TRUE(self, (counters.launches > 0) == isGrouped);
  return 0;
}

static int runCase(const struct testRank *self) {
  struct results *results = self->user;
  struct driver d;
  int failed = driverOpen(&d, self, &results->spec) || driverForward(&d) ||
               driverBackward(&d, NULL, 0) || driverCheckSelection(&d) ||
               driverCheckResults(&d) || checkCalls(self, results->isGrouped);
  if (!failed) keepResults(&d, results);
  driverClose(&d);
  return failed;
}

static void runWith(struct results *results, const char *gemm) {
  simtResetCounters();
  results->isGrouped = !strcmp(gemm, "grouped");
  results->which = results->isGrouped;
  setenv("LRMOE_GEMM", gemm, 1);
  ck_assert_int_eq(testRanksRun(numRanks, runCase, results), 0);
}

/* Shared with ranks that are processes. */
static struct results *makeResults(lrmoeDataType_t type) {
  struct results *results = mmap(NULL, sizeof *results, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(results, MAP_FAILED);
  results->spec = oraclePlainCase();
  results->spec.numRanks = numRanks;
  results->spec.type = type;
  return results;
}

/* Rounding of the type, of sums that may be in another order. */
static void assertAgree(const struct results *results, double tolerance) {
  for (int r = 0; r < numRanks; r++) {
    int64_t count = results->spec.numTokens[r] * results->spec.hidden;
    double largest = 0;
    ck_assert_int_le(count, maxResults);
    for (int64_t i = 0; i < count; i++)
      largest = fmax(largest, fabs(results->dx[0][r][i]));
    ck_assert_double_gt(largest, 0);
    for (int64_t i = 0; i < count; i++)
      ck_assert_double_le(
          fabs((double)results->dx[0][r][i] - results->dx[1][r][i]),
          tolerance * largest);
  }
}

START_TEST(bothMultiplyTheSame) {
  static const lrmoeDataType_t types[] = {lrmoeBfloat16, lrmoeFloat32};
  static const double tolerances[] = {0.02, 1e-5};
  struct results *results = makeResults(types[_i]);
  runWith(results, "cublas");
  runWith(results, "grouped");
  assertAgree(results, tolerances[_i]);
  runWith(results, ""); /* the usual one */
  munmap(results, sizeof *results);
}
END_TEST

static int giveWrongName(const struct testRank *self) {
  const struct oracleCase *spec = self->user;
  struct driver d;
  testRankQuiet = 1;
  int opened = !driverOpen(&d, self, spec);
  const char *error = lrmoeGetLastError();
  int isNamed = strstr(error, "openblas") && strstr(error, "cublas") &&
                strstr(error, "grouped");
  testRankQuiet = 0;
  RANK_TRUE(self, !opened);
  RANK_TRUE(self, isNamed);
  driverClose(&d);
  return 0;
}

START_TEST(anotherNameIsRefused) {
  struct oracleCase spec = oraclePlainCase();
  spec.numRanks = 1;
  setenv("LRMOE_GEMM", "openblas", 1);
  ck_assert_int_eq(testRanksRun(1, giveWrongName, &spec), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("gemm");
  TCase *group = tcase_create("gemm");
  tcase_set_timeout(group, 300);
  tcase_add_loop_test(group, bothMultiplyTheSame, 0, 2);
  tcase_add_test(group, anotherNameIsRefused);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
