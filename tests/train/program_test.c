/* train_moe as a program: what it records, options that it refuses, and every
 * way to select and to place that can be run. */
#include "curve.h"
#include "support/program.h"
#include "support/suite.h"
#include "tools/common/csv.h"

#include <stdio.h>

/* Every pair of every layer and recorded step is in the CSV once. */
START_TEST(record) {
  struct curve curve;
  struct toolLoad load;
  struct toolError error = {""};
  curveText();
  curveRun(&curve, "-n 5 --record loads.csv --record-every 2");
  enum toolExit code = toolLoadRead(programPath("loads.csv"), &load, &error);
  ck_assert_msg(code == toolGood, "%s", error.text);
  ck_assert_int_eq(load.numExperts, 4);
  ck_assert_int_eq(load.numRanks, 2);
  ck_assert_int_eq(load.numSections, 2 * 2);
  for (int i = 0; i < 4; i++) {
    ck_assert_int_eq(load.sections[i].step, i < 2 ? 2 : 4);
    ck_assert_int_eq(load.sections[i].layer, i % 2);
    ck_assert_int_eq(load.sections[i].total, 4 * 16 * 2);
  }
  toolLoadFree(&load);
}
END_TEST

/* The first step is the same for all: what differs comes after the update. */
START_TEST(everyWay) {
  const char *const ways[] = {"--select grad2",
                              "--select grad1",
                              "--select random",
                              "--scope layer",
                              "--scope instance --policy lrmoe",
                              "--policy quota --past",
                              "--policy shadow",
                              "--policy flex --past",
                              "--router-grad executor",
                              "--router-grad kept"};
  struct curve whole, curve;
  curveText();
  curveRun(&whole, "-n 3");
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    char options[128];
    snprintf(options, sizeof options, "-n 3 %s", ways[i]);
    curveRun(&curve, options);
    ck_assert_double_eq_tol(curve.losses[1], whole.losses[1], 1e-5);
    ck_assert(curve.losses[3] < curve.losses[1]);
  }
  /* All pairs kept by their scores, or without any: the same gradient. */
  curveRun(&whole, "-n 3 --retain 1");
  curveRun(&curve, "-n 3 --select all");
  for (int step = 1; step <= 3; step++)
    ck_assert_double_eq_tol(curve.losses[step], whole.losses[step], 1e-5);
}
END_TEST

START_TEST(refused) {
  curveText();
  curveRefuses("--heads 3", 1, "of twice the --heads 3");
  curveRefuses("--dim 20", 1, "--dim 20");
  curveRefuses("--topk 5", 1, "fewer than --topk 5");
  curveRefuses("-g 5", 1, "--ranks 5");
  curveRefuses("--context 5000", 1, "too few");
  curveRefuses("--text none", 1, "none: No such file");
  curveRefuses("--select best", 1, "best");
  curveRefuses("-J none/out.json", 1, "cannot be written");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {record, everyWay, refused};
  return suiteRunTests("program", tests, sizeof tests / sizeof *tests, 240);
}
