/* Races between streams: programs that forgot an event are reported in every
 * order, with both operations and the memory; those that did not are not. */
#include "device.h"
#include "good.h"
#include "support/simt/simt.h"

#include <cublas_v2.h>

#include <string.h>

enum {
  count = 64,
  bytes = count * sizeof(int)
};

/* Two streams that wait for nobody by themselves, and memory. */
struct scene {
  cudaStream_t first;
  cudaStream_t second;
  cudaEvent_t event;
  int *data;
  int *other;
};

/* Those of a test. */
enum {
  maxScenes = 4
};
static cudaEvent_t events[maxScenes];
static int numEvents;

static struct scene open(int order) {
  struct scene s;
  struct simtConfig config;
  chooseOrder(order);
  simtGetConfig(&config);
  config.quiet = 1;
  simtSetConfig(&config);
  ASSERT_CUDA(cudaStreamCreateWithFlags(&s.first, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaStreamCreateWithFlags(&s.second, cudaStreamNonBlocking));
  ASSERT_CUDA(cudaEventCreateWithFlags(&s.event, cudaEventDisableTiming));
  ck_assert_int_lt(numEvents, maxScenes);
  events[numEvents++] = s.event;
  s.data = deviceCopyOf(NULL, bytes);
  s.other = deviceCopyOf(NULL, bytes);
  ASSERT_CUDA(cudaDeviceSynchronize());
  return s;
}

/* Streams and memory end with the device. */
static void shut(void) {
  while (numEvents)
    ASSERT_CUDA(cudaEventDestroy(events[--numEvents]));
}

static void await(const struct scene *s, cudaStream_t waiting,
                  cudaStream_t awaited) {
  ASSERT_CUDA(cudaEventRecord(s->event, awaited));
  ASSERT_CUDA(cudaStreamWaitEvent(waiting, s->event, 0));
}

/* Runs everything; the report, and the device is whole again. */
static const char *outcome(void) {
  if (cudaDeviceSynchronize() == cudaSuccess) return "";
  ck_assert_int_eq(cudaGetLastError(), cudaErrorLaunchFailure);
  ASSERT_CUDA(cudaDeviceReset());
  return simtLastReport();
}

static void assertRace(const char *one, const char *two, const char *place) {
  const char *text = outcome();
  ck_assert_msg(strstr(text, "race between streams: ") != NULL, "\"%s\"", text);
  ck_assert_msg(strstr(text, one) != NULL, "no %s in \"%s\"", one, text);
  ck_assert_msg(strstr(text, two) != NULL, "no %s in \"%s\"", two, text);
  ck_assert_msg(strstr(text, place) != NULL, "no %s in \"%s\"", place, text);
}

static void assertNoRace(void) {
  ck_assert_str_eq(outcome(), "");
}

static void copy(const struct scene *s, cudaStream_t stream) {
  ASSERT_CUDA(cudaMemcpyAsync(s->other, s->data, bytes,
                              cudaMemcpyDeviceToDevice, stream));
}

START_TEST(aCopyOfWhatAKernelWrites) {
  struct scene s = open(_i);
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.first));
  copy(&s, s.second);
  assertRace("addKernel on stream 1", "cudaMemcpyAsync on stream 2",
             " of device memory of 256 bytes");
  s = open(_i);
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.first));
  await(&s, s.second, s.first);
  copy(&s, s.second);
  assertNoRace();
}
END_TEST

START_TEST(aKernelThatWritesWhatIsRead) {
  struct scene s = open(_i);
  copy(&s, s.first);
  ASSERT_CUDA(goodAdd(s.data + 3, 1, 1, s.second));
  assertRace("cudaMemcpyAsync on stream", "addKernel on stream",
             "byte 12 of device memory of 256 bytes");
}
END_TEST

START_TEST(kernelsThatWriteTheSame) {
  struct scene s = open(_i);
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.first));
  ASSERT_CUDA(goodAdd(s.data + 10, count - 10, 1, s.second));
  assertRace("addKernel on stream", "addKernel on stream",
             " of device memory of 256 bytes");
  s = open(_i);
  ASSERT_CUDA(goodAdd(s.data, 10, 1, s.first));
  ASSERT_CUDA(goodAdd(s.data + 10, count - 10, 1, s.second));
  assertNoRace();
}
END_TEST

