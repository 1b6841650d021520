/* An expert's backward in two phases: the bits of the one in one phase in every
 * order, a stream that does not wait for the second phase, and failures of
 * either. */
#include "experts.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <string.h>

static const char *const gemms[] = {"cublas", "grouped"};

/* Types, activations, conventions and GEMMs take turns. */
static struct experts makeExperts(int number, int64_t maxRows) {
  struct naiveRandom random = {(uint64_t)number + 1};
  const struct lrmoeExpertShape shape = {
      .hidden = 8 * (1 + naiveRandomBelow(&random, 9)),
      .ffn = 8 * (1 + naiveRandomBelow(&random, 40)),
      .type = naiveTypes[number % 3],
      .activation = number % 2 ? lrmoeGelu : lrmoeSwiglu,
      .convention = number / 2 % 2 ? lrmoeWeightPre : lrmoeWeightPost,
  };
  return expertsMake(&random, &shape, maxRows, gemms[number / 3 % 2]);
}

/* ---- What the device has ---- */

struct bytes {
  char *data;
  size_t count;
};

static void append(struct bytes *all, const struct mirror *from) {
  char *device = mirrorDevice(from);
  all->data = realloc(all->data, all->count + from->bytes + 1);
  ck_assert_ptr_nonnull(all->data);
  memcpy(all->data + all->count, device, from->bytes);
  all->count += from->bytes;
  free(device);
}

static struct bytes inputGradients(const struct experts *experts) {
  struct bytes all = {NULL, 0};
  for (int i = 0; i < experts->numEntries; i++) {
    append(&all, experts->entries[i].dx);
    append(&all, experts->entries[i].dAlpha);
  }
  return all;
}

static struct bytes weightGradients(const struct experts *experts) {
  struct bytes all = {NULL, 0};
  for (int i = 0; i < experts->numExperts; i++) {
    append(&all, experts->dw1[i]);
    append(&all, experts->dw2[i]);
  }
  return all;
}

/* Frees both. */
static int areSame(struct bytes a, struct bytes b) {
  int isSame = a.count == b.count && !memcmp(a.data, b.data, a.count);
  free(a.data);
  free(b.data);
  return isSame;
}

/* ---- The same bits ---- */

struct results {
  struct bytes inputs;
  struct bytes weights;
};

static void *makeEvent(void) {
  void *event = NULL;
  ASSERT_RUN(onDevice, eventCreate, &event);
  return event;
}

/* Two backwards, one after the other, without a wait of the host between. */
static struct results runTwice(int number, int64_t maxRows, int isSplit) {
  struct experts experts = makeExperts(number, maxRows);
  void *event = makeEvent();
  expertsForward(&experts, onDevice, NULL);
  for (int i = 0; i < 2; i++) {
    if (isSplit)
      expertsBackwardSplit(&experts, event, NULL);
    else
      expertsBackward(&experts, onDevice, NULL);
    if (isSplit) ASSERT_RUN(onDevice, streamWait, NULL, event);
  }
  ASSERT_SYNCHRONIZED();
  struct results results = {inputGradients(&experts),
                            weightGradients(&experts)};
  ASSERT_RUN(onDevice, eventDestroy, event);
  expertsClose(&experts);
  return results;
}

START_TEST(splitGivesTheSameBits) {
  for (int order = 0; order < numOrders; order++) {
    chooseOrder(order);
    struct results whole = runTwice(_i, 20, 0);
    struct results split = runTwice(_i, 20, 1);
    ck_assert_msg(areSame(whole.inputs, split.inputs), "order %d", order);
    ck_assert_msg(areSame(whole.weights, split.weights), "order %d", order);
  }
}
END_TEST

/* Several batches on a slot, whose phi and dFc1 are all kept. */
static void cutEntries(struct experts *experts) {
  for (int i = 0; i < experts->numEntries; i++) {
    int64_t wanted = i ? 100 + i : 16384 + 9;
    ck_assert_int_ge(experts->entries[i].numRows, wanted);
    experts->entries[i].numRows = wanted;
  }
}

static struct results runLarge(const char *gemm, int isSplit) {
  struct naiveRandom random = {3};
  const struct lrmoeExpertShape shape = {8, 8, lrmoeFloat32, lrmoeSwiglu,
                                         lrmoeWeightPost};
  struct experts experts = expertsMake(&random, &shape, 40000, gemm);
  void *event = makeEvent();
  cutEntries(&experts);
  expertsForward(&experts, onDevice, NULL);
  if (isSplit) {
    expertsBackwardSplit(&experts, event, NULL);
    ASSERT_RUN(onDevice, eventWait, event);
  } else {
    expertsBackward(&experts, onDevice, NULL);
  }
  ASSERT_SYNCHRONIZED();
  struct results results = {inputGradients(&experts),
                            weightGradients(&experts)};
  ASSERT_RUN(onDevice, eventDestroy, event);
  expertsClose(&experts);
  return results;
}

