/* Routing generator: distinct experts, the loads that were asked for, the
 * same numbers for the same seed. */
#include "support/suite.h"
#include "tools/common/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct toolError error;

static struct toolWorkload make(const char *routing, int experts, int topk,
                                uint64_t seed) {
  struct toolWorkloadConfig config = {.routing = routing,
                                      .step = -1,
                                      .layer = -1,
                                      .seed = seed,
                                      .numExperts = experts,
                                      .topk = topk};
  struct toolWorkload workload;
  enum toolExit code = toolWorkloadCreate(&config, &workload, &error);
  ck_assert_msg(code == toolGood, "%s", error.text);
  return workload;
}

struct routing {
  int64_t *experts; /* [T, k] */
  float *weights;   /* [T, k] */
  int64_t tokens;
};

static struct routing route(const struct toolWorkload *workload, int rank,
                            int64_t round, int64_t tokens) {
  size_t count = (size_t)(tokens * workload->topk);
  struct routing made = {calloc(count + 1, sizeof(int64_t)),
                         calloc(count + 1, sizeof(float)), tokens};
  ck_assert(made.experts && made.weights);
  ck_assert_int_eq(toolWorkloadRoute(workload, rank, round, tokens,
                                     made.experts, made.weights),
                   toolGood);
  return made;
}

static void freeRouting(struct routing *routing) {
  free(routing->experts);
  free(routing->weights);
}

static int64_t *countExperts(const struct toolWorkload *workload,
                             const struct routing *routing) {
  int64_t *counts = calloc((size_t)workload->numExperts, sizeof *counts);
  ck_assert_ptr_nonnull(counts);
  for (int64_t i = 0; i < routing->tokens * workload->topk; i++)
    counts[routing->experts[i]]++;
  return counts;
}

static int isRowGood(const struct toolWorkload *workload,
                     const int64_t *experts, const float *weights) {
  double sum = 0;
  for (int i = 0; i < workload->topk; i++) {
    if (experts[i] < 0 || experts[i] >= workload->numExperts) return 0;
    if (!(weights[i] > 0 && weights[i] <= 1)) return 0;
    for (int j = 0; j < i; j++)
      if (experts[j] == experts[i]) return 0;
    sum += (double)weights[i];
  }
  return fabs(sum - 1) < 1e-5;
}

/* Experts in range and distinct, weights positive with sum 1. */
static void checkRows(const struct toolWorkload *workload,
                      const struct routing *routing) {
  for (int64_t t = 0; t < routing->tokens; t++) {
    int64_t at = t * workload->topk;
    ck_assert_msg(
        isRowGood(workload, routing->experts + at, routing->weights + at),
        "token %lld", (long long)t);
  }
}

static const struct {
  const char *routing;
  int experts;
  int topk;
} shapes[] = {
    {"balanced", 8, 2},      {"balanced", 64, 8},    {"balanced", 10, 3},
    {"balanced", 7, 7},      {"balanced", 1, 1},     {"balanced", 64, 64},
    {"lognormal:1", 64, 8},  {"lognormal:0", 16, 4}, {"lognormal:3", 128, 8},
    {"lognormal:10", 64, 8}, {"zipf:1", 64, 6},      {"zipf:10", 64, 6},
    {"zipf:1.5", 5, 5},      {"zipf:1", 1, 1},       {"lognormal:1", 65, 64},
};

START_TEST(rowsAreValid) {
  for (uint64_t seed = 0; seed < 3; seed++) {
    struct toolWorkload workload =
        make(shapes[_i].routing, shapes[_i].experts, shapes[_i].topk, seed);
    struct routing routing = route(&workload, (int)seed, 0, 500);
    checkRows(&workload, &routing);
    freeRouting(&routing);
    toolWorkloadFree(&workload);
  }
}
END_TEST

START_TEST(sharesAddUp) {
  struct toolWorkload workload =
      make(shapes[_i].routing, shapes[_i].experts, shapes[_i].topk, 5);
  uint64_t sum = 0;
  for (int e = 0; e < workload.numExperts; e++) {
    ck_assert_uint_le(workload.shares[e], UINT64_C(1) << 32);
    sum += workload.shares[e];
  }
  ck_assert_uint_eq(sum, (uint64_t)workload.topk << 32);
  toolWorkloadFree(&workload);
}
END_TEST