/* Bytes of one word belong to different streams, and readers are many. */
START_TEST(whatDoesNotMeetIsNoRace) {
  struct scene s = open(_i);
  char *target = (char *)s.data;
  cudaStream_t third;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
  for (int i = 0; i < 4; i++)
    ASSERT_CUDA(cudaMemsetAsync(target + i, i, 1, i % 2 ? s.first : s.second));
  ASSERT_CUDA(
      cudaMemcpyAsync(s.other, target + 8, 8, cudaMemcpyDefault, third));
  ASSERT_CUDA(
      cudaMemcpyAsync(s.other + 2, target + 8, 8, cudaMemcpyDefault, s.first));
  ASSERT_CUDA(
      cudaMemcpyAsync(s.other + 4, target + 8, 8, cudaMemcpyDefault, s.second));
  assertNoRace();
}
END_TEST

/* An event that is recorded too early orders too little. */
START_TEST(anEventBeforeTheWork) {
  struct scene s = open(_i);
  await(&s, s.second, s.first);
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.first));
  copy(&s, s.second);
  assertRace("addKernel on stream 1", "cudaMemcpyAsync on stream 2",
             " of device memory of 256 bytes");
}
END_TEST

START_TEST(theHostOrdersWhatItWaitedFor) {
  struct scene s = open(_i);
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.first));
  ASSERT_CUDA(cudaStreamSynchronize(s.first));
  copy(&s, s.second);
  ASSERT_CUDA(cudaEventRecord(s.event, s.second));
  ASSERT_CUDA(cudaEventSynchronize(s.event));
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.first));
  assertNoRace();
  /* What was queued before the host waited does not know it. */
  s = open(_i);
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.second));
  copy(&s, s.first);
  ASSERT_CUDA(goodAdd(s.other + 2, 1, 1, s.second));
  assertRace("cudaMemcpyAsync on stream 3", "addKernel on stream 4",
             " of device memory of 256 bytes");
}
END_TEST

START_TEST(theDefaultStreamOrdersTheOthers) {
  struct scene s = open(_i);
  cudaStream_t blocking;
  ASSERT_CUDA(cudaStreamCreate(&blocking));
  ASSERT_CUDA(goodAdd(s.data, count, 1, blocking));
  copy(&s, NULL);
  ASSERT_CUDA(goodAdd(s.other, count, 1, blocking));
  assertNoRace();
  s = open(_i);
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.first));
  copy(&s, NULL); /* which waits for no cudaStreamNonBlocking */
  assertRace("addKernel on stream 4", "cudaMemcpyAsync on stream 0",
             " of device memory of 256 bytes");
}
END_TEST

START_TEST(matricesAreMemoryToo) {
  struct scene s = open(_i);
  cublasHandle_t handle;
  float one = 1;
  float zero = 0;
  ck_assert_int_eq(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  ck_assert_int_eq(cublasSetStream(handle, s.second), CUBLAS_STATUS_SUCCESS);
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.first));
  ck_assert_int_eq(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one,
                                s.data, CUDA_R_32F, 4, s.data + 16, CUDA_R_32F,
                                4, &zero, s.other, CUDA_R_32F, 4,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                   CUBLAS_STATUS_SUCCESS);
  assertRace("addKernel on stream 1", "cublasGemmEx on stream 2",
             " of device memory of 256 bytes");
  cublasDestroy(handle);
}
END_TEST

START_TEST(aFreeIsAWrite) {
  struct scene s = open(2 * _i);
  ASSERT_CUDA(cudaFreeAsync(s.other, s.second)); /* nobody uses it */
  assertNoRace();
  s = open(0);
  ASSERT_CUDA(goodAdd(s.data, count, 1, s.first));
  ASSERT_CUDA(cudaFreeAsync(s.data, s.second));
  assertRace("addKernel on stream 3", "cudaFreeAsync on stream 4",
             " of device memory of 256 bytes");
}
END_TEST

int main(void) {
  static const TTest *const *tests[] = {
      &aCopyOfWhatAKernelWrites,
      &aKernelThatWritesWhatIsRead,
      &kernelsThatWriteTheSame,
      &whatDoesNotMeetIsNoRace,
      &anEventBeforeTheWork,
      &theHostOrdersWhatItWaitedFor,
      &theDefaultStreamOrdersTheOthers,
      &matricesAreMemoryToo,
      &aFreeIsAWrite,
  };
  Suite *suite = suite_create("simt_races");
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    TCase *group = tcase_create((*tests[i])->name);
    tcase_add_loop_test(group, *tests[i], 0, NUM_ORDERS);
    tcase_add_checked_fixture(group, NULL, shut);
    tcase_set_timeout(group, 60);
    suite_add_tcase(suite, group);
  }
  return suiteRun(suite);
}
