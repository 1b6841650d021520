/* What the ranks of a communicator share besides NCCL: a board in memory, for
 * ranks of one machine.
 *
 * Agreement at creation.  A rank that has this library puts up a card, the
 * socket name of (communicator, rank, what must be equal on all ranks), before
 * it enters NCCL's call.  That call returns when all ranks have entered it, so
 * then every card that will ever be is up, and one look at them tells all ranks
 * the same: no waiting for a rank that lacks the library or has other settings,
 * and no message that such a rank would have to understand.  Rank 0 looks; if
 * all are there it sends each the board, else a refusal.  Names and boards
 * vanish with their processes.
 *
 * Exchanges.  Each rank publishes a record of what it is about to send and
 * receive; when all n records of exchange k are there, every rank sees the same
 * n records and draws the same conclusion from them.  A rank that is about to
 * do anything else on the communicator, or that has waited for too long,
 * withdraws instead, for good, which is not possible once the n-th record is
 * there.  So for each exchange either all ranks see all records, or none acts
 * on them. */
#ifndef LRMOE_PLUGIN_PRELOAD_BOARD_H
#define LRMOE_PLUGIN_PRELOAD_BOARD_H

#include "lrmoe.h"

#include <stdatomic.h>

/* One rank's record of one exchange.  Behind it come, with a hint, the keys
 * (kernels/select.h) of all rows that it sends; else bits of the rows that are
 * not zero for each peer with rows, beginning at a byte. */
struct lrmoeBoardPeer {
  int64_t sendBytes;
  int64_t recvBytes;
  int64_t keptRows; /* -1: this message crosses as it is */
};

struct lrmoeBoardRecord {
  int32_t isEligible;
  int32_t reserved;
  uint64_t hint; /* what the rank was told about it; 0: nothing */
  struct lrmoeBoardPeer peers[]; /* [numRanks], then the bits or keys */
};

struct lrmoeBoard;

/* ---- Agreement ---- */

struct lrmoeCard {
  int socket; /* -1: none */
  int rank;
  int numRanks;
  uint64_t key;         /* of communicator and settings */
  const int32_t *names; /* [numRanks] in cards; NULL: their numbers */
};

/* Before NCCL's call: puts the card up. */
void lrmoeCardShow(struct lrmoeCard *card, const lrmoeUniqueId *id,
                   int numRanks, int rank, uint64_t settings);

/* The same for a communicator of which this rank will know rank, numRanks and
 * names after the call only. */
void lrmoeCardShowAs(struct lrmoeCard *card, uint64_t key, int32_t name);
void lrmoeCardTakeDown(struct lrmoeCard *card);

/* After NCCL's call: the board, or NULL on all ranks.  isWilling 0: that call
 * failed here, and there is none.  Takes the card down. */
struct lrmoeBoard *lrmoeCardSettle(struct lrmoeCard *card, int isWilling,
                                   int64_t timeoutMs);

/* ---- Board ---- */

void lrmoeBoardClose(struct lrmoeBoard *board);

/* This rank's place for the record of exchange k, and room behind it, which
 * begins at a page. */
struct lrmoeBoardRecord *lrmoeBoardMine(struct lrmoeBoard *board, uint64_t k);
const struct lrmoeBoardRecord *lrmoeBoardOf(struct lrmoeBoard *board,
                                            uint64_t k, int rank);
uint8_t *lrmoeBoardBits(const struct lrmoeBoard *board,
                        const struct lrmoeBoardRecord *record);
int64_t lrmoeBoardRoom(const struct lrmoeBoard *board); /* bytes of it */

/* False: a rank has withdrawn before. */
int lrmoeBoardPublish(struct lrmoeBoard *board);

/* All records of exchange k are there; waits for a moment if not. */
int lrmoeBoardIsComplete(struct lrmoeBoard *board, uint64_t k);
int lrmoeBoardIsWithdrawn(struct lrmoeBoard *board);

/* False: exchange k was complete before, and must be acted on. */
int lrmoeBoardWithdraw(struct lrmoeBoard *board, uint64_t k);

/* ---- Splits (split.h) ---- */

/* Of this rank, before NCCL's call; of another, after it.  False: that rank has
 * not put it there. */
void lrmoeBoardPutSplit(struct lrmoeBoard *board, uint64_t number,
                        int32_t color, int32_t key);
int lrmoeBoardGetSplit(struct lrmoeBoard *board, uint64_t number, int rank,
                       int32_t *color, int32_t *key);

/* ---- Report ---- */

/* Adds this rank's row of the traffic matrix; whether it was the last to. */
int lrmoeBoardLeave(struct lrmoeBoard *board, const int64_t *sent);
const int64_t *lrmoeBoardRow(struct lrmoeBoard *board, int rank);

#endif
