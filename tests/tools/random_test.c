/* Random numbers of the workloads: ranges and moments. */
#include "support/suite.h"
#include "tools/common/workload.h"

#include <math.h>

/* Each value of a small range about as often as the others. */
START_TEST(belowIsEven) {
  struct toolRandom random = toolRandomMake(5, 6);
  int counts[7] = {0};
  for (int i = 0; i < 70000; i++)
    counts[toolRandomBelow(&random, 7)]++;
  for (int i = 0; i < 7; i++)
    ck_assert_msg(counts[i] > 9500 && counts[i] < 10500, "%d of %d", counts[i],
                  i);
  ck_assert_uint_eq(toolRandomBelow(&random, 1), 0);
}
END_TEST

START_TEST(uniformIsInside) {
  struct toolRandom random = toolRandomMake(1, 2);
  double sum = 0;
  int numOutside = 0;
  for (int i = 0; i < 100000; i++) {
    double u = toolRandomUniform(&random);
    numOutside += !(u > 0 && u < 1);
    sum += u;
  }
  ck_assert_int_eq(numOutside, 0);
  ck_assert(fabs(sum / 100000 - 0.5) < 0.01);
}
END_TEST

START_TEST(normalIsNormal) {
  struct toolRandom random = toolRandomMake(3, 4);
  double sum = 0, squares = 0;
  int numWithin = 0;
  for (int i = 0; i < 100000; i++) {
    double z = toolRandomNormal(&random);
    sum += z;
    squares += z * z;
    numWithin += fabs(z) < 1;
  }
  ck_assert(fabs(sum / 100000) < 0.02);
  ck_assert(fabs(squares / 100000 - 1) < 0.03);
  ck_assert(fabs(numWithin / 100000.0 - 0.6827) < 0.01);
}
END_TEST

/* Neighbouring seeds and streams have nothing to do with each other. */
START_TEST(streamsDiffer) {
  for (uint64_t seed = 0; seed < 8; seed++)
    for (uint64_t stream = 0; stream < 8; stream++) {
      struct toolRandom here = toolRandomMake(seed, stream);
      struct toolRandom there = toolRandomMake(stream, seed);
      struct toolRandom next = toolRandomMake(seed, stream + 1);
      uint64_t value = toolRandomNext(&here);
      if (seed != stream) ck_assert_uint_ne(value, toolRandomNext(&there));
      ck_assert_uint_ne(value, toolRandomNext(&next));
    }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("random");
  TCase *tcase = tcase_create("random");
  tcase_add_test(tcase, belowIsEven);
  tcase_add_test(tcase, uniformIsInside);
  tcase_add_test(tcase, normalIsNormal);
  tcase_add_test(tcase, streamsDiffer);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
