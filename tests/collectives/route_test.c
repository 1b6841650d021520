/* Routes as arithmetic: prefix ranges with counts far beyond 32 bits, inverted
 * lists, and row addresses beyond 4 GiB. */
#include "collectives/route.h"
#include "kernels/rows.h"
#include "support/suite.h"

#include <string.h>
#include <sys/mman.h>

enum {
  numRanks = 3,
  numExperts = 2
};

static const int64_t big = (int64_t)1 << 40;

/* Expert 0 has 2^40, 3 and 2^40 pairs of the sources; its two instances take
 * 2^40 + 1 and the rest.  Expert 1 has one instance. */
struct fixture {
  struct lrmoePlan plan;
  struct lrmoeStep step;
  int64_t demand[numRanks * numExperts];
  int64_t base[numRanks * numExperts];
  int64_t forward[3];
  int32_t offsets[numExperts + 1];
};

static void setUp(struct fixture *f) {
  *f = (struct fixture){
      .demand = {big, 5, 3, 0, big, big},
      .base = {0, 0, big, 5, big + 3, 5},
      .forward = {big + 1, big + 2, big + 5},
      .offsets = {0, 2, 3},
  };
  f->plan.numRanks = numRanks;
  f->plan.numExperts = numExperts;
  f->plan.instanceOffsets = f->offsets;
  f->plan.forwardPairs = f->forward;
  f->step.plan = &f->plan;
  f->step.demand = f->demand;
  f->step.sourceBase = f->base;
}

static void expect(const struct fixture *f, const int at[3], int64_t low,
                   int64_t high) {
  struct lrmoeRange got = lrmoeRouteRange(&f->step, at[0], at[1], at[2]);
  ck_assert_int_eq(got.low, low);
  ck_assert_int_eq(got.high, high);
}

START_TEST(rangesBeyond32Bits) {
  struct fixture f;
  setUp(&f);
  expect(&f, (int[]){0, 0, 0}, 0, big);
  expect(&f, (int[]){0, 0, 1}, big, big);
  expect(&f, (int[]){1, 0, 0}, 0, 1);
  expect(&f, (int[]){1, 0, 1}, 1, 3);
  expect(&f, (int[]){2, 0, 0}, 0, 0);
  expect(&f, (int[]){2, 0, 1}, 0, big);
  expect(&f, (int[]){0, 1, 2}, 0, 5);
  expect(&f, (int[]){1, 1, 2}, 0, 0);
  expect(&f, (int[]){2, 1, 2}, 0, big);
}
END_TEST

START_TEST(invertedLists) {
  const int64_t tokens[] = {0, 2, 4, 0, 1, 2, 2};
  int64_t offsets[6];
  int64_t list[7];
  struct lrmoeInversion inversion = {7, tokens, 5, offsets, list, NULL};
  lrmoeInvert(&inversion);
  const int64_t wantOffsets[] = {0, 2, 3, 6, 6, 7};
  const int64_t wantList[] = {0, 3, 4, 1, 5, 6, 2};
  ck_assert_mem_eq(offsets, wantOffsets, sizeof offsets);
  ck_assert_mem_eq(list, wantList, sizeof list);
  inversion.numItems = 0;
  lrmoeInvert(&inversion);
  for (int i = 0; i < 6; i++)
    ck_assert_int_eq(offsets[i], 0);
}
END_TEST

/* Pages that are not touched take no memory. */
START_TEST(rowsBeyond4GiB) {
  const int64_t width = 1024;
  const int64_t numRows = (int64_t)3 << 20; /* 6 GiB of bf16 */
  size_t bytes = (size_t)(numRows * width) * 2;
  unsigned char *rows =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ck_assert_ptr_ne(rows, MAP_FAILED);
  const int64_t index[] = {numRows - 1, 5, (int64_t)5 << 19};
  for (int i = 0; i < 3; i++)
    memset(rows + index[i] * width * 2, i + 1, (size_t)width * 2);
  const struct lrmoeRowKernels *kernels = NULL;
  ASSERT_OK(lrmoeRowKernelsGet(&kernels));
  static unsigned char got[3][2048];
  const struct lrmoeRows from = {rows, index, lrmoeBfloat16, width};
  kernels->gather(&from, 3, lrmoeBfloat16, got);
  for (int i = 0; i < 3; i++)
    for (int64_t b = 0; b < width * 2; b++)
      ck_assert_int_eq(got[i][b], i + 1);
  munmap(rows, bytes);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {rangesBeyond32Bits, invertedLists,
                                rowsBeyond4GiB};
  Suite *suite = suite_create("route");
  TCase *group = tcase_create("route");
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    tcase_add_test(group, tests[i]);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
