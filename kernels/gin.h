/* Rows to other nodes that a device hands to the NIC itself (NCCL's GIN): the
 * contract (backend.h has the rules of memory and streams).
 *
 * A phase is: enter (fused.h), put, await.  Each rank has words of the network
 * that only grow, each written by one peer: in a phase by 2^lrmoeSignalBits and
 * a number.
 *
 *   Place    A receiver tells a sender that its memory is free, and where rows
 *            are to go; nobody writes before.
 *   Rows     A sender tells how many rows it has put; it comes after them.
 *   Answer   A receiver tells that they are there.
 *
 * After its await a rank has all rows that are put to it, and those that it put
 * itself have been read: their memory is free again.  So no rank is a phase
 * ahead of one that it sends to, or receives from.
 *
 *   Order    Both ends compute the same context of the network for a pair of
 *            ranks: there words come after all rows before them.
 *   Wait     ends by the word, by a spoiled one, by a wrong count, by
 *            `isStopped`, or after timeoutMs: never later.
 *
 * A wait that fails says so in the watch; the stream goes on. */
#ifndef LRMOE_KERNELS_GIN_H
#define LRMOE_KERNELS_GIN_H

#include "kernels/fused.h"

#include <stddef.h>

/* Words of a rank, G of each: by peer. */
enum lrmoeGinWord {
  lrmoeGinRows,
  lrmoeGinAnswer,
  lrmoeGinPlace,
  lrmoeNumGinWords
};

/* What goes to a peer, or comes from it: bytes of a window. */
struct lrmoeGinPeer {
  int64_t peer;
  int64_t rows;
  int64_t at;
  int64_t bytes;
};

struct lrmoeGin {
  const void *comm; /* [host] NCCL's device communicator */
  int32_t rank;
  int32_t numRanks;
  struct ncclWindow_vidmem *from; /* of the senders */
  struct ncclWindow_vidmem *to;   /* of the receivers */
  int32_t numSends; /* no peer twice among the sends, nor among the receives */
  int32_t numReceives;
  const struct lrmoeGinPeer *sends;
  const struct lrmoeGinPeer *receives;
  uint64_t *seen;     /* [lrmoeNumGinWords, G] words as of the last phase */
  int64_t pieceBytes; /* most of one transfer */
  int64_t epoch;      /* that was entered */
  struct lrmoeWatch *watch;
  const int64_t *gate;
  int64_t timeoutMs;
};

/* In a word: its writer has failed. */
#define lrmoeGinSpoiled ((uint64_t)1 << 62)

/* A backend's calls.  NCCL's device interface is of one release: `version` is
 * the NCCL_VERSION_CODE of the headers that they were compiled with, and no
 * other library will do; 0: there are none. */
struct lrmoeGinBackend {
  int version;
  size_t commBytes;  /* ncclDevComm */
  size_t needsBytes; /* ncclDevCommRequirements, which ... */
  void (*needs)(int numSignals, void *needs); /* [host] fills in */
  /* Clears this rank's words, and `seen`: NCCL leaves in them what earlier
   * communicators have left. */
  lrmoeResult_t (*reset)(const struct lrmoeGin *args, lrmoeStream_t stream);
  lrmoeResult_t (*put)(const struct lrmoeGin *args, lrmoeStream_t stream);
  lrmoeResult_t (*await)(const struct lrmoeGin *args, lrmoeStream_t stream);
};

#endif
