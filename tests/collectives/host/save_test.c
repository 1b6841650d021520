/* Saved optimizers: round trip, and no damage passes or changes anything. */
#include "base/hash.h"
#include "fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct fixtureShape tiny = {2, 2, {3, 2}};

/* As collectives/host/save.c lays a tiny one out. */
enum {
  sumOffset = 8,
  summedOffset = 16,
  stepsOffset = 24,
  versionOffset = 32,
  expertsOffset = 36,
  tensorsOffset = 40,
  reservedOffset = 44,
  sizesOffset = 48,
  weightsOffset = 64,
  firstOffset = weightsOffset + 40,
  secondOffset = firstOffset + 40,
  tinyBytes = secondOffset + 40
};

static void train(lrmoeHostOptimizer_t optimizer, uint64_t seed, int numSteps) {
  struct naiveRandom random = {seed};
  for (int i = 0; i < numSteps; i++) {
    float *gradients = naiveRandomArray(&random, lrmoeFloat32,
                                        optimizer->state.numElements, 1);
    fixturePush(optimizer, gradients);
    fixtureStep(optimizer, 0.01, 1);
    free(gradients);
  }
}

static lrmoeHostOptimizer_t trained(const struct fixtureShape *shape,
                                    uint64_t seed, int numSteps) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(shape);
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  train(optimizer, seed, numSteps);
  return optimizer;
}

/* From a block of exactly that length, so that ASan sees a read past it. */
static lrmoeResult_t loadCopy(lrmoeHostOptimizer_t optimizer, const char *data,
                              size_t bytes) {
  char *copy = malloc(bytes ? bytes : 1);
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, data, bytes);
  lrmoeResult_t result = lrmoeHostOptimizerLoad(optimizer, copy, bytes);
  free(copy);
  return result;
}

/* The check sum is no secret. */
static void forgeSum(char *saved, size_t bytes) {
  uint64_t magic, sum;
  memcpy(&magic, saved, sizeof magic);
  sum = lrmoeHash(magic, saved + summedOffset, bytes - summedOffset);
  memcpy(saved + sumOffset, &sum, sizeof sum);
}

/* Going on from a save gives the bits of not having stopped, whatever the
 * other optimizer did before, has for threads, and has in its queue. */
START_TEST(goesOnAsIfNeverStopped) {
  const struct fixtureShape *shape = _i ? &largeShape : &smallShape;
  lrmoeHostOptimizer_t optimizer = trained(shape, 1, 5);
  size_t bytes;
  char *saved = fixtureSave(optimizer, &bytes);

  lrmoeHostOptimizerConfig_t config = fixtureConfig(shape);
  config.numThreads = 3;
  config.queueBytes = 1;
  lrmoeHostOptimizer_t other = fixtureRandom(&config);
  train(other, 9, 2);
  float *gradients = calloc((size_t)fixtureElements(shape), sizeof *gradients);
  gradients[0] = INFINITY;
  fixturePush(other, gradients);
  ASSERT_OK(loadCopy(other, saved, bytes));
  ck_assert_int_eq(fixtureStats(other).steps, 5);
  fixtureSame(optimizer, other);
  train(optimizer, 2, 3);
  train(other, 2, 3);
  fixtureSame(optimizer, other);
  lrmoeHostOptimizerDestroy(optimizer);
  lrmoeHostOptimizerDestroy(other);
  free(gradients);
  free(saved);
}
END_TEST

/* Neither saving nor loading needs alignment. */
START_TEST(anyAddressWillDo) {
  lrmoeHostOptimizer_t optimizer = trained(&tiny, 1, 1);
  char *block = malloc(tinyBytes + 1);
  size_t bytes = tinyBytes;
  ASSERT_OK(lrmoeHostOptimizerSave(optimizer, block + 1, &bytes));
  ASSERT_OK(lrmoeHostOptimizerLoad(optimizer, block + 1, bytes));
  lrmoeHostOptimizerDestroy(optimizer);
  free(block);
}
END_TEST

START_TEST(saveAsksForRoom) {
  lrmoeHostOptimizer_t optimizer = trained(&tiny, 1, 1);
  size_t bytes, room = tinyBytes - 1;
  char *saved = fixtureSave(optimizer, &bytes);
  ck_assert_uint_eq(bytes, tinyBytes);
  ASSERT_RESULT(lrmoeHostOptimizerSave(optimizer, saved, &room),
                lrmoeInvalidArgument);
  ck_assert_uint_eq(room, tinyBytes - 1);
  room = tinyBytes + 100;
  char *large = calloc(1, room);
  ASSERT_OK(lrmoeHostOptimizerSave(optimizer, large, &room));
  ck_assert_uint_eq(room, tinyBytes);
  ck_assert_mem_eq(large, saved, tinyBytes);
  lrmoeHostOptimizerDestroy(optimizer);
  free(large);
  free(saved);
}
END_TEST