START_TEST(batchesKeepTheirRows) {
  chooseOrder(0);
  struct results whole = runLarge(gemms[_i], 0);
  struct results split = runLarge(gemms[_i], 1);
  ck_assert(areSame(whole.inputs, split.inputs));
  ck_assert(areSame(whole.weights, split.weights));
}
END_TEST

/* ---- Who waits for what ---- */

/* What lies there now, without waiting for anything. */
static struct bytes peekGradients(const struct experts *experts) {
  struct bytes all = {NULL, 0};
  for (int i = 0; i < experts->numExperts; i++)
    all.count += experts->dw1[i]->bytes + experts->dw2[i]->bytes;
  all.data = malloc(all.count + 1);
  ck_assert_ptr_nonnull(all.data);
  char *to = all.data;
  simtOpenDevice();
  for (int i = 0; i < experts->numExperts; i++) {
    const struct mirror *both[] = {experts->dw1[i], experts->dw2[i]};
    for (int k = 0; k < 2; to += both[k++]->bytes)
      memcpy(to, both[k]->at[onDevice], both[k]->bytes);
  }
  simtCloseDevice();
  return all;
}

/* With streams that lag while nobody waits for them dx is there before all
 * weight gradients are; the event is after these. */
START_TEST(theStreamDoesNotWaitForWeights) {
  if (!isEmulated()) return;
  chooseOrder(1);
  struct experts experts = makeExperts(_i, 20);
  void *event = makeEvent();
  cudaStream_t stream = NULL;
  ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                   cudaSuccess);
  expertsForward(&experts, onHost, NULL);
  expertsShareSaved(&experts);
  expertsBackward(&experts, onHost, NULL);
  expertsBackwardSplit(&experts, event, stream);
  ASSERT_RUN(onDevice, synchronize, stream);
  struct bytes early = peekGradients(&experts);
  ASSERT_RUN(onDevice, streamWait, stream, event);
  ASSERT_RUN(onDevice, synchronize, stream);
  ck_assert(!areSame(early, weightGradients(&experts)));
  assertBackward(&experts);
  ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_RUN(onDevice, eventDestroy, event);
  expertsClose(&experts);
}
END_TEST

/* No rows: the event is after what the stream has. */
START_TEST(noRowsRecordTheEvent) {
  chooseOrder(0);
  struct experts experts = makeExperts(1, 0);
  void *event = makeEvent();
  expertsBackwardSplit(&experts, event, NULL);
  ASSERT_RUN(onDevice, eventWait, event);
  for (int i = 0; i < experts.numExperts; i++)
    assertSameBytes(experts.dw1[i], "dw1");
  ASSERT_RUN(onDevice, eventDestroy, event);
  expertsClose(&experts);
}
END_TEST

/* ---- Memory and failures ---- */

START_TEST(scratchIsKept) {
  if (!isEmulated()) return;
  chooseOrder(0);
  struct experts experts = makeExperts(_i, 20);
  void *event = makeEvent();
  int64_t allocations = 0;
  expertsForward(&experts, onDevice, NULL);
  for (int i = 0; i < 2; i++) {
    expertsBackwardSplit(&experts, event, NULL);
    ASSERT_RUN(onDevice, eventWait, event);
    if (!i) allocations = simtGetAllocations();
  }
  ck_assert_int_eq(simtGetAllocations(), allocations);
  ASSERT_RUN(onDevice, eventDestroy, event);
  expertsClose(&experts);
}
END_TEST

/* Each runtime call of both phases fails once: the caller is told, and the
 * stream then waits for what was enqueued, or the emulator tells of a race. */
START_TEST(everyFailureIsTold) {
  if (!isEmulated()) return;
  chooseOrder(1);
  struct experts experts = makeExperts(2, 20);
  void *event = makeEvent();
  lrmoeResult_t got = lrmoeInternalError;
  int numFailed = 0;
  expertsForward(&experts, onDevice, NULL);
  expertsBackwardSplit(&experts, event, NULL);
  ASSERT_RUN(onDevice, eventWait, event);
  while (got != lrmoeSuccess) {
    simtFailCall(numFailed + 1, cudaErrorLaunchFailure);
    got = expertsTrySplit(&experts, event, NULL);
    simtFailCall(0, cudaSuccess);
    (void)cudaGetLastError();
    if (got == lrmoeSuccess) break;
    free(weightGradients(&experts).data);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
    ck_assert_int_lt(++numFailed, 1000);
  }
  ck_assert_int_gt(numFailed, 10);
  ASSERT_RUN(onDevice, eventWait, event);
  ASSERT_RUN(onDevice, eventDestroy, event);
  expertsClose(&experts);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_split");
  TCase *tests = tcase_create("split");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, splitGivesTheSameBits, 0, 12);
  tcase_add_loop_test(tests, batchesKeepTheirRows, 0, 2);
  tcase_add_loop_test(tests, theStreamDoesNotWaitForWeights, 0, 6);
  tcase_add_test(tests, noRowsRecordTheEvent);
  tcase_add_loop_test(tests, scratchIsKept, 0, 4);
  tcase_add_test(tests, everyFailureIsTold);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
