/* Selection: exactly the CPU's flags, whatever the order of threads. */
#include "kernels/select.h"
#include "mirror.h"

#include <stdlib.h>
#include <string.h>

/* Keys of a kind that makes the search end at different digits. */
enum kind {
  scattered, /* all bits random */
  scores,    /* few exponents */
  fewValues, /* heavy ties */
  allEqual,  /* ties only */
  lowDigit,  /* equal but for the last bits */
  nonFinite, /* half of them NaN */
  numKinds
};

static uint32_t randomKey(struct naiveRandom *random, enum kind kind) {
  uint32_t bits = (uint32_t)naiveRandomBits(random);
  switch (kind) {
  case scores:
    return lrmoeScoreKey((float)(0.5 + 0.4 * naiveRandomUnit(random)));
  case fewValues:
    return 0x3f000000 + (bits & 3) * 0x00100000;
  case allEqual:
    return 0x3f123456;
  case lowDigit:
    return 0x3f123400 + (bits & 0xff);
  case nonFinite:
    return bits & 1 ? LRMOE_KEY_NON_FINITE : bits >> 1;
  default:
    return bits;
  }
}

struct segments {
  int64_t count;
  int64_t longest;
  struct mirror *offsets;
  struct mirror *quotas;
  struct mirror *keys;
};

static int64_t randomQuota(struct naiveRandom *random, int64_t length) {
  switch (naiveRandomBelow(random, 6)) {
  case 0:
    return 0;
  case 1:
    return length;
  case 2:
    return length > 0 ? 1 : 0;
  case 3:
    return length > 0 ? length - 1 : 0;
  default:
    return naiveRandomBelow(random, length + 1);
  }
}

static struct segments makeSegments(struct naiveRandom *random, int64_t count,
                                    int64_t longest, enum kind kind) {
  struct segments made = {count, longest, NULL, NULL, NULL};
  size_t bytes = (size_t)(count + 1) * sizeof(int64_t);
  made.offsets = mirrorRoom(bytes);
  made.quotas = mirrorRoom(bytes - sizeof(int64_t));
  int64_t *offsets = made.offsets->at[onHost];
  int64_t *quotas = made.quotas->at[onHost];
  offsets[0] = 0;
  for (int64_t s = 0; s < count; s++) {
    int64_t length = s == 0 ? longest : naiveRandomBelow(random, longest + 1);
    offsets[s + 1] = offsets[s] + length;
    quotas[s] = randomQuota(random, length);
  }
  made.keys = mirrorRoom((size_t)offsets[count] * sizeof(uint32_t));
  uint32_t *keys = made.keys->at[onHost];
  for (int64_t i = 0; i < offsets[count]; i++)
    keys[i] = randomKey(random, kind);
  mirrorPut(made.offsets);
  mirrorPut(made.quotas);
  mirrorPut(made.keys);
  return made;
}

static void checkSelection(const struct segments *segments) {
  const int64_t *offsets = segments->offsets->at[onHost];
  struct mirror *flags = mirrorRoom((size_t)offsets[segments->count]);
  struct mirror *work = mirrorRoom(
      (size_t)lrmoeSelectionWords(segments->count, segments->longest) *
      sizeof(uint32_t));
  for (enum side side = onHost; side < numSides; side++) {
    const struct lrmoeSelection args = {
        segments->count,
        segments->longest,
        segments->offsets->at[side],
        segments->quotas->at[side],
        segments->keys->at[side],
        flags->at[side],
        work->at[side],
    };
    ASSERT_RUN(side, selectTop, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(flags, "selectTop");
}

/* Lengths around a warp, a small block, and the change to the large one. */
START_TEST(flagsAreTheCpus) {
  static const int64_t lengths[] = {0, 1, 2, 31, 33, 257, 1000, 2048, 2049};
  struct naiveRandom random = {(uint64_t)_i + 1};
  chooseOrder(_i % numOrders);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    struct segments segments =
        makeSegments(&random, 1 + naiveRandomBelow(&random, 3), lengths[i],
                     (enum kind)(_i % numKinds));
    checkSelection(&segments);
  }
  mirrorFreeAll();
}
END_TEST

/* Every quota of one segment, and of one pair. */
START_TEST(everyQuotaIsExact) {
  struct naiveRandom random = {(uint64_t)_i + 77};
  chooseOrder(_i % numOrders);
  for (int64_t length = 1; length <= 40; length += 39) {
    struct segments segments = makeSegments(&random, 1, length, (enum kind)_i);
    int64_t *quota = segments.quotas->at[onHost];
    for (*quota = 0; *quota <= length; ++*quota) {
      mirrorPut(segments.quotas);
      checkSelection(&segments);
    }
  }
  mirrorFreeAll();
}
END_TEST

/* Segments that several blocks share, and short ones beside them: around one
 * and two slices, and one of all pairs, as for global top-k. */
START_TEST(longSegmentsAreExact) {
  static const int64_t lengths[] = {lrmoeLongSegment + 1, 24576, 24577};
  struct naiveRandom random = {(uint64_t)_i + 5};
  chooseOrder(_i % numOrders);
  struct segments segments = makeSegments(&random, 1 + _i % 3, lengths[_i % 3],
                                          (enum kind)(_i % numKinds));
  checkSelection(&segments);
  mirrorFreeAll();
}
END_TEST

START_TEST(oneLongSegmentIsExact) {
  struct naiveRandom random = {(uint64_t)_i + 5};
  chooseOrder(2 + _i);
  struct segments segments = makeSegments(&random, 1, 70000, (enum kind)_i);
  *(int64_t *)segments.quotas->at[onHost] = 30000;
  mirrorPut(segments.quotas);
  checkSelection(&segments);
  mirrorFreeAll();
}
END_TEST

START_TEST(noSegmentsAreLegal) {
  const struct lrmoeSelection args = {0, 0, NULL, NULL, NULL, NULL, NULL};
  ASSERT_RUN(onDevice, selectTop, &args, NULL);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_select");
  TCase *tests = tcase_create("select");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, flagsAreTheCpus, 0, 3 * numKinds);
  tcase_add_loop_test(tests, everyQuotaIsExact, 0, numKinds);
  tcase_add_loop_test(tests, longSegmentsAreExact, 0, 2 * numKinds);
  tcase_add_loop_test(tests, oneLongSegmentIsExact, 0, 2);
  tcase_add_test(tests, noSegmentsAreLegal);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
