/* The queue: order and bits, back-pressure, pushes that do not wait. */
#include "fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- Bits ------------------------------------------------------------- */

enum {
  numRounds = 5
};

/* A random gradient of a tensor in a round: sums of these differ in their last
 * bits with the order. */
static float *gradientOf(int64_t count, uint64_t seed) {
  struct naiveRandom random = {seed};
  float *gradient = naiveRandomArray(&random, lrmoeFloat32, count, 1);
  for (int64_t i = 0; i < count; i++)
    gradient[i] *= (float)(1 << naiveRandomBelow(&random, 20));
  return gradient;
}

static uint64_t seedOf(int32_t expert, int32_t tensor, int round) {
  return ((uint64_t)expert * 100 + (uint64_t)tensor) * 100 + (uint64_t)round;
}

/* Round after round, or tensor after tensor: in both an element gets its
 * gradients by rounds. */
static void pushAll(lrmoeHostOptimizer_t optimizer, int isByTensor) {
  int numPairs = largeShape.numExperts * largeShape.numTensors;
  for (int i = 0; i < numPairs * numRounds; i++) {
    int pair = isByTensor ? i / numRounds : i % numPairs;
    int round = isByTensor ? i % numRounds : i / numPairs;
    int32_t e = pair / largeShape.numTensors, t = pair % largeShape.numTensors;
    float *gradient = gradientOf(largeShape.elements[t], seedOf(e, t, round));
    ASSERT_OK(lrmoeHostOptimizerPush(optimizer, e, t, gradient,
                                     largeShape.elements[t]));
    free(gradient);
  }
}

/* The sums as the rule says: from zero, by rounds, in fp32. */
static float *sumsOf(const struct fixtureShape *shape) {
  float *sums = calloc((size_t)fixtureElements(shape), sizeof *sums);
  ck_assert_ptr_nonnull(sums);
  for (int32_t e = 0; e < shape->numExperts; e++)
    for (int i = 0; i < shape->numTensors * numRounds; i++) {
      int32_t t = i / numRounds;
      float *sum = sums + fixtureFirst(shape, e, t);
      float *gradient =
          gradientOf(shape->elements[t], seedOf(e, t, i % numRounds));
      for (int64_t j = 0; j < shape->elements[t]; j++)
        sum[j] += gradient[j];
      free(gradient);
    }
  return sums;
}

START_TEST(sameBitsWhateverTheQueue) {
  static const struct {
    int32_t numThreads;
    int64_t queueBytes;
  } cases[] = {{1, 1}, {1, 64 << 20},        {2, 3 * PIECE_BYTES},
               {3, 1}, {7, 5 * PIECE_BYTES}, {64, 1 << 20}};
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&largeShape);
  config.numThreads = cases[_i / 2].numThreads;
  config.queueBytes = cases[_i / 2].queueBytes;
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  pushAll(optimizer, _i % 2);
  ASSERT_OK(lrmoeHostOptimizerFlush(optimizer));
  float *sums = sumsOf(&largeShape);
  size_t bytes = (size_t)fixtureElements(&largeShape) * sizeof *sums;
  ck_assert(memcmp(optimizer->state.gradient, sums, bytes) == 0);

  config.numThreads = 1;
  config.queueBytes = 64 << 20;
  lrmoeHostOptimizer_t plain = fixtureRandom(&config);
  pushAll(plain, 0);
  for (int step = 0; step < 2; step++) {
    fixtureStep(optimizer, 0.01, 0.5);
    fixtureStep(plain, 0.01, 0.5);
    pushAll(optimizer, 1);
    pushAll(plain, 0);
  }
  fixtureStep(optimizer, 0.01, 0.5);
  fixtureStep(plain, 0.01, 0.5);
  fixtureSame(optimizer, plain);
  lrmoeHostOptimizerDestroy(optimizer);
  lrmoeHostOptimizerDestroy(plain);
  free(sums);
}
END_TEST

