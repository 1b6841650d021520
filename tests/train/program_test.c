/* train_moe as a program: what it records, options that it refuses, and every
 * way to select and to place that can be run. */
#include "curve.h"
#include "support/program.h"
#include "support/suite.h"
#include "tools/common/csv.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

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

/* The exact steps are those of a run that keeps all; the one after them keeps
 * as asked. */
START_TEST(exactSteps) {
  struct curve whole, half, curve;
  curveText();
  curveRun(&whole, "-n 6 --select all");
  curveRun(&half, "-n 6 --retain 0.5");
  curveRun(&curve, "-n 6 --retain 0.5 --exact 3");
  for (int step = 1; step <= 4; step++) /* the loss comes before the update */
    ck_assert(curve.losses[step] == whole.losses[step]);
  ck_assert(curve.losses[6] != whole.losses[6]);
  ck_assert(curve.losses[6] != half.losses[6]);
}
END_TEST

/* Numbers of the probe's row for one way. */
static void probeOf(const char *gradients, const char *select, double *batch,
                    double *mean) {
  json_error_t error;
  json_t *document = json_load_file(programPath("out.json"), 0, &error);
  const json_t *results = json_object_get(document, "results");
  size_t i;
  const json_t *row;
  ck_assert_msg(document != NULL, "%s", error.text);
  *batch = *mean = -1;
  json_array_foreach(results, i, row) {
    const char *part = json_string_value(json_object_get(row, "gradients"));
    const char *way = json_string_value(json_object_get(row, "select"));
    if (!part || strcmp(part, gradients) || strcmp(way, select)) continue;
    *batch = json_number_value(json_object_get(row, "error_batch"));
    *mean = json_number_value(json_object_get(row, "error_mean"));
  }
  json_decref(document);
}

/* Without dropped pairs no way errs, and the run is what it is without the
 * probe; half of them dropped cost each way something, and a random choice
 * errs less in the mean than in a batch. */
START_TEST(probe) {
  static const char *const ways[] = {"lrm", "grad2", "grad1", "random"};
  struct curve plain, probed;
  double batch = 0, mean = 0;
  curveText();
  curveRun(&plain, "-n 3 --retain 1");
  curveRun(&probed, "-n 3 --retain 1 --probe 2");
  curveSame(&plain, &probed, 0);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    probeOf("experts", ways[i], &batch, &mean);
    ck_assert(batch >= 0 && batch < 1e-3);
    probeOf("dense", ways[i], &batch, &mean);
    ck_assert(batch >= 0 && batch < 1e-3);
  }
  curveRun(&probed, "-n 3 --retain 0.5 --probe 8 --select all");
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    probeOf("experts", ways[i], &batch, &mean);
    ck_assert(batch > 0.01 && mean > 0.01);
  }
  ck_assert(mean < batch);
}
END_TEST

/* A number of the row of an update. */
static double numberOf(int step, const char *key) {
  json_error_t error;
  json_t *document = json_load_file(programPath("out.json"), 0, &error);
  ck_assert_msg(document != NULL, "%s", error.text);
  const json_t *row =
      json_array_get(json_object_get(document, "results"), (size_t)step - 1);
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "%s of update %d is no number", key,
                step);
  double number = json_number_value(value);
  json_decref(document);
  return number;
}

static double bytesOf(int step) {
  static const char *const keys[] = {
      "wire_dispatch_bytes",     "wire_combine_bytes",
      "wire_select_bytes",       "wire_back_dispatch_bytes",
      "wire_back_combine_bytes", "wire_weights_bytes",
      "wire_gradients_bytes"};
  double sum = 0;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    sum += numberOf(step, keys[i]);
  return sum;
}

static const char *const cpuKeys[] = {
    "critical_prepare_ms",       "critical_dispatch_ms",
    "critical_compute_ms",       "critical_combine_ms",
    "critical_back_dispatch_ms", "critical_back_compute_ms",
    "critical_back_combine_ms",  "critical_reduce_ms"};

/* Policies that keep all pairs train the same model: as many slots as experts
 * leave SYMI's rule none for a replica, so that its plan is that of fixed. */
START_TEST(costOfPolicies) {
  struct curve fixed, other;
  curveText();
  curveRun(&fixed, "-n 3 --select all --retain 1");
  double bytes = bytesOf(3);
  ck_assert_double_gt(bytes, 0);
  ck_assert_double_eq(numberOf(3, "wire_weights_bytes"), 0);
  for (size_t i = 0; i < sizeof cpuKeys / sizeof *cpuKeys; i++)
    ck_assert_double_gt(numberOf(3, cpuKeys[i]), 0);
  curveRun(&other,
           "-n 3 --select all --retain 1 --policy proportional --slots 0");
  curveSame(&fixed, &other, 0);
  ck_assert_double_eq(bytesOf(3), bytes);
  curveRun(&other, "-n 3 --select all --retain 1 --policy quota");
  curveSame(&fixed, &other, 1e-5);
  ck_assert_double_gt(numberOf(1, "wire_weights_bytes"), 0);
  ck_assert_double_eq(numberOf(1, "wire_weights_bytes"),
                      numberOf(1, "wire_gradients_bytes"));
  curveRun(&other, "-n 3 --retain 0.5");
  ck_assert_double_gt(numberOf(3, "wire_select_bytes"), 0);
}
END_TEST

/* A run in turns is the run. */
START_TEST(turns) {
  struct curve whole, part;
  curveText();
  curveRun(&whole, "-n 5");
  curveRun(&part, "-n 5 --last 2 --checkpoint turns");
  ck_assert_int_eq(part.last, 2);
  curveRun(&part, "-n 5 --last 9 --checkpoint turns --resume");
  ck_assert_int_eq(part.first, 3);
  curveSame(&whole, &part, 0);
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
  const TTest *const tests[] = {record, everyWay,       exactSteps, probe,
                                turns,  costOfPolicies, refused};
  return suiteRunTests("program", tests, sizeof tests / sizeof *tests, 240);
}
