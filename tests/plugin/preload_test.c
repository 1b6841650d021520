/* liblrmoe_preload.so in front of the stand-in for NCCL, under programs that
 * know neither: their output is the same, and the report says what happened. */
#include "preload_run.h"
#include "support/program.h"
#include "support/suite.h"

#include <stdio.h>
#include <string.h>

static const char *const scenarios[] = {
    "grouped", "ragged",  "alltoall", "mixed",  "lopsided", "several",
    "splits",  "threads", "together", "forked", "aborted",  "unseen"};
/* "off" has a test of its own; without hints "calibrate" is "elide". */
static const char *const modes[] = {"observe", "schedule", "elide"};

enum {
  numScenarios = sizeof scenarios / sizeof *scenarios,
  numModes = sizeof modes / sizeof *modes,
  numRanks = 4
};

static char plain[programMaxText]; /* output without the library */

static void expectSame(const char *program, const char *arguments,
                       const char *variables) {
  int code = preloadRun(program, variables, arguments);
  ck_assert_msg(code == 0, "%s %s: %d\n%s", variables, arguments, code,
                programErr);
  ck_assert_msg(!strcmp(programOut, plain), "%s %s:\n%s\nand without:\n%s",
                variables, arguments, programOut, plain);
}

static void runPlain(const char *program, const char *arguments) {
  int code = preloadRun(program, "", arguments);
  ck_assert_msg(code == 0, "%s: %d\n%s", arguments, code, programErr);
  ck_assert_msg(strstr(programOut, "rank 3: ") != NULL, "%s", programOut);
  strcpy(plain, programOut);
}

/* ---- Same results ---- */

START_TEST(same_results) {
  char arguments[64];
  snprintf(arguments, sizeof arguments, "%s %d 30 40", scenarios[_i], numRanks);
  int isQuiet = strcmp(scenarios[_i], "aborted") != 0;
  runPlain(USER_FILE, arguments);
  for (int mode = 0; mode < numModes; mode++) {
    expectSame(USER_FILE, arguments, preloadMode(modes[mode], ""));
    if (isQuiet) ck_assert_str_eq(programErr, "");
  }
}
END_TEST

START_TEST(nccl_opened_by_a_library) {
  runPlain(LOADER_FILE, "mixed 4 30 40");
  for (int mode = 0; mode < numModes; mode++)
    expectSame(LOADER_FILE, "mixed 4 30 40", preloadMode(modes[mode], ""));
  ck_assert_int_eq(preloadSum("rank", "elided"), 4 * numRanks);
}
END_TEST

START_TEST(odd_sizes) {
  static const char *const arguments[] = {
      "grouped 4 0 40",  "grouped 4 100 40", "grouped 5 50 3",
      "alltoall 4 0 7",  "alltoall 4 100 7", "alltoall 5 30 1",
      "alltoall 4 30 0", "grouped 4 30 0",   "ragged 5 60 40"};
  for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
    runPlain(USER_FILE, arguments[i]);
    if (*arguments[i] != 'a') /* ncclAlltoAll is left alone */
      expectSame(USER_FILE, arguments[i], preloadMode("schedule", ""));
    expectSame(USER_FILE, arguments[i], preloadMode("elide", ""));
  }
}
END_TEST

/* ---- Observe ---- */

