/* Communicators that the program made, and who may end which. */
#include "collectives/comm.h"
#include "collectives/nccl/call.h"
#include "cpu_ranks.h"
#include "standin_control.h"
#include "support/suite.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
  longMs = 20000
};

static const struct lrmoeNcclApi *nccl(void) {
  return &lrmoeNcclLoaded()->api;
}

/* As a program does, blocking or not. */
static lrmoeResult_t joinNccl(const struct testRank *self, int blocking,
                              struct ncclComm **made) {
  lrmoeNcclConfig_t config = LRMOE_NCCL_CONFIG(blocking);
  testStandin()->timeoutMs(longMs);
  lrmoeResult_t result = nccl()->commInitRankConfig(
      made, self->numRanks, self->id, self->rank, &config);
  while (result == lrmoeInProgress) {
    testSleepMs(1);
    LRMOE_CHECK(nccl()->commGetAsyncError(*made, &result));
  }
  return result;
}

static int gathers(const struct testRank *self, lrmoeComm_t comm) {
  int32_t own = 100 + self->rank, all[16] = {0};
  RANK_OK(self, lrmoeAllGather(&own, all, 1, lrmoeInt32, comm, NULL));
  for (int rank = 0; rank < self->numRanks; rank++)
    RANK_TRUE(self, all[rank] == 100 + rank);
  return 0;
}

/* A ring, in a group of LRMoE's, though LRMOE_BACKEND is cpu. */
static int rings(const struct testRank *self, lrmoeComm_t comm) {
  int n = self->numRanks, own = self->rank, got = -1;
  int before = (own + n - 1) % n;
  RANK_OK(self, lrmoeGroupStart());
  RANK_OK(self, lrmoeGroupStart());
  RANK_OK(self, lrmoeRecv(&got, 1, lrmoeInt32, before, comm, NULL));
  RANK_OK(self, lrmoeGroupEnd());
  RANK_OK(self, lrmoeSend(&own, 1, lrmoeInt32, (own + 1) % n, comm, NULL));
  RANK_TRUE(self, got == -1);
  RANK_OK(self, lrmoeGroupEnd());
  RANK_TRUE(self, got == before);
  RANK_TRUE(self, lrmoeGroupEnd() == lrmoeInvalidUsage);
  return 0;
}

/* ---- Given back whole ---- */

