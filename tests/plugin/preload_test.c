/* liblrmoe_preload.so in front of the stand-in for NCCL, under programs that
 * know neither: their output is the same, and the report says what happened. */
#include "support/program.h"
#include "support/suite.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#ifdef __SANITIZE_THREAD__
#define IS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IS_TSAN 1
#endif
#endif

static const char *const scenarios[] = {
    "grouped", "ragged",   "alltoall", "mixed",   "lopsided", "several",
    "threads", "together", "forked",   "aborted", "unseen"};
static const char *const modes[] = {"off", "observe", "schedule", "elide"};

enum {
  numScenarios = sizeof scenarios / sizeof *scenarios,
  numModes = sizeof modes / sizeof *modes,
  numRanks = 4
};

static char plain[programMaxText]; /* output without the library */

/* Runs the program with variables in front, the ranks' own changes behind. */
static int run(const char *program, const char *variables,
               const char *arguments) {
  char command[3072];
  snprintf(command, sizeof command, "-c \"%s exec '%s' %s\"", variables,
           program, arguments);
  remove(programPath("report"));
  return programRun("/bin/sh", "%s", command);
}

/* Of the ranks' stand-in; the shim waits for half of it. */
static const char *withMode(const char *mode, const char *more) {
  static char variables[1024];
  snprintf(variables, sizeof variables,
           "LRMOE_DEBUG=1 LRMOE_PRELOAD=%s LRMOE_ROW_BYTES=256 "
           "LRMOE_PRELOAD_REPORT='%s' "
           "%s LD_PRELOAD='%s'",
           mode, programPath("report"), more, PRELOAD_FILE);
  return variables;
}

static void expectSame(const char *program, const char *arguments,
                       const char *variables) {
  int code = run(program, variables, arguments);
  ck_assert_msg(code == 0, "%s %s: %d\n%s", variables, arguments, code,
                programErr);
  ck_assert_msg(!strcmp(programOut, plain), "%s %s:\n%s\nand without:\n%s",
                variables, arguments, programOut, plain);
}

static void runPlain(const char *program, const char *arguments) {
  int code = run(program, "", arguments);
  ck_assert_msg(code == 0, "%s: %d\n%s", arguments, code, programErr);
  ck_assert_msg(strstr(programOut, "rank 3: ") != NULL, "%s", programOut);
  strcpy(plain, programOut);
}

/* ---- Report ---- */

/* Sum of a field over the lines of one kind; of an array's elements, without
 * those of a rank to itself. */
static json_int_t sumOf(const char *kind, const char *field) {
  char text[programMaxText];
  json_int_t sum = 0;
  strcpy(text, programRead("report"));
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *document = json_loads(line, 0, NULL), *value;
    ck_assert_msg(document != NULL, "no JSON: %s", line);
    size_t index;
    json_t *all = json_object_get(document, field);
    size_t own = (size_t)json_integer_value(json_object_get(document, "rank"));
    if (!strcmp(json_string_value(json_object_get(document, "kind")), kind)) {
      sum += json_is_true(all) ? 1 : json_integer_value(all);
      json_array_foreach(all, index, value) sum +=
          index == own ? 0 : json_integer_value(value);
    }
    json_decref(document);
  }
  return sum;
}

static int numLines(const char *kind) {
  char key[40];
  int count = 0;
  snprintf(key, sizeof key, "\"kind\":\"%s\"", kind);
  for (const char *at = programRead("report"); (at = strstr(at, key)); at++)
    count++;
  return count;
}

/* ---- Same results ---- */

START_TEST(same_results) {
  char arguments[64];
  snprintf(arguments, sizeof arguments, "%s %d 30 40", scenarios[_i], numRanks);
  int isQuiet = strcmp(scenarios[_i], "aborted") != 0;
  runPlain(USER_FILE, arguments);
  for (int mode = 0; mode < numModes; mode++) {
    expectSame(USER_FILE, arguments, withMode(modes[mode], ""));
    if (isQuiet) ck_assert_str_eq(programErr, "");
  }
}
END_TEST

START_TEST(nccl_opened_by_a_library) {
  runPlain(LOADER_FILE, "mixed 4 30 40");
  for (int mode = 0; mode < numModes; mode++)
    expectSame(LOADER_FILE, "mixed 4 30 40", withMode(modes[mode], ""));
  ck_assert_int_eq(sumOf("rank", "elided"), 4 * numRanks);
}
END_TEST

START_TEST(odd_sizes) {
  static const char *const arguments[] = {
      "grouped 4 0 40",  "grouped 4 100 40", "grouped 5 50 3",
      "alltoall 4 0 7",  "alltoall 4 100 7", "alltoall 7 30 1",
      "alltoall 4 30 0", "grouped 4 30 0",   "ragged 6 60 40"};
  for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
    runPlain(USER_FILE, arguments[i]);
    expectSame(USER_FILE, arguments[i], withMode("schedule", ""));
    expectSame(USER_FILE, arguments[i], withMode("elide", ""));
  }
}
END_TEST

/* ---- Observe ---- */

START_TEST(observe_reports) {
  runPlain(USER_FILE, "alltoall 4 30 40");
  expectSame(USER_FILE, "alltoall 4 30 40", withMode("observe", ""));
  int rows = 6 * 40 * numRanks * numRanks, between = rows / 4 * 3;
  ck_assert_int_eq(numLines("rank"), numRanks);
  ck_assert_int_eq(numLines("matrix"), 1);
  ck_assert_int_eq(sumOf("rank", "rows"), rows);
  ck_assert_int_gt(sumOf("rank", "zeroRows"), rows * 25 / 100);
  ck_assert_int_lt(sumOf("rank", "zeroRows"), rows * 35 / 100);
  ck_assert_int_eq(sumOf("rank", "sentBytes"), between * 256);
  ck_assert_int_eq(sumOf("rank", "recvBytes"), between * 256);
  ck_assert_int_eq(sumOf("rank", "wireBytes"), between * 256);
  ck_assert_int_eq(sumOf("rank", "allToAlls"), 6 * numRanks);
  ck_assert_int_eq(sumOf("rank", "elided"), 0);
  ck_assert_int_gt(sumOf("rank", "hostNs"), 0);
}
END_TEST