/* The order is seen at all: 1e8 + 1 - 1e8 is 0, and 1e8 - 1e8 + 1 is 1. */
START_TEST(orderIsThatOfThePushes) {
  static const float orders[2][3] = {{1e8f, 1, -1e8f}, {1e8f, -1e8f, 1}};
  const struct fixtureShape one = {1, 1, {1}};
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&one);
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  for (int i = 0; i < 3; i++)
    ASSERT_OK(lrmoeHostOptimizerPush(optimizer, 0, 0, &orders[_i][i], 1));
  ASSERT_OK(lrmoeHostOptimizerFlush(optimizer));
  ck_assert_float_eq(optimizer->state.gradient[0], (float)_i);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

/* ---- Room ------------------------------------------------------------- */

static const struct fixtureShape tall = {1, 2, {5 * PIECE_ELEMENTS, 8}};

/* An optimizer whose workers are started and begin nothing. */
static lrmoeHostOptimizer_t pausedOptimizer(int64_t queueBytes) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&tall);
  config.queueBytes = queueBytes;
  config.numThreads = 2;
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  ASSERT_OK(lrmoeHostTeamStart(&optimizer->team));
  lrmoeHostTeamPause(&optimizer->team, 1);
  return optimizer;
}

/* The caller gets its buffer back before the gradient is added. */
START_TEST(pushCopies) {
  lrmoeHostOptimizer_t optimizer = pausedOptimizer(PIECE_BYTES);
  float gradient[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_OK(lrmoeHostOptimizerPush(optimizer, 0, 1, gradient, 8));
  memset(gradient, 0, sizeof gradient);
  lrmoeHostTeamPause(&optimizer->team, 0);
  ASSERT_OK(lrmoeHostOptimizerFlush(optimizer));
  for (int i = 0; i < 8; i++)
    ck_assert_float_eq(optimizer->state.gradient[tall.elements[0] + i],
                       (float)(i + 1));
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

struct pusher {
  lrmoeHostOptimizer_t optimizer;
  const float *gradient;
  lrmoeResult_t result;
  atomic_int hasReturned;
};

static void *pushMain(void *argument) {
  struct pusher *pusher = argument;
  pusher->result = lrmoeHostOptimizerPush(pusher->optimizer, 0, 0,
                                          pusher->gradient, tall.elements[0]);
  atomic_store(&pusher->hasReturned, 1);
  return NULL;
}

static int isCallerWaiting(struct lrmoeHostTeam *team, int64_t *numPieces) {
  pthread_mutex_lock(&team->lock);
  int isWaiting = team->isWaiting;
  *numPieces = team->numPieces;
  pthread_mutex_unlock(&team->lock);
  return isWaiting;
}

/* Five pieces into a queue of two: the push fills it, waits, and goes on when
 * the workers do. */
START_TEST(pushWaitsForRoom) {
  lrmoeHostOptimizer_t optimizer = pausedOptimizer(2 * PIECE_BYTES);
  float *gradient = gradientOf(tall.elements[0], 1);
  struct pusher pusher = {optimizer, gradient, lrmoeInternalError, 0};
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, pushMain, &pusher), 0);
  int64_t numPieces = 0;
  while (!isCallerWaiting(&optimizer->team, &numPieces))
    sched_yield();
  ck_assert_int_eq(numPieces, 2);
  ck_assert_int_eq(atomic_load(&pusher.hasReturned), 0);
  lrmoeHostTeamPause(&optimizer->team, 0);
  pthread_join(thread, NULL);
  ASSERT_OK(pusher.result);
  ASSERT_OK(lrmoeHostOptimizerFlush(optimizer));
  ck_assert_mem_eq(optimizer->state.gradient, gradient,
                   (size_t)tall.elements[0] * sizeof *gradient);
  ck_assert_int_eq(fixtureStats(optimizer).waits, 1);
  ck_assert_int_eq(fixtureStats(optimizer).pushes, 1);
  free(gradient);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

/* A queue of seven pieces takes five and two, and then nothing. */
START_TEST(tryPushTakesAllOrNothing) {
  lrmoeHostOptimizer_t optimizer = pausedOptimizer(7 * PIECE_BYTES);
  float *gradient = gradientOf(tall.elements[0], 1);
  int64_t count = tall.elements[0];
  ASSERT_OK(lrmoeHostOptimizerTryPush(optimizer, 0, 0, gradient, count));
  ASSERT_RESULT(lrmoeHostOptimizerTryPush(optimizer, 0, 0, gradient, count),
                lrmoeInProgress);
  for (int i = 0; i < 2; i++)
    ASSERT_OK(lrmoeHostOptimizerTryPush(optimizer, 0, 1, gradient, 8));
  ASSERT_RESULT(lrmoeHostOptimizerTryPush(optimizer, 0, 1, gradient, 8),
                lrmoeInProgress);
  ck_assert_int_eq(fixtureStats(optimizer).pushes, 3);
  ck_assert_int_eq(fixtureStats(optimizer).waits, 0);
  lrmoeHostTeamPause(&optimizer->team, 0);
  ASSERT_OK(lrmoeHostOptimizerFlush(optimizer));
  ASSERT_OK(lrmoeHostOptimizerTryPush(optimizer, 0, 0, gradient, count));
  ASSERT_OK(lrmoeHostOptimizerFlush(optimizer));
  for (int64_t i = 0; i < count; i++)
    ck_assert_float_eq(optimizer->state.gradient[i], 2 * gradient[i]);
  for (int64_t i = 0; i < 8; i++)
    ck_assert_float_eq(optimizer->state.gradient[count + i], 2 * gradient[i]);
  free(gradient);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

/* It could never succeed, so it says so; a push takes it in parts. */
START_TEST(tryPushOfMoreThanTheQueueIsRefused) {
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&tall);
  config.queueBytes = 4 * PIECE_BYTES;
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  float *gradient = gradientOf(tall.elements[0], 1);
  ASSERT_RESULT(
      lrmoeHostOptimizerTryPush(optimizer, 0, 0, gradient, tall.elements[0]),
      lrmoeInvalidArgument);
  ASSERT_OK(
      lrmoeHostOptimizerPush(optimizer, 0, 0, gradient, tall.elements[0]));
  ASSERT_OK(lrmoeHostOptimizerFlush(optimizer));
  free(gradient);
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

START_TEST(destroyDropsWhatWaits) {
  lrmoeHostOptimizer_t optimizer = pausedOptimizer(7 * PIECE_BYTES);
  float *gradient = gradientOf(tall.elements[0], 1);
  ASSERT_OK(
      lrmoeHostOptimizerPush(optimizer, 0, 0, gradient, tall.elements[0]));
  free(gradient);
  ASSERT_OK(lrmoeHostOptimizerDestroy(optimizer));
}
END_TEST

/* Rounded up to whole pieces. */
START_TEST(queueHasTheBytesAskedFor) {
  static const int64_t asked[] = {1, PIECE_BYTES, PIECE_BYTES + 1, 64 << 20};
  static const int64_t given[] = {PIECE_BYTES, PIECE_BYTES, 2 * PIECE_BYTES,
                                  64 << 20};
  lrmoeHostOptimizerConfig_t config = fixtureConfig(&tall);
  config.queueBytes = asked[_i];
  lrmoeHostOptimizer_t optimizer = fixtureRandom(&config);
  lrmoeHostOptimizerStats_t stats = fixtureStats(optimizer);
  ck_assert_int_eq(stats.queueBytes, given[_i]);
  ck_assert_int_eq(stats.stateBytes, 16 * fixtureElements(&tall));
  lrmoeHostOptimizerDestroy(optimizer);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("host queue");
  TCase *tests = tcase_create("queue");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, sameBitsWhateverTheQueue, 0, 12);
  tcase_add_loop_test(tests, orderIsThatOfThePushes, 0, 2);
  tcase_add_test(tests, pushCopies);
  tcase_add_test(tests, pushWaitsForRoom);
  tcase_add_test(tests, tryPushTakesAllOrNothing);
  tcase_add_test(tests, tryPushOfMoreThanTheQueueIsRefused);
  tcase_add_test(tests, destroyDropsWhatWaits);
  tcase_add_loop_test(tests, queueHasTheBytesAskedFor, 0, 4);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
