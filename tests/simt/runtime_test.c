/* The stand-in runtime's memory, errors, threads and processes. */
#include "device.h"
#include "good.h"
#include "support/ranks.h"
#include "support/simt/simt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void beQuiet(void) {
  struct simtConfig config;
  simtGetConfig(&config);
  config.quiet = 1;
  simtSetConfig(&config);
}

static void assertReport(const char *words) {
  ck_assert_msg(strstr(simtLastReport(), words) != NULL,
                "\"%s\" is not in \"%s\"", words, simtLastReport());
}

START_TEST(badCopiesAreRefusedWithTheReason) {
  beQuiet();
  char host[600];
  char *data = deviceCopyOf(NULL, 500);
  ck_assert_int_eq(cudaMemcpy(data, host, 501, cudaMemcpyHostToDevice),
                   cudaErrorInvalidValue);
  assertReport("out of bounds: 501 bytes from byte 0 of device memory of 500");
  ck_assert_int_eq(cudaMemcpy(host, data + 100, 401, cudaMemcpyDeviceToHost),
                   cudaErrorInvalidValue);
  ck_assert_int_eq(cudaMemcpy(data, host, 10, cudaMemcpyDeviceToHost),
                   cudaErrorInvalidMemcpyDirection);
  ck_assert_int_eq(cudaMemset(data + 1, 0, 500), cudaErrorInvalidValue);
  ck_assert_int_eq(cudaFree(data + 16), cudaErrorInvalidValue);
  assertReport("not the start of an allocation");
  ASSERT_CUDA(cudaFree(data));
  ck_assert_int_eq(cudaFree(data), cudaErrorInvalidValue);
  assertReport("use after free");
  ck_assert_int_eq(cudaMemset(data, 0, 4), cudaErrorInvalidValue);
  ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaGetLastError());
  ASSERT_CUDA(cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
}
END_TEST

START_TEST(newMemoryIsNotZeroAndAligned) {
  unsigned char host[300];
  for (size_t size = 1; size <= sizeof host; size += 13) {
    void *data;
    ASSERT_CUDA(cudaMalloc(&data, size));
    ck_assert_uint_eq((uintptr_t)data % 256, 0);
    ASSERT_CUDA(cudaMemcpy(host, data, size, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < size; i++)
      ck_assert_uint_eq(host[i], 0xA5);
    ASSERT_CUDA(cudaFree(data));
  }
  void *nothing = host;
  ASSERT_CUDA(cudaMalloc(&nothing, 0));
  ck_assert_ptr_null(nothing);
  ASSERT_CUDA(cudaFree(NULL));
}
END_TEST

START_TEST(aDeviceHasAnEnd) {
  size_t freeBytes;
  size_t total;
  ASSERT_CUDA(cudaMemGetInfo(&freeBytes, &total));
  ck_assert_uint_eq(freeBytes, total);
  void *data;
  ck_assert_int_eq(cudaMalloc(&data, total + 1), cudaErrorMemoryAllocation);
  ck_assert_ptr_null(data);
  ASSERT_CUDA(cudaMalloc(&data, 4096));
  ASSERT_CUDA(cudaMemGetInfo(&freeBytes, &total));
  ck_assert_uint_eq(freeBytes, total - 4096);
  ck_assert_int_eq(simtGetBytesInUse(), 4096);
  ASSERT_CUDA(cudaFree(data));
  ck_assert_int_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
}
END_TEST

START_TEST(pointersTellWhatTheyAre) {
  struct cudaPointerAttributes attributes;
  ASSERT_CUDA(cudaSetDevice(2));
  char *data = deviceCopyOf(NULL, 100);
  void *host;
  ASSERT_CUDA(cudaMallocHost(&host, 100));
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, data + 50));
  ck_assert_int_eq(attributes.type, cudaMemoryTypeDevice);
  ck_assert_int_eq(attributes.device, 2);
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, host));
  ck_assert_int_eq(attributes.type, cudaMemoryTypeHost);
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, &attributes));
  ck_assert_int_eq(attributes.type, cudaMemoryTypeUnregistered);
  ASSERT_CUDA(cudaFree(data));
  ASSERT_CUDA(cudaFreeHost(host));
}
END_TEST

