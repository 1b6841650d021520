/* Faults, one at each step: the rank that meets it gets an error, and so do
 * the others; nobody hangs, and nothing leaks (LeakSanitizer). */
#include "base/alloc.h"
#include "cpu_ranks.h"
#include "support/suite.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
  numRanks = 3,
  timeoutMs = 400
};

/* In the shared words. */
enum {
  victimWord = 10,
  stepWord,
  hitWord
};

typedef int64_t (*injector)(int64_t n);

struct sweep {
  struct testShared *shared;
  injector failAt;
};

/* A group of every kind of call, with both kinds of memory. */
static lrmoeResult_t talk(const struct testRank *self, struct ncclComm *comm,
                          char *out, char *in) {
  const size_t bytes = 5000;
  LRMOE_CHECK(CPU->groupStart());
  for (int peer = 0; peer < self->numRanks; peer++) {
    CPU->send(out + (size_t)peer * bytes, bytes, lrmoeUint8, peer, comm, NULL);
    CPU->recv(in + (size_t)peer * bytes, bytes, lrmoeUint8, peer, comm, NULL);
  }
  CPU->allReduce(in + 20000, in + 20000, 3000, lrmoeInt32, lrmoeSum, comm,
                 NULL);
  return CPU->groupEnd();
}

static lrmoeResult_t live(const struct testRank *self, struct ncclComm *comm,
                          char *const buffers[2]) {
  struct ncclWindow_vidmem *window = NULL;
  struct ncclComm *part = NULL;
  LRMOE_CHECK(talk(self, comm, buffers[0], buffers[1]));
  LRMOE_CHECK(talk(self, comm, buffers[1], buffers[0]));
  LRMOE_CHECK(CPU->commWindowRegister(comm, buffers[1], 100, &window, 0));
  LRMOE_CHECK(CPU->commSplit(comm, 0, 0, &part));
  lrmoeResult_t result = testExchange(self, part);
  lrmoeResult_t left = CPU->commDestroy(part);
  if (result == lrmoeSuccess) result = left;
  if (result == lrmoeSuccess) result = testExchange(self, comm);
  return result;
}

/* Everything from the first call to the last. */
static lrmoeResult_t lifetime(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  char *buffers[2] = {testBuffer(40000, 0), NULL};
  lrmoeResult_t result = CPU->memAlloc((void **)&buffers[1], 40000);
  if (result == lrmoeSuccess) result = testJoin(self, timeoutMs, &comm);
  if (result == lrmoeSuccess) result = live(self, comm, buffers);
  lrmoeResult_t left = CPU->commDestroy(comm);
  if (result == lrmoeSuccess) result = left;
  testBufferFree(buffers[0], 0);
  CPU->memFree(buffers[1]);
  return result;
}

/* Notes in words[rank] whether this rank got an error. */
static int suffer(const struct testRank *self) {
  const struct sweep *sweep = self->user;
  struct testShared *shared = sweep->shared;
  int isVictim = atomic_load(&shared->words[victimWord]) == self->rank;
  int64_t step = atomic_load(&shared->words[stepWord]);
  sweep->failAt(isVictim ? step : 0);
  lrmoeResult_t result = lifetime(self);
  int64_t numSteps = sweep->failAt(0);
  if (isVictim) atomic_store(&shared->words[hitWord], numSteps >= step);
  atomic_store(&shared->words[self->rank], result != lrmoeSuccess);
  return 0;
}

/* Fails step after step of one rank, until a run has fewer. */
static int sweepSteps(struct sweep *sweep, int victim, int stride) {
  struct testShared *shared = sweep->shared;
  int numFaults = 0;
  for (int64_t step = 1;; step += stride) {
    int pids[numRanks];
    atomic_store(&shared->words[victimWord], victim);
    atomic_store(&shared->words[stepWord], step);
    testRanksFork(numRanks, suffer, sweep, pids);
    for (int i = 0; i < numRanks; i++)
      ck_assert_int_eq(testRankWait(pids[i]), 0);
    int64_t isHit = atomic_load(&shared->words[hitWord]);
    for (int i = 0; i < numRanks; i++)
      ck_assert_msg(atomic_load(&shared->words[i]) == isHit,
                    "step %lld of rank %d: rank %d got %s", (long long)step,
                    victim, i, isHit ? "no error" : "an error");
    if (!isHit) return numFaults;
    numFaults++;
  }
}

START_TEST(fault_at_every_step) {
  struct sweep sweep = {testSharedMake(), testTransportFailAt};
  ck_assert_int_ge(sweepSteps(&sweep, _i, 1), 40);
}
END_TEST

START_TEST(fault_at_every_allocation) {
  struct sweep sweep = {testSharedMake(), lrmoeAllocFailAt};
  ck_assert_int_ge(sweepSteps(&sweep, _i, 1), testTransportAllocations);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cpu_fault");
  TCase *tests = tcase_create("fault");
  tcase_set_timeout(tests, 400);
  tcase_add_loop_test(tests, fault_at_every_step, 0, 2);
  tcase_add_loop_test(tests, fault_at_every_allocation, 0, 2);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
