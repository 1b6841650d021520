/* Fits of made samples whose answer is known. */
#include "base/alloc.h"
#include "support/suite.h"
#include "topo/fit.h"

#include <stdlib.h>

enum {
  maxSamples = 4096
};

static struct lrmoeSample samples[maxSamples];
static int64_t numSamples;

/* A repeatable number in [0, 1). */
static double uniform(void) {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 11) * 0x1p-53;
}

/* rounds samples of each size, 4 KiB to 64 MiB, off by up to +- noise. */
static void make(double latencyNs, double rate, int rounds, double noise) {
  numSamples = 0;
  for (int64_t bytes = 4096; bytes <= 1 << 26; bytes *= 2)
    for (int i = 0; i < rounds; i++) {
      double ns = latencyNs + (double)bytes * 1e9 / rate;
      ns *= 1 + noise * (2 * uniform() - 1);
      samples[numSamples++] = (struct lrmoeSample){1, bytes, (int64_t)(ns + 1)};
    }
}

static struct lrmoeLine fit(void) {
  struct lrmoeLine line = {0};
  ASSERT_OK(lrmoeFitLine(samples, numSamples, &line));
  ck_assert_int_eq(line.numSamples, numSamples);
  return line;
}

static void near(int64_t value, double wanted, double part) {
  ck_assert_msg((double)value >= wanted * (1 - part) &&
                    (double)value <= wanted * (1 + part),
                "%lld, wanted %g", (long long)value, wanted);
}

START_TEST(exact) {
  static const double cases[][2] = {
      {1700, 7e9}, {500, 1.5e11}, {20000, 2.5e10}, {1, 1e6}, {0, 8.5e9}};
  make(cases[_i][0], cases[_i][1], 1, 0);
  struct lrmoeLine line = fit();
  ck_assert_int_le(llabs(line.latencyNs - (int64_t)cases[_i][0]), 2);
  near(line.bytesPerSecond, cases[_i][1], 1e-3);
  ck_assert_int_le(line.medianErrorPpm, 1000);
}
END_TEST

START_TEST(noise) {
  make(3000, 9e9, 9, 0.1);
  struct lrmoeLine line = fit();
  near(line.latencyNs, 3000, 0.15);
  near(line.bytesPerSecond, 9e9, 0.05);
  ck_assert_int_ge(line.medianErrorPpm, 10000);
  ck_assert_int_le(line.medianErrorPpm, 90000);
  ck_assert_int_le(line.worstErrorPpm, 200000);
}
END_TEST

/* Four of nine samples of each size are up to fifty times too slow. */
START_TEST(outliers) {
  make(3000, 9e9, 9, 0.02);
  for (int64_t i = 0; i < numSamples; i++)
    if (i % 9 < 4)
      samples[i].ns = (int64_t)((double)samples[i].ns * (2 + 48 * uniform()));
  struct lrmoeLine line = fit();
  near(line.latencyNs, 3000, 0.2);
  near(line.bytesPerSecond, 9e9, 0.05);
  ck_assert_int_ge(line.worstErrorPpm, 500000);
}
END_TEST

/* All samples of two sizes are wrong, so that no median helps. */
START_TEST(wrongSizes) {
  make(3000, 9e9, 5, 0.01);
  for (int64_t i = 0; i < numSamples; i++) {
    if (samples[i].bytes == 65536) samples[i].ns *= 10;
    if (samples[i].bytes == 1 << 24) samples[i].ns /= 3;
  }
  struct lrmoeLine line = fit();
  near(line.latencyNs, 3000, 0.1);
  near(line.bytesPerSecond, 9e9, 0.05);
}
END_TEST

/* Rings and all-to-alls: what a message costs is told apart by their number. */
START_TEST(messages) {
  numSamples = 0;
  for (int64_t bytes = 4096; bytes <= 1 << 20; bytes *= 4)
    for (int64_t count = 4; count <= 12; count += 8)
      samples[numSamples++] = (struct lrmoeSample){
          count, count * bytes, 700 * count + count * bytes / 10};
  struct lrmoeLine line = fit();
  near(line.latencyNs, 700, 0.01);
  near(line.bytesPerSecond, 1e10, 0.001);
  ck_assert_int_le(line.worstErrorPpm, 1000);
}
END_TEST

