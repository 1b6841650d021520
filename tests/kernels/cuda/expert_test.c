/* Experts on the emulated device against the CPU's, within rounding; and the
 * same bits whatever the order of threads, blocks and streams. */
#include "experts.h"

#include <cuda_runtime_api.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const gemms[] = {"cublas", "grouped"};

/* 2 activations, 2 conventions, 3 types, 2 GEMMs. */
enum {
  numShapes = 24
};

static struct lrmoeExpertShape makeShape(struct naiveRandom *random,
                                         int number) {
  return (struct lrmoeExpertShape){
      .hidden = 8 * (1 + naiveRandomBelow(random, 9)),
      .ffn = 8 * (1 + naiveRandomBelow(random, 40)),
      .type = naiveTypes[number % 3],
      .activation = number / 3 % 2 ? lrmoeGelu : lrmoeSwiglu,
      .convention = number / 6 % 2 ? lrmoeWeightPre : lrmoeWeightPost,
  };
}

static struct experts makeExperts(int number, int64_t maxRows) {
  struct naiveRandom random = {(uint64_t)number + 1};
  struct lrmoeExpertShape shape = makeShape(&random, number);
  chooseOrder(number % numOrders);
  return expertsMake(&random, &shape, maxRows, gemms[number / 12 % 2]);
}

START_TEST(forwardIsTheCpus) {
  struct experts experts = makeExperts(_i, 20);
  for (enum side side = onHost; side < numSides; side++)
    expertsForward(&experts, side, NULL);
  assertForward(&experts);
  expertsClose(&experts);
}
END_TEST

static void forwardThenShare(struct experts *experts) {
  expertsForward(experts, onHost, NULL);
  expertsShareSaved(experts);
}

START_TEST(backwardIsTheCpus) {
  struct experts experts = makeExperts(_i, 20);
  experts.hasGradients = _i % 5 != 0;
  forwardThenShare(&experts);
  for (enum side side = onHost; side < numSides; side++)
    expertsBackward(&experts, side, NULL);
  assertBackward(&experts);
  expertsClose(&experts);
}
END_TEST

START_TEST(alphaIsTheCpus) {
  struct experts experts = makeExperts(_i, 20);
  for (int i = 0; i < experts.numEntries; i++)
    experts.entries[i].isRecomputed = 0;
  forwardThenShare(&experts);
  for (enum side side = onHost; side < numSides; side++)
    expertsAlpha(&experts, side, NULL);
  assertAlpha(&experts);
  expertsClose(&experts);
}
END_TEST

/* What the device has in dx, dAlpha and the gradients, one after the other. */
static char *backwardBytes(const struct experts *experts, size_t *numBytes) {
  char *all = NULL;
  *numBytes = 0;
  for (int i = 0; i < 2 * experts->numEntries + 2 * experts->numExperts; i++) {
    int which = i / 2;
    const struct mirror *from =
        which < experts->numEntries
            ? (i % 2 ? experts->entries[which].dx
                     : experts->entries[which].dAlpha)
            : (i % 2 ? experts->dw1
                     : experts->dw2)[which - experts->numEntries];
    char *bytes = mirrorDevice(from);
    all = realloc(all, *numBytes + from->bytes + 1);
    ck_assert_ptr_nonnull(all);
    memcpy(all + *numBytes, bytes, from->bytes);
    *numBytes += from->bytes;
    free(bytes);
  }
  return all;
}

static char *runInOrder(int order, int number, size_t *numBytes) {
  struct experts experts = makeExperts(2 * number, 10);
  chooseOrder(order);
  expertsForward(&experts, onDevice, NULL);
  for (int i = 0; i < 2; i++)
    expertsBackward(&experts, onDevice, NULL);
  ASSERT_SYNCHRONIZED();
  char *bytes = backwardBytes(&experts, numBytes);
  expertsClose(&experts);
  return bytes;
}

/* Two steps without waiting in between use the same scratch. */
START_TEST(everyOrderGivesTheSameBits) {
  size_t numBytes = 0;
  char *first = runInOrder(0, _i, &numBytes);
  for (int order = 1; order < numOrders; order++) {
    size_t numOthers = 0;
    char *other = runInOrder(order, _i, &numOthers);
    ck_assert_uint_eq(numOthers, numBytes);
    ck_assert_msg(!memcmp(first, other, numBytes), "order %d differs", order);
    free(other);
  }
  free(first);
}
END_TEST

/* Two layers and two streams share the engine and its scratch. */
START_TEST(layersShareScratch) {
  struct naiveRandom random = {9};
  struct lrmoeExpertShape shape = makeShape(&random, 1);
  cudaStream_t streams[2];
  struct experts layers[2];
  chooseOrder(2 + _i);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(cudaStreamCreate(&streams[i]), cudaSuccess);
    layers[i] = expertsMake(&random, &shape, 20 + 20 * i, "cublas");
    forwardThenShare(&layers[i]);
    expertsBackward(&layers[i], onHost, NULL);
  }
  for (int i = 0; i < 2; i++)
    expertsBackward(&layers[i], onDevice, streams[i]);
  int64_t bytes =
      backendOf(onDevice)->expertScratchBytes(layers[0].contexts[onDevice]);
  ck_assert_int_gt(bytes, 0);
  ck_assert_int_eq(bytes, backendOf(onDevice)->expertScratchBytes(
                              layers[1].contexts[onDevice]));
  for (int i = 0; i < 2; i++) {
    ASSERT_RUN(onDevice, synchronize, streams[i]);
    assertBackward(&layers[i]);
    ck_assert_int_eq(cudaStreamDestroy(streams[i]), cudaSuccess);
  }
  for (enum side side = onHost; side < numSides; side++)
    backendOf(side)->expertClose(layers[0].contexts[side]);
  expertsClose(&layers[1]);
}
END_TEST

