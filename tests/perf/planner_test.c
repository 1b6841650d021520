/* planner_perf: what it prints is of the plans it was asked for. */
#include "support/program.h"
#include "support/suite.h"

#include <jansson.h>
#include <string.h>

static const char *const perf = LRMOE_PLANNER_PERF;

static json_t *runJson(const char *arguments) {
  int code = programRun(perf, "-J out.json %s", arguments);
  ck_assert_msg(code == 0, "%s: %d\n%s", arguments, code, programErr);
  json_error_t error;
  json_t *document = json_load_file(programPath("out.json"), 0, &error);
  ck_assert_msg(document != NULL, "%s", error.text);
  return document;
}

static double numberOf(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "%s is no number", key);
  return json_number_value(value);
}

/* A row per shape, routing and policy; the best plan is not below its bound. */
START_TEST(rows) {
  json_t *document = runJson("--ranks 4,8 --experts 16,32 -k 2 -n 5 --policy "
                             "fixed,lrmoe --routing zipf:1,lognormal:1");
  const json_t *results = json_object_get(document, "results");
  ck_assert_uint_eq(json_array_size(results), 8);
  size_t i;
  json_t *row;
  json_array_foreach(results, i, row) {
    ck_assert(numberOf(row, "ranks") == (i < 4 ? 4 : 8));
    ck_assert(numberOf(row, "experts") == (i < 4 ? 16 : 32));
    ck_assert_str_eq(json_string_value(json_object_get(row, "routing")),
                     i % 4 < 2 ? "zipf:1" : "lognormal:1");
    ck_assert_str_eq(json_string_value(json_object_get(row, "policy")),
                     i % 2 ? "lrmoe" : "fixed");
    ck_assert(numberOf(row, "loads") == 5);
    ck_assert(numberOf(row, "median_us") > 0);
    ck_assert(numberOf(row, "imbalance") >= 1);
    ck_assert(numberOf(row, "imbalance_most") >= numberOf(row, "imbalance"));
    ck_assert(numberOf(row, "gap_percent") >= 0);
    ck_assert((numberOf(row, "replicas") > 0) == (i % 2 == 1));
    if (i % 2)
      ck_assert(numberOf(row, "imbalance") <
                numberOf(json_array_get(results, i - 1), "imbalance"));
  }
  json_decref(document);
}
END_TEST

START_TEST(loadsOfAFile) {
  programWrite("f.csv", "layer,expert,count\n0,0,9\n0,3,1\n1,1,5\n");
  json_t *document = runJson("--load f.csv --ranks 2 --policy fixed");
  const json_t *row = json_array_get(json_object_get(document, "results"), 0);
  ck_assert(numberOf(row, "experts") == 4 && numberOf(row, "loads") == 2);
  ck_assert(numberOf(row, "imbalance") == (1.8 + 2) / 2);
  json_decref(document);
}
END_TEST

START_TEST(wrongOptions) {
  programRefuses(perf, "--policy worst", "\"worst\" is not one of");
  programRefuses(perf, "--ranks 4,8 --experts 16", "a shape has one of each");
  programRefuses(perf, "--experts 16", "a shape has one of each");
  programRefuses(perf, "--ranks 4 --experts 4", "8 slots a token");
  programRefuses(perf, "--routing zipf", "routing \"zipf\"");
  programRefuses(perf, "--load none.csv --ranks 4", "none.csv");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {rows, loadsOfAFile, wrongOptions};
  return suiteRunTests("planner", tests, sizeof tests / sizeof *tests, 120);
}