START_TEST(observe_reports) {
  runPlain(USER_FILE, "alltoall 4 30 40");
  expectSame(USER_FILE, "alltoall 4 30 40", preloadMode("observe", ""));
  int rows = 6 * 40 * numRanks * numRanks, between = rows / 4 * 3;
  ck_assert_int_eq(preloadNumLines("rank"), numRanks);
  ck_assert_int_eq(preloadNumLines("matrix"), 1);
  ck_assert_int_eq(preloadSum("rank", "rows"), rows);
  ck_assert_int_gt(preloadSum("rank", "zeroRows"), rows * 25 / 100);
  ck_assert_int_lt(preloadSum("rank", "zeroRows"), rows * 35 / 100);
  ck_assert_int_eq(preloadSum("rank", "sentBytes"), between * 256);
  ck_assert_int_eq(preloadSum("rank", "recvBytes"), between * 256);
  ck_assert_int_eq(preloadSum("rank", "wireBytes"), between * 256);
  ck_assert_int_eq(preloadSum("rank", "allToAlls"), 6 * numRanks);
  ck_assert_int_eq(preloadSum("rank", "elided"), 0);
  ck_assert_int_gt(preloadSum("rank", "hostNs"), 0);
}
END_TEST

/* Communicators that were split off, and one that a child made. */
START_TEST(every_communicator_has_its_lines) {
  runPlain(USER_FILE, "several 4 30 40");
  expectSame(USER_FILE, "several 4 30 40", preloadMode("observe", ""));
  ck_assert_int_eq(preloadNumLines("rank"), 3 * numRanks);
  ck_assert_int_eq(preloadNumLines("matrix"), 3);
  runPlain(USER_FILE, "forked 4 30 40");
  expectSame(USER_FILE, "forked 4 30 40", preloadMode("observe", ""));
  ck_assert_int_eq(preloadNumLines("rank"), 2 * numRanks);
  ck_assert_int_eq(preloadNumLines("matrix"), 2);
}
END_TEST

START_TEST(off_reports_nothing) {
  runPlain(USER_FILE, "mixed 4 30 40");
  expectSame(USER_FILE, "mixed 4 30 40", preloadMode("off", ""));
  FILE *file = fopen(programPath("report"), "r");
  ck_assert_ptr_null(file);
}
END_TEST

/* ---- Elide ---- */

static void expectSaving(const char *arguments) {
  runPlain(USER_FILE, arguments);
  expectSame(USER_FILE, arguments, preloadMode("elide", ""));
  double asked = (double)preloadSum("rank", "sentBytes");
  double crossed = (double)(preloadSum("rank", "wireBytes") +
                            preloadSum("rank", "boardBytes"));
  ck_assert_int_eq(preloadSum("rank", "elided"), 6 * numRanks);
  ck_assert_int_eq(preloadSum("rank", "exact"), 0);
  ck_assert_msg(crossed < 0.72 * asked, "%s: %g of %g bytes", arguments,
                crossed, asked);
  ck_assert_msg(crossed > 0.5 * asked, "%s: %g of %g bytes", arguments, crossed,
                asked);
}

START_TEST(elide_saves_zero_rows) {
  expectSaving("alltoall 4 35 400");
  expectSaving("grouped 4 35 400");
}
END_TEST

START_TEST(nothing_to_elide) {
  runPlain(USER_FILE, "alltoall 4 0 40");
  expectSame(USER_FILE, "alltoall 4 0 40", preloadMode("elide", ""));
  ck_assert_int_eq(preloadSum("rank", "elided"), 0);
  ck_assert_int_eq(preloadSum("rank", "exact"), 6 * numRanks);
  ck_assert_int_eq(preloadSum("rank", "wireBytes"),
                   preloadSum("rank", "sentBytes"));
}
END_TEST

/* After anything but an exchange all of them cross as they are. */
START_TEST(other_shapes_end_it) {
  runPlain(USER_FILE, "mixed 4 30 40");
  expectSame(USER_FILE, "mixed 4 30 40", preloadMode("elide", ""));
  ck_assert_int_eq(preloadSum("rank", "elided"), 4 * numRanks);
  runPlain(USER_FILE, "lopsided 4 30 40");
  expectSame(USER_FILE, "lopsided 4 30 40", preloadMode("elide", ""));
  ck_assert_int_eq(preloadSum("rank", "elided"), numRanks);
}
END_TEST

/* Parts of 2, 2 and 3 ranks, and all; a part does not care how its whole
 * fares. */
