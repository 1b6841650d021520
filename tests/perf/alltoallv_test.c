/* alltoallv_perf: every word arrives, in the order of any machine. */
#include "document.h"
#include "support/program.h"
#include "support/suite.h"

static const char *const perf = LRMOE_ALLTOALLV_PERF;

static json_t *runJson(const char *arguments) {
  int code = programRun(perf, "--no-mpi -r 3 -n 2 -J out.json %s", arguments);
  ck_assert_msg(code == 0, "%s: %d\n%s", arguments, code, programErr);
  json_error_t error;
  json_t *document = json_load_file(programPath("out.json"), 0, &error);
  ck_assert_msg(document != NULL, "%s", error.text);
  return document;
}

static void checkRow(const json_t *row, int isOrdered) {
  ck_assert_int_eq(json_integer_value(json_object_get(row, "wrong")), 0);
  ck_assert(json_number_value(json_object_get(row, "ours_us")) > 0);
  const json_t *ordered = json_object_get(row, "ordered_us");
  ck_assert_int_eq(ordered != NULL, isOrdered);
  ck_assert(!ordered || json_number_value(ordered) > 0);
}

START_TEST(orders) {
  static const char *const arguments[] = {
      "-g 3 -b 64 -e 65536 -f 1024",
      "-g 4 -b 64 -e 65536 -f 1024 --topology host.xml",
      "-g 6 -b 64 -e 65536 -f 1024 --topology host.xml --copies 3"};
  documentWriteHost();
  json_t *document = runJson(arguments[_i]);
  const json_t *results = json_object_get(document, "results");
  ck_assert_uint_eq(json_array_size(results), 2);
  for (size_t i = 0; i < 2; i++)
    checkRow(json_array_get(results, i), _i > 0);
  json_decref(document);
}
END_TEST

START_TEST(wrongOptions) {
  documentWriteHost();
  programRefuses(perf, "--no-mpi -g 3 --topology host.xml",
                 "3 ranks for a machine of 2 GPUs");
  programRefuses(perf, "-g 2 --topology none.xml", "none.xml");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("alltoallv");
  TCase *tests = tcase_create("alltoallv");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, orders, 0, 3);
  tcase_add_test(tests, wrongOptions);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
