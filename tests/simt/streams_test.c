/* The stand-in runtime's streams: order, events, and what is seen of
 * synchronisation that was forgotten. */
#include "broken.h"
#include "device.h"
#include "good.h"
#include "support/simt/simt.h"

#include <stdlib.h>
#include <string.h>

enum {
  count = 64,
  bytes = count * sizeof(int)
};

static void *pinned(size_t size) {
  void *host = NULL;
  ASSERT_CUDA(cudaMallocHost(&host, size));
  memset(host, 0, size);
  return host;
}

START_TEST(aStreamKeepsItsOrder) {
  chooseOrder(_i);
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int *data;
  ASSERT_CUDA(cudaMallocAsync((void **)&data, bytes, stream));
  int *host = pinned(bytes);
  ASSERT_CUDA(cudaMemsetAsync(data, 0, bytes, stream));
  for (int i = 0; i < 10; i++)
    ASSERT_CUDA(goodAdd(data, count, i, stream));
  ASSERT_CUDA(
      cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream));
  ASSERT_CUDA(cudaFreeAsync(data, stream));
  ck_assert_int_eq(host[0], 0); /* nothing ran yet */
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < count; i++)
    ck_assert_int_eq(host[i], 45);
  ASSERT_CUDA(cudaStreamDestroy(stream));
  ASSERT_CUDA(cudaFreeHost(host));
  ck_assert_int_eq(simtGetAllocations(), 0);
}
END_TEST

/* Adds on one stream and copies on another. */
static int sumAcrossStreams(int order) {
  chooseOrder(order);
  cudaStream_t producer;
  cudaStream_t consumer;
  cudaEvent_t event;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&producer, cudaStreamNonBlocking));
  ASSERT_CUDA(
      cudaStreamCreateWithPriority(&consumer, cudaStreamNonBlocking, -1));
  ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  int *data = deviceCopyOf(NULL, bytes);
  int *host = pinned(bytes);
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(goodAdd(data, count, 7, producer));
  ASSERT_CUDA(cudaEventRecord(event, producer));
  ASSERT_CUDA(cudaStreamWaitEvent(consumer, event, 0));
  ASSERT_CUDA(
      cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, consumer));
  ASSERT_CUDA(cudaStreamSynchronize(consumer));
  int sum = host[count - 1];
  ASSERT_CUDA(cudaEventDestroy(event));
  ASSERT_CUDA(cudaStreamDestroy(producer));
  ASSERT_CUDA(cudaStreamDestroy(consumer));
  ASSERT_CUDA(cudaFree(data));
  ASSERT_CUDA(cudaFreeHost(host));
  return sum;
}

START_TEST(eventsOrderStreams) {
  ck_assert_int_eq(sumAcrossStreams(_i), 7);
}
END_TEST

START_TEST(aForgottenSynchronisationShows) {
  chooseOrder(_i);
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int *data = deviceCopyOf(NULL, bytes);
  int *host = pinned(bytes);
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(goodAdd(data, count, 7, stream));
  ASSERT_CUDA(
      cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream));
  ck_assert_int_eq(host[0], 0); /* too early */
  /* The default stream does not wait for this one either. */
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  ck_assert_int_eq(host[0], 7);
  ASSERT_CUDA(cudaStreamDestroy(stream));
  ASSERT_CUDA(cudaFree(data));
  ASSERT_CUDA(cudaFreeHost(host));
}
END_TEST

/* 2 (a + 1) needs its order: blocking, default, blocking. */
START_TEST(theDefaultStreamWaitsAndIsWaitedFor) {
  chooseOrder(_i);
  cudaStream_t first;
  cudaStream_t second;
  ASSERT_CUDA(cudaStreamCreate(&first));
  ASSERT_CUDA(cudaStreamCreate(&second));
  int *data = deviceCopyOf(NULL, bytes);
  int *copy = deviceCopyOf(NULL, bytes);
  int result[count];
  ASSERT_CUDA(goodAdd(data, count, 1, first));
  ASSERT_CUDA(
      cudaMemcpyAsync(copy, data, bytes, cudaMemcpyDeviceToDevice, NULL));
  ASSERT_CUDA(goodAdd(copy, count, 10, second));
  ASSERT_CUDA(cudaMemcpy(result, copy, bytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < count; i++)
    ck_assert_int_eq(result[i], 11);
  ASSERT_CUDA(cudaStreamDestroy(first));
  ASSERT_CUDA(cudaStreamDestroy(second));
  ASSERT_CUDA(cudaFree(data));
  ASSERT_CUDA(cudaFree(copy));
}
END_TEST

START_TEST(copiesTakePageableBytesAtTheCall) {
  chooseOrder(_i);
  int *data = deviceCopyOf(NULL, (size_t)2 * bytes);
  int *late = pinned(bytes);
  int early[count];
  int result[2 * count];
  memset(early, 0, sizeof early);
  ASSERT_CUDA(
      cudaMemcpyAsync(data, early, bytes, cudaMemcpyHostToDevice, NULL));
  ASSERT_CUDA(
      cudaMemcpyAsync(data + count, late, bytes, cudaMemcpyDefault, NULL));
  early[0] = late[0] = 5;
  deviceTake(data, result, sizeof result);
  ck_assert_int_eq(result[0], 0);
  ck_assert_int_eq(result[count], 5);
  ASSERT_CUDA(cudaFreeHost(late));
}
END_TEST

START_TEST(queriesComeToAnEnd) {
  chooseOrder(_i);
  cudaStream_t stream;
  cudaEvent_t before;
  cudaEvent_t after;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaEventCreate(&before));
  ASSERT_CUDA(cudaEventCreate(&after));
  int *data = deviceCopyOf(NULL, bytes);
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaEventQuery(before)); /* never recorded */
  ASSERT_CUDA(cudaEventRecord(before, stream));
  for (int i = 0; i < 5; i++)
    ASSERT_CUDA(goodAdd(data, count, 1, stream));
  ASSERT_CUDA(cudaEventRecord(after, stream));
  float ms = -1;
  ck_assert_int_eq(cudaEventElapsedTime(&ms, before, after), cudaErrorNotReady);
  int numQueries = 0;
  while (cudaEventQuery(after) == cudaErrorNotReady)
    numQueries++;
  ck_assert_int_ge(numQueries, 5);
  ASSERT_CUDA(cudaStreamQuery(stream));
  ASSERT_CUDA(cudaEventSynchronize(after));
  ASSERT_CUDA(cudaEventElapsedTime(&ms, before, after));
  ck_assert(ms >= 0);
  ASSERT_CUDA(cudaEventDestroy(before));
  ASSERT_CUDA(cudaEventDestroy(after));
  ASSERT_CUDA(cudaStreamDestroy(stream));
  ASSERT_CUDA(cudaFree(data));
}
END_TEST

