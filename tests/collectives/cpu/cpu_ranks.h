/* What the tests of the CPU transport share. */
#ifndef LRMOE_TESTS_COLLECTIVES_CPU_RANKS_H
#define LRMOE_TESTS_COLLECTIVES_CPU_RANKS_H

#include "collectives/transport.h"
#include "support/ranks.h"

#define CPU (&lrmoeCpuTransport)

/* Numbers of ranks that the loops of a test case run over. */
enum {
  numRankCounts = 6
};
extern const int rankCounts[numRankCounts];

/* A buffer on the shared heap or in ordinary memory; bytes may be 0. */
void *testBuffer(size_t bytes, int onHeap);
void testBufferFree(void *buffer, int onHeap);

/* Byte i of the message `serial` from one rank to another. */
void testFill(void *buffer, size_t bytes, int from, int to, int serial);
int testMatches(const void *buffer, size_t bytes, int from, int to, int serial);

/* Joins with a time-out in ms. */
lrmoeResult_t testJoin(const struct testRank *self, int64_t timeoutMs,
                       struct ncclComm **comm);

/* One byte to and from everybody. */
lrmoeResult_t testExchange(const struct testRank *self, struct ncclComm *comm);

/* Whether the last error of this thread has `text` in it. */
int testErrorHas(const char *text);

int testCountFds(void);

int64_t testNowMs(void);
void testSleepMs(int64_t ms);

/* Shared counters of forked ranks; zeroed, freed with munmap at exit. */
struct testShared {
  _Atomic int64_t words[64];
};
struct testShared *testSharedMake(void);

#endif
