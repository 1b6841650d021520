/* Windows for rows straight into peers' memory: see fused.h. */
#include "collectives/fused.h"

#include "base/log.h"
#include "base/param.h"

#include <time.h>

/* ---- Agreement ---- */

/* *all = whether isGood on every rank. */
static lrmoeResult_t agree(struct lrmoeComm *comm, int isGood, int *all) {
  int64_t mine = isGood;
  int64_t *answers = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(comm->numRanks, &answers));
  lrmoeResult_t result =
      lrmoeAllGatherHost(comm, &mine, answers, (int64_t)sizeof mine, NULL);
  *all = result == lrmoeSuccess;
  for (int r = 0; r < comm->numRanks; r++)
    *all &= answers[r] == 1;
  lrmoeFree(answers);
  return result;
}

static int isWanted(const struct lrmoeComm *comm) {
  return !comm->backend->isHost && comm->transport->getPeerPointer &&
         comm->transport->commGuard && lrmoeParamGet(lrmoeParamFused);
}

/* ---- Making ---- */

/* Signals begin at 0, before any peer can write them. */
static lrmoeResult_t makeSignals(struct lrmoeFused *fused) {
  const struct lrmoeBackend *backend = fused->layer->backend;
  struct lrmoeComm *comm = fused->layer->comm;
  size_t bytes = 2 * (size_t)comm->numRanks * sizeof(int64_t);
  void *watch = NULL;
  LRMOE_RUN(backend, eventCreate, &fused->event);
  LRMOE_RUN(backend, hostAlloc, sizeof *fused->watch, &watch);
  fused->watch = watch;
  *fused->watch = (struct lrmoeWatch){0};
  LRMOE_CHECK(comm->transport->memAlloc(&fused->block, bytes));
  LRMOE_RUN(backend, clear, fused->block, bytes, NULL);
  LRMOE_RUN(backend, synchronize, NULL);
  return lrmoeSuccess;
}

/* One that cannot be is no failure: rows go as messages then. */
static lrmoeResult_t registerWindow(struct lrmoeComm *comm, void *data,
                                    size_t bytes, lrmoeWindow_t *window) {
  lrmoeResult_t result = lrmoeCommWindowRegister(comm, data, bytes, window);
  return result == lrmoeUnsupported ? lrmoeSuccess : result;
}

static size_t regionBytes(const struct lrmoeLayer *layer,
                          const struct lrmoeRegion *region) {
  return (size_t)(region->numRows * layer->rowBytes);
}

static lrmoeResult_t registerWindows(struct lrmoeFused *fused) {
  struct lrmoeLayer *layer = fused->layer;
  struct lrmoeComm *comm = layer->comm;
  LRMOE_CHECK(registerWindow(comm, layer->recv.data,
                             regionBytes(layer, &layer->recv), &fused->recv));
  LRMOE_CHECK(registerWindow(comm, layer->back.data,
                             regionBytes(layer, &layer->back), &fused->back));
  return registerWindow(comm, fused->block,
                        2 * (size_t)comm->numRanks * sizeof(int64_t),
                        &fused->signals);
}

/* Where this rank's stretch begins in a region of each rank; not 0: all can be
 * addressed. */
static int findTargets(const struct lrmoeFused *fused, lrmoeWindow_t window,
                       const struct lrmoeRegion *region, void **targets) {
  const struct lrmoeLayer *layer = fused->layer;
  const struct lrmoeComm *comm = layer->comm;
  int64_t first = region ? comm->rank * (region->numRows / comm->numRanks) : 0;
  int isFound = window != NULL;
  for (int r = 0; r < comm->numRanks && isFound; r++) {
    void *base = NULL;
    isFound = lrmoeWindowPeerPointer(window, r, &base) == lrmoeSuccess;
    if (isFound) targets[r] = (char *)base + first * layer->rowBytes;
  }
  return isFound;
}

/* The tables on the device, room for the gate, and zeros. */
static lrmoeResult_t uploadTables(struct lrmoeFused *fused, void **tables) {
  const struct lrmoeBackend *backend = fused->layer->backend;
  int64_t numRanks = fused->layer->comm->numRanks;
  size_t bytes = 3 * (size_t)numRanks * sizeof *tables;
  size_t room = bytes + (size_t)(numRanks + 2) * sizeof *fused->gate;
  LRMOE_CHECK(lrmoeBlockReserve(backend, room, NULL, &fused->tables));
  LRMOE_RUN(backend, clear, fused->tables.data, room, NULL);
  LRMOE_RUN(backend, copy, fused->tables.data, tables, bytes, lrmoeCopyToDevice,
            NULL);
  LRMOE_RUN(backend, synchronize, NULL);
  fused->recvTargets = fused->tables.data;
  fused->backTargets = fused->recvTargets + numRanks;
  fused->words = (int64_t **)(void *)(fused->backTargets + numRanks);
  fused->gate = (int64_t *)(void *)(fused->words + numRanks);
  fused->nothing = fused->gate + 1;
  return lrmoeSuccess;
}

