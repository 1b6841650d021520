/* Watches of a communicator: see watch.h. */
#include "collectives/watch.h"

#include "base/clock.h"
#include "base/result.h"
#include "kernels/backend.h"

#include <time.h>

lrmoeResult_t lrmoeWatchMake(const struct lrmoeBackend *backend,
                             struct lrmoeWatched *watched) {
  void *watch = NULL;
  LRMOE_RUN(backend, eventCreate, &watched->event);
  LRMOE_RUN(backend, hostAlloc, sizeof *watched->watch, &watch);
  watched->watch = watch;
  *watched->watch = (struct lrmoeWatch){0};
  return lrmoeSuccess;
}

void lrmoeWatchFree(const struct lrmoeBackend *backend,
                    struct lrmoeWatched *watched) {
  if (watched->watch) backend->hostFree(watched->watch);
  if (watched->event) backend->eventDestroy(watched->event);
}

/* ---- The communicator's list ---- */

void lrmoeWatchAdd(struct lrmoeComm *comm, struct lrmoeWatched *watched) {
  comm->transport->commGuard(comm->nccl, lrmoeWatchStop, comm);
  pthread_mutex_lock(&comm->watchMutex);
  watched->next = comm->watched;
  comm->watched = watched;
  pthread_mutex_unlock(&comm->watchMutex);
}

void lrmoeWatchRemove(struct lrmoeComm *comm, struct lrmoeWatched *watched) {
  pthread_mutex_lock(&comm->watchMutex);
  struct lrmoeWatched **link = &comm->watched;
  while (*link != watched)
    link = &(*link)->next;
  *link = watched->next;
  pthread_mutex_unlock(&comm->watchMutex);
}

/* ---- Failures ---- */

static int64_t look(const int64_t *word) {
  return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static lrmoeResult_t failMeeting(const struct lrmoeComm *comm,
                                 const struct lrmoeWatch *watch) {
  long long peer = (long long)watch->peer;
  switch (look(&watch->status)) {
  case lrmoeMeetingCount:
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "rank %lld wrote %lld rows, %lld were expected", peer,
                      (long long)watch->got, (long long)watch->expected);
  case lrmoeMeetingLate:
    return LRMOE_FAIL(lrmoeRemoteError,
                      "rank %lld wrote no rows within %lld ms: it is dead, "
                      "stopped or late",
                      peer, (long long)comm->timeoutMs);
  case lrmoeMeetingOther:
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "rank %lld is at another step, plan or backward config",
                      peer);
  case lrmoeMeetingSpoiled:
    return LRMOE_FAIL(lrmoeRemoteError,
                      "rank %lld has failed while rows were written", peer);
  default:
    return LRMOE_FAIL(lrmoeRemoteError,
                      "the communicator was aborted while rows were written");
  }
}

lrmoeResult_t lrmoeWatchCheck(struct lrmoeComm *comm) {
  lrmoeResult_t result = lrmoeSuccess;
  pthread_mutex_lock(&comm->watchMutex);
  for (const struct lrmoeWatched *watched = comm->watched;
       watched && result == lrmoeSuccess; watched = watched->next)
    if (look(&watched->watch->status))
      result = failMeeting(comm, watched->watch);
  pthread_mutex_unlock(&comm->watchMutex);
  return result;
}

/* Those that have entered leave at once: each looks at the flag. */
static int isWriting(const struct lrmoeWatch *watch) {
  return look(&watch->numLeft) < look(&watch->numEntered);
}

void lrmoeWatchStop(void *user) {
  struct lrmoeComm *comm = user;
  const struct timespec nap = {0, 100000};
  int64_t endNs = lrmoeNowNs() + comm->timeoutMs * 1000000;
  struct lrmoeWatched *watched = NULL;
  pthread_mutex_lock(&comm->watchMutex);
  for (watched = comm->watched; watched; watched = watched->next)
    __atomic_store_n(&watched->watch->isStopped, 1, __ATOMIC_SEQ_CST);
  for (watched = comm->watched; watched; watched = watched->next)
    while (isWriting(watched->watch) && lrmoeNowNs() < endNs)
      nanosleep(&nap, NULL);
  pthread_mutex_unlock(&comm->watchMutex);
}
