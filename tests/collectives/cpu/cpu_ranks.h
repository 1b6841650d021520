/* What the tests of transports share.  Those of the CPU transport and of the
 * NCCL filler over its stand-in are the same programs, each linked with its own
 * transport. */
#ifndef LRMOE_TESTS_COLLECTIVES_CPU_RANKS_H
#define LRMOE_TESTS_COLLECTIVES_CPU_RANKS_H

#include "collectives/transport.h"
#include "support/ranks.h"

/* The transport under test. */
const struct lrmoeTransport *testTransport(void);

/* The time-out to join with, so that the communicators that this thread makes
 * from now on have this one. */
int64_t testTransportTimeout(int64_t timeoutMs);

/* As lrmoeCpuFailAt; and how many allocations it makes at least in the life of
 * a communicator. */
int64_t testTransportFailAt(int64_t n);
extern const int testTransportAllocations;

#define CPU testTransport()

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

/* Checks that the call of which `got` came failed with `result` and a text that
 * has `text` in it, and so does every call after it; destroys comm.  0: so it
 * is. */
int testFailedBy(const struct testRank *self, struct ncclComm *comm,
                 lrmoeResult_t got, lrmoeResult_t result, const char *text);

/* All-to-alls of changing size out of both kinds of memory, until one fails;
 * counts them in numTurns. */
lrmoeResult_t testLoop(const struct testRank *self, struct ncclComm *comm,
                       _Atomic int64_t *numTurns);

int testCountFds(void);

int64_t testNowMs(void);
void testSleepMs(int64_t ms);

/* Shared counters of forked ranks; zeroed, freed with munmap at exit. */
struct testShared {
  _Atomic int64_t words[64];
};
struct testShared *testSharedMake(void);

/* Returns when numRanks ranks have come to this word: a barrier that no
 * communicator has a part in. */
void testMeet(struct testShared *shared, int word, int numRanks);

#endif
