/* Rows straight into the windows of other ranks, and how ranks meet after it:
 * the contract (backend.h has the rules of memory and streams).
 *
 * A phase of an exchange is: enter, puts, meet.  Every rank has a window of
 * signal words, [2, G] of them; meeting number `epoch` uses half epoch % 2.  A
 * rank that has met has the signals of all, hence all rows that they put before
 * it, and nobody is two meetings ahead of anybody.
 *
 *   Signal   epoch and how many rows were put, in one word; a rank that fails
 *            spoils its words in both halves, so that its peers fail too.
 *   Wait     ends by the signal, by a spoiled one, by a wrong count, by
 *            `isStopped`, or after timeoutMs: never later.
 *   Windows  may go once isStopped is set and numLeft has reached numEntered:
 *            who enters later puts nothing.
 *
 * A wait that fails says so in the watch; the stream goes on. */
#ifndef LRMOE_KERNELS_FUSED_H
#define LRMOE_KERNELS_FUSED_H

#include "kernels/rows.h"

enum lrmoeMeeting {
  lrmoeMeetingGood,
  lrmoeMeetingStopped, /* by the host */
  lrmoeMeetingSpoiled, /* the peer has failed */
  lrmoeMeetingCount,   /* the peer put another number of rows */
  lrmoeMeetingLate,
  lrmoeMeetingOther /* the peer's tag is another: nothing is put */
};

/* What the host and running kernels tell each other: page-locked, each field
 * written by one side, as a whole. */
struct lrmoeWatch {
  int64_t isStopped; /* host: nothing may be put any more */
  int64_t status;    /* kernels: enum lrmoeMeeting; the rest says more of it */
  int64_t peer;
  int64_t expected;
  int64_t got;
  int64_t numEntered; /* kernels: phases that have begun ... */
  int64_t numLeft;    /* ... and ended */
};

struct lrmoeMeet {
  int32_t rank;
  int32_t numRanks;
  int64_t epoch;            /* from 1, each time one more */
  int64_t *const *words;    /* [G] signal words of each rank */
  const int64_t *sent;      /* [G + 1] offsets of what is put into each rank's
                               window */
  const int64_t *expected;  /* [G + 1] and by each rank into this one's */
  const uint64_t *tags;     /* [G] all the same, or the gate stays closed; or
                               NULL */
  struct lrmoeWatch *watch; /* page-locked */
  int64_t *gate;            /* whether this phase may put */
  int64_t timeoutMs;
};

/* Signals: the epoch above the bits of a count. */
#define lrmoeSignalSpoiled ((int64_t)-1)

enum {
  lrmoeSignalBits = 40,
  lrmoeSignalEpochs = 1 << 23
};

static inline int64_t lrmoeSignalOf(int64_t epoch, int64_t rows) {
  return (epoch % lrmoeSignalEpochs << lrmoeSignalBits) + rows;
}

static inline int64_t lrmoeSignalRows(int64_t signal) {
  return signal & (((int64_t)1 << lrmoeSignalBits) - 1);
}

static inline int lrmoeSignalIsOf(int64_t signal, int64_t epoch) {
  return signal >> lrmoeSignalBits == epoch % lrmoeSignalEpochs;
}

/* A row of a rank: where a put goes. */
enum {
  lrmoePlaceBits = 40
};

static inline int64_t lrmoePlaceOf(int64_t rank, int64_t row) {
  return (int64_t)((uint64_t)rank << lrmoePlaceBits) + row;
}

/* Rows of this rank that go to others of this rank: row i of `rows` to row i of
 * `out`, where isOwn[i] is not negative. */
struct lrmoeOwnRows {
  struct lrmoeRows rows;
  int64_t numRows;
  const int64_t *isOwn;
  void *out;
};

/* Row t to the places list[offsets[t] .. offsets[t + 1]), none of them twice:
 * each row is read once. */
struct lrmoePut {
  struct lrmoeRows rows; /* index is not used */
  int64_t numRows;
  const int64_t *offsets; /* [numRows + 1] */
  const int64_t *list;
  char *const *targets; /* [G] row 0 of each rank, in rows' type */
  const int64_t *gate;
  /* Copied meanwhile, whatever the gate says: puts wait for links and leave the
   * memory idle. */
  struct lrmoeOwnRows own;
};

struct lrmoePutSums {
  struct lrmoeRows rows;  /* index is not used */
  const int64_t *offsets; /* lists of rows, as of lrmoeGatherSum */
  const int64_t *list;
  int32_t numRanks;
  int32_t first;         /* rank to begin with */
  int64_t maxOut;        /* sums for one rank */
  const int64_t *bounds; /* [G + 1] sums bounds[r] .. bounds[r + 1) are rank
                            r's rows 0, 1, ... */
  char *const *targets;  /* as of lrmoePut */
  const int64_t *gate;
};

/* The CPU's. */
void lrmoePutRows(const struct lrmoePut *args);
void lrmoeEnter(const struct lrmoeMeet *args);
void lrmoeMeetPeers(const struct lrmoeMeet *args);

#endif
