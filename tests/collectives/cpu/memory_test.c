/* The shared heap and windows. */
#include "collectives/cpu/copy.h"
#include "collectives/cpu/heap.h"
#include "cpu_ranks.h"
#include "support/suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Heap ---- */

static int isZero(const unsigned char *data, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (data[i]) return 0;
  return 1;
}

static int64_t heapPages(void) {
  const struct lrmoeHeap *heap = NULL;
  struct stat status;
  ck_assert_int_eq(lrmoeHeapGet(&heap), lrmoeSuccess);
  ck_assert_int_eq(fstat(heap->fd, &status), 0);
  return status.st_blocks * 512 / 4096;
}

START_TEST(single_blocks) {
  static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 3 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    unsigned char *block = NULL;
    ASSERT_OK(CPU->memAlloc((void **)&block, sizes[i]));
    ck_assert_uint_eq((uintptr_t)block % 4096, 0);
    ck_assert(isZero(block, sizes[i]));
    memset(block, 0xff, sizes[i]);
    ASSERT_OK(CPU->memFree(block));
  }
  ASSERT_OK(CPU->memFree(NULL));
}
END_TEST

/* Memory that is freed goes back to the system, and comes back zeroed. */
START_TEST(freed_memory_is_given_back) {
  enum {
    bytes = 8 << 20
  };
  unsigned char *block = NULL;
  ASSERT_OK(CPU->memAlloc((void **)&block, bytes));
  int64_t before = heapPages();
  memset(block, 1, bytes);
  ck_assert_int_ge(heapPages() - before, bytes / 4096);
  ASSERT_OK(CPU->memFree(block));
  ck_assert_int_le(heapPages(), before);
  ASSERT_OK(CPU->memAlloc((void **)&block, bytes));
  ck_assert(isZero(block, bytes));
  ASSERT_OK(CPU->memFree(block));
}
END_TEST

START_TEST(what_is_not_a_block) {
  char *block = NULL;
  int local = 0;
  ASSERT_OK(CPU->memAlloc((void **)&block, 10000));
  ASSERT_RESULT(CPU->memFree(&local), lrmoeInvalidArgument);
  ASSERT_RESULT(CPU->memFree(block + 4096), lrmoeInvalidArgument);
  ASSERT_OK(CPU->memFree(block));
  ASSERT_RESULT(CPU->memFree(block), lrmoeInvalidArgument);
  ASSERT_RESULT(CPU->memAlloc(NULL, 1), lrmoeInvalidArgument);
}
END_TEST

/* A heap of 1 MiB is used to the last page, fails by name beyond, and can be
 * used anew. */
START_TEST(full_heap) {
  enum {
    most = 1 << 20
  };
  setenv("LRMOE_HEAP_BYTES", "1048576", 1);
  void *blocks[300];
  for (int turn = 0; turn < 2; turn++) {
    int numBlocks = 0;
    size_t bytes = turn ? 40000 : 1;
    while (CPU->memAlloc(&blocks[numBlocks], bytes) == lrmoeSuccess)
      numBlocks++;
    ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "LRMOE_HEAP_BYTES"));
    ck_assert_int_ge(numBlocks, turn ? 20 : 128);
    for (int i = 0; i < numBlocks; i += 2)
      ASSERT_OK(CPU->memFree(blocks[i]));
    for (int i = 1; i < numBlocks; i += 2)
      ASSERT_OK(CPU->memFree(blocks[i]));
  }
  void *all = NULL;
  ASSERT_RESULT(CPU->memAlloc(&all, most + 1), lrmoeOutOfMemory);
  ASSERT_OK(CPU->memAlloc(&all, most - 4096));
  ASSERT_OK(CPU->memFree(all));
}
END_TEST

/* Random blocks, each full of its own byte, in several threads at once. */
static int churn(const struct testRank *self) {
  enum {
    numSlots = 40,
    numTurns = 2000
  };
  unsigned char *blocks[numSlots] = {NULL};
  size_t sizes[numSlots] = {0};
  unsigned state = (unsigned)self->rank + 1;
  for (int turn = 0; turn < numTurns; turn++) {
    state = state * 1664525u + 1013904223u;
    int slot = (int)(state >> 8) % numSlots;
    unsigned char mark = (unsigned char)(slot * 4 + self->rank + 1);
    if (blocks[slot]) {
      RANK_TRUE(self, blocks[slot][0] == mark &&
                          blocks[slot][sizes[slot] - 1] == mark);
      RANK_OK(self, CPU->memFree(blocks[slot]));
      blocks[slot] = NULL;
      continue;
    }
    sizes[slot] = 1 + (state >> 12) % 30000;
    RANK_OK(self, CPU->memAlloc((void **)&blocks[slot], sizes[slot]));
    RANK_TRUE(self, !blocks[slot][0] && !blocks[slot][sizes[slot] - 1]);
    memset(blocks[slot], mark, sizes[slot]);
  }
  for (int slot = 0; slot < numSlots; slot++)
    RANK_OK(self, CPU->memFree(blocks[slot]));
  return 0;
}

