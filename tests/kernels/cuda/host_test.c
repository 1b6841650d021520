/* The host's side of the CUDA backend: memory, streams and events, what
 * failures say, and what they leave behind. */
#include "experts.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>
#include <string.h>

static const struct lrmoeBackend *cuda(void) {
  return backendOf(onDevice);
}

#define ASSERT_SAYS(text)                                    \
  ck_assert_msg(strstr(cuda()->lastError(), (text)) != NULL, \
                "\"%s\" does not say \"%s\"", cuda()->lastError(), (text))

START_TEST(theTableIsWhole) {
  ck_assert_str_eq(cuda()->name, "cuda");
  ck_assert_int_eq(cuda()->abi, LRMOE_BACKEND_ABI);
  ck_assert_int_eq(cuda()->isHost, 0);
  void *const *calls = (void *const *)&cuda()->lastError;
  size_t numCalls =
      (sizeof *cuda() - offsetof(struct lrmoeBackend, lastError)) /
      sizeof *calls;
  for (size_t i = 0; i < numCalls; i++)
    ck_assert_ptr_nonnull(calls[i]);
}
END_TEST

START_TEST(memoryIsCopiedAndCleared) {
  static const char text[] = "from here to there and back";
  char back[sizeof text] = "";
  void *device[2];
  void *pinned = NULL;
  ASSERT_RUN(onDevice, hostAlloc, sizeof text, &pinned);
  memcpy(pinned, text, sizeof text);
  for (int i = 0; i < 2; i++) {
    ASSERT_RUN(onDevice, memAlloc, sizeof text, &device[i]);
    ck_assert_uint_eq((uintptr_t)device[i] % 256, 0);
    ASSERT_RUN(onDevice, clear, device[i], sizeof text, NULL);
  }
  ASSERT_RUN(onDevice, copy, device[0], pinned, sizeof text, lrmoeCopyToDevice,
             NULL);
  ASSERT_RUN(onDevice, copy, device[1], device[0], 9, lrmoeCopyWithin, NULL);
  ASSERT_RUN(onDevice, copy, pinned, device[1], sizeof text, lrmoeCopyToHost,
             NULL);
  ASSERT_SYNCHRONIZED();
  memcpy(back, pinned, sizeof text);
  ck_assert_str_eq(back, "from here");
  ASSERT_RUN(onDevice, copy, NULL, NULL, 0, lrmoeCopyWithin, NULL);
  ASSERT_RUN(onDevice, clear, NULL, 0, NULL);
  for (int i = 0; i < 2; i++)
    ASSERT_RUN(onDevice, memFree, device[i]);
  ASSERT_RUN(onDevice, memFree, NULL);
  ASSERT_RUN(onDevice, hostFree, pinned);
  ASSERT_RUN(onDevice, hostFree, NULL);
}
END_TEST

START_TEST(noBytesAreLegal) {
  void *device = NULL;
  void *pinned = NULL;
  ASSERT_RUN(onDevice, memAlloc, 0, &device);
  ASSERT_RUN(onDevice, memFree, device);
  ASSERT_RUN(onDevice, hostAlloc, 0, &pinned);
  ASSERT_RUN(onDevice, hostFree, pinned);
}
END_TEST

/* The event is waited for, and not what comes after it in its stream. */
START_TEST(eventsWait) {
  cudaStream_t stream;
  void *event = NULL;
  uint32_t *words = NULL;
  void *device = NULL;
  chooseOrder(2 + _i);
  ck_assert_int_eq(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_RUN(onDevice, eventCreate, &event);
  ASSERT_RUN(onDevice, hostAlloc, 8, (void **)&words);
  ASSERT_RUN(onDevice, memAlloc, 8, &device);
  words[0] = words[1] = 0x12345678;
  ASSERT_RUN(onDevice, clear, device, 8, stream);
  ASSERT_RUN(onDevice, copy, words, device, 4, lrmoeCopyToHost, stream);
  ASSERT_RUN(onDevice, eventRecord, event, stream);
  ASSERT_RUN(onDevice, eventWait, event);
  ck_assert_uint_eq(words[0], 0);
  ck_assert_uint_eq(words[1], 0x12345678);
  ASSERT_RUN(onDevice, eventDestroy, event);
  ASSERT_RUN(onDevice, eventDestroy, NULL);
  ASSERT_RUN(onDevice, synchronize, stream);
  ASSERT_RUN(onDevice, memFree, device);
  ASSERT_RUN(onDevice, hostFree, words);
  ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
}
END_TEST

/* Inputs that come in the caller's stream are there when the experts begin,
 * and what follows in that stream finds their results. */
START_TEST(expertsAreOrderedByTheStream) {
  struct naiveRandom random = {(uint64_t)_i};
  const struct lrmoeExpertShape shape = {16, 24, lrmoeFloat32, lrmoeSwiglu,
                                         lrmoeWeightPost};
  struct experts experts = expertsMake(&random, &shape, 12, "cublas");
  cudaStream_t stream;
  void *pinned = NULL;
  void *late = NULL;
  struct entry *entry = &experts.entries[0];
  size_t bytes = experts.x->bytes;
  chooseOrder(2 + _i);
  ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                   cudaSuccess);
  ASSERT_RUN(onDevice, hostAlloc, bytes, &pinned);
  ASSERT_RUN(onDevice, memAlloc, entry->y->bytes, &late);
  memcpy(pinned, experts.x->at[onHost], bytes);
  ASSERT_RUN(onDevice, clear, experts.x->at[onDevice], bytes, NULL);
  ASSERT_SYNCHRONIZED();
  ASSERT_RUN(onDevice, copy, experts.x->at[onDevice], pinned, bytes,
             lrmoeCopyToDevice, stream);
  expertsForward(&experts, onDevice, stream);
  ASSERT_RUN(onDevice, copy, late, entry->y->at[onDevice], entry->y->bytes,
             lrmoeCopyWithin, stream);
  ASSERT_RUN(onDevice, clear, entry->y->at[onDevice], entry->y->bytes, stream);
  ASSERT_RUN(onDevice, copy, entry->y->at[onDevice], late, entry->y->bytes,
             lrmoeCopyWithin, stream);
  ASSERT_RUN(onDevice, synchronize, stream);
  expertsForward(&experts, onHost, NULL);
  assertForward(&experts);
  ASSERT_RUN(onDevice, memFree, late);
  ASSERT_RUN(onDevice, hostFree, pinned);
  ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
  expertsClose(&experts);
}
END_TEST

