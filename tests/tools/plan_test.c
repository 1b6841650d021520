/* lrmoe-plan as its users run it: options, input, the table, JSON, SVG. */
#include "support/program.h"
#include "support/suite.h"
#include "tools/common/planning.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const plan = LRMOE_PLAN;

/* The worked example of the arithmetic: 8 experts, top-2, 65536 tokens. */
static const char *const worked =
    "layer,expert,count\n0,0,30000\n0,1,24000\n0,2,20000\n0,3,16000\n"
    "0,4,14000\n0,5,12000\n0,6,8000\n0,7,7072\n";

/* ---- Help --------------------------------------------------------------- */

/* Runs lrmoe-plan with -J and gives the document; json_decref it. */
static json_t *runJson(const char *arguments) {
  int code = programRun(plan, "%s -J out.json", arguments);
  ck_assert_msg(code == 0, "%s: %d\n%s", arguments, code, programErr);
  json_error_t error;
  json_t *document = json_load_file(programPath("out.json"), 0, &error);
  ck_assert_msg(document != NULL, "%s: %s", arguments, error.text);
  return document;
}

static json_t *rowOf(const json_t *document, size_t index) {
  json_t *row = json_array_get(json_object_get(document, "results"), index);
  ck_assert_ptr_nonnull(row);
  return row;
}

static double numberOf(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "%s is no number", key);
  return json_number_value(value);
}

static int isNear(double value, double expected, double within) {
  return fabs(value - expected) <= within;
}

/* ---- Options and input -------------------------------------------------- */

START_TEST(helpAndVersion) {
  ck_assert_int_eq(programRun(plan, "--help"), 0);
  ck_assert_ptr_nonnull(strstr(programOut, "--capacity-factor"));
  ck_assert_int_eq(programRun(plan, "--version"), 0);
  ck_assert_ptr_nonnull(strstr(programOut, "lrmoe-plan"));
}
END_TEST

