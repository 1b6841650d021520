/* Windows for rows straight into peers' memory: see fused.h. */
#include "collectives/fused.h"

#include "base/log.h"
#include "base/param.h"

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
  LRMOE_CHECK(lrmoeWatchMake(backend, &fused->watched));
  LRMOE_CHECK(comm->transport->memAlloc(&fused->block, bytes));
  LRMOE_RUN(backend, clear, fused->block, bytes, NULL);
  LRMOE_RUN(backend, synchronize, NULL);
  return lrmoeSuccess;
}

static size_t regionBytes(const struct lrmoeLayer *layer,
                          const struct lrmoeRegion *region) {
  return (size_t)(region->numRows * layer->rowBytes);
}

static lrmoeResult_t registerWindows(struct lrmoeFused *fused) {
  struct lrmoeLayer *layer = fused->layer;
  struct lrmoeComm *comm = layer->comm;
  LRMOE_CHECK(lrmoeCommWindowTry(
      comm, layer->recv.data, regionBytes(layer, &layer->recv), &fused->recv));
  LRMOE_CHECK(lrmoeCommWindowTry(
      comm, layer->back.data, regionBytes(layer, &layer->back), &fused->back));
  return lrmoeCommWindowTry(comm, fused->block,
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
  if (result == lrmoeSuccess)
    result = lrmoeCommAgree(layer->comm, isFound, isConnected);
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
  lrmoeWatchFree(backend, &fused->watched);
  lrmoeFree(fused);
}

/* ---- Opening and closing ---- */

lrmoeResult_t lrmoeFusedOpen(struct lrmoeLayer *layer) {
  struct lrmoeFused *made = NULL;
  int isGood = 0;
  if (layer->backend->isHost) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeCommAgree(layer->comm, isWanted(layer->comm), &isGood));
  if (!isGood) return lrmoeSuccess;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  made->layer = layer;
  lrmoeResult_t result = connect(made, &isGood);
  if (result == lrmoeSuccess && isGood) {
    lrmoeWatchAdd(layer->comm, &made->watched);
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
  layer->backend->eventWait(fused->watched.event);
  lrmoeWatchRemove(layer->comm, &fused->watched);
  freeFused(fused);
  layer->fused = NULL;
}
