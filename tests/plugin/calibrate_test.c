/* LRMOE_PRELOAD=calibrate: what a program that hints receives is what the
 * library's own selection keeps of the same layer, and zeros; and a hint that
 * is wrong on one rank changes nothing but a warning. */
#include "hint_case.h"
#include "preload_run.h"
#include "support/program.h"
#include "support/suite.h"

#include <stdio.h>
#include <string.h>

/* ---- Programs ---- */

/* Variables of a run; masked: rounds, as bits, that the program masks by
 * itself, -1: it hints. */
static const char *withData(int masked, const char *mode, const char *more) {
  static char variables[2048];
  char mask[32] = "";
  if (masked >= 0) snprintf(mask, sizeof mask, "USER_MASK=%d", masked);
  snprintf(variables, sizeof variables, "USER_HINT_FILE='%s' %s %s %s",
           programPath("data"), mask, mode ? preloadMode(mode, "") : "", more);
  return variables;
}

static void expectMasked(int masked, const char *changes, const char *more) {
  char arguments[256], plain[programMaxText];
  int code =
      preloadRun(USER_FILE, withData(masked, NULL, more), "hinted 4 0 0");
  ck_assert_msg(code == 0, "%d\n%s", code, programErr);
  strcpy(plain, programOut);
  snprintf(arguments, sizeof arguments, "hinted 4 0 0 %s", changes);
  code = preloadRun(USER_FILE, withData(-1, "calibrate", more), arguments);
  ck_assert_msg(code == 0, "%s: %d\n%s", changes, code, programErr);
  ck_assert_msg(!strcmp(programOut, plain), "%s:\n%s\nand masked %d:\n%s\n%s",
                changes, programOut, masked, plain, programErr);
}

static int numWarnings(void) {
  int count = 0;
  for (const char *at = programErr; (at = strstr(at, "a hint is not followed"));
       at++)
    count++;
  return count;
}

/* ---- Same choice ---- */

static const int64_t retentions[] = {700000, 100000, 1000000, 0};

static struct oracleCase cases[8];

static void makeCases(void) {
  static const lrmoeDataType_t types[] = {lrmoeBfloat16, lrmoeFloat16,
                                          lrmoeFloat32};
  for (int i = 0; i < 8; i++) {
    cases[i] = hintCaseOf(100 + (uint64_t)i);
    cases[i].retainPpm = retentions[i % 4];
    cases[i].type = types[i % 3];
    cases[i].convention = (lrmoeWeightConvention_t)(i % 2);
  }
  cases[1].hotExpert = 3;
  cases[4].equalScores = 1;
  cases[5].unusedExpert = 0;
  cases[5].noneShare = 0.3;
  cases[4].numTokens[2] = 0;
}

START_TEST(keeps_what_the_library_keeps) {
  struct hintCase *shared = hintCaseRun(&cases[_i], 0);
  ck_assert_int_eq(shared->numDropped, 0);
  expectMasked(7, "", "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(numWarnings(), 0);
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 3 * hintCaseRanks);
  ck_assert_int_eq(preloadSum("rank", "hints"), 3 * hintCaseRanks);
  ck_assert_int_eq(preloadSum("rank", "refused"), 0);
  ck_assert_int_eq(preloadSum("rank", "exact"), 3 * hintCaseRanks);
  ck_assert_int_eq(preloadSum("rank", "wireBytes"),
                   3 * (shared->keptAcross + shared->rowsAcross) *
                       shared->head.rowBytes);
  ck_assert_int_eq(preloadSum("rank", "sentBytes"),
                   6 * shared->rowsAcross * shared->head.rowBytes);
}
END_TEST