static void noteHostValue(void *user) {
  int **places = user;
  *places[1] = *places[0];
}

START_TEST(hostFunctionsRunInStreamOrder) {
  chooseOrder(_i);
  int *data = deviceCopyOf(NULL, bytes);
  int *host = pinned(bytes);
  int seen = -1;
  int *places[] = {host, &seen};
  ASSERT_CUDA(goodAdd(data, count, 3, NULL));
  ASSERT_CUDA(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, NULL));
  ASSERT_CUDA(cudaLaunchHostFunc(NULL, noteHostValue, places));
  ASSERT_CUDA(cudaMemsetAsync(data, 0, bytes, NULL));
  ASSERT_CUDA(cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, NULL));
  ASSERT_CUDA(cudaDeviceSynchronize());
  ck_assert_int_eq(seen, 3);
  ck_assert_int_eq(host[0], 0);
  ASSERT_CUDA(cudaFree(data));
  ASSERT_CUDA(cudaFreeHost(host));
}
END_TEST

/* A free on one stream, a kernel on another, and no event between. */
static void freeTooEarly(void *user) {
  (void)user;
  chooseOrder(1);
  cudaStream_t user1;
  cudaStream_t user2;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&user1, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamCreateWithFlags(&user2, cudaStreamNonBlocking));
  int *data = deviceCopyOf(NULL, bytes);
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(goodAdd(data, count, 1, user1));
  ASSERT_CUDA(cudaFreeAsync(data, user2));
  cudaStreamSynchronize(user2);
  cudaStreamSynchronize(user1);
}

START_TEST(aFreeThatNothingOrdersIsSeen) {
  int endedWell;
  const char *text = childErrors(freeTooEarly, NULL, &endedWell);
  ck_assert(!endedWell);
  ck_assert_msg(strstr(text, "use after free") != NULL, "%.1000s", text);
}
END_TEST

START_TEST(aBrokenStreamTellsEveryCall) {
  struct simtConfig config;
  simtGetConfig(&config);
  config.quiet = 1;
  simtSetConfig(&config);
  cudaStream_t stream;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  unsigned *data = deviceCopyOf(NULL, BROKEN_WORDS * sizeof(unsigned));
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(brokenLaunch("divergentBarrierKernel", data, stream));
  ASSERT_CUDA(goodAdd((int *)data, 4, 1, stream));
  ck_assert_int_eq(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  ck_assert_int_eq(cudaStreamQuery(stream), cudaErrorLaunchFailure);
  ck_assert_int_eq(cudaMemset(data, 0, 4), cudaErrorLaunchFailure);
  void *more;
  ck_assert_int_eq(cudaMalloc(&more, 4), cudaErrorLaunchFailure);
  ck_assert_int_eq(cudaPeekAtLastError(), cudaErrorLaunchFailure);
  /* Other devices still work. */
  ASSERT_CUDA(cudaSetDevice(1));
  ASSERT_CUDA(cudaMalloc(&more, 4));
  ASSERT_CUDA(cudaFree(more));
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaFree(data));
  ASSERT_CUDA(cudaDeviceReset());
}
END_TEST

int main(void) {
  static const TTest *const *ordered[] = {
      &aStreamKeepsItsOrder,
      &eventsOrderStreams,
      &aForgottenSynchronisationShows,
      &theDefaultStreamWaitsAndIsWaitedFor,
      &copiesTakePageableBytesAtTheCall,
      &queriesComeToAnEnd,
      &hostFunctionsRunInStreamOrder,
  };
  Suite *suite = suite_create("simt_streams");
  for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++) {
    TCase *group = tcase_create((*ordered[i])->name);
    tcase_add_loop_test(group, *ordered[i], 0, NUM_ORDERS);
    tcase_set_timeout(group, 60);
    suite_add_tcase(suite, group);
  }
  TCase *group = tcase_create("faults");
  tcase_set_timeout(group, 60);
  tcase_add_test(group, aFreeThatNothingOrdersIsSeen);
  tcase_add_test(group, aBrokenStreamTellsEveryCall);
  suite_add_tcase(suite, group);
  return suiteRun(suite);
}
