/* The worst case of moves, by trying every set of kept pairs: for an expert of
 * up to 9 pairs on up to 3 instances, every split F of its pairs, every K and
 * every split X of the kept ones.  A pair stays while its instance's share
 * lasts, so an instance gets what is missing to its share moved in.  The bound
 * must be reached, not only hold: the planner pays for it. */
#include "planner/forward.h"
#include "support/suite.h"

enum {
  maxPairs = 9,
  maxInstances = 3
};

/* Bits of the kept pairs whose forward ran on [first, first + count). */
static int64_t countBits(unsigned kept, int64_t first, int64_t count) {
  unsigned mask = ((1u << count) - 1) << first;
  return __builtin_popcount(kept & mask);
}

/* most[i] over all sets of numKept pairs. */
static void tryAll(int64_t numPairs, int64_t numKept, const int64_t *forward,
                   const int64_t *shares, int64_t *most) {
  for (int i = 0; i < maxInstances; i++)
    most[i] = 0;
  for (unsigned kept = 0; kept < 1u << numPairs; kept++) {
    if (__builtin_popcount(kept) != numKept) continue;
    int64_t first = 0;
    for (int i = 0; i < maxInstances; first += forward[i++]) {
      int64_t missing = shares[i] - countBits(kept, first, forward[i]);
      if (missing > most[i]) most[i] = missing;
    }
  }
}

static void checkSplit(int64_t numPairs, int64_t numKept,
                       const int64_t *forward) {
  for (int64_t a = 0; a <= numKept; a++)
    for (int64_t b = 0; a + b <= numKept; b++) {
      const int64_t shares[maxInstances] = {a, b, numKept - a - b};
      int64_t most[maxInstances];
      tryAll(numPairs, numKept, forward, shares, most);
      for (int i = 0; i < maxInstances; i++)
        ck_assert_int_eq(
            lrmoeMovesIn(forward[i], shares[i], numPairs - numKept), most[i]);
    }
}

START_TEST(worstCaseIsReachedAndNotExceeded) {
  for (int64_t n = 1; n <= maxPairs; n += 2)
    for (int64_t kept = 0; kept <= n; kept++)
      for (int64_t a = 0; a <= n; a++)
        for (int64_t b = 0; a + b <= n; b++) {
          const int64_t forward[maxInstances] = {a, b, n - a - b};
          checkSplit(n, kept, forward);
        }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {worstCaseIsReachedAndNotExceeded};
  return suiteRunTests("moves", tests, 1, 60);
}