static lrmoeResult_t connect(struct lrmoeFused *fused, int *isConnected) {
  struct lrmoeLayer *layer = fused->layer;
  int64_t numRanks = layer->comm->numRanks;
  void **tables = NULL;
  LRMOE_CHECK(makeSignals(fused));
  LRMOE_CHECK(registerWindows(fused));
  LRMOE_CHECK(LRMOE_ALLOCATE(3 * numRanks, &tables));
  int isFound =
      findTargets(fused, fused->recv, &layer->recv, tables) &&
      findTargets(fused, fused->back, &layer->back, tables + numRanks) &&
      findTargets(fused, fused->signals, NULL, tables + 2 * numRanks);
  lrmoeResult_t result = isFound ? uploadTables(fused, tables) : lrmoeSuccess;
  if (result == lrmoeSuccess) result = agree(layer->comm, isFound, isConnected);
  lrmoeFree(tables);
  return result;
}

static void freeFused(struct lrmoeFused *fused) {
  struct lrmoeLayer *layer = fused->layer;
  const struct lrmoeBackend *backend = layer->backend;
  lrmoeCommWindowDeregister(layer->comm, fused->signals);
  lrmoeCommWindowDeregister(layer->comm, fused->back);
  lrmoeCommWindowDeregister(layer->comm, fused->recv);
  if (fused->block) layer->comm->transport->memFree(fused->block);
  lrmoeBlockFree(backend, &fused->tables);
  if (fused->watch) backend->hostFree(fused->watch);
  if (fused->event) backend->eventDestroy(fused->event);
  lrmoeFree(fused);
}

/* ---- The communicator's list ---- */

static void enlist(struct lrmoeFused *fused) {
  struct lrmoeComm *comm = fused->layer->comm;
  comm->transport->commGuard(comm->nccl, lrmoeFusedStop, comm);
  pthread_mutex_lock(&comm->fusedMutex);
  fused->next = comm->fused;
  comm->fused = fused;
  pthread_mutex_unlock(&comm->fusedMutex);
}

static void delist(struct lrmoeFused *fused) {
  struct lrmoeComm *comm = fused->layer->comm;
  pthread_mutex_lock(&comm->fusedMutex);
  struct lrmoeFused **link = &comm->fused;
  while (*link != fused)
    link = &(*link)->next;
  *link = fused->next;
  pthread_mutex_unlock(&comm->fusedMutex);
}

lrmoeResult_t lrmoeFusedOpen(struct lrmoeLayer *layer) {
  struct lrmoeFused *made = NULL;
  int isGood = 0;
  if (layer->backend->isHost) return lrmoeSuccess;
  LRMOE_CHECK(agree(layer->comm, isWanted(layer->comm), &isGood));
  if (!isGood) return lrmoeSuccess;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  made->layer = layer;
  lrmoeResult_t result = connect(made, &isGood);
  if (result == lrmoeSuccess && isGood) {
    enlist(made);
    layer->fused = made;
  } else {
    freeFused(made);
  }
  if (layer->comm->rank == 0)
    lrmoeLog(lrmoeLogInfo, "rows of backward go %s",
             layer->fused ? "straight into peers' memory" : "as messages");
  return result;
}

/* After the last meeting neither this rank's kernels nor those of peers write
 * into a window of the other. */
void lrmoeFusedClose(struct lrmoeLayer *layer) {
  struct lrmoeFused *fused = layer->fused;
  if (!fused) return;
  layer->backend->eventWait(fused->event);
  delist(fused);
  freeFused(fused);
  layer->fused = NULL;
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

lrmoeResult_t lrmoeFusedCheck(struct lrmoeComm *comm) {
  lrmoeResult_t result = lrmoeSuccess;
  pthread_mutex_lock(&comm->fusedMutex);
  for (const struct lrmoeFused *fused = comm->fused;
       fused && result == lrmoeSuccess; fused = fused->next)
    if (look(&fused->watch->status)) result = failMeeting(comm, fused->watch);
  pthread_mutex_unlock(&comm->fusedMutex);
  return result;
}

/* Those that have entered leave at once: each looks at the flag. */
static int isWriting(const struct lrmoeFused *fused) {
  return look(&fused->watch->numLeft) < look(&fused->watch->numEntered);
}

void lrmoeFusedStop(void *user) {
  struct lrmoeComm *comm = user;
  const struct timespec nap = {0, 100000};
  int64_t endNs = lrmoeNowNs() + comm->timeoutMs * 1000000;
  pthread_mutex_lock(&comm->fusedMutex);
  for (struct lrmoeFused *fused = comm->fused; fused; fused = fused->next)
    __atomic_store_n(&fused->watch->isStopped, 1, __ATOMIC_SEQ_CST);
  for (struct lrmoeFused *fused = comm->fused; fused; fused = fused->next)
    while (isWriting(fused) && lrmoeNowNs() < endNs)
      nanosleep(&nap, NULL);
  pthread_mutex_unlock(&comm->fusedMutex);
}
