/* moe_backward_perf: all ways give the same, and count the same, on every
 * backend. */
#include "document.h"
#include "support/program.h"
#include "support/suite.h"

#include <stdlib.h>

static const char *const perf = LRMOE_MOE_BACKWARD_PERF;

#define SHAPE                                                             \
  "-g 3 -b 40 -e 40 -n 1 -w 0 --hidden 32 --ffn 16 --experts 7 --topk 2 " \
  "--retain 0.6 -J out.json "

static json_t *run(const char *arguments) {
  json_t *document = documentRun(perf, "out.json", arguments);
  json_t *row = json_array_get(json_object_get(document, "results"), 0);
  ck_assert_ptr_nonnull(row);
  ck_assert(numberOf(row, "wrong") == 0);
  json_incref(row);
  json_decref(document);
  return row;
}

/* With LRMOE_BACKEND=cuda the program's own backend counts as the CPU does. */
START_TEST(counts) {
  static const char *const keys[] = {
      "pairs",          "kept",       "replicas", "moved", "bytes_full_dedup",
      "bytes_pairwise", "bytes_dedup"};
  static const char *const arguments[] = {
      SHAPE "--staged", SHAPE "--staged --policy lrmoe --dtype fp32",
      SHAPE "--saved none --dtype fp16 --staged"};
  json_t *given = run(arguments[_i]);
  unsetenv("LRMOE_BACKEND");
  unsetenv("LRMOE_MODULE_PATH"); /* the emulated kernels' folder */
  json_t *cpu = run(arguments[_i]);
  ck_assert(numberOf(cpu, "kept") < 0.7 * numberOf(cpu, "pairs"));
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    ck_assert_msg(numberOf(given, keys[i]) == numberOf(cpu, keys[i]),
                  "%s: %g, %g on CPUs", keys[i], numberOf(given, keys[i]),
                  numberOf(cpu, keys[i]));
  json_decref(given);
  json_decref(cpu);
}
END_TEST

START_TEST(wrongOptions) {
  programRefuses(perf, "--hidden 12", "multiples of 8");
  programRefuses(perf, "--retain 1.5", "retain");
  programRefuses(perf, "--load none.csv", "none.csv");
}
END_TEST

int main(void) {
  Suite *suite = suite_create("backward");
  TCase *tests = tcase_create("backward");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, counts, 0, 3);
  tcase_add_test(tests, wrongOptions);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
