/* What broke a communicator: one word that the ranks share.
 *
 * The first failure wins (compare-and-swap), so that all ranks name the same
 * culprit and not a rank that left because of it.  Details that do not fit
 * the word were written before it: the reason of a rank that gave up is in its
 * seat, the two sizes of a mismatch are in the channel. */
#ifndef LRMOE_COLLECTIVES_CPU_FAILURE_H
#define LRMOE_COLLECTIVES_CPU_FAILURE_H

#include "base/result.h"

struct ncclComm;

enum lrmoeFailureKind {
  lrmoeFailureNone,
  lrmoeFailureDied,     /* the culprit's process is gone */
  lrmoeFailureLeft,     /* the culprit destroyed its communicator */
  lrmoeFailureLate,     /* the culprit never came to the call */
  lrmoeFailureStopped,  /* the culprit is in a call, but does not run */
  lrmoeFailureStuck,    /* the culprit waits for something else */
  lrmoeFailureMismatch, /* the culprit sent a size that `other` did not want */
  lrmoeFailureBroke,    /* the culprit gave up, for the reason in its seat */
  lrmoeFailureAborted   /* the culprit called lrmoeCommAbort */
};

struct lrmoeFailure {
  enum lrmoeFailureKind kind;
  int culprit;
  int other; /* who noticed */
};

/* Breaks comm unless it is broken already, and wakes everybody. */
void lrmoeFailureSet(struct ncclComm *comm, struct lrmoeFailure failure);

/* lrmoeSuccess while comm is whole; otherwise records and returns what broke
 * it, from this rank's point of view.  The same at every call. */
lrmoeResult_t lrmoeFailureCheck(struct ncclComm *comm);

/* As lrmoeFailureCheck, without recording a message. */
lrmoeResult_t lrmoeFailureResult(const struct ncclComm *comm);

/* Breaks comm because this rank failed with `result`, for the reason in the
 * last error of this thread. */
void lrmoeFailureBreak(struct ncclComm *comm, lrmoeResult_t result);

#endif
