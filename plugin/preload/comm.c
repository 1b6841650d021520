/* The list of communicators: see comm.h.  Those whose creation was not seen
 * (ncclCommInitAll, inside a group, without waiting) are asked of NCCL at their
 * first call; they have no board. */
#include "plugin/preload/comm.h"

#include "base/log.h"
#include "plugin/preload/board_map.h"
#include "plugin/preload/device.h"
#include "plugin/preload/mode.h"

#include <dlfcn.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lrmoePreloadComm *list;

static int processHasCuda(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver) dlclose(driver);
  return driver || dlsym(RTLD_DEFAULT, "cudaGetDevice");
}

static void freeComm(struct lrmoePreloadComm *comm) {
  lrmoeBoardClose(comm->board);
  pthread_mutex_destroy(&comm->mutex);
  lrmoeFree(comm->traffic.sentBytes);
  lrmoeFree(comm->places);
  lrmoeBufferFree(&comm->staging);
  lrmoeBufferFree(&comm->work);
  lrmoeDeviceFree(comm->device);
  lrmoeFree(comm);
}

static struct lrmoePreloadComm *make(const struct lrmoePreloadNew *made) {
  static _Atomic uint64_t numMade;
  struct lrmoePreloadComm *comm = NULL;
  int64_t *counts = NULL;
  if (LRMOE_ALLOCATE(1, &comm) != lrmoeSuccess) return NULL;
  if (LRMOE_ALLOCATE(3 * (int64_t)made->numRanks, &counts) != lrmoeSuccess) {
    lrmoeFree(comm);
    return NULL;
  }
  comm->handle = made->handle;
  comm->serial = atomic_fetch_add(&numMade, 1) + 1;
  comm->rank = made->rank;
  comm->numRanks = made->numRanks;
  comm->key = made->key;
  comm->board = made->board;
  comm->hasCuda = processHasCuda();
  comm->numUsers = 1;
  comm->traffic.sentBytes = counts;
  comm->traffic.recvBytes = counts + made->numRanks;
  comm->traffic.wireBytes = counts + 2 * (int64_t)made->numRanks;
  pthread_mutex_init(&comm->mutex, NULL);
  if (lrmoePreloadSettings()->mode != lrmoePreloadSchedule) return comm;
  if (made->parent && made->parent->places)
    lrmoePreloadOrderPart(comm, made);
  else
    lrmoePreloadOrder(comm, lrmoePreloadSettings()->topology);
  return comm;
}

static struct lrmoePreloadComm **linkOf(lrmoeNcclComm_t handle) {
  struct lrmoePreloadComm **link = &list;
  while (*link && (*link)->handle != handle)
    link = &(*link)->next;
  return link;
}

/* Why a communicator's messages cross as they are, once a process. */
static void warnOfNoBoard(const struct lrmoePreloadNew *made) {
  static atomic_flag hasWarned = ATOMIC_FLAG_INIT;
  const char *why =
      "not all of its ranks are on this machine, in this network namespace, "
      "with this library and the same settings";
  if (made->board || made->numRanks < 2 ||
      lrmoePreloadSettings()->mode < lrmoePreloadElide ||
      atomic_flag_test_and_set(&hasWarned))
    return;
  if (!made->key)
    why = "it was made in a group, without waiting, by another call than "
          "ncclCommInitRank, its Config and ncclCommSplit, or of one that is "
          "not followed";
  if (made->numRanks > lrmoeBoardMaxRanks) why = "it has too many ranks";
  lrmoeLog(lrmoeLogWarn,
           "preload: a communicator of %d ranks is passed through: %s",
           made->numRanks, why);
}

/* Without memory to know it a communicator with a board must not be waited for.
 * One that is known under this handle has ended where the shim did not see. */
void lrmoePreloadCommAdd(const struct lrmoePreloadNew *made) {
  struct lrmoePreloadComm *comm = make(made);
  warnOfNoBoard(made);
  if (!comm) {
    if (made->board) lrmoeBoardWithdraw(made->board, 0);
    lrmoeBoardClose(made->board);
    return;
  }
  pthread_mutex_lock(&mutex);
  struct lrmoePreloadComm **link = linkOf(made->handle), *stale = *link;
  if (stale) *link = stale->next;
  comm->next = list;
  list = comm;
  pthread_mutex_unlock(&mutex);
  if (stale) lrmoePreloadCommGive(stale);
}

static struct lrmoePreloadComm *takeKnown(lrmoeNcclComm_t handle) {
  pthread_mutex_lock(&mutex);
  struct lrmoePreloadComm *comm = *linkOf(handle);
  if (comm) comm->numUsers++;
  pthread_mutex_unlock(&mutex);
  return comm;
}

struct lrmoePreloadComm *lrmoePreloadCommTake(lrmoeNcclComm_t handle) {
  struct lrmoePreloadComm *comm = handle ? takeKnown(handle) : NULL;
  if (comm || !handle) return comm;
  const struct lrmoePreloadReal *real = lrmoePreloadReal();
  struct lrmoePreloadNew made = {.handle = handle};
  if (!real || real->commCount(handle, &made.numRanks) != lrmoeSuccess ||
      real->commUserRank(handle, &made.rank) != lrmoeSuccess ||
      made.numRanks < 1)
    return NULL;
  lrmoePreloadCommAdd(&made);
  return takeKnown(handle);
}

void lrmoePreloadCommGive(struct lrmoePreloadComm *comm) {
  pthread_mutex_lock(&mutex);
  int isLast = --comm->numUsers == 0;
  pthread_mutex_unlock(&mutex);
  if (!isLast) return;
  lrmoePreloadReport(comm);
  freeComm(comm);
}

struct lrmoePreloadComm *lrmoePreloadCommForget(lrmoeNcclComm_t handle) {
  pthread_mutex_lock(&mutex);
  struct lrmoePreloadComm **link = linkOf(handle), *comm = *link;
  if (comm) *link = comm->next;
  pthread_mutex_unlock(&mutex);
  if (!comm) return NULL;
  pthread_mutex_lock(&comm->mutex); /* nobody asks NCCL about it any more */
  atomic_store(&comm->isGone, 1);
  pthread_mutex_unlock(&comm->mutex);
  return comm;
}

/* ---- Process ---- */

static void lockList(void) {
  pthread_mutex_lock(&mutex);
}

static void unlockList(void) {
  pthread_mutex_unlock(&mutex);
}

/* A child has none of its parent's communicators and reports none of them; of
 * devices it has nothing. */
static void forgetInherited(void) {
  while (list) {
    struct lrmoePreloadComm *comm = list;
    list = comm->next;
    comm->device = NULL;
    freeComm(comm);
  }
  pthread_mutex_unlock(&mutex);
}

__attribute__((constructor)) static void start(void) {
  pthread_atfork(lockList, unlockList, forgetInherited);
  lrmoePreloadSettings();
}

static lrmoeNcclComm_t firstHandle(void) {
  pthread_mutex_lock(&mutex);
  lrmoeNcclComm_t handle = list ? list->handle : NULL;
  pthread_mutex_unlock(&mutex);
  return handle;
}

/* CUDA may have ended already. */
__attribute__((destructor)) static void stop(void) {
  lrmoeNcclComm_t handle;
  while ((handle = firstHandle())) {
    struct lrmoePreloadComm *comm = lrmoePreloadCommForget(handle);
    if (!comm) continue;
    comm->device = NULL;
    lrmoePreloadCommGive(comm);
  }
}