/* They would be lost without a word. */
START_TEST(gradientsAreNotSaved) {
  lrmoeHostOptimizer_t optimizer = trained(&tiny, 1, 1);
  const float gradient[3] = {1, 2, 3};
  size_t bytes = 0;
  ASSERT_OK(lrmoeHostOptimizerPush(optimizer, 0, 0, gradient, 3));
  ASSERT_RESULT(lrmoeHostOptimizerSave(optimizer, NULL, &bytes),
                lrmoeInvalidUsage);
  ASSERT_OK(lrmoeHostOptimizerDiscard(optimizer));
  ASSERT_OK(lrmoeHostOptimizerSave(optimizer, NULL, &bytes));
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

struct damage {
  lrmoeHostOptimizer_t optimizer; /* into which is loaded */
  lrmoeHostOptimizer_t same;      /* what it must stay */
  char *saved;                    /* of yet another one */
};

static struct damage damageBegin(void) {
  lrmoeHostOptimizer_t source = trained(&tiny, 1, 2);
  size_t bytes;
  struct damage damage = {trained(&tiny, 5, 1), trained(&tiny, 5, 1),
                          fixtureSave(source, &bytes)};
  lrmoeHostOptimizerDestroy(source);
  ck_assert_uint_eq(bytes, tinyBytes);
  return damage;
}

static void damageEnd(struct damage *damage) {
  fixtureSame(damage->optimizer, damage->same);
  ASSERT_OK(loadCopy(damage->optimizer, damage->saved, tinyBytes));
  lrmoeHostOptimizerDestroy(damage->optimizer);
  lrmoeHostOptimizerDestroy(damage->same);
  free(damage->saved);
}

START_TEST(everyTruncationIsRefused) {
  struct damage damage = damageBegin();
  for (size_t length = 0; length < tinyBytes; length++)
    ASSERT_RESULT(loadCopy(damage.optimizer, damage.saved, length),
                  lrmoeCorrupt);
  char *longer = calloc(1, tinyBytes + 8);
  memcpy(longer, damage.saved, tinyBytes);
  ASSERT_RESULT(loadCopy(damage.optimizer, longer, tinyBytes + 8),
                lrmoeCorrupt);
  free(longer);
  damageEnd(&damage);
}
END_TEST

static void flip(char *data, size_t bit) {
  unsigned char *byte = (unsigned char *)data + bit / 8;
  *byte ^= (unsigned char)(1u << bit % 8);
}

START_TEST(everyFlippedBitIsRefused) {
  struct damage damage = damageBegin();
  for (size_t bit = 0; bit < 8 * (size_t)tinyBytes; bit++) {
    flip(damage.saved, bit);
    int isVersion = bit / 32 == versionOffset / 4;
    ASSERT_RESULT(loadCopy(damage.optimizer, damage.saved, tinyBytes),
                  isVersion ? lrmoeUnsupported : lrmoeCorrupt);
    flip(damage.saved, bit);
  }
  damageEnd(&damage);
}
END_TEST

/* Data whose check sum is right. */
START_TEST(forgedDataIsRefused) {
  static const struct {
    size_t offset;
    uint32_t word;
    lrmoeResult_t expected;
  } forgeries[] = {
      {stepsOffset + 4, 0x80000000, lrmoeCorrupt}, /* negative */
      {stepsOffset + 4, 0x00200001, lrmoeCorrupt}, /* above 2^53 */
      {reservedOffset, 1, lrmoeCorrupt},
      {expertsOffset, 3, lrmoeInvalidArgument},
      {expertsOffset, 0xffffffff, lrmoeInvalidArgument},
      {tensorsOffset, 0x7fffffff, lrmoeInvalidArgument},
      {sizesOffset, 4, lrmoeInvalidArgument},
      {sizesOffset + 12, 0x80000000, lrmoeInvalidArgument},
      {weightsOffset, 0x7f800000, lrmoeCorrupt}, /* infinity */
      {weightsOffset + 36, 0xffc00000, lrmoeCorrupt},
      {firstOffset, 0x7f800001, lrmoeCorrupt},
      {firstOffset + 36, 0xff800000, lrmoeCorrupt},
      {secondOffset, 0x7fc00000, lrmoeCorrupt},
      {secondOffset + 36, 0x80000001, lrmoeCorrupt}, /* below zero */
  };
  struct damage damage = damageBegin();
  char forged[tinyBytes];
  for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
    memcpy(forged, damage.saved, tinyBytes);
    memcpy(forged + forgeries[i].offset, &forgeries[i].word, 4);
    forgeSum(forged, tinyBytes);
    lrmoeResult_t result = loadCopy(damage.optimizer, forged, tinyBytes);
    ck_assert_msg(result == forgeries[i].expected, "forgery %zu: %s", i,
                  lrmoeGetErrorString(result));
  }
  damageEnd(&damage);
}
END_TEST

/* A header that counts right, and then nothing of what it promises. */
START_TEST(forgedShortDataIsRefused) {
  struct damage damage = damageBegin();
  for (uint64_t length = sizesOffset; length < tinyBytes; length++) {
    char forged[tinyBytes];
    memcpy(forged, damage.saved, tinyBytes);
    memcpy(forged + summedOffset, &length, sizeof length);
    forgeSum(forged, (size_t)length);
    ASSERT_RESULT(loadCopy(damage.optimizer, forged, (size_t)length),
                  lrmoeCorrupt);
  }
  damageEnd(&damage);
}
END_TEST

/* forgeSum itself is right: otherwise the tests above test nothing. */
START_TEST(forgedSumOfWholeDataIsTheSum) {
  struct damage damage = damageBegin();
  char forged[tinyBytes];
  memcpy(forged, damage.saved, tinyBytes);
  memset(forged + sumOffset, 0, 8);
  ASSERT_RESULT(loadCopy(damage.optimizer, forged, tinyBytes), lrmoeCorrupt);
  forgeSum(forged, tinyBytes);
  ck_assert_mem_eq(forged, damage.saved, tinyBytes);
  damageEnd(&damage);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("host save");
  TCase *tests = tcase_create("save");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, goesOnAsIfNeverStopped, 0, 2);
  tcase_add_test(tests, anyAddressWillDo);
  tcase_add_test(tests, saveAsksForRoom);
  tcase_add_test(tests, gradientsAreNotSaved);
  tcase_add_test(tests, everyTruncationIsRefused);
  tcase_add_test(tests, everyFlippedBitIsRefused);
  tcase_add_test(tests, forgedDataIsRefused);
  tcase_add_test(tests, forgedShortDataIsRefused);
  tcase_add_test(tests, forgedSumOfWholeDataIsTheSum);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
