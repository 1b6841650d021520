/* Exchanges without their zero rows, or with the rows only that a hint keeps.
 */
#ifndef LRMOE_PLUGIN_PRELOAD_ELIDE_H
#define LRMOE_PLUGIN_PRELOAD_ELIDE_H

#include "plugin/preload/group.h"
#include "plugin/preload/hint.h"

/* One peer of an exchange.  Rows are what crosses in place of a message, -1:
 * that very message.  Bits say which of its rows those are, NULL: all; the
 * receiver's others become zero. */
struct lrmoeElisionPeer {
  const struct lrmoePreloadCall *send;
  const struct lrmoePreloadCall *recv;
  const uint8_t *sendBits;
  const uint8_t *recvBits;
  int64_t sendRows;
  int64_t recvRows;
};

/* One exchange: a send and a receive for each rank. */
struct lrmoeElision {
  struct lrmoePreloadComm *comm;
  struct lrmoeElisionPeer *peers; /* [numRanks] */
  struct lrmoeHint *hint;         /* NULL: no selection ... */
  const char *refusal;            /* ... for this reason */
  uint64_t k;
  int64_t rowBytes; /* 0: not known */
  int isElided;     /* the compact messages are with NCCL */
  int isDevice;     /* rows are in a device's memory */
  int isMixed;      /* some are, some not: this rank is not eligible */
  int isGone;       /* aborted meanwhile: nothing may be called any more */
};

/* Publishes what this rank sends and receives and, if all ranks did so and
 * some rows need not cross, issues the compact messages in their place.  calls
 * are those of one group; those of other shapes withdraw the communicator,
 * after which they cross as they are.  Free with lrmoeElisionEnd. */
lrmoeResult_t lrmoeElisionBegin(const struct lrmoePreloadReal *real,
                                const struct lrmoePreloadCall *calls,
                                int64_t numCalls, struct lrmoeElision *elision);

/* After the transfer: puts rows and zeros in their places, unless it failed.
 * Gives what has become of it. */
lrmoeResult_t lrmoeElisionEnd(struct lrmoeElision *elision,
                              lrmoeResult_t result);

/* Something else than an exchange comes on the communicator. */
void lrmoeElisionWithdraw(struct lrmoePreloadComm *comm);

/* Whether the communicator's exchanges may go without some rows. */
int lrmoeElisionIsOn(const struct lrmoePreloadComm *comm);

/* ---- Rows and bits ---- */

static inline int64_t lrmoeBitBytes(int64_t numRows) {
  return (numRows + 7) / 8;
}

static inline int lrmoeBitOf(const uint8_t *bits, int64_t row) {
  return bits[row / 8] >> (row % 8) & 1;
}

/* ---- Crossing (cross.c) ---- */

/* Hands NCCL the messages of the exchange, packed where they have bits, by way
 * of the communicator's staging. */
lrmoeResult_t lrmoeCrossIssue(const struct lrmoePreloadReal *real,
                              const struct lrmoeElision *elision);

/* After the transfer: rows go to their places, in place. */
void lrmoeCrossFinish(const struct lrmoeElision *elision);

#endif
