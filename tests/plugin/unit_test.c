/* Parts of liblrmoe_preload.so: the board between threads, the order of
 * messages, and what NCCL is called with, with functions of this file for
 * NCCL's. */
#include "plugin/preload/board_map.h"
#include "plugin/preload/elide.h"
#include "plugin/preload/schedule.h"
#include "plugin/preload/zero.h"
#include "support/program.h"
#include "support/suite.h"

#include <hwloc.h>

#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* ---- Zero rows ---- */

START_TEST(every_bit_counts) {
  char row[200] = {0};
  for (int64_t bytes = 0; bytes <= 200; bytes++)
    ck_assert(lrmoePreloadIsZero(row, bytes));
  for (int64_t bit = 0; bit < 8 * 200; bit++) {
    row[bit / 8] = (char)(1 << (bit % 8));
    ck_assert(lrmoePreloadIsZero(row, bit / 8));
    for (int64_t bytes = bit / 8 + 1; bytes <= 200; bytes++)
      ck_assert(!lrmoePreloadIsZero(row, bytes));
    row[bit / 8] = 0;
  }
}
END_TEST

/* ---- Board ---- */

enum {
  numRanks = 4,
  numExchanges = 300
};

struct member {
  pthread_t thread;
  struct lrmoeBoard *board;
  int rank;
  uint64_t withdrawsAt; /* it withdraws instead of publishing this exchange */
  uint64_t numComplete;
  int isWrong;
};

static int awaitAll(struct lrmoeBoard *board, uint64_t k) {
  while (!lrmoeBoardIsComplete(board, k))
    if (lrmoeBoardIsWithdrawn(board) && lrmoeBoardWithdraw(board, k)) return 0;
  return 1;
}

static void *memberMain(void *argument) {
  struct member *member = argument;
  for (uint64_t k = 0; k < numExchanges; k++) {
    if (k == member->withdrawsAt) {
      lrmoeBoardWithdraw(member->board, k);
      break;
    }
    lrmoeBoardMine(member->board, k)->peers[0].sendBytes =
        (int64_t)k * numRanks + member->rank;
    if (!lrmoeBoardPublish(member->board)) break;
    if (!awaitAll(member->board, k)) break;
    for (int r = 0; r < numRanks; r++)
      member->isWrong |=
          lrmoeBoardOf(member->board, k, r)->peers[0].sendBytes !=
          (int64_t)k * numRanks + r;
    member->numComplete++;
  }
  return NULL;
}

/* How many exchanges each of the members saw whole. */
static uint64_t runMembers(const uint64_t *withdrawsAt) {
  struct member members[numRanks];
  int file = lrmoeBoardFile(numRanks);
  ck_assert_int_ge(file, 0);
  for (int r = 0; r < numRanks; r++) {
    members[r] = (struct member){.rank = r, .withdrawsAt = withdrawsAt[r]};
    members[r].board = lrmoeBoardMap(file, numRanks, r);
    ck_assert_ptr_nonnull(members[r].board);
    ck_assert(
        !pthread_create(&members[r].thread, NULL, memberMain, &members[r]));
  }
  for (int r = 0; r < numRanks; r++) {
    pthread_join(members[r].thread, NULL);
    lrmoeBoardClose(members[r].board);
    ck_assert(!members[r].isWrong);
    ck_assert_uint_eq(members[r].numComplete, members[0].numComplete);
  }
  close(file);
  return members[0].numComplete;
}

START_TEST(all_records_or_none) {
  const uint64_t never[numRanks] = {1000, 1000, 1000, 1000};
  ck_assert_uint_eq(runMembers(never), numExchanges);
  for (uint64_t k = 0; k < 40; k += 3) {
    uint64_t once[numRanks] = {1000, 1000, 1000, 1000};
    once[k % numRanks] = k;
    ck_assert_uint_eq(runMembers(once), k);
    once[(k + 1) % numRanks] = k + 5;
    ck_assert_uint_eq(runMembers(once), k);
  }
}
END_TEST

START_TEST(a_refused_board_is_withdrawn) {
  int file = lrmoeBoardFile(2);
  struct lrmoeBoard *board = lrmoeBoardMap(file, 2, 0);
  ck_assert_ptr_nonnull(board);
  ck_assert_ptr_null(lrmoeBoardMap(file, 3, 0));
  ck_assert(lrmoeBoardPublish(board));
  lrmoeBoardRefuse(file);
  ck_assert(lrmoeBoardIsWithdrawn(board));
  ck_assert(!lrmoeBoardPublish(board));
  ck_assert(!lrmoeBoardIsComplete(board, 0));
  lrmoeBoardClose(board);
  close(file);
}
END_TEST

/* ---- Agreement ---- */

struct holder {
  pthread_t thread;
  struct lrmoeCard card;
  struct lrmoeBoard *board;
  int isWilling;
};

static void *holderMain(void *argument) {
  struct holder *holder = argument;
  holder->board = lrmoeCardSettle(&holder->card, holder->isWilling, 20000);
  return NULL;
}

/* Ranks of which `mask` have cards with settings of their own; how many have a
 * board then. */