START_TEST(all_to_all_of_one_size) {
  struct oracleCase spec = hintCaseOf(7);
  spec.topk = 1;
  for (int r = 0; r < hintCaseRanks; r++)
    spec.numTokens[r] = 48;
  struct hintCase *shared = hintCaseRun(&spec, 1);
  expectMasked(7, "", "USER_ALLTOALL=1 LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 3 * hintCaseRanks);
  ck_assert_int_lt(shared->keptAcross, shared->rowsAcross);
}
END_TEST

/* Rows that overflowed are kept first; where one would have to go all stay. */
START_TEST(overflows_are_not_dropped) {
  struct oracleCase spec = hintCaseOf(8);
  spec.numPoison = 2;
  struct hintCase *few = hintCaseRun(&spec, 0);
  ck_assert_int_eq(few->numDropped, 0);
  expectMasked(7, "", "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 3 * hintCaseRanks);
  spec.retainPpm = 10000;
  struct hintCase *many = hintCaseRun(&spec, 0);
  ck_assert_int_gt(many->numDropped, 0);
  expectMasked(0, "", "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 0);
  ck_assert_int_eq(preloadSum("rank", "refused"), 3 * hintCaseRanks);
  ck_assert_int_eq(numWarnings(), hintCaseRanks);
}
END_TEST

/* The exchange behind one that was masked by a hint: here of the same rows, of
 * which a program has made zeros. */
START_TEST(zero_rows_stay_without_a_hint) {
  struct oracleCase spec = hintCaseOf(9);
  struct hintCase *shared = hintCaseRun(&spec, 0);
  char width[64];
  snprintf(width, sizeof width, "LRMOE_ROW_BYTES=%lld",
           (long long)shared->head.rowBytes);
  int code =
      preloadRun(USER_FILE, withData(7, "calibrate", width), "hinted 4 0 0");
  ck_assert_int_eq(code, 0);
  ck_assert_int_eq(preloadSum("rank", "elided"), 3 * hintCaseRanks);
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 0);
  ck_assert_int_eq(preloadSum("rank", "wireBytes"),
                   3 * (shared->keptAcross + shared->rowsAcross) *
                       shared->head.rowBytes);
}
END_TEST

/* ---- Ranks that differ ---- */

/* What rank 1, or all, say in the first round. */
static const struct {
  const char *changes;
  int numCalibrated; /* of three rounds */
} differences[] = {
    {"1:USER_HINT=none", 2},
    {"1:USER_HINT=layer", 2},
    {"1:USER_HINT=rowBytes", 2},
    {"1:USER_HINT=quotas", 2},
    {"1:USER_HINT=demand", 2},
    {"1:USER_HINT=experts", 2},
    {"1:USER_HINT=odd", 2},
    {"1:USER_HINT=many", 2},
    {"1:USER_HINT=negative", 2},
    {"1:USER_HINT=phi", 2},
    {"0:USER_HINT=lost 1:USER_HINT=lost", 0},
    {"0:USER_HINT=rowBytes 1:USER_HINT=rowBytes 2:USER_HINT=rowBytes "
     "3:USER_HINT=rowBytes",
     2}};

START_TEST(ranks_that_differ) {
  struct oracleCase spec = hintCaseOf(10);
  hintCaseRun(&spec, 0);
  int numCalibrated = differences[_i].numCalibrated;
  expectMasked(numCalibrated ? 6 : 0, differences[_i].changes,
               "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "calibrated"),
                   numCalibrated * hintCaseRanks);
  ck_assert_msg(numWarnings() == hintCaseRanks, "%s", programErr);
}
END_TEST

/* Rank 1 lacks the library, or has another mode. */
START_TEST(ranks_without_the_mode) {
  static const char *const changes[] = {
      "1:LD_PRELOAD=", "1:LRMOE_PRELOAD=elide", "0:LRMOE_PRELOAD=off"};
  struct oracleCase spec = hintCaseOf(11);
  hintCaseRun(&spec, 0);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    expectMasked(0, changes[i], "");
    ck_assert_int_eq(numWarnings(), hintCaseRanks - 1);
  }
}
END_TEST

/* Of two hints the second counts; in other modes none does. */
START_TEST(second_hint_counts) {
  struct oracleCase spec = hintCaseOf(12);
  hintCaseRun(&spec, 0);
  expectMasked(7, "1:USER_HINT=twice", "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "hints"), 3 * hintCaseRanks + 1);
  int code = preloadRun(USER_FILE, withData(0, NULL, ""), "hinted 4 0 0");
  char plain[programMaxText];
  strcpy(plain, programOut);
  for (int i = 0; i < 4 && !code; i++) {
    static const char *const modes[] = {"off", "observe", "schedule", "elide"};
    code = preloadRun(USER_FILE, withData(-1, modes[i], ""), "hinted 4 0 0");
    ck_assert_str_eq(programOut, plain);
    ck_assert_str_eq(programErr, "");
  }
  ck_assert_int_eq(code, 0);
}
END_TEST

/* ---- On a device ---- */

#ifdef SIMT_FILE

static const char *onDevice(const char *modules, const char *more) {
  static char variables[1024];
  snprintf(variables, sizeof variables,
           "USER_DEVICE=1 LRMOE_MODULE_PATH='%s' %s LD_PRELOAD='%s:%s'",
           modules, more, PRELOAD_FILE, SIMT_FILE);
  return variables;
}

static void expectSameOnDevice(int masked, const char *mode, int maskedThere,
                               const char *variables) {
  char plain[programMaxText];
  int code = preloadRun(USER_FILE, withData(masked, NULL, ""), "hinted 4 0 0");
  ck_assert_msg(code == 0, "%d\n%s", code, programErr);
  strcpy(plain, programOut);
  code = preloadRun(USER_FILE, withData(maskedThere, mode, variables),
                    "hinted 4 0 0");
  ck_assert_msg(code == 0, "%d\n%s", code, programErr);
  ck_assert_msg(!strcmp(programOut, plain), "%s\nand on the host:\n%s\n%s",
                programOut, plain, programErr);
}

START_TEST(device_rows) {
  struct hintCase *shared = hintCaseRun(&cases[_i], 0);
  char width[64];
  int64_t bytes =
      3 * (shared->keptAcross + shared->rowsAcross) * shared->head.rowBytes;
  expectSameOnDevice(7, "calibrate", -1,
                     onDevice(MODULE_FOLDER, "LRMOE_ROW_BYTES="));
  ck_assert_str_eq(programErr, "");
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 3 * hintCaseRanks);
  ck_assert_int_eq(preloadSum("rank", "wireBytes"), bytes);
  snprintf(width, sizeof width, "LRMOE_ROW_BYTES=%lld",
           (long long)shared->head.rowBytes);
  expectSameOnDevice(7, "elide", 7, onDevice(MODULE_FOLDER, width));
  ck_assert_str_eq(programErr, "");
  ck_assert_int_eq(preloadSum("rank", "elided"),
                   shared->keptAcross < shared->rowsAcross ? 3 * hintCaseRanks
                                                           : 0);
  ck_assert_int_eq(preloadSum("rank", "wireBytes"), bytes);
  expectSameOnDevice(7, "observe", 7, onDevice("/nowhere", ""));
  ck_assert_str_eq(programErr, "");
}
END_TEST

START_TEST(device_without_the_module) {
  struct oracleCase spec = hintCaseOf(13);
  hintCaseRun(&spec, 0);
  expectSameOnDevice(0, "calibrate", -1, onDevice("/nowhere", ""));
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 0);
  int count = 0;
  const char *warning = "messages of device memory cross as they are";
  for (const char *at = programErr; (at = strstr(at, warning)); at++)
    count++;
  ck_assert_msg(count == hintCaseRanks, "%s", programErr);
}
END_TEST

#endif

int main(void) {
  Suite *suite = suite_create("plugin_calibrate");
  TCase *all = tcase_create("all");
  makeCases();
  tcase_set_timeout(all, 300);
  tcase_add_loop_test(all, keeps_what_the_library_keeps, 0, 8);
  tcase_add_test(all, all_to_all_of_one_size);
  tcase_add_test(all, overflows_are_not_dropped);
  tcase_add_test(all, zero_rows_stay_without_a_hint);
  tcase_add_loop_test(all, ranks_that_differ, 0,
                      sizeof differences / sizeof *differences);
  tcase_add_test(all, ranks_without_the_mode);
  tcase_add_test(all, second_hint_counts);
#ifdef SIMT_FILE
  tcase_add_loop_test(all, device_rows, 0, 4);
  tcase_add_test(all, device_without_the_module);
#endif
  suite_add_tcase(suite, all);
  return suiteRun(suite);
}