START_TEST(aChosenCallFails) {
  void *data;
  simtFailCall(2, cudaErrorMemoryAllocation);
  ASSERT_CUDA(cudaMalloc(&data, 10));
  ck_assert_int_eq(cudaMemset(data, 0, 10), cudaErrorMemoryAllocation);
  ASSERT_CUDA(cudaMemset(data, 0, 10));
  ASSERT_CUDA(cudaFree(data));
}
END_TEST

START_TEST(devicesAndErrorsHaveNames) {
  int number;
  ASSERT_CUDA(cudaGetDeviceCount(&number));
  ck_assert_int_eq(number, 8);
  ck_assert_int_eq(cudaSetDevice(8), cudaErrorInvalidDevice);
  ck_assert_str_eq(cudaGetErrorName(cudaErrorInvalidDevice),
                   "cudaErrorInvalidDevice");
  ck_assert_str_eq(cudaGetErrorString(cudaErrorNotReady), "device not ready");
  ASSERT_CUDA(cudaDeviceGetAttribute(
      &number, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  ck_assert_int_eq(number, 232448);
  struct cudaDeviceProp properties;
  ASSERT_CUDA(cudaGetDeviceProperties(&properties, 0));
  ck_assert_int_eq(properties.major, 9);
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  ASSERT_CUDA(cudaStreamIsCapturing(NULL, &status));
  ck_assert_int_eq(status, cudaStreamCaptureStatusNone);
  cudaStream_t unknown = (cudaStream_t)(uintptr_t)0x1234560;
  ck_assert_int_eq(cudaStreamSynchronize(unknown),
                   cudaErrorInvalidResourceHandle);
}
END_TEST

/* ---- Threads and processes ----------------------------------------------- */

enum {
  rows = 3,
  width = 300
};

/* Selects on the rank's own device; 0 when the marks are right. */
static int selectOnRank(int rank) {
  static const int quotas[rows] = {0, width / 3, width};
  unsigned keys[rows][width];
  unsigned marks[rows][width];
  void *in;
  void *out;
  void *quota;
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < width; i++)
      keys[r][i] = (unsigned)((i * 7 + rank) % width);
  if (cudaSetDevice(rank) || cudaMalloc(&in, sizeof keys) ||
      cudaMalloc(&out, sizeof marks) || cudaMalloc(&quota, sizeof quotas))
    return 1;
  if (cudaMemcpy(in, keys, sizeof keys, cudaMemcpyHostToDevice) ||
      cudaMemcpy(quota, quotas, sizeof quotas, cudaMemcpyHostToDevice) ||
      goodSelect(in, quota, out, rows, width, NULL) ||
      cudaMemcpy(marks, out, sizeof marks, cudaMemcpyDeviceToHost))
    return 1;
  int numWrong = 0;
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < width; i++)
      if (marks[r][i] != (keys[r][i] >= (unsigned)(width - quotas[r])))
        numWrong++;
  if (cudaFree(in) || cudaFree(out) || cudaFree(quota)) return 1;
  return numWrong;
}

static int runRank(const struct testRank *rank) {
  for (int i = 0; i < 4; i++)
    RANK_TRUE(rank, selectOnRank(rank->rank) == 0);
  return 0;
}

START_TEST(eightRanksAreThreads) {
  simtSetOrder(simtOrderRandom, 3);
  ck_assert_int_eq(testRanksThreads(8, runRank, NULL), 0);
  ck_assert_int_eq(simtGetAllocations(), 0);
}
END_TEST

START_TEST(ranksMayBeProcesses) {
  int pids[4];
  testRanksFork(4, runRank, NULL, pids);
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(testRankWait(pids[i]), 0);
}
END_TEST

/* A message between two ranks' streams, as a stand-in for NCCL sends it. */
struct mailbox {
  pthread_mutex_t mutex;
  int *target; /* where the receiver wants it */
  int *source;
  int isDone;
};