static int settle(unsigned mask, const uint64_t *settings, int isWilling) {
  struct holder holders[numRanks];
  lrmoeUniqueId id;
  int numBoards = 0;
  memset(&id, (int)mask + 1, sizeof id);
  for (int r = 0; r < numRanks; r++) {
    holders[r] = (struct holder){.isWilling = isWilling || r};
    holders[r].card.socket = -1;
    if (mask >> r & 1)
      lrmoeCardShow(&holders[r].card, &id, numRanks, r, settings[r]);
  }
  for (int r = 0; r < numRanks; r++)
    ck_assert(
        !pthread_create(&holders[r].thread, NULL, holderMain, &holders[r]));
  for (int r = 0; r < numRanks; r++) {
    pthread_join(holders[r].thread, NULL);
    numBoards += holders[r].board != NULL;
    lrmoeBoardClose(holders[r].board);
  }
  return numBoards;
}

START_TEST(all_have_a_board_or_none) {
  const uint64_t same[numRanks] = {7, 7, 7, 7};
  for (unsigned mask = 0; mask < 1 << numRanks; mask++)
    ck_assert_int_eq(settle(mask, same, 1), mask == 15 ? numRanks : 0);
  for (int r = 0; r < numRanks; r++) {
    uint64_t other[numRanks] = {7, 7, 7, 7};
    other[r] = 8;
    ck_assert_int_eq(settle(15, other, 1), 0);
  }
  ck_assert_int_eq(settle(15, same, 0), 0);
}
END_TEST

/* ---- Order ---- */

static struct lrmoePreloadCall callOf(struct lrmoePreloadComm *comm, int isSend,
                                      int peer, size_t count) {
  return (struct lrmoePreloadCall){.comm = comm,
                                   .isSend = isSend,
                                   .peer = peer,
                                   .count = count,
                                   .isDeferred = 1};
}

/* A recorded machine of two NUMA nodes with two cores each. */
static void recordMachine(const char *path) {
  hwloc_topology_t machine;
  ck_assert(!hwloc_topology_init(&machine));
  ck_assert(!hwloc_topology_set_synthetic(machine, "numa:2 core:2 pu:1"));
  ck_assert(!hwloc_topology_load(machine));
  ck_assert(!hwloc_topology_export_xml(machine, path, 0));
  hwloc_topology_destroy(machine);
}

/* Rank 1 of four on two NUMA nodes begins with the other node. */
START_TEST(topology_gives_the_order) {
  struct lrmoePreloadComm comm = {.rank = 1, .numRanks = numRanks};
  recordMachine(programPath("machine.xml"));
  lrmoePreloadOrder(&comm, programPath("machine.xml"));
  ck_assert_ptr_nonnull(comm.places);
  struct lrmoePreloadCall calls[4 * numRanks];
  int numCalls = 0;
  for (int peer = 0; peer < numRanks; peer++)
    for (size_t i = 0; i < 2; i++) {
      calls[numCalls++] = callOf(&comm, 1, peer, i);
      calls[numCalls++] = callOf(&comm, 0, peer, i);
    }
  lrmoePreloadSort(calls, numCalls);
  for (int i = 0; i < numCalls; i++) {
    int step = i / 4;
    ck_assert_int_eq(calls[i].isSend, i % 4 < 2);
    ck_assert_uint_eq(calls[i].count, (size_t)i % 2);
    ck_assert_int_eq(
        (calls[i].isSend ? comm.places : comm.sources)[calls[i].peer], step);
  }
  ck_assert_int_eq(calls[0].peer, 3);
  ck_assert_int_eq(calls[4].peer, 2);
  lrmoeFree(comm.places);
}
END_TEST

/* Ranks 3, 0 and 2 of those four: their order among themselves stays. */
START_TEST(part_keeps_the_order) {
  static const int32_t ranks[] = {3, 0, 2};
  struct lrmoePreloadComm whole = {.rank = 2, .numRanks = numRanks};
  struct lrmoePreloadComm part = {.rank = 2, .numRanks = 3};
  recordMachine(programPath("machine.xml"));
  lrmoePreloadOrder(&whole, programPath("machine.xml"));
  ck_assert_ptr_nonnull(whole.places);
  const struct lrmoePreloadNew made = {
      .numRanks = 3, .parent = &whole, .parentRanks = ranks};
  lrmoePreloadOrderPart(&part, &made);
  ck_assert_ptr_nonnull(part.places);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) {
      ck_assert_int_eq(part.places[i] < part.places[j],
                       whole.places[ranks[i]] < whole.places[ranks[j]]);
      ck_assert_int_eq(part.sources[i] < part.sources[j],
                       whole.sources[ranks[i]] < whole.sources[ranks[j]]);
    }
  ck_assert_int_lt(part.places[0] | part.places[1] | part.places[2], 4);
  lrmoeFree(whole.places);
  lrmoeFree(part.places);
}
END_TEST

int main(void) {
  const TTest *tests[] = {every_bit_counts,
                          all_records_or_none,
                          a_refused_board_is_withdrawn,
                          all_have_a_board_or_none,
                          topology_gives_the_order,
                          part_keeps_the_order};
  return suiteRunTests("plugin_unit", tests, sizeof tests / sizeof *tests,
                       120.0);
}