/* A communicator that was split off, and one that a child made. */
START_TEST(every_communicator_has_its_lines) {
  runPlain(USER_FILE, "several 4 30 40");
  expectSame(USER_FILE, "several 4 30 40", withMode("observe", ""));
  ck_assert_int_eq(numLines("rank"), 3 * numRanks);
  ck_assert_int_eq(numLines("matrix"), 2);
  runPlain(USER_FILE, "forked 4 30 40");
  expectSame(USER_FILE, "forked 4 30 40", withMode("observe", ""));
  ck_assert_int_eq(numLines("rank"), 2 * numRanks);
  ck_assert_int_eq(numLines("matrix"), 2);
}
END_TEST

START_TEST(off_reports_nothing) {
  runPlain(USER_FILE, "grouped 4 30 40");
  expectSame(USER_FILE, "grouped 4 30 40", withMode("off", ""));
  FILE *file = fopen(programPath("report"), "r");
  ck_assert_ptr_null(file);
}
END_TEST

/* ---- Elide ---- */

static void expectSaving(const char *arguments) {
  runPlain(USER_FILE, arguments);
  expectSame(USER_FILE, arguments, withMode("elide", ""));
  double asked = (double)sumOf("rank", "sentBytes");
  double crossed =
      (double)(sumOf("rank", "wireBytes") + sumOf("rank", "boardBytes"));
  ck_assert_int_eq(sumOf("rank", "elided"), 6 * numRanks);
  ck_assert_int_eq(sumOf("rank", "exact"), 0);
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
  expectSame(USER_FILE, "alltoall 4 0 40", withMode("elide", ""));
  ck_assert_int_eq(sumOf("rank", "elided"), 0);
  ck_assert_int_eq(sumOf("rank", "exact"), 6 * numRanks);
  ck_assert_int_eq(sumOf("rank", "wireBytes"), sumOf("rank", "sentBytes"));
}
END_TEST

/* After anything but an exchange all of them cross as they are. */
START_TEST(other_shapes_end_it) {
  runPlain(USER_FILE, "mixed 4 30 40");
  expectSame(USER_FILE, "mixed 4 30 40", withMode("elide", ""));
  ck_assert_int_eq(sumOf("rank", "elided"), 4 * numRanks);
  runPlain(USER_FILE, "lopsided 4 30 40");
  expectSame(USER_FILE, "lopsided 4 30 40", withMode("elide", ""));
  ck_assert_int_eq(sumOf("rank", "elided"), numRanks);
}
END_TEST

/* Memory may be a device's, which the host does not look into. */
START_TEST(process_with_cuda) {
  runPlain(USER_FILE, "mixed 4 30 40");
  char variables[1280];
  snprintf(variables, sizeof variables, "%s:'%s'", withMode("elide", ""),
           CUDA_FILE);
  expectSame(USER_FILE, "mixed 4 30 40", variables);
  ck_assert_int_eq(sumOf("rank", "agreed"), numRanks);
  ck_assert_int_eq(sumOf("rank", "elided"), 0);
  ck_assert_int_eq(sumOf("rank", "rows"), 0);
  const char *warning = "zero rows are looked for in host memory only";
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
  expectSame(USER_FILE, arguments, withMode("elide", ""));
  ck_assert_int_ge(numLines("rank"), numRanks - 2);
  ck_assert_int_eq(numLines("matrix"), 0);
  ck_assert_int_eq(sumOf("rank", "agreed"), 0);
  ck_assert_int_eq(sumOf("rank", "elided"), 0);
}
END_TEST

/* Where a report goes is each rank's own affair. */
START_TEST(reports_may_differ) {
  runPlain(USER_FILE, "grouped 4 30 40");
  expectSame(USER_FILE,
             "grouped 4 30 40 1:LRMOE_PRELOAD_REPORT=", withMode("elide", ""));
  ck_assert_int_eq(numLines("rank"), numRanks - 1);
  ck_assert_int_eq(sumOf("rank", "elided"), 6 * (numRanks - 1));
}
END_TEST

START_TEST(late_rank) {
  runPlain(USER_FILE, "late 4 30 40");
  expectSame(USER_FILE, "late 4 30 40",
             withMode("elide", "LRMOE_TIMEOUT_MS=4000"));
  ck_assert_int_eq(sumOf("rank", "elided"), numRanks);
}
END_TEST

START_TEST(dead_rank) {
  for (int mode = 0; mode < numModes; mode++) {
    int code = run(USER_FILE, withMode(modes[mode], ""), "killed 4 30 40");
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
  expectWarning(withMode("fast", ""), "LRMOE_PRELOAD=fast is refused");
  expectWarning(withMode("elide", "LRMOE_ROW_BYTES="),
                "LRMOE_PRELOAD=elide is refused without LRMOE_ROW_BYTES");
  expectWarning(withMode("elide", "LRMOE_ROW_BYTES=wide"),
                "LRMOE_ROW_BYTES=wide is not a number");
  expectWarning(withMode("schedule", "LRMOE_TOPOLOGY=/nowhere"),
                "LRMOE_TOPOLOGY=/nowhere is refused");
  expectWarning(withMode("observe", "LRMOE_PRELOAD_REPORT=/nowhere/file"),
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