static int isMatched(void *user) {
  struct mailbox *box = user;
  pthread_mutex_lock(&box->mutex);
  int matched = box->isDone || (box->target && box->source);
  pthread_mutex_unlock(&box->mutex);
  return matched;
}

static int deliver(void *user) {
  struct mailbox *box = user;
  pthread_mutex_lock(&box->mutex);
  if (!box->isDone) *box->target = *box->source;
  box->isDone = 1;
  pthread_mutex_unlock(&box->mutex);
  return 0;
}

static int exchangeOnRank(const struct testRank *rank) {
  struct mailbox *box = rank->user;
  int value = rank->rank ? 0 : 42;
  void *data;
  RANK_TRUE(rank, !cudaSetDevice(rank->rank) && !cudaMalloc(&data, 4));
  RANK_TRUE(rank, !cudaMemcpy(data, &value, 4, cudaMemcpyHostToDevice));
  pthread_mutex_lock(&box->mutex);
  *(rank->rank ? &box->target : &box->source) = data;
  pthread_mutex_unlock(&box->mutex);
  struct simtWork work = {"exchange", isMatched, deliver, box};
  RANK_TRUE(rank, !simtEnqueue(NULL, &work));
  simtWake();
  RANK_TRUE(rank, !cudaMemcpy(&value, data, 4, cudaMemcpyDeviceToHost));
  RANK_TRUE(rank, value == 42);
  RANK_TRUE(rank, !cudaDeviceSynchronize());
  return 0;
}

START_TEST(workOfOtherLibrariesWaitsForItsPeer) {
  struct mailbox box = {PTHREAD_MUTEX_INITIALIZER, NULL, NULL, 0};
  ck_assert_int_eq(testRanksThreads(2, exchangeOnRank, &box), 0);
}
END_TEST

static void leaveMemory(void *user) {
  (void)user;
  setenv("LRMOE_SIMT_LEAKS", "1", 1);
  deviceCopyOf(NULL, 123);
}

START_TEST(leaksAreListedWhenAskedFor) {
  int endedWell;
  const char *text = childErrors(leaveMemory, NULL, &endedWell);
  ck_assert_msg(strstr(text, "leak: 123 bytes") != NULL, "%.1000s", text);
}
END_TEST

static void tellConfig(void *user) {
  (void)user;
  setenv("LRMOE_SIMT_SEED", "42", 1);
  struct simtConfig config;
  simtGetConfig(&config);
  fprintf(stderr, "order %d %d %d, seed %d", (int)config.threads,
          (int)config.blocks, (int)config.streams, (int)config.seed);
}

static void tellBadOrder(void *user) {
  setenv("LRMOE_SIMT_ORDER", "sorted", 1);
  tellConfig(user);
}

START_TEST(theEnvironmentSetsOrderAndSeed) {
  int endedWell;
  ck_assert_str_eq(childErrors(tellConfig, NULL, &endedWell),
                   "order 2 2 2, seed 42");
  ck_assert(endedWell);
  ck_assert_str_eq(childErrors(tellBadOrder, NULL, &endedWell),
                   "simt: LRMOE_SIMT_ORDER=sorted is not understood\n");
  ck_assert(!endedWell);
}
END_TEST

int main(void) {
  static const TTest *const *tests[] = {
      &badCopiesAreRefusedWithTheReason,
      &newMemoryIsNotZeroAndAligned,
      &aDeviceHasAnEnd,
      &pointersTellWhatTheyAre,
      &aChosenCallFails,
      &devicesAndErrorsHaveNames,
      &eightRanksAreThreads,
      &ranksMayBeProcesses,
      &workOfOtherLibrariesWaitsForItsPeer,
      &leaksAreListedWhenAskedFor,
      &theEnvironmentSetsOrderAndSeed,
  };
  Suite *suite = suite_create("simt_runtime");
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    TCase *group = tcase_create((*tests[i])->name);
    tcase_set_timeout(group, 120);
    tcase_add_test(group, *tests[i]);
    suite_add_tcase(suite, group);
  }
  return suiteRun(suite);
}