/* A second step of no more rows allocates nothing. */
START_TEST(scratchIsKept) {
  if (!isEmulated()) return;
  struct experts experts = makeExperts(_i, 20);
  expertsForward(&experts, onDevice, NULL);
  expertsBackward(&experts, onDevice, NULL);
  ASSERT_SYNCHRONIZED();
  int64_t allocations = simtGetAllocations();
  expertsForward(&experts, onDevice, NULL);
  expertsBackward(&experts, onDevice, NULL);
  ASSERT_SYNCHRONIZED();
  ck_assert_int_eq(simtGetAllocations(), allocations);
  expertsClose(&experts);
}
END_TEST

/* More rows than a slot's scratch holds: tiles. */
START_TEST(largeExpertsAreCut) {
  struct naiveRandom random = {3};
  const struct lrmoeExpertShape shape = {8, 8, lrmoeFloat32, lrmoeSwiglu,
                                         lrmoeWeightPost};
  chooseOrder(0);
  struct experts experts = expertsMake(&random, &shape, 40000, gemms[_i]);
  for (int i = 0; i < experts.numEntries; i++) {
    int64_t wanted = i ? 100 : 16384 + 9;
    ck_assert_int_ge(experts.entries[i].numRows, wanted);
    experts.entries[i].numRows = wanted;
  }
  forwardThenShare(&experts);
  expertsForward(&experts, onDevice, NULL);
  assertForward(&experts);
  for (enum side side = onHost; side < numSides; side++)
    expertsBackward(&experts, side, NULL);
  assertBackward(&experts);
  expertsClose(&experts);
}
END_TEST

/* Nothing is enqueued for no rows, and gradients stay as they are. */
START_TEST(noRowsDoNothing) {
  if (!isEmulated()) return;
  struct naiveRandom random = {1};
  struct lrmoeExpertShape shape = makeShape(&random, 1);
  chooseOrder(0);
  struct experts experts = expertsMake(&random, &shape, 0, gemms[_i]);
  simtResetCounters();
  expertsForward(&experts, onDevice, NULL);
  expertsBackward(&experts, onDevice, NULL);
  expertsAlpha(&experts, onDevice, NULL);
  ASSERT_SYNCHRONIZED();
  struct simtCounters counters;
  simtGetCounters("activationBackwardKernel", &counters);
  ck_assert_int_eq(counters.launches, 0);
  for (int i = 0; i < experts.numExperts; i++)
    assertSameBytes(experts.dw1[i], "dw1");
  experts.numEntries = 0;
  expertsForward(&experts, onDevice, NULL);
  expertsClose(&experts);
}
END_TEST

/* A NaN in g reaches dx and the gradients; alpha = 0 does not hide it. */
START_TEST(nonFiniteGradientsPropagate) {
  struct experts experts = makeExperts(_i, 20);
  lrmoeDataType_t type = experts.shape.type;
  int64_t count = experts.numTokens * experts.shape.hidden;
  for (int64_t i = 0; i < count; i += 3)
    naivePut(type, experts.g->at[onHost], i, (double)NAN);
  mirrorPut(experts.g);
  forwardThenShare(&experts);
  for (enum side side = onHost; side < numSides; side++)
    expertsBackward(&experts, side, NULL);
  assertBackward(&experts);
  expertsClose(&experts);
}
END_TEST

/* Bytes of the activation, backward: g W2 and the saved row in, alpha phi and
 * dFc1 out, 6 F elements a row and little else. */
START_TEST(activationsAreLean) {
  if (!isEmulated()) return;
  struct naiveRandom random = {4};
  const struct lrmoeExpertShape shape = {64, 768, lrmoeBfloat16, lrmoeSwiglu,
                                         lrmoeWeightPost};
  chooseOrder(0);
  struct experts experts = expertsMake(&random, &shape, 20, "cublas");
  for (int i = 0; i < experts.numEntries; i++)
    experts.entries[i].isRecomputed = 0;
  forwardThenShare(&experts);
  simtResetCounters();
  expertsBackward(&experts, onDevice, NULL);
  ASSERT_SYNCHRONIZED();
  int64_t numRows = 0;
  for (int i = 0; i < experts.numEntries; i++)
    numRows += experts.entries[i].numRows;
  struct simtCounters counters;
  simtGetCounters("activationBackwardKernel", &counters);
  ck_assert_int_le(counters.bytesLoaded, numRows * (3 * 768 * 2 + 16));
  ck_assert_int_le(counters.bytesStored, numRows * (3 * 768 * 2 + 4));
  expertsClose(&experts);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_expert");
  TCase *tests = tcase_create("expert");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, forwardIsTheCpus, 0, numShapes);
  tcase_add_loop_test(tests, backwardIsTheCpus, 0, numShapes);
  tcase_add_loop_test(tests, alphaIsTheCpus, 0, numShapes);
  tcase_add_loop_test(tests, everyOrderGivesTheSameBits, 0, 12);
  tcase_add_loop_test(tests, layersShareScratch, 0, 4);
  tcase_add_loop_test(tests, scratchIsKept, 0, 4);
  tcase_add_loop_test(tests, largeExpertsAreCut, 0, 2);
  tcase_add_loop_test(tests, noRowsDoNothing, 0, 2);
  tcase_add_loop_test(tests, nonFiniteGradientsPropagate, 0, 6);
  tcase_add_test(tests, activationsAreLean);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
