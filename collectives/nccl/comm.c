/* State and end of a communicator: see comm.h. */
#include "collectives/nccl/comm.h"

#include "base/alloc.h"
#include "base/param.h"
#include "collectives/nccl/call.h"
#include "collectives/nccl/group.h"

#include <stdio.h>

lrmoeResult_t lrmoeNcclCommMake(const struct lrmoeNccl *nccl, int64_t timeoutMs,
                                struct lrmoeNcclComm **comm) {
  struct lrmoeNcclComm *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  pthread_mutex_init(&made->mutex, NULL);
  pthread_cond_init(&made->abortEnded, NULL);
  made->api = &nccl->api;
  made->timeoutMs = timeoutMs ? timeoutMs : lrmoeParamGet(lrmoeParamTimeoutMs);
  *comm = made;
  return lrmoeSuccess;
}

void lrmoeNcclCommFree(struct lrmoeNcclComm *comm) {
  if (!comm) return;
  pthread_mutex_destroy(&comm->mutex);
  pthread_cond_destroy(&comm->abortEnded);
  lrmoeFree(comm);
}

/* ---- State; the mutex is held in the functions that say so ---- */

/* Nobody is told of an abort before its end. */
static lrmoeResult_t checkLocked(struct lrmoeNcclComm *comm) {
  while (comm->abort == lrmoeNcclAborting)
    pthread_cond_wait(&comm->abortEnded, &comm->mutex);
  if (comm->result == lrmoeSuccess) return lrmoeSuccess;
  return LRMOE_FAIL(comm->result, "%s", comm->text);
}

static void noteLocked(struct lrmoeNcclComm *comm, lrmoeResult_t result) {
  if (comm->result != lrmoeSuccess) return;
  comm->result = result;
  snprintf(comm->text, sizeof comm->text, "%s", lrmoeGetLastError());
}

lrmoeResult_t lrmoeNcclCommCheck(struct lrmoeNcclComm *comm) {
  pthread_mutex_lock(&comm->mutex);
  lrmoeResult_t result = checkLocked(comm);
  pthread_mutex_unlock(&comm->mutex);
  return result;
}

void lrmoeNcclCommNote(struct lrmoeNcclComm *comm, lrmoeResult_t result) {
  pthread_mutex_lock(&comm->mutex);
  noteLocked(comm, result);
  pthread_mutex_unlock(&comm->mutex);
}

/* ncclCommGetAsyncError never blocks, so it may run under the mutex, which
 * keeps an abort by another thread from freeing the communicator under it. */
lrmoeResult_t lrmoeNcclCommAsk(struct lrmoeNcclComm *comm) {
  lrmoeResult_t state = lrmoeSuccess;
  pthread_mutex_lock(&comm->mutex);
  lrmoeResult_t result = checkLocked(comm);
  if (result == lrmoeSuccess) {
    lrmoeResult_t got = comm->api->commGetAsyncError(comm->nccl, &state);
    result = got == lrmoeSuccess ? state : got;
    if (result != lrmoeSuccess && result != lrmoeInProgress) {
      result = lrmoeNcclFail(comm->api, "ncclCommGetAsyncError", result);
      noteLocked(comm, result);
    }
  }
  pthread_mutex_unlock(&comm->mutex);
  return result;
}

lrmoeResult_t lrmoeNcclCommGetAsyncError(struct ncclComm *handle,
                                         lrmoeResult_t *error) {
  LRMOE_REQUIRE(handle && error, "comm or error is NULL");
  *error = lrmoeNcclCommAsk(lrmoeNcclCommOf(handle));
  return lrmoeSuccess;
}

/* ---- Abort ---- */

/* Whether the caller has to carry it out now. */
static int claimLocked(struct lrmoeNcclComm *comm) {
  while (comm->abort == lrmoeNcclAborting)
    pthread_cond_wait(&comm->abortEnded, &comm->mutex);
  if (comm->abort == lrmoeNcclAborted) return 0;
  int isLeft = comm->numInside && !comm->isBorrowed;
  comm->abort = isLeft ? lrmoeNcclAbortAsked : lrmoeNcclAborting;
  return !isLeft;
}

void lrmoeNcclCommGuard(struct ncclComm *handle, void (*stop)(void *user),
                        void *user) {
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  pthread_mutex_lock(&comm->mutex);
  comm->stop = stop;
  comm->stopUser = user;
  pthread_mutex_unlock(&comm->mutex);
}

