/* Plans against the proven optima of a MILP solver, on small loads; perf/milp/run
 * does the same on large ones. */
#include "document.h"
#include "support/program.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
  notInstalled = 3, /* milp_perf's exit code without a solver */
  skipped = 77
};

static const char *const perf = LRMOE_MILP_PERF;

static json_t *runJson(const char *arguments) {
  return documentRun(perf, "out.json", arguments);
}

/* Of 24 loads, most with a peak above the mean. */
START_TEST(peaksAreNearlyOptimal) {
  json_t *document = runJson("--experts 24 --ranks 4 -k 2 -b 512 -n 8 "
                             "--routing zipf:1,lognormal:1,lognormal:0.5");
  const json_t *results = json_object_get(document, "results"), *row;
  size_t i, numNear = 0;
  ck_assert_uint_eq(json_array_size(results), 24);
  json_array_foreach(results, i, row) {
    double peak = numberOf(row, "peak"), milp = numberOf(row, "milp");
    ck_assert(numberOf(row, "proven") == 1);
    ck_assert(peak > milp - 0.001 && peak <= 1.01 * milp + 1);
    ck_assert(numberOf(row, "bound") < milp + 1);
    numNear += peak < 1.001 * milp + 1;
  }
  ck_assert_uint_ge(numNear, 22);
  json_decref(document);
}
END_TEST

/* Nothing more fits, whatever limits: memory, also where moves cost some, and
 * the window, also with replicas. */
START_TEST(retentionIsTheLargest) {
  json_t *document = runJson("--problem retention --experts 12 --ranks 4 -k 2 "
                             "-b 32 -n 3 --routing zipf:0.8");
  const json_t *results = json_object_get(document, "results"), *row;
  size_t i, numMoves = 0, numBound = 0;
  json_array_foreach(results, i, row) {
    double kept = numberOf(row, "kept"), milp = numberOf(row, "milp");
    ck_assert(numberOf(row, "proven") == 1);
    ck_assert_msg(kept == milp, "%s, %s: %g, not %g", textOf(row, "limit"),
                  textOf(row, "quota"), kept, milp);
    numMoves += !strcmp(textOf(row, "limit"), "moves");
    numBound += !strcmp(textOf(row, "quota"), "uniform") && kept < 1000000;
  }
  ck_assert_uint_eq(json_array_size(results), 24);
  ck_assert_uint_eq(numMoves, 6);
  ck_assert_uint_ge(numBound, 9);
  json_decref(document);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {peaksAreNearlyOptimal, retentionIsTheLargest};
  int status =
      system(LRMOE_MILP_PERF " --experts 2 -g 2 -k 1 -b 8 -n 1 >/dev/null");
  if (WIFEXITED(status) && WEXITSTATUS(status) == notInstalled) return skipped;
  return suiteRunTests("milp", tests, sizeof tests / sizeof *tests, 300);
}
