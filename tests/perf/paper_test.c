/* paper_figures: the paper's numbers come out, and follow from the inputs. */
#include "document.h"
#include "support/program.h"
#include "support/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const paper = LRMOE_PAPER_FIGURES;

static json_t *runJson(const char *arguments) {
  char all[256];
  snprintf(all, sizeof all, "--out . --layers 6 %s", arguments);
  return documentRun(paper, "all.json", all);
}

static json_t *findRow(const json_t *document, const char *number) {
  size_t i;
  json_t *row;
  json_array_foreach(
      json_object_get(document, "results"), i,
      row) if (strcmp(json_string_value(json_object_get(row, "number")),
                      number) == 0) return row;
  ck_abort_msg("there is no \"%s\"", number);
  return NULL;
}

static double ours(const json_t *document, const char *number) {
  return json_number_value(json_object_get(findRow(document, number), "ours"));
}

static int isNear(double value, double expected, double within) {
  return fabs(value - expected) <= within;
}

START_TEST(numbers) {
  json_t *document = runJson("");
  ck_assert(ours(document, "layers over it when level") == 6);
  ck_assert(ours(document, "calibrated layers over it") == 0);
  ck_assert(isNear(ours(document, "20x, fixed"), 40, 0.4));
  ck_assert(isNear(ours(document, "20x, ideal"), 80, 1e-9));
  ck_assert(ours(document, "20x, ours") == 100);
  ck_assert(isNear(ours(document, "Megatron-LM, all"), 12.88, 0.1));
  ck_assert(isNear(ours(document, "ours, all"), 5.44, 0.1));
  static const char *const names[] = {"rows of e0", "rows of e1", "rows of e2",
                                      "offset 0",   "offset 1",   "offset 2",
                                      "offset 3"};
  static const double values[] = {3, 1, 2, 0, 3, 4, 6};
  for (int i = 0; i < 7; i++)
    ck_assert(ours(document, names[i]) == values[i]);
  json_decref(document);
  for (const char *digit = "1467"; *digit; digit++) {
    char name[32];
    snprintf(name, sizeof name, "figure%c.svg", *digit);
    ck_assert_ptr_nonnull(strstr(programRead(name), "</svg>"));
    snprintf(name, sizeof name, "figure%c.json", *digit);
    ck_assert_ptr_nonnull(strstr(programRead(name), "\"results\""));
  }
}
END_TEST

/* Numbers that a change of the input must move. */
static void checkMoves(const char *arguments, const char *const *names,
                       size_t count) {
  json_t *before = runJson(""), *after = runJson(arguments);
  for (size_t i = 0; i < count; i++)
    ck_assert_msg(!isNear(ours(before, names[i]), ours(after, names[i]), 1e-6),
                  "%s does not move \"%s\"", arguments, names[i]);
  json_decref(before);
  json_decref(after);
}

#define MOVES(arguments, ...)                                        \
  do {                                                               \
    static const char *const moved_[] = {__VA_ARGS__};               \
    checkMoves((arguments), moved_, sizeof moved_ / sizeof *moved_); \
  } while (0)

START_TEST(inputsMoveNumbers) {
  MOVES("--skew 1.5", "highest peak", "20x, fixed", "20x, SYMI",
        "Megatron-LM, buffers", "SYMI, buffers");
  MOVES("--budget-gib 10", "limit of a GPU", "calibrated layers over it",
        "20x, fixed", "20x, SYMI", "20x, UltraEP", "20x, ideal", "20x, ours");
  MOVES("--hidden 4096", "20x, SYMI", "20x, UltraEP", "Megatron-LM, buffers",
        "UltraEP, buffers", "SYMI, buffers", "ours, buffers");
  MOVES("--offered 12", "highest peak", "layers over it when level");
  MOVES("--slots 0", "20x, ours", "20x, replicas of ours", "ours, all");
  MOVES("--dropped 0,2,4", "rows of e0", "rows of e1", "offset 1");
}
END_TEST

START_TEST(wrongOptions) {
  programRefuses(paper, "--figures 2", "there is no figure 2");
  programRefuses(paper, "--out /dev/null", "no folder");
  programRefuses(paper, "--skew 9", "skew");
  programRefuses(paper, "--out . --dropped 9", "there is no pair 9");
  programRefuses(paper, "--experts 4 --topk 8", "8 slots a token");
  programRefuses(paper, "--ranks 8 --experts 16 --topk 16 --skew 2",
                 "has peak / mean");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {numbers, inputsMoveNumbers, wrongOptions};
  return suiteRunTests("paper", tests, sizeof tests / sizeof *tests, 300);
}