static void stopKernels(struct lrmoeNcclComm *comm) {
  pthread_mutex_lock(&comm->mutex);
  void (*stop)(void *user) = comm->stop;
  void *user = comm->stopUser;
  pthread_mutex_unlock(&comm->mutex);
  if (stop) stop(user);
}

/* NCCL frees the communicator; a non-blocking abort goes on by itself. */
static lrmoeResult_t carryOut(struct lrmoeNcclComm *comm) {
  stopKernels(comm);
  lrmoeResult_t got = comm->api->commAbort(comm->nccl);
  pthread_mutex_lock(&comm->mutex);
  comm->abort = lrmoeNcclAborted;
  pthread_cond_broadcast(&comm->abortEnded);
  pthread_mutex_unlock(&comm->mutex);
  if (got == lrmoeSuccess || got == lrmoeInProgress) return lrmoeSuccess;
  return lrmoeNcclFail(comm->api, "ncclCommAbort", got);
}

static lrmoeResult_t abortOnce(struct lrmoeNcclComm *comm) {
  pthread_mutex_lock(&comm->mutex);
  int isMine = claimLocked(comm);
  pthread_mutex_unlock(&comm->mutex);
  return isMine ? carryOut(comm) : lrmoeSuccess;
}

lrmoeResult_t lrmoeNcclCommAbort(struct ncclComm *handle) {
  LRMOE_REQUIRE(handle, "the communicator is NULL");
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  pthread_mutex_lock(&comm->mutex);
  if (comm->result == lrmoeSuccess) {
    comm->result = lrmoeRemoteError;
    snprintf(comm->text, sizeof comm->text,
             "rank %d has aborted the communicator", comm->rank);
  }
  pthread_mutex_unlock(&comm->mutex);
  return abortOnce(comm);
}

/* Peers of an own communicator see the connections go; those of a borrowed one
 * learn nothing until its owner acts. */
void lrmoeNcclCommBreak(struct ncclComm *handle) {
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  if (!comm) return;
  lrmoeNcclCommNote(comm, lrmoeRemoteError);
  if (!comm->isBorrowed) abortOnce(comm);
}

lrmoeResult_t lrmoeNcclCommEnter(struct lrmoeNcclComm *comm) {
  pthread_mutex_lock(&comm->mutex);
  lrmoeResult_t result = checkLocked(comm);
  if (result == lrmoeSuccess) comm->numInside++;
  pthread_mutex_unlock(&comm->mutex);
  return result;
}

int lrmoeNcclCommHold(struct lrmoeNcclComm *comm) {
  pthread_mutex_lock(&comm->mutex);
  int isThere = comm->abort < lrmoeNcclAborting;
  comm->numInside += isThere;
  pthread_mutex_unlock(&comm->mutex);
  return isThere;
}

void lrmoeNcclCommExit(struct lrmoeNcclComm *comm) {
  pthread_mutex_lock(&comm->mutex);
  comm->numInside--;
  int isMine = comm->abort == lrmoeNcclAbortAsked && claimLocked(comm);
  pthread_mutex_unlock(&comm->mutex);
  if (isMine) carryOut(comm);
}

/* ---- End ---- */

/* Flushes, so that the time-out holds here too. */
static lrmoeResult_t finalize(struct lrmoeNcclComm *comm) {
  static const char name[] = "ncclCommFinalize";
  if (!comm->api->commFinalize) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeNcclCommEnter(comm));
  LRMOE_CHECK(lrmoeNcclLeave(comm, name, comm->api->commFinalize(comm->nccl)));
  return lrmoeNcclWait(comm, name);
}

static lrmoeResult_t leave(struct lrmoeNcclComm *comm) {
  lrmoeResult_t result = finalize(comm);
  if (result != lrmoeSuccess) {
    abortOnce(comm);
    return result;
  }
  lrmoeResult_t got = comm->api->commDestroy(comm->nccl);
  if (got == lrmoeSuccess || got == lrmoeInProgress) return lrmoeSuccess;
  return lrmoeNcclFail(comm->api, "ncclCommDestroy", got);
}

/* A failure of which the caller knows is not told again. */
lrmoeResult_t lrmoeNcclCommDestroy(struct ncclComm *handle) {
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  if (!comm) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeNcclOutside());
  lrmoeResult_t result = lrmoeSuccess;
  int isWhole = lrmoeNcclCommCheck(comm) == lrmoeSuccess;
  if (!comm->isBorrowed) result = isWhole ? leave(comm) : abortOnce(comm);
  lrmoeNcclCommFree(comm);
  return result;
}