START_TEST(failuresSayWhatFailed) {
  void *pointer = &pointer;
  simtFailCall(1, cudaErrorMemoryAllocation);
  ck_assert_int_eq(cuda()->memAlloc(16, &pointer), lrmoeOutOfMemory);
  ck_assert_ptr_eq(pointer, &pointer);
  ASSERT_SAYS("cudaMalloc: ");
  ASSERT_SAYS("cudaErrorMemoryAllocation");
  /* The program's own next check is not to find it. */
  ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
  simtFailCall(1, cudaErrorIllegalAddress);
  ck_assert_int_eq(cuda()->synchronize(NULL), lrmoeUnhandledCudaError);
  ASSERT_SAYS("cudaStreamSynchronize: ");
  ASSERT_SYNCHRONIZED();
}
END_TEST

/* Whichever call fails, the caller hears of it, nothing leaks, and the next
 * attempt is good. */
START_TEST(everyFailureIsReported) {
  struct naiveRandom random = {6};
  const struct lrmoeExpertShape shape = {16, 24, lrmoeBfloat16, lrmoeGelu,
                                         lrmoeWeightPre};
  int64_t inUse = simtGetBytesInUse();
  lrmoeResult_t result = lrmoeSystemError;
  int numFailures = 0;
  for (int n = 1; result != lrmoeSuccess; n++, numFailures++) {
    struct lrmoeExpertContext *context = NULL;
    simtFailCall(n, cudaErrorMemoryAllocation);
    result = cuda()->expertOpen(&shape, _i ? "grouped" : "cublas", &context);
    simtFailCall(0, 0);
    if (result == lrmoeSuccess) cuda()->expertClose(context);
    ck_assert_int_eq(simtGetBytesInUse(), inUse);
  }
  ck_assert_int_gt(numFailures, 4);
  struct experts experts =
      expertsMake(&random, &shape, 12, _i ? "grouped" : "cublas");
  expertsForward(&experts, onHost, NULL);
  ASSERT_SYNCHRONIZED();
  expertsForward(&experts, onDevice, NULL);
  assertForward(&experts);
  expertsClose(&experts);
}
END_TEST

/* A forward pass that fails in the middle, and one that does not. */
START_TEST(failedPassesCanBeRepeated) {
  struct naiveRandom random = {7};
  const struct lrmoeExpertShape shape = {16, 24, lrmoeFloat32, lrmoeSwiglu,
                                         lrmoeWeightPost};
  struct experts experts = expertsMake(&random, &shape, 12, "cublas");
  struct lrmoeExpertContext *context = experts.contexts[onDevice];
  const struct entry *entry = &experts.entries[0];
  const struct lrmoeExpertForward args = {
      .weights = {experts.w1[0]->at[onDevice], experts.w2[0]->at[onDevice],
                  NULL, NULL},
      .numRows = entry->numRows,
      .x = {experts.x->at[onDevice], entry->rows->at[onDevice], shape.type,
            shape.hidden},
      .alpha = entry->alpha->at[onDevice],
      .phiNorm = entry->phiNorm->at[onDevice],
      .y = entry->y->at[onDevice],
  };
  ck_assert_int_gt(entry->numRows, 0);
  int numFailures = 0;
  lrmoeResult_t result = lrmoeSystemError;
  for (int n = 1; result != lrmoeSuccess; n++, numFailures++) {
    simtFailCall(n, cudaErrorLaunchOutOfResources);
    result = cuda()->expertForward(context, 1, &args, NULL);
    simtFailCall(0, 0);
    if (result != lrmoeSuccess) ck_assert_str_ne(cuda()->lastError(), "");
  }
  ck_assert_int_gt(numFailures, 6);
  ASSERT_SYNCHRONIZED();
  expertsForward(&experts, onHost, NULL);
  expertsForward(&experts, onDevice, NULL);
  assertForward(&experts);
  expertsClose(&experts);
}
END_TEST

