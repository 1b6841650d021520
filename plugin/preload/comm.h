/* The communicators that the shim knows. */
#ifndef LRMOE_PLUGIN_PRELOAD_COMM_H
#define LRMOE_PLUGIN_PRELOAD_COMM_H

#include "base/alloc.h"
#include "plugin/preload/board.h"
#include "plugin/preload/real.h"

#include <pthread.h>

struct lrmoePreloadDevice;

/* By peer where an array; what this rank has seen. */
struct lrmoeTraffic {
  int64_t *sentBytes; /* as the program asked for */
  int64_t *recvBytes;
  int64_t *wireBytes; /* as they crossed, without those to itself */
  int64_t numMessages;
  int64_t numAllToAlls;
  int64_t numGroups;
  int64_t numRows; /* sent, where the width is known */
  int64_t numZeroRows;
  int64_t numElided;     /* exchanges without their zero rows */
  int64_t numCalibrated; /* exchanges of the rows that a hint keeps */
  int64_t numHints;
  int64_t numRefused; /* hints that led to nothing, or ranks without one */
  int64_t numExact;   /* exchanges that the ranks let cross as they were */
  int64_t boardBytes; /* records, which cross beside NCCL */
  int64_t hostNs;     /* in NCCL's calls, and the shim's part of them */
  int64_t lastGroupNs;
};

/* Fields but next, numUsers and isGone are of the thread that uses it. */
struct lrmoePreloadComm {
  struct lrmoePreloadComm *next;
  lrmoeNcclComm_t handle;
  int numUsers;          /* the list, and calls under way; the last frees */
  atomic_int isGone;     /* destroyed or aborted */
  pthread_mutex_t mutex; /* of isGone, around NCCL's calls while waiting */
  uint64_t serial;       /* of this process's; 0: none */
  int rank;
  int numRanks;
  uint64_t key;             /* the same on all ranks; 0: not known */
  int hasCuda;              /* buffers may be a device's */
  struct lrmoeBoard *board; /* NULL: not agreed */
  uint64_t numExchanges;
  uint64_t numSplits;
  int hasWithdrawn;
  struct lrmoeBuffer staging;        /* rows that are packed */
  struct lrmoeBuffer work;           /* of a selection */
  struct lrmoePreloadDevice *device; /* NULL: no device pointer has come */
  int32_t *places; /* [numRanks] of a peer in the order; NULL: as issued */
  int32_t *sources;
  struct lrmoeTraffic traffic;
};

/* A communicator that was just made, with its board or without. */
struct lrmoePreloadNew {
  lrmoeNcclComm_t handle;
  int rank;
  int numRanks;
  uint64_t key;
  struct lrmoeBoard *board;
  const struct lrmoePreloadComm *parent; /* NULL: not split off */
  const int32_t *parentRanks;            /* [numRanks] */
};
void lrmoePreloadCommAdd(const struct lrmoePreloadNew *made);

/* Becomes a user of the communicator, which is made known if NCCL can say what
 * it is; NULL: it cannot be followed. */
struct lrmoePreloadComm *lrmoePreloadCommTake(lrmoeNcclComm_t handle);
void lrmoePreloadCommGive(struct lrmoePreloadComm *comm);

/* Before NCCL frees it; what is returned is to be given back after that, since
 * memory of a device is freed then only.  NULL: nothing is. */
struct lrmoePreloadComm *lrmoePreloadCommForget(lrmoeNcclComm_t handle);

/* Allocates and fills places and sources, for the machine in a file; NULL: this
 * one. */
void lrmoePreloadOrder(struct lrmoePreloadComm *comm, const char *path);

/* The same for a part of a communicator that has an order. */
void lrmoePreloadOrderPart(struct lrmoePreloadComm *comm,
                           const struct lrmoePreloadNew *made);

/* Writes the lines of a communicator that ends. */
void lrmoePreloadReport(struct lrmoePreloadComm *comm);

#endif