START_TEST(orderIsNoMatter) {
  make(3000, 9e9, 9, 0.3);
  struct lrmoeLine first = fit();
  for (int64_t i = numSamples - 1; i > 0; i--) {
    int64_t j = (int64_t)(uniform() * (double)(i + 1));
    struct lrmoeSample kept = samples[i];
    samples[i] = samples[j];
    samples[j] = kept;
  }
  struct lrmoeLine second = fit();
  ck_assert_mem_eq(&first, &second, sizeof first);
}
END_TEST

START_TEST(fewSamples) {
  samples[0] = (struct lrmoeSample){1, 1000000, 1000000};
  numSamples = 1;
  struct lrmoeLine line = fit();
  ck_assert_int_eq(line.latencyNs, 0);
  ck_assert_int_eq(line.bytesPerSecond, 1000000000);
  ck_assert_int_eq(line.worstErrorPpm, 0);
  /* Times that fall with size: no negative figure, and it is said. */
  samples[1] = (struct lrmoeSample){1, 4000000, 10};
  numSamples = 2;
  line = fit();
  ck_assert_int_ge(line.latencyNs, 0);
  ck_assert_int_ge(line.bytesPerSecond, 1);
  ck_assert_int_ge(line.worstErrorPpm, 900000);
}
END_TEST

START_TEST(refused) {
  struct lrmoeLine line = {.latencyNs = 77};
  static const struct lrmoeSample wrong[] = {
      {0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {-1, 1, 1}, {1, 1, -5}};
  ASSERT_RESULT(lrmoeFitLine(samples, 0, &line), lrmoeInvalidArgument);
  for (int i = 0; i < 5; i++)
    ASSERT_RESULT(lrmoeFitLine(&wrong[i], 1, &line), lrmoeInvalidArgument);
  struct lrmoeSample fast = {1, INT64_MAX, 1};
  ASSERT_RESULT(lrmoeFitLine(&fast, 1, &line), lrmoeInvalidArgument);
  ck_assert_int_eq(line.latencyNs, 77);
}
END_TEST

START_TEST(allocationFaults) {
  make(3000, 9e9, 2, 0);
  for (int n = 1; n <= 3; n++) {
    struct lrmoeLine line = {.latencyNs = 77};
    lrmoeAllocFailAt(n);
    ASSERT_RESULT(lrmoeFitLine(samples, numSamples, &line), lrmoeOutOfMemory);
    lrmoeAllocFailAt(0);
    ck_assert_int_eq(line.latencyNs, 77);
  }
}
END_TEST

START_TEST(lineNs) {
  struct lrmoeLine line = {.latencyNs = 100, .bytesPerSecond = 3000000000};
  ck_assert_int_eq(lrmoeLineNs(&line, 0, 0), 0);
  ck_assert_int_eq(lrmoeLineNs(&line, 2, 3), 201);
  ck_assert_int_eq(lrmoeLineNs(&line, 1, 4), 102); /* rounded up */
  line.bytesPerSecond = 1;
  ck_assert_int_eq(lrmoeLineNs(&line, 1, INT64_MAX), INT64_MAX);
  line.latencyNs = INT64_MAX;
  ck_assert_int_eq(lrmoeLineNs(&line, 2, 0), INT64_MAX);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("fit");
  TCase *tcase = tcase_create("fit");
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, exact, 0, 5);
  tcase_add_test(tcase, noise);
  tcase_add_test(tcase, outliers);
  tcase_add_test(tcase, wrongSizes);
  tcase_add_test(tcase, messages);
  tcase_add_test(tcase, orderIsNoMatter);
  tcase_add_test(tcase, fewSamples);
  tcase_add_test(tcase, refused);
  tcase_add_test(tcase, allocationFaults);
  tcase_add_test(tcase, lineNs);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