START_TEST(wrongOptions) {
  static const char *const cases[][2] = {
      {"--ranks 0", "ranks"},
      {"--ranks 1025", "ranks"},
      {"--policy best", "\"best\" is not one of fixed, lrmoe"},
      {"--policy fixed,fixed", "fixed is there twice"},
      {"--policy fixed,", "\"\" is not one of"},
      {"--quota most", "quota"},
      {"--retain 1.5", "retain"},
      {"--retain 0.5 --min-retain 0.6", "--min-retain 0.6 is over"},
      {"--memory-gib 1", "need --hidden"},
      {"--grid", "--grid needs"},
      {"--relays", "--relays needs --hidden"},
      {"--copies 0", "copies"},
      {"--quota capacity", "needs --capacity-factor"},
      {"--capacity-factor 1 --svg a.svg", "makes none"},
      {"--routing normal:1", "routing \"normal:1\""},
      {"--experts 4 --topk 8", "8 slots a token, of 4 experts"},
      {"--svg /nowhere/a.svg", "/nowhere/a.svg"},
      {"-J /nowhere/a.json", "/nowhere/a.json"},
      {"--load", "load"},
      {"--colour red", "colour"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    programRefuses(plan, cases[i][0], cases[i][1]);
}
END_TEST

START_TEST(wrongInput) {
  programWrite("column.csv", "layer,expert,tokens\n0,0,1\n");
  programWrite("number.csv", "layer,expert,count\n0,0,-1\n");
  programWrite("good.csv", worked);
  static const char *const cases[][2] = {
      {"--load none.csv", "none.csv"},
      {"--load column.csv", "column.csv:1: column \"tokens\""},
      {"--load number.csv", "number.csv:2: count \"-1\""},
      {"--load good.csv --layer 3", "has no step -1, layer 3"},
      {"--load good.csv --experts 9", "has 8 experts and 9 were asked for"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    programRefuses(plan, cases[i][0], cases[i][1]);
}
END_TEST

/* ---- Plans -------------------------------------------------------------- */

/* What every row must have, and what follows from what. */
static void checkRow(const json_t *row) {
  double peak = numberOf(row, "peak"), mean = numberOf(row, "mean");
  double bound = numberOf(row, "bound");
  ck_assert(json_is_integer(json_object_get(row, "layer")));
  ck_assert(json_is_string(json_object_get(row, "policy")));
  ck_assert(peak >= bound && bound >= mean - 1e-9);
  ck_assert(isNear(numberOf(row, "imbalance"), peak / mean, 1e-9));
  ck_assert(isNear(numberOf(row, "retention"),
                   numberOf(row, "kept") / numberOf(row, "pairs"), 1e-9));
  ck_assert(numberOf(row, "replicas") >= 0);
  ck_assert(numberOf(row, "moved") >= 0);
  ck_assert(numberOf(row, "time_us") > 0);
  const json_t *ranks = json_object_get(row, "rank_kept");
  double sum = 0, most = 0;
  for (size_t g = 0; g < json_array_size(ranks); g++) {
    double pairs = json_number_value(json_array_get(ranks, g));
    sum += pairs;
    most = fmax(most, pairs);
  }
  ck_assert(sum == numberOf(row, "kept") && most == peak);
}

START_TEST(schema) {
  json_t *document =
      runJson("--layers 3 --policy all --ranks 4 --experts 16 --topk 2");
  ck_assert_int_eq(json_integer_value(json_object_get(document, "schema")), 1);
  ck_assert_str_eq(json_string_value(json_object_get(document, "program")),
                   "lrmoe-plan");
  const json_t *options = json_object_get(document, "options");
  ck_assert_int_eq(json_integer_value(json_object_get(options, "ranks")), 4);
  size_t count = json_array_size(json_object_get(document, "results"));
  ck_assert_uint_eq(count, (size_t)3 * toolNumPolicies);
  for (size_t i = 0; i < count; i++) {
    checkRow(rowOf(document, i));
    ck_assert_str_eq(
        json_string_value(json_object_get(rowOf(document, i), "policy")),
        toolPolicyNames[i % toolNumPolicies]);
  }
  json_decref(document);
}
END_TEST

/* One spare slot a rank levels these: what one rank has too much of another
 * takes.  No placement is below the mean. */
START_TEST(levelsTheRanks) {
  programWrite("hot.csv", "layer,expert,count\n0,0,600\n0,1,560\n0,2,120\n"
                          "0,3,120\n0,4,20\n0,5,10\n0,6,10\n0,7,10\n");
  json_t *document = runJson("--load hot.csv --policy fixed,lrmoe");
  ck_assert(numberOf(rowOf(document, 0), "peak") == 600);
  ck_assert(numberOf(rowOf(document, 1), "peak") <= 190);
  ck_assert(numberOf(rowOf(document, 1), "mean") == 181.25);
  json_decref(document);
}
END_TEST

START_TEST(retention) {
  json_t *document = runJson("--retain 0.7");
  ck_assert(isNear(numberOf(rowOf(document, 0), "retention"), 0.7, 1e-3));
  json_decref(document);
  document = runJson("--retain 0.7 --quota none");
  ck_assert(numberOf(rowOf(document, 0), "retention") == 1);
  json_decref(document);
}
END_TEST

/* Odd shapes: a plan of every policy that the verifier accepts, or a clear
 * refusal. */
START_TEST(oddLoads) {
  programWrite("huge.csv", "layer,expert,count\n0,0,4611686018427387904\n"
                           "0,1,4611686018427387903\n1,0,4611686018427387904\n"
                           "1,3,4611686018427387903\n");
  programWrite("zero.csv", "layer,expert,count\n0,0,0\n0,7,0\n1,2,1\n");
  programWrite("one.csv", "layer,expert,count\n0,0,0\n0,5,100000\n0,9,0\n");
  static const char *const cases[] = {
      "--load huge.csv --ranks 4 --policy fixed,lrmoe,quota,topo -J out.json",
      "--load zero.csv --ranks 4 --policy all",
      "--load one.csv --ranks 4",
      "--load one.csv --ranks 1 --policy all",
      "--load one.csv --ranks 64 --policy all",
      "--load one.csv --ranks 4 --slots 100 --policy all"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int code = programRun(plan, "%s", cases[i]);
    ck_assert_msg(code == 0, "%s: %d\n%s", cases[i], code, programErr);
  }
  programWrite("over.csv", "layer,expert,count\n0,0,9223372036854775807\n"
                           "0,1,1\n");
  programRefuses(plan, "--load over.csv", "more than 2^63 - 1");
}
END_TEST

/* With several steps, place by the average of those before. */
START_TEST(history) {
  programWrite("steps.csv", "step,layer,expert,count\n0,0,0,800\n0,0,1,100\n"
                            "0,0,2,50\n0,0,3,50\n1,0,0,50\n1,0,1,100\n"
                            "1,0,2,50\n1,0,3,800\n");
  const char *const now = "--load steps.csv --ranks 4 --policy proportional";
  char arguments[128];
  snprintf(arguments, sizeof arguments, "%s --history 1", now);
  json_t *late = runJson(arguments);
  json_t *timely = runJson(now);
  ck_assert(numberOf(rowOf(late, 0), "peak") ==
            numberOf(rowOf(timely, 0), "peak"));
  /* What stood right at step 0 is wrong at step 1. */
  ck_assert(numberOf(rowOf(late, 1), "peak") >
            numberOf(rowOf(timely, 1), "peak"));
  json_decref(late);
  json_decref(timely);
}
END_TEST

/* A --load is scaled to --tokens; sums stay exact. */
START_TEST(scaledLoad) {
  programWrite("w.csv", worked);
  json_t *document = runJson("--load w.csv --topk 2 --tokens 1000");
  ck_assert(numberOf(rowOf(document, 0), "pairs") == 2000);
  json_decref(document);
}
END_TEST

START_TEST(picture) {
  json_t *document = runJson("--policy fixed,lrmoe --svg out.svg --layers 2");
  const char *text = programRead("out.svg");
  ck_assert_ptr_nonnull(strstr(text, "<svg"));
  ck_assert_ptr_nonnull(strstr(text, "</svg>"));
  char tip[96];
  const json_t *ranks = json_object_get(rowOf(document, 3), "rank_kept");
  const json_t *before = json_object_get(rowOf(document, 2), "rank_kept");
  snprintf(tip, sizeof tip, "rank 7: %lld before, %lld after",
           (long long)json_integer_value(json_array_get(before, 7)),
           (long long)json_integer_value(json_array_get(ranks, 7)));
  ck_assert_msg(strstr(text, tip) != NULL, "\"%s\" is not drawn", tip);
  json_decref(document);
}
END_TEST

/* ---- Capacity ----------------------------------------------------------- */

START_TEST(workedExample) {
  programWrite("w.csv", worked);
  json_t *document =
      runJson("--load w.csv --capacity-factor 1.25 --topk 2 --tokens 65536 "
              "--hidden 4096 --activation gelu --gbps 10 --tflops 400");
  const json_t *row = rowOf(document, 0);
  ck_assert(numberOf(row, "capacity") == 20480);
  ck_assert(numberOf(row, "drops") == 13040);
  ck_assert(isNear(numberOf(row, "drop_rate"), 0.0995, 5e-5));
  ck_assert(isNear(numberOf(row, "utilisation"), 0.720, 5e-4));
  ck_assert(isNear(numberOf(row, "aux_loss"), 1.204, 5e-4));
  /* 2 * 7/8 * C * h * b / W and n_max * 16 h^2 / P, in us */
  double comm = 2 * 0.875 * 20480 * 4096 * 2 / 10e9 * 1e6;
  double compute = 20480.0 * 16 * 4096 * 4096 / 400e12 * 1e6;
  ck_assert(isNear(numberOf(row, "comm_us"), comm, 1e-6 * comm));
  ck_assert(isNear(numberOf(row, "compute_us"), compute, 1e-6 * compute));
  ck_assert_str_eq(json_string_value(json_object_get(row, "importance")), "f");
  ck_assert_ptr_nonnull(strstr(programOut, "takes f for P"));
  json_decref(document);
}
END_TEST

/* E * sum f P with f = (3/4, 1/4) and P = (1/4, 3/4) is 0.75. */
START_TEST(givenImportance) {
  programWrite("p.csv",
               "layer,expert,count,importance\n0,0,30,100\n0,1,10,300\n");
  json_t *document =
      runJson("--load p.csv --capacity-factor 1 --topk 1 --ranks 2");
  const json_t *row = rowOf(document, 0);
  ck_assert(isNear(numberOf(row, "aux_loss"), 0.75, 1e-12));
  ck_assert(numberOf(row, "drops") == 10);
  ck_assert(json_is_null(json_object_get(row, "comm_us"))); /* no --hidden */
  ck_assert_ptr_null(strstr(programOut, "takes f for P"));
  json_decref(document);
}
END_TEST

/* Less memory, less retention; too little is said, with the best effort. */
START_TEST(memoryLimits) {
  const char *const shape =
      "--experts 32 --tokens 8192 --topk 4 --hidden 512 --ffn 256 --saved none";
  char arguments[256];
  double last = 2;
  static const char *const limits[] = {"1", "0.025", "0.02"};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    snprintf(arguments, sizeof arguments, "%s --memory-gib %s", shape,
             limits[i]);
    json_t *document = runJson(arguments);
    double retained = numberOf(rowOf(document, 0), "retention");
    ck_assert_msg(retained < last, "%s: %g", limits[i], retained);
    ck_assert(numberOf(rowOf(document, 0), "constraint_slack") >= 0);
    last = retained;
    json_decref(document);
  }
  snprintf(arguments, sizeof arguments, "%s --memory-gib 0.001", shape);
  json_t *document = runJson(arguments);
  ck_assert(numberOf(rowOf(document, 0), "constraint_slack") < 0);
  ck_assert_ptr_nonnull(strstr(programOut, "not feasible"));
  json_decref(document);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {
      memoryLimits,   helpAndVersion, wrongOptions,   wrongInput, schema,
      levelsTheRanks, retention,      oddLoads,       history,    scaledLoad,
      picture,        workedExample,  givenImportance};
  return suiteRunTests("plan", tests, sizeof tests / sizeof *tests, 120);
}
