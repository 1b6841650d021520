/* What the tests of the CPU transport share: see cpu_ranks.h. */
#include "cpu_ranks.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

const int rankCounts[numRankCounts] = {1, 2, 3, 4, 7, 9};

void *testBuffer(size_t bytes, int onHeap) {
  void *buffer = NULL;
  lrmoeResult_t result =
      onHeap ? CPU->memAlloc(&buffer, bytes) : lrmoeUnsupported;
  if (result == lrmoeUnsupported) return malloc(bytes + 1);
  return result == lrmoeSuccess ? buffer : NULL;
}

void testBufferFree(void *buffer, int onHeap) {
  if (!onHeap || CPU->memFree(buffer) == lrmoeUnsupported) free(buffer);
}

/* A pattern whose period, a prime, is no divisor of any chunk. */
enum {
  period = 509
};

static void makePattern(unsigned char *pattern, int from, int to, int serial) {
  unsigned state = (unsigned)from * 7919u + (unsigned)to * 104729u +
                   (unsigned)serial * 1299709u + 1;
  for (int i = 0; i < period; i++) {
    state = state * 1664525u + 1013904223u;
    pattern[i] = (unsigned char)(state >> 24);
  }
}

void testFill(void *buffer, size_t bytes, int from, int to, int serial) {
  unsigned char pattern[period], *next = buffer;
  makePattern(pattern, from, to, serial);
  for (size_t at = 0; at < bytes; at += period)
    memcpy(next + at, pattern, bytes - at < period ? bytes - at : period);
}

int testMatches(const void *buffer, size_t bytes, int from, int to,
                int serial) {
  unsigned char pattern[period];
  const unsigned char *next = buffer;
  makePattern(pattern, from, to, serial);
  for (size_t at = 0; at < bytes; at += period)
    if (memcmp(next + at, pattern, bytes - at < period ? bytes - at : period) !=
        0)
      return 0;
  return 1;
}

lrmoeResult_t testJoin(const struct testRank *self, int64_t timeoutMs,
                       struct ncclComm **comm) {
  return CPU->commInit(self->numRanks, &self->id, self->rank,
                       testTransportTimeout(timeoutMs), comm);
}

lrmoeResult_t testExchange(const struct testRank *self, struct ncclComm *comm) {
  unsigned char own = (unsigned char)self->rank, all[256] = {0};
  return CPU->allGather(&own, all, 1, lrmoeUint8, comm, NULL);
}

int testErrorHas(const char *text) {
  return strstr(lrmoeGetLastError(), text) != NULL;
}

int testFailedBy(const struct testRank *self, struct ncclComm *comm,
                 lrmoeResult_t got, lrmoeResult_t result, const char *text) {
  lrmoeResult_t state = lrmoeSuccess;
  char why[512];
  RANK_TRUE(self, got == result);
  const char *found = strstr(lrmoeGetLastError(), text);
  if (!found) fprintf(stderr, "%s\n", lrmoeGetLastError());
  RANK_TRUE(self, found);
  /* What stands before it may name the call. */
  snprintf(why, sizeof why, "%s", found);
  RANK_TRUE(self, testExchange(self, comm) == result && testErrorHas(why));
  RANK_OK(self, CPU->commGetAsyncError(comm, &state));
  RANK_TRUE(self, state == result && testErrorHas(why));
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

lrmoeResult_t testLoop(const struct testRank *self, struct ncclComm *comm,
                       _Atomic int64_t *numTurns) {
  const size_t bytes = 1 << 20; /* per peer, at most */
  size_t room = bytes * (size_t)self->numRanks;
  char *out[2] = {testBuffer(room, 1), testBuffer(room, 0)};
  char *in = testBuffer(room, 0);
  lrmoeResult_t result = lrmoeSuccess;
  memset(out[1], 1, room);
  for (int turn = 0; result == lrmoeSuccess; turn++) {
    result = CPU->allToAll(out[turn % 2], in, bytes >> turn % 5 * 4, lrmoeInt8,
                           comm, NULL);
    atomic_fetch_add(numTurns, 1);
  }
  testBufferFree(out[0], 1);
  testBufferFree(out[1], 0);
  testBufferFree(in, 0);
  return result;
}

int testCountFds(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  if (!folder) return -1;
  while (readdir(folder))
    count++;
  closedir(folder);
  return count;
}

int64_t testNowMs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void testSleepMs(int64_t ms) {
  struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
}

void testMeet(struct testShared *shared, int word, int numRanks) {
  atomic_fetch_add(&shared->words[word], 1);
  while (atomic_load(&shared->words[word]) < numRanks)
    testSleepMs(1);
}

struct testShared *testSharedMake(void) {
  void *shared = mmap(NULL, sizeof(struct testShared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return shared == MAP_FAILED ? NULL : shared;
}