START_TEST(sameSeedSameRouting) {
  struct toolWorkload one = make("lognormal:1", 32, 4, 7);
  struct toolWorkload two = make("lognormal:1", 32, 4, 7);
  struct toolWorkload other = make("lognormal:1", 32, 4, 8);
  struct routing a = route(&one, 3, 1, 200), b = route(&two, 3, 1, 200);
  struct routing longer = route(&two, 3, 1, 300);
  struct routing differ[] = {route(&other, 3, 1, 200), route(&one, 2, 1, 200),
                             route(&one, 3, 2, 200)};
  size_t idxBytes = 800 * sizeof(int64_t), weightBytes = 800 * sizeof(float);
  ck_assert_mem_eq(a.experts, b.experts, idxBytes);
  ck_assert_mem_eq(a.weights, b.weights, weightBytes);
  ck_assert_mem_eq(a.experts, longer.experts, idxBytes);
  for (int i = 0; i < 3; i++) {
    ck_assert(memcmp(a.experts, differ[i].experts, idxBytes) != 0);
    ck_assert(memcmp(a.weights, differ[i].weights, weightBytes) != 0);
    freeRouting(&differ[i]);
  }
  freeRouting(&a);
  freeRouting(&b);
  freeRouting(&longer);
  toolWorkloadFree(&one);
  toolWorkloadFree(&two);
  toolWorkloadFree(&other);
}
END_TEST

/* Loads follow the shares: each count within 5 standard deviations of a
 * binomial, for a seed that is fixed, so the test does not flicker. */
static void checkLoads(const struct toolWorkload *workload, int64_t tokens) {
  struct routing routing = route(workload, 0, 0, tokens);
  int64_t *counts = countExperts(workload, &routing);
  for (int e = 0; e < workload->numExperts; e++) {
    double p = (double)workload->shares[e] / 4294967296.0;
    double mean = p * (double)tokens;
    ck_assert_msg(fabs((double)counts[e] - mean) <=
                      5 * sqrt(mean * (1 - p)) + 1e-6,
                  "expert %d: %lld, not %.1f", e, (long long)counts[e], mean);
  }
  free(counts);
  freeRouting(&routing);
}

START_TEST(loadsFollowShares) {
  static const char *const routings[] = {"lognormal:1", "zipf:1",
                                         "lognormal:0.3", "zipf:0"};
  struct toolWorkload workload = make(routings[_i], 40, 4, 11);
  checkLoads(&workload, 20000);
  toolWorkloadFree(&workload);
}
END_TEST

/* Popularity is what its name says. */
START_TEST(zipfIsZipf) {
  struct toolWorkload workload = make("zipf:1", 100, 1, 3);
  int seen[101] = {0};
  double harmonic = 0;
  for (int i = 1; i <= 100; i++)
    harmonic += 1.0 / i;
  for (int e = 0; e < 100; e++) {
    double place = 4294967296.0 / harmonic / (double)workload.shares[e];
    int nearest = (int)(place + 0.5);
    ck_assert(fabs(place - nearest) < 1e-3);
    seen[nearest]++;
  }
  for (int i = 1; i <= 100; i++)
    ck_assert_int_eq(seen[i], 1);
  ck_assert_uint_ne(workload.shares[0], (uint64_t)(4294967296.0 / harmonic));
  toolWorkloadFree(&workload);
}
END_TEST

START_TEST(lognormalIsLognormal) {
  struct toolWorkload workload = make("lognormal:0.5", 4096, 1, 3);
  double sum = 0, squares = 0;
  for (int e = 0; e < 4096; e++) {
    double x = log((double)workload.shares[e]);
    sum += x;
    squares += x * x;
  }
  double mean = sum / 4096;
  double deviation = sqrt(squares / 4096 - mean * mean);
  ck_assert_msg(fabs(deviation - 0.5) < 0.03, "%g", deviation);
  toolWorkloadFree(&workload);
}
END_TEST