START_TEST(wrongShapesAreRefused) {
  static const struct lrmoeExpertShape wrong[] = {
      {0, 8, lrmoeFloat32, lrmoeSwiglu, lrmoeWeightPost},
      {8, -8, lrmoeFloat32, lrmoeSwiglu, lrmoeWeightPost},
      {12, 8, lrmoeFloat32, lrmoeSwiglu, lrmoeWeightPost},
      {8, 20, lrmoeBfloat16, lrmoeSwiglu, lrmoeWeightPost},
      {8, 8, lrmoeFloat64, lrmoeSwiglu, lrmoeWeightPost},
      {8, 8, lrmoeFloat32, (lrmoeActivation_t)7, lrmoeWeightPost},
      {8, 8, lrmoeFloat32, lrmoeSwiglu, (lrmoeWeightConvention_t)7},
  };
  struct lrmoeExpertContext *context = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_int_eq(cuda()->expertOpen(&wrong[i], NULL, &context),
                     lrmoeInvalidArgument);
  ck_assert_ptr_null(context);
}
END_TEST

START_TEST(gemmsHaveNames) {
  const struct lrmoeExpertShape shape = {8, 8, lrmoeFloat32, lrmoeSwiglu,
                                         lrmoeWeightPost};
  static const char *const names[] = {NULL, "", "cublas", "grouped"};
  struct lrmoeExpertContext *context = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    ASSERT_RUN(onDevice, expertOpen, &shape, names[i], &context);
    cuda()->expertClose(context);
  }
  cuda()->expertClose(NULL);
  ck_assert_int_eq(cuda()->expertOpen(&shape, "openblas", &context),
                   lrmoeNotInstalled);
  ASSERT_SAYS("openblas");
  ASSERT_SAYS("grouped");
}
END_TEST

START_TEST(anotherDeviceIsRefused) {
  struct naiveRandom random = {1};
  const struct lrmoeExpertShape shape = {8, 8, lrmoeFloat32, lrmoeSwiglu,
                                         lrmoeWeightPost};
  struct experts experts = expertsMake(&random, &shape, 4, NULL);
  ck_assert_int_eq(cudaSetDevice(1), cudaSuccess);
  ck_assert_int_eq(
      cuda()->expertForward(experts.contexts[onDevice], 0, NULL, NULL),
      lrmoeInvalidUsage);
  ASSERT_SAYS("device 1");
  ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
  expertsClose(&experts);
}
END_TEST

/* Rows must be those of the experts. */
START_TEST(otherRowsAreRefused) {
  const struct lrmoeExpertShape shape = {8, 16, lrmoeBfloat16, lrmoeSwiglu,
                                         lrmoeWeightPost};
  struct lrmoeExpertContext *context = NULL;
  ASSERT_RUN(onDevice, expertOpen, &shape, NULL, &context);
  struct lrmoeExpertForward args = {.numRows = 1,
                                    .x = {NULL, NULL, lrmoeFloat32, 8}};
  ck_assert_int_eq(cuda()->expertForward(context, 1, &args, NULL),
                   lrmoeInvalidArgument);
  args.x = (struct lrmoeRows){NULL, NULL, lrmoeBfloat16, 16};
  ck_assert_int_eq(cuda()->expertForward(context, 1, &args, NULL),
                   lrmoeInvalidArgument);
  ASSERT_SAYS("16 elements");
  cuda()->expertClose(context);
}
END_TEST

/* A machine without a device. */
START_TEST(withoutDeviceItIsNotInstalled) {
  const struct lrmoeBackend *backend = NULL;
  setenv("LRMOE_SIMT_DEVICES", "0", 1);
  ASSERT_RESULT(lrmoeBackendLoad("cuda", &backend), lrmoeNotInstalled);
  ck_assert_ptr_null(backend);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "cudaGetDeviceCount"));
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "cudaErrorNoDevice"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_host");
  TCase *tests = tcase_create("host");
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, theTableIsWhole);
  tcase_add_test(tests, memoryIsCopiedAndCleared);
  tcase_add_test(tests, noBytesAreLegal);
  tcase_add_loop_test(tests, eventsWait, 0, 4);
  tcase_add_loop_test(tests, expertsAreOrderedByTheStream, 0, 8);
  tcase_add_test(tests, failuresSayWhatFailed);
  tcase_add_loop_test(tests, everyFailureIsReported, 0, 2);
  tcase_add_test(tests, failedPassesCanBeRepeated);
  tcase_add_test(tests, wrongShapesAreRefused);
  tcase_add_test(tests, gemmsHaveNames);
  tcase_add_test(tests, anotherDeviceIsRefused);
  tcase_add_test(tests, otherRowsAreRefused);
  tcase_add_test(tests, withoutDeviceItIsNotInstalled);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