START_TEST(parts_of_a_communicator) {
  int numExchanges = 2 * (3 * 4 + 4 + 3 + 4);
  runPlain(USER_FILE, "splits 4 30 40");
  expectSame(USER_FILE, "splits 4 30 40", preloadMode("elide", ""));
  ck_assert_str_eq(programErr, "");
  ck_assert_int_eq(preloadNumLines("rank"), 4 + 4 + 4 + 3);
  ck_assert_int_eq(preloadNumLines("matrix"), 1 + 2 + 2 + 1);
  ck_assert_int_eq(preloadSum("rank", "agreed"), 4 + 4 + 4 + 3);
  ck_assert_int_eq(preloadSum("rank", "elided"), numExchanges);
  runPlain(USER_FILE, "splits 5 30 40");
  expectSame(USER_FILE, "splits 5 30 40", preloadMode("elide", ""));
  expectSame(USER_FILE, "splits 5 30 40", preloadMode("schedule", ""));
}
END_TEST

static int numPassed(void) {
  int count = 0;
  for (const char *at = programErr;
       (at = strstr(at, "ranks is passed through: ")); at++)
    count++;
  return count;
}

/* One warning a process, whatever comes of what is not followed. */
START_TEST(parts_of_what_is_not_followed) {
  runPlain(USER_FILE, "splits 4 30 40");
  expectSame(USER_FILE,
             "splits 4 30 40 2:LD_PRELOAD=", preloadMode("elide", ""));
  ck_assert_int_eq(preloadSum("rank", "agreed"), 0);
  ck_assert_int_eq(preloadSum("rank", "elided"), 0);
  ck_assert_int_eq(numPassed(), 3);
  ck_assert_ptr_nonnull(strstr(programErr, "not all of its ranks are on this"));
}
END_TEST

/* Memory may be a device's, which the host does not look into. */
START_TEST(process_with_cuda) {
  runPlain(USER_FILE, "mixed 4 30 40");
  char variables[1280];
  snprintf(variables, sizeof variables, "%s:'%s'", preloadMode("elide", ""),
           CUDA_FILE);
  expectSame(USER_FILE, "mixed 4 30 40", variables);
  ck_assert_int_eq(preloadSum("rank", "agreed"), numRanks);
  ck_assert_int_eq(preloadSum("rank", "elided"), 0);
  ck_assert_int_eq(preloadSum("rank", "rows"), 0);
  const char *warning = "messages of device memory cross as they are";
  int count = 0;
  for (const char *at = programErr; (at = strstr(at, warning)); at++)
    count++;
  ck_assert_int_eq(count, numRanks);
}
END_TEST

/* ---- Ranks that differ ---- */

/* What rank 0, or another, has of its own. */
static const char *const differences[] = {
    "2:LD_PRELOAD=",
    "0:LD_PRELOAD=",
    "1:LRMOE_PRELOAD=off",
    "0:LRMOE_PRELOAD=observe",
    "3:LRMOE_ROW_BYTES=128",
    "0:LRMOE_ROW_BYTES=",
    "2:LRMOE_PRELOAD=schedule",
    "1:LRMOE_PRELOAD=nonsense",
    "1:LD_PRELOAD= 2:LRMOE_PRELOAD=observe"};

START_TEST(ranks_that_differ) {
  char arguments[128];
  runPlain(USER_FILE, "mixed 4 30 40");
  snprintf(arguments, sizeof arguments, "mixed 4 30 40 %s", differences[_i]);
  expectSame(USER_FILE, arguments, preloadMode("elide", ""));
  ck_assert_int_ge(preloadNumLines("rank"), numRanks - 2);
  ck_assert_int_eq(preloadNumLines("matrix"), 0);
  ck_assert_int_eq(preloadSum("rank", "agreed"), 0);
  ck_assert_int_eq(preloadSum("rank", "elided"), 0);
}
END_TEST