START_TEST(random_blocks) {
  ck_assert_int_eq(testRanksThreads(4, churn, NULL), 0);
}
END_TEST

/* ---- Copies ---- */

/* Around every size and alignment at which the way of copying changes: all
 * bytes arrive, and none beside them is touched. */
START_TEST(copies) {
  enum {
    room = 600000,
    margin = 128
  };
  static const size_t sizes[] = {0,      1,      4095,   262143, 262144,
                                 262145, 278528, 278591, 500000};
  unsigned char *from = malloc(room), *to = malloc(room);
  testFill(from, room, 1, 2, 3);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t shift = 0; shift < 80; shift += 13) {
      size_t first = margin + shift, last = first + sizes[i];
      memset(to, 0xaa, room);
      lrmoeCopy(to + first, from + 79 - shift, sizes[i]);
      ck_assert_mem_eq(to + first, from + 79 - shift, sizes[i]);
      for (size_t at = 0; at < margin; at++)
        ck_assert(to[first - 1 - at] == 0xaa && to[last + at] == 0xaa);
    }
  free(from);
  free(to);
}
END_TEST

/* ---- Windows ---- */

/* Everybody writes a word into everybody's window, of sizes that differ. */
static int windows(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  struct ncclWindow_vidmem *window = NULL;
  int n = self->numRanks, me = self->rank;
  size_t words = (size_t)(n + 1000 * me);
  int64_t *block = NULL;
  RANK_OK(self, testJoin(self, 0, &comm));
  RANK_OK(self, CPU->memAlloc((void **)&block, words * 8 + 64));
  RANK_OK(self,
          CPU->commWindowRegister(comm, block + 8, words * 8, &window, 0));
  for (int peer = 0; peer < n; peer++) {
    void *there = NULL;
    RANK_OK(self, CPU->getPeerPointer(window, (size_t)me * 8, peer, &there));
    *(int64_t *)there = 100 * me + peer;
  }
  RANK_OK(self, testExchange(self, comm)); /* orders the accesses */
  for (int peer = 0; peer < n; peer++)
    RANK_TRUE(self, block[8 + peer] == 100 * peer + me);
  void *beyond = NULL;
  size_t last = (size_t)(n + 1000 * (n - 1)) * 8;
  RANK_OK(self, CPU->getPeerPointer(window, last, n - 1, &beyond));
  RANK_TRUE(self, CPU->getPeerPointer(window, last + 1, n - 1, &beyond) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self,
            CPU->getPeerPointer(window, 0, n, &beyond) == lrmoeInvalidArgument);
  RANK_OK(self, testExchange(self, comm));
  RANK_OK(self, CPU->commWindowDeregister(comm, window));
  RANK_TRUE(self,
            CPU->commWindowDeregister(comm, window) == lrmoeInvalidArgument);
  /* One that is left is freed with the communicator. */
  RANK_OK(self, CPU->commWindowRegister(comm, block, 8, &window, 0));
  RANK_OK(self, CPU->commDestroy(comm));
  RANK_OK(self, CPU->memFree(block));
  return 0;
}

START_TEST(windows_of_peers) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], windows, NULL), 0);
}
END_TEST

START_TEST(windows_of_threads) {
  ck_assert_int_eq(testRanksThreads(3, windows, NULL), 0);
}
END_TEST

/* If one rank's buffer is no heap block, all are told which rank's. */
static int badWindow(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  struct ncclWindow_vidmem *window = NULL;
  char *block = NULL, stack[64];
  RANK_OK(self, testJoin(self, 0, &comm));
  RANK_OK(self, CPU->memAlloc((void **)&block, 8192));
  void *buffer = self->rank == 1 ? stack : block;
  RANK_TRUE(self, CPU->commWindowRegister(comm, buffer, 64, &window, 0) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, testErrorHas("rank 1"));
  size_t bytes = self->rank == 2 ? 8193 : 8192;
  RANK_TRUE(self, CPU->commWindowRegister(comm, block, bytes, &window, 0) ==
                      lrmoeInvalidArgument);
  RANK_TRUE(self, testErrorHas("rank 2"));
  RANK_OK(self, CPU->commWindowRegister(comm, block, 8192, &window, 0));
  RANK_OK(self, CPU->commWindowDeregister(comm, window));
  RANK_OK(self, CPU->commDestroy(comm));
  RANK_OK(self, CPU->memFree(block));
  return 0;
}

START_TEST(window_outside_the_heap) {
  ck_assert_int_eq(testRanksRun(3, badWindow, NULL), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cpu_memory");
  TCase *tests = tcase_create("memory");
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, single_blocks);
  tcase_add_test(tests, freed_memory_is_given_back);
  tcase_add_test(tests, what_is_not_a_block);
  tcase_add_test(tests, full_heap);
  tcase_add_test(tests, random_blocks);
  tcase_add_test(tests, copies);
  tcase_add_loop_test(tests, windows_of_peers, 0, numRankCounts);
  tcase_add_test(tests, windows_of_threads);
  tcase_add_test(tests, window_outside_the_heap);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
