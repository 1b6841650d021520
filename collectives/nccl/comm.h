/* The NCCL filler's handle on a communicator of NCCL.
 *
 * What NCCL forbids is kept here: nothing is called on a communicator after
 * its abort, which frees it, nor on one that has failed, except to abort it;
 * abort is called once, and destroy never after it.  A borrowed communicator
 * belongs to the program: LRMoE neither destroys it nor aborts it of its own
 * accord.
 *
 * An abort may come from another thread than the one that uses a communicator.
 * Own communicators are non-blocking, so that no call stays in NCCL: an abort
 * that finds one there is left to the using thread.  A borrowed one may block
 * in NCCL, and is aborted at once, which is what NCCL offers to free it.  A
 * call that an abort ends returns after the abort, and one that fails on an own
 * communicator aborts it: NCCL touches its buffers no more. */
#ifndef LRMOE_COLLECTIVES_NCCL_COMM_H
#define LRMOE_COLLECTIVES_NCCL_COMM_H

#include "base/result.h"
#include "collectives/nccl/load.h"

#include <pthread.h>

enum {
  lrmoeNcclTextBytes = 400
};

enum lrmoeNcclAbort {
  lrmoeNcclNoAbort,
  lrmoeNcclAbortAsked, /* of the thread that is inside */
  lrmoeNcclAborting,
  lrmoeNcclAborted
};

/* Whether device communicators can be made (gin.c). */
enum lrmoeNcclGin {
  lrmoeNcclGinUnknown,
  lrmoeNcclGinGood,
  lrmoeNcclGinNone
};

struct lrmoeNcclComm {
  const struct lrmoeNcclApi *api;
  struct ncclComm *nccl;
  int rank;
  int numRanks;
  int64_t timeoutMs;
  int isBorrowed;
  enum lrmoeNcclGin gin;

  /* Guards what follows, since an abort comes from any thread. */
  pthread_mutex_t mutex;
  pthread_cond_t abortEnded;
  enum lrmoeNcclAbort abort;
  int numInside;        /* calls that are in NCCL */
  lrmoeResult_t result; /* what it failed with, for the reason in text */
  char text[lrmoeNcclTextBytes];

  void (*stop)(void *user); /* before an abort; set by the using thread */
  void *stopUser;

  /* The group of the thread that uses it (group.c). */
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
void lrmoeNcclCommGuard(struct ncclComm *handle, void (*stop)(void *user),
                        void *user);

/* A handle, without NCCL's communicator yet, and its end. */
lrmoeResult_t lrmoeNcclCommMake(const struct lrmoeNccl *nccl, int64_t timeoutMs,
                                struct lrmoeNcclComm **comm);
void lrmoeNcclCommFree(struct lrmoeNcclComm *comm);

/* lrmoeSuccess while comm may be used; else records and returns what it failed
 * with. */
lrmoeResult_t lrmoeNcclCommCheck(struct lrmoeNcclComm *comm);

/* Around what is called on comm: Enter checks as above, Hold only that there is
 * a communicator still (not 0).  Exit carries out an abort that was left to
 * this thread. */
lrmoeResult_t lrmoeNcclCommEnter(struct lrmoeNcclComm *comm);
int lrmoeNcclCommHold(struct lrmoeNcclComm *comm);
void lrmoeNcclCommExit(struct lrmoeNcclComm *comm);

/* Notes that comm failed with `result` for the reason in the last error, unless
 * it had failed before. */
void lrmoeNcclCommNote(struct lrmoeNcclComm *comm, lrmoeResult_t result);

/* What NCCL says of comm, recorded if it is an error; lrmoeInProgress is not
 * one. */
lrmoeResult_t lrmoeNcclCommAsk(struct lrmoeNcclComm *comm);

#endif
