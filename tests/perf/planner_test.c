/* planner_perf: what it prints is of the plans it was asked for. */
#include "document.h"
#include "support/program.h"
#include "support/suite.h"

#include <string.h>

static const char *const perf = LRMOE_PLANNER_PERF;

static json_t *runJson(const char *arguments) {
  return documentRun(perf, "out.json", arguments);
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
    ck_assert_str_eq(textOf(row, "routing"),
                     i % 4 < 2 ? "zipf:1" : "lognormal:1");
    ck_assert_str_eq(textOf(row, "policy"), i % 2 ? "lrmoe" : "fixed");
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