/* After any number of tokens the loads differ by one at most. */
START_TEST(balancedIsBalanced) {
  static const int sizes[][2] = {{8, 2}, {64, 8}, {10, 3}, {7, 5}, {9, 9}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct toolWorkload workload =
        make("balanced", sizes[i][0], sizes[i][1], i);
    for (int64_t tokens = 1; tokens < 60; tokens += 7) {
      struct routing routing = route(&workload, 1, 0, tokens);
      int64_t *counts = countExperts(&workload, &routing);
      int64_t least = INT64_MAX, most = 0;
      for (int e = 0; e < workload.numExperts; e++) {
        if (counts[e] < least) least = counts[e];
        if (counts[e] > most) most = counts[e];
      }
      ck_assert_int_le(most - least, 1);
      free(counts);
      freeRouting(&routing);
    }
    toolWorkloadFree(&workload);
  }
}
END_TEST

/* Distinct ranks of a token as for a uniform set: G ranks of E / G experts,
 * expectation G * (1 - C(E - E/G, k) / C(E, k)). */
START_TEST(balancedMeetsRanksLikeUniform) {
  enum {
    experts = 64,
    topk = 8,
    ranks = 8,
    tokens = 8000
  };
  struct toolWorkload workload = make("balanced", experts, topk, 2);
  struct routing routing = route(&workload, 0, 0, tokens);
  int64_t met = 0;
  for (int t = 0; t < tokens; t++) {
    unsigned seen = 0;
    for (int i = 0; i < topk; i++)
      seen |= 1u << routing.experts[t * topk + i] * ranks / experts;
    met += __builtin_popcount(seen);
  }
  double missed = 1;
  for (int i = 0; i < topk; i++)
    missed *= (double)(experts - experts / ranks - i) / (experts - i);
  double expected = ranks * (1 - missed);
  ck_assert_msg(fabs((double)met / tokens - expected) < 0.05, "%g, not %g",
                (double)met / tokens, expected);
  freeRouting(&routing);
  toolWorkloadFree(&workload);
}
END_TEST

static char csvPath[] = "/tmp/lrmoe_workload_XXXXXX";

static enum toolExit makeFromText(const char *text, int experts, int topk,
                                  int64_t layer,
                                  struct toolWorkload *workload) {
  strcpy(csvPath, "/tmp/lrmoe_workload_XXXXXX");
  int descriptor = mkstemp(csvPath);
  ck_assert_int_ge(descriptor, 0);
  ck_assert_int_eq(write(descriptor, text, strlen(text)),
                   (ssize_t)strlen(text));
  close(descriptor);
  struct toolWorkloadConfig config = {.load = csvPath,
                                      .step = -1,
                                      .layer = layer,
                                      .seed = 1,
                                      .numExperts = experts,
                                      .topk = topk};
  enum toolExit code = toolWorkloadCreate(&config, workload, &error);
  unlink(csvPath);
  return code;
}

START_TEST(loadedPopularity) {
  struct toolWorkload workload;
  ck_assert_int_eq(
      makeFromText("layer,expert,count\n0,0,10\n0,1,30\n0,3,40\n0,4,20\n"
                   "1,0,1\n1,1,1\n1,4,0\n",
                   0, 2, 0, &workload),
      toolGood);
  ck_assert_int_eq(workload.numExperts, 5);
  static const double shares[] = {0.2, 0.6, 0, 0.8, 0.4};
  for (int e = 0; e < 5; e++)
    ck_assert(fabs((double)workload.shares[e] / 4294967296.0 - shares[e]) <
              1e-9);
  checkLoads(&workload, 5000);
  toolWorkloadFree(&workload);
  /* Two experts have all the load: a third slot takes the others. */
  ck_assert_int_eq(makeFromText("layer,expert,count\n0,4,0\n0,1,7\n0,2,1\n", 5,
                                3, -1, &workload),
                   toolGood);
  ck_assert_uint_eq(workload.shares[1], UINT64_C(1) << 32);
  ck_assert_uint_eq(workload.shares[2], UINT64_C(1) << 32);
  struct routing routing = route(&workload, 0, 0, 3000);
  checkRows(&workload, &routing);
  freeRouting(&routing);
  checkLoads(&workload, 3000);
  toolWorkloadFree(&workload);
}
END_TEST

/* An expert that wants nearly a whole share beside many that want next to
 * nothing: the rest of the rounding must still find room. */