static int lend(const struct testRank *self) {
  const int *blocking = self->user;
  struct ncclComm *own = NULL;
  lrmoeComm_t comm = NULL, part = NULL;
  int32_t all[16] = {0}, mine = self->rank;
  int count = 0, rank = -1;
  RANK_OK(self, joinNccl(self, *blocking, &own));
  RANK_OK(self, lrmoeCommInitFromNccl(own, NULL, &comm));
  RANK_OK(self, lrmoeCommCount(comm, &count));
  RANK_OK(self, lrmoeCommUserRank(comm, &rank));
  RANK_TRUE(self, count == self->numRanks && rank == self->rank);
  if (gathers(self, comm) || rings(self, comm)) return 1;
  /* A part of it is LRMoE's own. */
  RANK_OK(self, lrmoeCommSplit(comm, 0, self->rank, &part));
  if (gathers(self, part)) return 1;
  RANK_OK(self, lrmoeCommDestroy(part));
  RANK_OK(self, lrmoeCommDestroy(comm));
  if (*blocking) {
    RANK_OK(self, nccl()->allGather(&mine, all, 1, lrmoeInt32, own, NULL));
    for (int i = 0; i < self->numRanks; i++)
      RANK_TRUE(self, all[i] == i);
  }
  RANK_OK(self, nccl()->commDestroy(own));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(blocking_ones_come_back) {
  int blocking = 1;
  ck_assert_int_eq(testRanksRun(3, lend, &blocking), 0);
}
END_TEST

START_TEST(non_blocking_ones_come_back) {
  int blocking = 0;
  ck_assert_int_eq(testRanksRun(3, lend, &blocking), 0);
}
END_TEST

/* A failure of LRMoE's breaks its handle and leaves the communicator alone. */
static int broken(const struct testRank *self) {
  struct ncclComm *own = NULL;
  lrmoeComm_t comm = NULL;
  lrmoeResult_t state = lrmoeSuccess;
  char byte = 0;
  RANK_OK(self, joinNccl(self, 1, &own));
  RANK_OK(self, lrmoeCommInitFromNccl(own, NULL, &comm));
  RANK_TRUE(self, lrmoeCommSettle(comm, LRMOE_FAIL(lrmoeOutOfMemory,
                                                   "no memory for 7 rows")));
  RANK_TRUE(self, lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, comm, NULL) ==
                      lrmoeRemoteError);
  RANK_TRUE(self, testErrorHas("no memory for 7 rows"));
  RANK_OK(self, lrmoeCommGetAsyncError(comm, &state));
  RANK_TRUE(self, state == lrmoeRemoteError);
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_OK(self, nccl()->broadcast(&byte, &byte, 1, lrmoeInt8, 0, own, NULL));
  RANK_OK(self, nccl()->commDestroy(own));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(a_failure_does_not_end_it) {
  ck_assert_int_eq(testRanksRun(2, broken, NULL), 0);
}
END_TEST

/* A wrong argument that only NCCL finds leaves a blocking one whole. */
static int refused(const struct testRank *self) {
  struct ncclComm *own = NULL;
  lrmoeComm_t comm = NULL;
  RANK_OK(self, joinNccl(self, 1, &own));
  RANK_OK(self, lrmoeCommInitFromNccl(own, NULL, &comm));
  char byte = 0;
  testStandin()->failNext(lrmoeInvalidArgument);
  RANK_TRUE(self, lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, comm, NULL) ==
                      lrmoeInvalidArgument);
  if (rings(self, comm)) return 1;
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_OK(self, nccl()->commDestroy(own));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(a_wrong_argument_does_not_end_it) {
  ck_assert_int_eq(testRanksRun(2, refused, NULL), 0);
}
END_TEST

/* The other rank leaves; its owner, and nobody else, aborts ours. */
static int deserted(const struct testRank *self) {
  struct ncclComm *own = NULL;
  lrmoeComm_t comm = NULL;
  char byte = 0;
  RANK_OK(self, joinNccl(self, 1, &own));
  RANK_OK(self, lrmoeCommInitFromNccl(own, NULL, &comm));
  if (self->rank == 0) {
    RANK_OK(self, lrmoeCommDestroy(comm));
    RANK_TRUE(self, nccl()->commDestroy(own) == lrmoeRemoteError);
    return 0;
  }
  for (int i = 0; i < 2; i++) {
    RANK_TRUE(self, lrmoeRecv(&byte, 1, lrmoeInt8, 0, comm, NULL) ==
                        lrmoeRemoteError);
    RANK_TRUE(self, testErrorHas("rank 0 has destroyed its communicator"));
  }
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_OK(self, nccl()->commAbort(own));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(a_peer_that_leaves_does_not_end_it) {
  ck_assert_int_eq(testRanksRun(2, deserted, NULL), 0);
}
END_TEST

/* A broken communicator is not taken. */
static int lame(const struct testRank *self) {
  struct ncclComm *own = NULL;
  lrmoeComm_t comm = NULL;
  char data[2] = {0};
  RANK_OK(self, joinNccl(self, 1, &own));
  lrmoeResult_t got = self->rank
                          ? nccl()->recv(data, 2, lrmoeInt8, 0, own, NULL)
                          : nccl()->send(data, 1, lrmoeInt8, 1, own, NULL);
  RANK_TRUE(self, got == lrmoeInvalidUsage);
  RANK_TRUE(self, lrmoeCommInitFromNccl(own, NULL, &comm) == lrmoeInvalidUsage);
  RANK_TRUE(self, testErrorHas("rank 0 sends 1 elements") && !comm);
  RANK_OK(self, nccl()->commAbort(own));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  return 0;
}

START_TEST(a_broken_one_is_not_taken) {
  ck_assert_int_eq(testRanksRun(2, lame, NULL), 0);
}
END_TEST

/* ---- Ended on request ---- */

static int abortIt(const struct testRank *self) {
  struct ncclComm *own = NULL;
  lrmoeComm_t comm = NULL;
  lrmoeResult_t state = lrmoeSuccess;
  int32_t word = 0;
  RANK_OK(self, joinNccl(self, 1, &own));
  RANK_OK(self, lrmoeCommInitFromNccl(own, NULL, &comm));
  testMeet(self->user, 0, self->numRanks);
  for (int i = 0; i < 2; i++)
    RANK_OK(self, lrmoeCommAbort(comm));
  RANK_TRUE(self, lrmoeAllReduce(&word, &word, 1, lrmoeInt32, lrmoeSum, comm,
                                 NULL) == lrmoeRemoteError);
  RANK_TRUE(self, testErrorHas("has aborted the communicator"));
  RANK_OK(self, lrmoeCommGetAsyncError(comm, &state));
  RANK_TRUE(self, state == lrmoeRemoteError);
  RANK_TRUE(self, lrmoeCommSettle(comm, lrmoeSystemError) == lrmoeSystemError);
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  /* And NCCL knows it no more. */
  RANK_TRUE(self, nccl()->commDestroy(own) == lrmoeInvalidArgument);
  RANK_TRUE(self, testStandin()->misuses() == 1);
  return 0;
}

START_TEST(an_abort_ends_it_once) {
  ck_assert_int_eq(testRanksRun(2, abortIt, testSharedMake()), 0);
}
END_TEST

/* While a group collects, of which NCCL knows nothing then. */
static int abortInGroup(const struct testRank *self) {
  struct ncclComm *own = NULL;
  lrmoeComm_t comm = NULL;
  char byte = 0;
  RANK_OK(self, joinNccl(self, 1, &own));
  RANK_OK(self, lrmoeCommInitFromNccl(own, NULL, &comm));
  testMeet(self->user, 0, self->numRanks);
  RANK_OK(self, lrmoeGroupStart());
  RANK_OK(self, lrmoeRecv(&byte, 1, lrmoeInt8, 0, comm, NULL));
  RANK_OK(self, lrmoeCommAbort(comm));
  RANK_TRUE(self, lrmoeGroupEnd() == lrmoeRemoteError);
  RANK_TRUE(self, testErrorHas("has aborted the communicator"));
  RANK_TRUE(self, testStandin()->misuses() == 0);
  RANK_TRUE(self, nccl()->commDestroy(own) == lrmoeInvalidArgument);
  RANK_OK(self, lrmoeCommDestroy(comm));
  return 0;
}

START_TEST(an_abort_drops_an_open_group) {
  ck_assert_int_eq(testRanksRun(1, abortInGroup, testSharedMake()), 0);
}
END_TEST

/* ---- Groups of both kinds ---- */

static int both(const struct testRank *self) {
  struct ncclComm *own = NULL;
  lrmoeComm_t cpu = NULL, comm = NULL;
  lrmoeUniqueId cpuId = self->id;
  int n = self->numRanks, next = (self->rank + 1) % n;
  int before = (self->rank + n - 1) % n, out = self->rank, in[2] = {-1, -1};
  cpuId.internal[0] ^= 1; /* another meeting */
  RANK_OK(self, joinNccl(self, 1, &own));
  RANK_OK(self, lrmoeCommInitFromNccl(own, NULL, &comm));
  RANK_OK(self, lrmoeCommInitRank(n, &cpuId, self->rank, NULL, &cpu));
  RANK_OK(self, lrmoeGroupStart());
  RANK_OK(self, lrmoeSend(&out, 1, lrmoeInt32, next, comm, NULL));
  RANK_OK(self, lrmoeSend(&out, 1, lrmoeInt32, next, cpu, NULL));
  RANK_OK(self, lrmoeRecv(&in[0], 1, lrmoeInt32, before, cpu, NULL));
  RANK_OK(self, lrmoeRecv(&in[1], 1, lrmoeInt32, before, comm, NULL));
  RANK_OK(self, lrmoeGroupEnd());
  RANK_TRUE(self, in[0] == before && in[1] == before);
  RANK_OK(self, lrmoeCommDestroy(cpu));
  RANK_OK(self, lrmoeCommDestroy(comm));
  RANK_OK(self, nccl()->commDestroy(own));
  return 0;
}

START_TEST(groups_of_both_kinds) {
  ck_assert_int_eq(testRanksRun(3, both, NULL), 0);
}
END_TEST

/* Memory goes back where it came from. */
START_TEST(memory_of_both_kinds) {
  void *blocks[2] = {NULL, NULL};
  ASSERT_OK(lrmoeMemAlloc(100, &blocks[0]));
  setenv("LRMOE_BACKEND", "cuda", 1);
  ASSERT_OK(lrmoeMemAlloc(100, &blocks[1]));
  ck_assert(lrmoeCpuMemHolds(blocks[0]) && !lrmoeCpuMemHolds(blocks[1]));
  ASSERT_OK(lrmoeMemFree(blocks[0]));
  setenv("LRMOE_BACKEND", "cpu", 1);
  ASSERT_OK(lrmoeMemFree(blocks[1]));
  ASSERT_RESULT(lrmoeMemFree(blocks[1]), lrmoeInvalidArgument);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {blocking_ones_come_back,
                                non_blocking_ones_come_back,
                                a_failure_does_not_end_it,
                                a_peer_that_leaves_does_not_end_it,
                                a_broken_one_is_not_taken,
                                an_abort_ends_it_once,
                                a_wrong_argument_does_not_end_it,
                                an_abort_drops_an_open_group,
                                groups_of_both_kinds,
                                memory_of_both_kinds};
  return suiteRunTests("nccl_borrow", tests, sizeof tests / sizeof tests[0],
                       120);
}