/* Where a report goes is each rank's own affair. */
START_TEST(reports_may_differ) {
  runPlain(USER_FILE, "grouped 4 30 40");
  expectSame(USER_FILE, "grouped 4 30 40 1:LRMOE_PRELOAD_REPORT=",
             preloadMode("elide", ""));
  ck_assert_int_eq(preloadNumLines("rank"), numRanks - 1);
  ck_assert_int_eq(preloadSum("rank", "elided"), 6 * (numRanks - 1));
}
END_TEST

START_TEST(late_rank) {
  runPlain(USER_FILE, "late 4 30 40");
  expectSame(USER_FILE, "late 4 30 40",
             preloadMode("elide", "USER_LATE=1 LRMOE_TIMEOUT_MS=4000"));
  ck_assert_int_eq(preloadSum("rank", "elided"), numRanks);
}
END_TEST

START_TEST(dead_rank) {
  for (int mode = 1; mode < numModes; mode++) {
    int code =
        preloadRun(USER_FILE, preloadMode(modes[mode], ""), "killed 4 30 40");
    ck_assert_int_eq(code, 1);
    ck_assert_msg(strstr(programOut, "rank 0: ") != NULL, "%s", programErr);
    ck_assert_msg(strstr(programOut, "rank 2: ") != NULL, "%s", programErr);
  }
}
END_TEST

/* ---- Refusals ---- */

static void expectWarning(const char *variables, const char *warning) {
  expectSame(USER_FILE, "grouped 4 30 40", variables);
  ck_assert_msg(strstr(programErr, warning) != NULL, "%s:\n%s", variables,
                programErr);
}

START_TEST(refusals) {
  runPlain(USER_FILE, "grouped 4 30 40");
  expectWarning(preloadMode("fast", ""), "LRMOE_PRELOAD=fast is refused");
  expectWarning(preloadMode("elide", "LRMOE_ROW_BYTES="),
                "LRMOE_PRELOAD=elide is refused without LRMOE_ROW_BYTES");
  expectWarning(preloadMode("elide", "LRMOE_ROW_BYTES=wide"),
                "LRMOE_ROW_BYTES=wide is not a number");
  expectWarning(preloadMode("schedule", "LRMOE_TOPOLOGY=/nowhere"),
                "LRMOE_TOPOLOGY=/nowhere is refused");
  expectWarning(preloadMode("observe", "LRMOE_PRELOAD_REPORT=/nowhere/file"),
                "LRMOE_PRELOAD_REPORT=/nowhere/file cannot be written");
}
END_TEST

/* ---- All ---- */

int main(void) {
  Suite *suite = suite_create("plugin_preload");
  TCase *same = tcase_create("same");
  tcase_set_timeout(same, 300);
  tcase_add_loop_test(same, same_results, 0, numScenarios);
  tcase_add_test(same, nccl_opened_by_a_library);
  tcase_add_test(same, odd_sizes);
  suite_add_tcase(suite, same);
  TCase *other = tcase_create("other");
  tcase_set_timeout(other, 300);
  tcase_add_test(other, observe_reports);
  tcase_add_test(other, every_communicator_has_its_lines);
  tcase_add_test(other, off_reports_nothing);
  tcase_add_test(other, elide_saves_zero_rows);
  tcase_add_test(other, nothing_to_elide);
  tcase_add_test(other, other_shapes_end_it);
  tcase_add_test(other, parts_of_a_communicator);
  tcase_add_test(other, parts_of_what_is_not_followed);
  tcase_add_test(other, process_with_cuda);
  tcase_add_loop_test(other, ranks_that_differ, 0,
                      sizeof differences / sizeof *differences);
  tcase_add_test(other, reports_may_differ);
  tcase_add_test(other, late_rank);
  tcase_add_test(other, dead_rank);
  tcase_add_test(other, refusals);
  suite_add_tcase(suite, other);
  return suiteRun(suite);
}
