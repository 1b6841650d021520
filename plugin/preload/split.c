/* Splits: all ranks of a communicator with a board have this library and the
 * same settings, so its parts need not ask for that again; they need boards.
 *
 * 1. Before NCCL's call each rank writes its color and key on the parent's
 *    board and puts up a card (card.c) with its rank in the parent as name.
 * 2. The call returns when all ranks of the parent have entered it, so then
 *    every rank reads the colors and keys of all and knows who its part is, in
 *    NCCL's order: by key, then by rank.  The first of them hands out the
 *    board.
 *
 * Two tables are enough: who writes for split k + 2 has returned from k + 1,
 * which all ranks have entered, and none does before it has read k's. */
#include "plugin/preload/split.h"

#include "base/hash.h"
#include "plugin/preload/mode.h"

#include <stdlib.h>

static uint64_t keyOf(const struct lrmoePreloadComm *parent, uint64_t number,
                      int color) {
  const uint64_t values[] = {number, (uint64_t)color};
  return lrmoeHash(parent->key, values, sizeof values);
}

/* A rank without a color takes part and gets nothing. */
void lrmoePreloadSplitBegin(lrmoeNcclComm_t comm, int color, int key,
                            int isSeen, struct lrmoePreloadSplit *split) {
  struct lrmoePreloadComm *parent = lrmoePreloadCommTake(comm);
  *split = (struct lrmoePreloadSplit){
      .parent = parent, .card.socket = -1, .color = color};
  if (!parent) return;
  split->number = parent->numSplits++;
  if (!parent->board || !isSeen ||
      LRMOE_ALLOCATE(parent->numRanks, &split->ranks) != lrmoeSuccess)
    return;
  lrmoeBoardPutSplit(parent->board, split->number, color, key);
  if (color >= 0)
    lrmoeCardShowAs(&split->card, keyOf(parent, split->number, color),
                    parent->rank);
}

/* ---- Members ---- */

struct member {
  int32_t rank; /* in the parent */
  int32_t key;
};

static int compareMembers(const void *a, const void *b) {
  const struct member *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Ranks of this color in NCCL's order; how many, 0: somebody's is missing. */
static int listMembers(struct lrmoePreloadSplit *split,
                       struct member *members) {
  int count = 0;
  for (int r = 0; r < split->parent->numRanks; r++) {
    int32_t color = -1, key = 0;
    if (!lrmoeBoardGetSplit(split->parent->board, split->number, r, &color,
                            &key))
      return 0;
    if (color == split->color) members[count++] = (struct member){r, key};
  }
  qsort(members, (size_t)count, sizeof *members, compareMembers);
  return count;
}

/* Whether NCCL has numbered this rank as the table does. */
static int setMembers(struct lrmoePreloadSplit *split, lrmoeNcclComm_t comm) {
  const struct lrmoePreloadReal *real = lrmoePreloadReal();
  struct member *members = NULL;
  int rank = -1, numRanks = 0;
  if (LRMOE_ALLOCATE(split->parent->numRanks, &members) != lrmoeSuccess)
    return 0;
  int count = listMembers(split, members);
  for (int i = 0; i < count; i++) {
    split->ranks[i] = members[i].rank;
    if (members[i].rank == split->parent->rank) split->card.rank = i;
  }
  split->card.numRanks = count;
  split->card.names = split->ranks;
  lrmoeFree(members);
  return real->commCount(comm, &numRanks) == lrmoeSuccess &&
         real->commUserRank(comm, &rank) == lrmoeSuccess && numRanks == count &&
         rank == split->card.rank;
}

/* ---- After the call ---- */

static void addPart(struct lrmoePreloadSplit *split, lrmoeNcclComm_t comm) {
  int isWilling = setMembers(split, comm);
  struct lrmoePreloadNew made = {.handle = comm,
                                 .rank = split->card.rank,
                                 .numRanks = split->card.numRanks,
                                 .key = split->card.key,
                                 .parent = split->parent,
                                 .parentRanks = split->ranks};
  made.board = lrmoeCardSettle(&split->card, isWilling,
                               lrmoePreloadSettings()->timeoutMs);
  if (isWilling) lrmoePreloadCommAdd(&made);
}

/* Without a card the part is asked of NCCL when it is used (comm.c). */
void lrmoePreloadSplitEnd(struct lrmoePreloadSplit *split,
                          const lrmoeNcclComm_t *comm, lrmoeResult_t result) {
  if (split->card.socket >= 0 && result == lrmoeSuccess && *comm)
    addPart(split, *comm);
  lrmoeCardTakeDown(&split->card);
  lrmoeFree(split->ranks);
  if (split->parent) lrmoePreloadCommGive(split->parent);
}
