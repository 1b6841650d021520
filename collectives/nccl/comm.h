/* The NCCL filler's handle on a communicator of NCCL.
 *
 * What NCCL forbids is kept here: nothing is called on a communicator after
 * its abort, which frees it, nor on one that has failed, except to abort it;
 * abort is called once, and destroy never after it.  A borrowed communicator
 * belongs to the program: LRMoE neither destroys it nor aborts it of its own
 * accord. */
#ifndef LRMOE_COLLECTIVES_NCCL_COMM_H
#define LRMOE_COLLECTIVES_NCCL_COMM_H

#include "base/result.h"
#include "collectives/nccl/load.h"

#include <pthread.h>

enum {
  lrmoeNcclTextBytes = 400
};

struct lrmoeNcclComm {
  const struct lrmoeNcclApi *api;
  struct ncclComm *nccl;
  int rank;
  int64_t timeoutMs;
  int isBorrowed;

  /* Guards what follows, since an abort comes from any thread. */
  pthread_mutex_t mutex;
  int isAborted;
  lrmoeResult_t result; /* what it failed with, for the reason in text */
  char text[lrmoeNcclTextBytes];

  /* The group of the thread that uses it (call.c). */
  struct lrmoeNcclComm *nextInGroup;
  int isInGroup;
};

/* The table's handles are these structs behind NCCL's type. */
static inline struct lrmoeNcclComm *lrmoeNcclCommOf(struct ncclComm *handle) {
  return (struct lrmoeNcclComm *)(void *)handle;
}

static inline struct ncclComm *lrmoeNcclCommHandle(struct lrmoeNcclComm *comm) {
  return (struct ncclComm *)(void *)comm;
}

/* Behind the table's fields of these names. */
lrmoeResult_t lrmoeNcclCommInit(int numRanks, const lrmoeUniqueId *id, int rank,
                                int64_t timeoutMs, struct ncclComm **handle);
lrmoeResult_t lrmoeNcclCommSplit(struct ncclComm *handle, int color, int key,
                                 struct ncclComm **newHandle);
lrmoeResult_t lrmoeNcclCommDestroy(struct ncclComm *handle);
lrmoeResult_t lrmoeNcclCommAbort(struct ncclComm *handle);
lrmoeResult_t lrmoeNcclCommGetAsyncError(struct ncclComm *handle,
                                         lrmoeResult_t *error);
void lrmoeNcclCommBreak(struct ncclComm *handle);

/* A handle, without NCCL's communicator yet, and its end. */
lrmoeResult_t lrmoeNcclCommMake(const struct lrmoeNccl *nccl, int64_t timeoutMs,
                                struct lrmoeNcclComm **comm);
void lrmoeNcclCommFree(struct lrmoeNcclComm *comm);

/* lrmoeSuccess while comm may be used; else records and returns what it failed
 * with. */
lrmoeResult_t lrmoeNcclCommCheck(struct lrmoeNcclComm *comm);

int lrmoeNcclCommIsAborted(struct lrmoeNcclComm *comm);

/* Notes that comm failed with `result` for the reason in the last error, unless
 * it had failed before. */
void lrmoeNcclCommNote(struct lrmoeNcclComm *comm, lrmoeResult_t result);

/* What NCCL says of comm, recorded if it is an error; lrmoeInProgress is not
 * one. */
lrmoeResult_t lrmoeNcclCommAsk(struct lrmoeNcclComm *comm);

#endif