START_TEST(extremeCounts) {
  static char text[40 * 2000];
  size_t used = (size_t)sprintf(text, "layer,expert,count\n0,0,"
                                      "9223372036854700000\n");
  for (int e = 1; e < 2000; e++)
    used += (size_t)sprintf(text + used, "0,%d,%d\n", e, e % 3);
  struct toolWorkload workload;
  for (int topk = 1; topk <= 64; topk *= 4) {
    ck_assert_int_eq(makeFromText(text, 2000, topk, 0, &workload), toolGood);
    uint64_t sum = 0;
    for (int e = 0; e < 2000; e++) {
      sum += workload.shares[e];
      if (e && e % 3 == 0) ck_assert_uint_eq(workload.shares[e], 0);
    }
    ck_assert_uint_eq(sum, (uint64_t)topk << 32);
    struct routing routing = route(&workload, 0, 0, 50);
    checkRows(&workload, &routing);
    freeRouting(&routing);
    toolWorkloadFree(&workload);
  }
}
END_TEST

static void refuse(const char *routing, int experts, int topk,
                   const char *why) {
  struct toolWorkloadConfig config = {
      .routing = routing, .numExperts = experts, .topk = topk};
  struct toolWorkload workload = {.topk = -5};
  ck_assert_int_eq(toolWorkloadCreate(&config, &workload, &error),
                   toolBadInput);
  ck_assert_msg(strstr(error.text, why) != NULL, "%s", error.text);
  ck_assert_int_eq(workload.topk, -5);
}

START_TEST(refusals) {
  refuse("uniform", 8, 2, "routing \"uniform\" is not balanced, lognormal:S");
  refuse("zipf", 8, 2, "routing \"zipf\"");
  refuse("zipf:", 8, 2, "routing \"zipf:\"");
  refuse("zipf:x", 8, 2, "routing");
  refuse("zipf:1x", 8, 2, "routing");
  refuse("zipf:-1", 8, 2, "S from 0 to 10");
  refuse("lognormal:11", 8, 2, "S from 0 to 10");
  refuse("lognormal:nan", 8, 2, "S from 0 to 10");
  refuse("balanced:1", 8, 2, "routing");
  refuse("", 8, 2, "routing");
  refuse("balanced", 8, 9, "9 slots a token, of 8 experts");
  refuse("balanced", 8, 0, "0 slots");
  refuse("balanced", 100, 65, "at most 64");
  refuse("balanced", 0, 1, "0 experts");
  struct toolWorkload workload;
  static const char csv[] = "layer,expert,count\n0,0,1\n1,3,0\n";
  ck_assert_int_eq(makeFromText(csv, 8, 1, 0, &workload), toolBadInput);
  ck_assert_ptr_nonnull(
      strstr(error.text, "has 4 experts and 8 were asked for"));
  ck_assert_int_eq(makeFromText(csv, 0, 1, 2, &workload), toolBadInput);
  ck_assert_ptr_nonnull(strstr(error.text, "layer 2"));
  ck_assert_int_eq(makeFromText(csv, 0, 1, 1, &workload), toolBadInput);
  ck_assert_ptr_nonnull(strstr(error.text, "has no pairs"));
  ck_assert_int_eq(makeFromText("x\n", 0, 1, 1, &workload), toolBadInput);
  ck_assert_ptr_nonnull(strstr(error.text, ":1: column \"x\""));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("workload");
  TCase *tcase = tcase_create("workload");
  int numShapes = (int)(sizeof shapes / sizeof *shapes);
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, rowsAreValid, 0, numShapes);
  tcase_add_loop_test(tcase, sharesAddUp, 0, numShapes);
  tcase_add_test(tcase, sameSeedSameRouting);
  tcase_add_loop_test(tcase, loadsFollowShares, 0, 4);
  tcase_add_test(tcase, zipfIsZipf);
  tcase_add_test(tcase, lognormalIsLognormal);
  tcase_add_test(tcase, balancedIsBalanced);
  tcase_add_test(tcase, balancedMeetsRanksLikeUniform);
  tcase_add_test(tcase, loadedPopularity);
  tcase_add_test(tcase, extremeCounts);
  tcase_add_test(tcase, refusals);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
