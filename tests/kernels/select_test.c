/* Selection against a stable sort. */
#include "kernels/select.h"
#include "naive.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct entry {
  uint32_t key;
  int64_t index;
};

static int compareEntries(const void *left, const void *right) {
  const struct entry *a = left;
  const struct entry *b = right;
  if (a->key != b->key) return a->key > b->key ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

/* Checks lrmoeSelectTop for one quota. */
static void checkQuota(int64_t n, const uint32_t *keys, int64_t quota) {
  struct entry *entries = calloc((size_t)n + 1, sizeof *entries);
  uint8_t *expected = calloc((size_t)n + 1, 1);
  uint8_t *got = malloc((size_t)n + 1);
  for (int64_t i = 0; i < n; i++)
    entries[i] = (struct entry){keys[i], i};
  qsort(entries, (size_t)n, sizeof *entries, compareEntries);
  for (int64_t i = 0; i < quota; i++)
    expected[entries[i].index] = 1;
  memset(got, 0x5a, (size_t)n + 1);
  lrmoeSelectTop(n, keys, quota, got);
  ck_assert_int_eq(got[n], 0x5a);
  for (int64_t i = 0; i < n; i++)
    ck_assert_msg(got[i] == expected[i],
                  "n %lld, quota %lld: key %lld (%08x) is %d", (long long)n,
                  (long long)quota, (long long)i, keys[i], got[i]);
  free(entries);
  free(expected);
  free(got);
}

static void checkQuotas(struct naiveRandom *random, int64_t n,
                        const uint32_t *keys) {
  const int64_t edges[] = {0, 1, n / 2, n - 1, n};
  for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
    if (edges[i] >= 0 && edges[i] <= n) checkQuota(n, keys, edges[i]);
  for (int i = 0; i < 4; i++)
    checkQuota(n, keys, naiveRandomBelow(random, n + 1));
}

/* Keys of several kinds: scores, few values, one value, any bits, sorted. */
static uint32_t makeKey(struct naiveRandom *random, int kind, int64_t i) {
  switch (kind) {
  case 0:
    return lrmoeScoreKey((float)naiveRandomUnit(random));
  case 1:
    return (uint32_t)naiveRandomBelow(random, 3) << 20 | 7;
  case 2:
    return 0x3f800000;
  case 3:
    return (uint32_t)naiveRandomBits(random);
  case 4:
    return (uint32_t)i / 3;
  case 5: /* differ in the last digit only */
    return 0x3f800000 | (uint32_t)naiveRandomBelow(random, 1024);
  default:
    return naiveRandomBelow(random, 3) ? lrmoeScoreKey(1)
                                       : LRMOE_KEY_NON_FINITE;
  }
}

START_TEST(equalsAStableSort) {
  static const int64_t sizes[] = {0, 1, 2, 3, 17, 64, 257, 1000, 4000};
  struct naiveRandom random = {(uint64_t)_i};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    int64_t n = sizes[s];
    uint32_t *keys = malloc((size_t)(n + 1) * sizeof *keys);
    for (int64_t i = 0; i < n; i++)
      keys[i] = makeKey(&random, _i % 7, i);
    checkQuotas(&random, n, keys);
    free(keys);
  }
}
END_TEST

/* So many keys that digits are longer. */
START_TEST(manyKeysToo) {
  enum {
    numKeys = 40003
  };
  struct naiveRandom random = {(uint64_t)_i};
  uint32_t *keys = malloc(numKeys * sizeof *keys);
  for (int64_t i = 0; i < numKeys; i++)
    keys[i] = makeKey(&random, _i, i);
  checkQuota(numKeys, keys, 1);
  checkQuota(numKeys, keys, naiveRandomBelow(&random, numKeys));
  free(keys);
}
END_TEST

START_TEST(keysOrderLikeScores) {
  ck_assert_uint_eq(lrmoeScoreKey(0.0f), lrmoeScoreKey(-0.0f));
  ck_assert_uint_eq(lrmoeScoreKey(-2.5f), lrmoeScoreKey(2.5f));
  ck_assert_uint_eq(lrmoeScoreKey(NAN), LRMOE_KEY_NON_FINITE);
  ck_assert_uint_eq(lrmoeScoreKey(-NAN), LRMOE_KEY_NON_FINITE);
  ck_assert_uint_eq(lrmoeScoreKey(INFINITY), LRMOE_KEY_NON_FINITE);
  ck_assert_uint_eq(lrmoeScoreKey(-INFINITY), LRMOE_KEY_NON_FINITE);
  static const float ascending[] = {0,    1e-45f, 1e-39f, 1.2e-38f, 1e-20f,
                                    0.5f, 0.75f,  1,      3.4e38f,  INFINITY};
  size_t count = sizeof ascending / sizeof *ascending;
  for (size_t i = 1; i < count; i++)
    ck_assert_uint_lt(lrmoeScoreKey(ascending[i - 1]),
                      lrmoeScoreKey(ascending[i]));
}
END_TEST

START_TEST(scoresMultiplyInOrder) {
  enum {
    numPairs = 500,
    numTokens = 70
  };
  struct naiveRandom random = {11};
  float *weights = naiveRandomArray(&random, lrmoeFloat32, numPairs, 1);
  float *phiNorm = naiveRandomArray(&random, lrmoeFloat32, numPairs, 1e3);
  float *gNorm = naiveRandomArray(&random, lrmoeFloat32, numTokens, 1e-3);
  int64_t token[numPairs];
  uint32_t keys[numPairs];
  for (int64_t i = 0; i < numPairs; i++)
    token[i] = naiveRandomBelow(&random, numTokens);
  gNorm[3] = INFINITY;
  token[0] = 3;
  weights[0] = 0; /* 0 * Inf: not finite */
  phiNorm[1] = NAN;
  lrmoeScoreLrm(numPairs, weights, token, gNorm, phiNorm, keys);
  for (int64_t i = 0; i < numPairs; i++) {
    volatile float first = fabsf(weights[i]) * gNorm[token[i]];
    volatile float score = first * phiNorm[i];
    ck_assert_uint_eq(keys[i], lrmoeScoreKey(score));
  }
  ck_assert_uint_eq(keys[0], LRMOE_KEY_NON_FINITE);
  ck_assert_uint_eq(keys[1], LRMOE_KEY_NON_FINITE);
  lrmoeScoreLrm(0, NULL, NULL, NULL, NULL, NULL);
  free(weights);
  free(phiNorm);
  free(gNorm);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("selection");
  TCase *tests = tcase_create("select");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, equalsAStableSort, 0, 14);
  tcase_add_loop_test(tests, manyKeysToo, 0, 7);
  tcase_add_test(tests, keysOrderLikeScores);
  tcase_add_test(tests, scoresMultiplyInOrder);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
