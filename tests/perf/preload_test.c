/* preload_perf: bytes by mode, the same data in all of them. */
#include "document.h"
#include "support/program.h"
#include "support/suite.h"

#include <math.h>
#include <string.h>

static double expectedRatio(const char *mode, double zeroFraction) {
  int isLess = !strcmp(mode, "elide") || !strcmp(mode, "calibrate");
  return isLess ? 1 - zeroFraction : 1;
}

/* 40 rows of 512 B a peer: the records beside NCCL are 29 B for 20 KiB. */
START_TEST(bytes_of_modes) {
  json_t *document = documentRun(LRMOE_PRELOAD_PERF, "out.json",
                                 "-g 3 -b 40 --row-bytes 512 -n 2 -r 1");
  const json_t *results = json_object_get(document, "results"), *row;
  size_t index;
  ck_assert_uint_eq(json_array_size(results), 4 * 6);
  json_array_foreach(results, index, row) {
    const char *mode = textOf(row, "mode");
    double fraction = numberOf(row, "zero_fraction");
    double ratio = numberOf(row, "bytes_ratio");
    /* Keys, and rows that are kept by chance rather at home. */
    double margin = strcmp(mode, "calibrate") ? 0.015 : 0.08;
    ck_assert_msg(fabs(ratio - expectedRatio(mode, fraction)) < margin,
                  "%s at %g: %g", mode, fraction, ratio);
    ck_assert_int_eq((int)numberOf(row, "identical"), 1);
    ck_assert(numberOf(row, "time_ratio") > 0);
    ck_assert(isfinite(numberOf(row, "overhead_ns")));
  }
  json_decref(document);
}
END_TEST

START_TEST(refusals) {
  programRefuses(LRMOE_PRELOAD_PERF, "-g 1", "ranks");
  programRefuses(LRMOE_PRELOAD_PERF, "--row-bytes 0", "row-bytes");
  programRefuses(LRMOE_PRELOAD_PERF, "--row-bytes 24", "multiple of 16");
  ck_assert_int_eq(
      programRun(LRMOE_PRELOAD_PERF, "-g 2 -b 4 -r 1 --library /nowhere.so"),
      3);
}
END_TEST

int main(void) {
  const TTest *tests[] = {bytes_of_modes, refusals};
  return suiteRunTests("perf_preload", tests, sizeof tests / sizeof *tests,
                       300.0);
}
