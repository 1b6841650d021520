/* Plans against the proven optima of a MILP solver, on small loads;
 * perf/milp/run does the same on large ones. */
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

/* So many answers, of which the solver proves that nothing more fits; returns
 * how many keep not all. */
static size_t areLargest(const char *arguments, size_t numRows) {
  json_t *document = runJson(arguments);
  const json_t *results = json_object_get(document, "results"), *row;
  size_t i, numBound = 0;
  ck_assert_uint_eq(json_array_size(results), numRows);
  json_array_foreach(results, i, row) {
    double kept = numberOf(row, "kept"), milp = numberOf(row, "milp");
    ck_assert(numberOf(row, "proven") == 1);
    ck_assert_msg(kept == milp, "%s, %s: %g, not %g", textOf(row, "limit"),
                  textOf(row, "quota"), kept, milp);
    numBound += kept < 1000000;
  }
  json_decref(document);
  return numBound;
}

/* Whatever limits: memory, also where moves cost some, and the window, also
 * with replicas. */
#define LOADS                                                   \
  "--problem retention --experts 12 --ranks 4 -k 2 -b 32 -n 3 " \
  "--routing zipf:0.8 "
START_TEST(retentionIsTheLargest) {
  ck_assert_uint_ge(areLargest(LOADS "--quota uniform", 15), 9);
  areLargest(LOADS "--quota overload --limit memory", 6);
  areLargest(LOADS "--quota overload --limit moves", 3);
}
END_TEST

/* Loads that the solver is done with soon. */
#define SMALL "--problem retention --quota overload --limit window -n 5 "
START_TEST(overloadFillsTheWindow) {
  areLargest(SMALL "--routing zipf:0.8 --experts 6 --ranks 2 -b 16 -k 2", 10);
  areLargest(SMALL "--routing lognormal:1 --experts 5 --ranks 3 -b 10 -k 1",
             10);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {peaksAreNearlyOptimal, retentionIsTheLargest,
                                overloadFillsTheWindow};
  int status =
      system(LRMOE_MILP_PERF " --experts 2 -g 2 -k 1 -b 8 -n 1 >/dev/null");
  if (WIFEXITED(status) && WEXITSTATUS(status) == notInstalled) return skipped;
  return suiteRunTests("milp", tests, sizeof tests / sizeof *tests, 300);
}
