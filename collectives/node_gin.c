/* Rows between nodes by NICs: see node_gin.h. */
#include "collectives/node_gin.h"

#include "base/log.h"
#include "base/param.h"
#include "collectives/fused.h"

#include <string.h>

enum {
  mostPieceBytes = 64 << 20
};

/* ---- Making ---- */

static int isWanted(const struct lrmoeComm *comm) {
  const struct lrmoeGinBackend *gin = comm->backend->gin;
  return lrmoeParamGet(lrmoeParamGin) && gin && gin->version &&
         comm->transport->ginVersion && comm->transport->commGuard &&
         comm->transport->ginVersion() == gin->version;
}

/* Rows of one way that a relay has at most, on any rank: windows are equal. */
static int64_t mostRelayed(const struct lrmoeLayer *layer) {
  const struct lrmoeNodes *nodes = layer->nodes;
  int64_t most = 0;
  for (int32_t r = 0; r < layer->comm->numRanks; r++) {
    int64_t count = 0;
    for (int32_t s = 0; s < layer->comm->numRanks; s++)
      count += nodes->of[s] != nodes->of[r] &&
               lrmoeNodeRelay(nodes, s, nodes->of[r]) == r;
    if (count > most) most = count;
  }
  return most * layer->maxTokens;
}

static lrmoeResult_t makeTables(struct lrmoeNodeGin *gin) {
  const struct lrmoeBackend *backend = gin->layer->backend;
  size_t numWords = lrmoeNumGinWords * (size_t)gin->layer->comm->numRanks;
  size_t bytes = (numWords + 1) * sizeof *gin->seen;
  LRMOE_CHECK(lrmoeBlockReserve(backend, bytes, NULL, &gin->tables));
  LRMOE_RUN(backend, clear, gin->tables.data, bytes, NULL);
  gin->seen = gin->tables.data;
  gin->gate = (int64_t *)(void *)(gin->seen + numWords);
  return lrmoeWatchMake(backend, &gin->watched);
}

static lrmoeResult_t makeRelayRows(struct lrmoeNodeGin *gin) {
  const struct lrmoeLayer *layer = gin->layer;
  gin->relayRoom = mostRelayed(layer);
  return layer->comm->transport->memAlloc(
      &gin->relayRows, (size_t)(gin->relayRoom * layer->rowBytes));
}

static lrmoeResult_t registerRows(struct lrmoeNodeGin *gin, void *rows,
                                  int64_t numRows, lrmoeWindow_t *window) {
  const struct lrmoeLayer *layer = gin->layer;
  return lrmoeCommWindowTry(layer->comm, rows,
                            (size_t)(numRows * layer->rowBytes), window);
}

static lrmoeResult_t registerAll(struct lrmoeNodeGin *gin, int *isGood) {
  struct lrmoeLayer *layer = gin->layer;
  LRMOE_CHECK(makeRelayRows(gin));
  LRMOE_CHECK(
      registerRows(gin, layer->send.data, layer->send.numRows, &gin->send));
  LRMOE_CHECK(registerRows(gin, gin->relayRows, gin->relayRoom, &gin->relay));
  gin->sharesBack = layer->fused != NULL;
  if (gin->sharesBack)
    gin->back = layer->fused->back;
  else
    LRMOE_CHECK(
        registerRows(gin, layer->back.data, layer->back.numRows, &gin->back));
  return lrmoeCommAgree(layer->comm, gin->send && gin->relay && gin->back,
                        isGood);
}

static struct lrmoeGin argsOf(const struct lrmoeNodeGin *gin) {
  const struct lrmoeComm *comm = gin->layer->comm;
  return (struct lrmoeGin){.comm = gin->comm,
                           .rank = comm->rank,
                           .numRanks = comm->numRanks,
                           .seen = gin->seen,
                           .pieceBytes = gin->pieceBytes,
                           .epoch = gin->epoch,
                           .watch = gin->watched.watch,
                           .gate = gin->gate,
                           .timeoutMs = comm->timeoutMs};
}

/* Words are cleared before any peer can write them. */
static lrmoeResult_t openComm(struct lrmoeNodeGin *gin, const void *needs,
                              int *isGood) {
  struct lrmoeLayer *layer = gin->layer;
  LRMOE_CHECK(
      layer->comm->transport->ginOpen(layer->comm->nccl, needs, gin->comm));
  gin->isOpen = 1;
  const struct lrmoeGin args = argsOf(gin);
  LRMOE_CHECK(lrmoeBackendSettle(layer->backend, "GIN",
                                 layer->backend->gin->reset(&args, NULL)));
  LRMOE_RUN(layer->backend, synchronize, NULL);
  return lrmoeCommAgree(layer->comm, 1, isGood);
}

/* What may fail on one rank alone is agreed on before the next step. */
static lrmoeResult_t connectWith(struct lrmoeNodeGin *gin, const void *needs,
                                 int *isGood) {
  struct lrmoeComm *comm = gin->layer->comm;
  lrmoeResult_t found = comm->transport->ginProbe(comm->nccl, needs, gin->comm);
  LRMOE_CHECK(lrmoeCommAgree(comm, found == lrmoeSuccess, isGood));
  if (!*isGood) return lrmoeSuccess;
  LRMOE_CHECK(makeTables(gin));
  LRMOE_CHECK(registerAll(gin, isGood));
  return *isGood ? openComm(gin, needs, isGood) : lrmoeSuccess;
}

static lrmoeResult_t connect(struct lrmoeNodeGin *gin, int *isGood) {
  const struct lrmoeGinBackend *calls = gin->layer->backend->gin;
  char *room = NULL;
  char *needs = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE((int64_t)calls->commBytes, &room));
  gin->comm = room;
  LRMOE_CHECK(LRMOE_ALLOCATE((int64_t)calls->needsBytes, &needs));
  calls->needs(lrmoeNumGinWords * gin->layer->comm->numRanks, needs);
  lrmoeResult_t result = connectWith(gin, needs, isGood);
  lrmoeFree(needs);
  return result;
}

static void freeGin(struct lrmoeNodeGin *gin) {
  struct lrmoeComm *comm = gin->layer->comm;
  if (gin->isOpen) comm->transport->ginClose(comm->nccl, gin->comm);
  if (!gin->sharesBack) lrmoeCommWindowDeregister(comm, gin->back);
  lrmoeCommWindowDeregister(comm, gin->relay);
  lrmoeCommWindowDeregister(comm, gin->send);
  if (gin->relayRows) comm->transport->memFree(gin->relayRows);
  lrmoeBlockFree(gin->layer->backend, &gin->tables);
  lrmoeWatchFree(gin->layer->backend, &gin->watched);
  lrmoeFree(gin->comm);
  lrmoeFree(gin);
}

static void say(const struct lrmoeLayer *layer) {
  if (layer->comm->rank != 0 || !lrmoeParamGet(lrmoeParamGin)) return;
  if (layer->gin)
    lrmoeLog(lrmoeLogInfo, "rows between nodes go by NCCL's GIN");
  else
    lrmoeLog(lrmoeLogWarn,
             "LRMOE_GIN=1: rows between nodes go as messages: not every rank "
             "has it set, a NIC that NCCL can use from devices, and kernels "
             "compiled for its NCCL");
}

lrmoeResult_t lrmoeNodeGinOpen(struct lrmoeLayer *layer) {
  struct lrmoeNodeGin *made = NULL;
  int isGood = 0;
  if (layer->backend->isHost || layer->nodes->numNodes < 2) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeCommAgree(layer->comm, isWanted(layer->comm), &isGood));
  if (!isGood) {
    say(layer);
    return lrmoeSuccess;
  }
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  made->layer = layer;
  made->pieceBytes = mostPieceBytes;
  lrmoeResult_t result = connect(made, &isGood);
  if (result == lrmoeSuccess && isGood) {
    lrmoeWatchAdd(layer->comm, &made->watched);
    layer->gin = made;
  } else {
    freeGin(made);
  }
  say(layer);
  return result;
}

void lrmoeNodeGinClose(struct lrmoeLayer *layer) {
  struct lrmoeNodeGin *gin = layer->gin;
  if (!gin) return;
  layer->backend->eventWait(gin->watched.event);
  lrmoeWatchRemove(layer->comm, &gin->watched);
  freeGin(gin);
  layer->gin = NULL;
}

/* ---- Phases ---- */

/* Where rows lie: a window, and the bytes before them. */
struct place {
  const struct lrmoeWindow *window;
  int64_t first;
};

/* No rows may begin at the end of a window, if at no other's start. */
static struct place placeOf(const struct lrmoeNodeGin *gin, const void *rows) {
  const struct lrmoeLayer *layer = gin->layer;
  const struct {
    lrmoeWindow_t window;
    const void *data;
    int64_t numRows;
  } windows[] = {{gin->send, layer->send.data, layer->send.numRows},
                 {gin->back, layer->back.data, layer->back.numRows},
                 {gin->relay, gin->relayRows, gin->relayRoom}};
  struct place place = {NULL, 0};
  for (int i = 0; i < 3; i++) {
    int64_t first = (int64_t)((intptr_t)rows - (intptr_t)windows[i].data);
    int64_t bytes = windows[i].numRows * layer->rowBytes;
    if (first < 0 || first > bytes || (first == bytes && place.window))
      continue;
    place = (struct place){windows[i].window, first};
    if (first < bytes) break;
  }
  return place;
}

static struct ncclWindow_vidmem *windowOf(const struct lrmoeNodeGin *gin,
                                          const void *rows) {
  struct place place = placeOf(gin, rows);
  return place.window ? place.window->nccl : NULL;
}

int lrmoeNodeGinHas(const struct lrmoeLayer *layer, const void *rows) {
  return layer->gin && windowOf(layer->gin, rows);
}

lrmoeResult_t lrmoeNodeGinRelay(const struct lrmoeLayer *layer, int64_t bytes,
                                char **rows) {
  int64_t room = layer->gin->relayRoom * layer->rowBytes;
  if (bytes > room)
    return LRMOE_FAIL(lrmoeInternalError,
                      "a relay has %lld B of rows, room %lld", (long long)bytes,
                      (long long)room);
  *rows = layer->gin->relayRows;
  return lrmoeSuccess;
}

/* The peers of one direction; gives how many. */
static int32_t listPeers(const struct lrmoeStep *step, const int32_t *order,
                         const struct lrmoeNodeEnd *end,
                         struct lrmoeGinPeer *peers) {
  const struct lrmoeLayer *layer = step->layer;
  int64_t first = placeOf(layer->gin, end->rows).first;
  int32_t count = 0;
  for (int32_t i = 0; i < layer->comm->numRanks; i++) {
    int32_t r = order[i];
    int64_t numRows = end->offsets[r + 1] - end->offsets[r];
    if (!end->has(step, r)) continue;
    peers[count++] = (struct lrmoeGinPeer){
        r, numRows, first + end->offsets[r] * layer->rowBytes,
        numRows * layer->rowBytes};
  }
  return count;
}

static lrmoeResult_t listPhase(struct lrmoeStep *step,
                               struct lrmoeNodePhase *phase, int64_t *bytes) {
  const struct lrmoeComm *comm = step->layer->comm;
  const struct lrmoeNodeGin *gin = step->layer->gin;
  const struct lrmoeNodeEnd *out =
      phase->isHome ? &phase->relay : &phase->source;
  const struct lrmoeNodeEnd *in =
      phase->isHome ? &phase->source : &phase->relay;
  struct lrmoeGin *args = &phase->args;
  struct lrmoeGinPeer *peers = NULL;
  struct lrmoeGinPeer *device = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, phase->array, 2 * (int64_t)comm->numRanks, &peers));
  args->from = windowOf(gin, out->rows);
  args->to = windowOf(gin, in->rows);
  args->numSends = listPeers(step, comm->targets, out, peers);
  args->numReceives =
      listPeers(step, comm->sources, in, peers + args->numSends);
  for (int32_t i = 0; i < args->numSends; i++)
    *bytes += peers[i].bytes;
  LRMOE_CHECK(LRMOE_UPLOAD(step, phase->array,
                           args->numSends + args->numReceives, peers, &device));
  args->sends = device;
  args->receives = device + args->numSends;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNodeGinPut(struct lrmoeStep *step,
                              struct lrmoeNodePhase *phase, int64_t *bytes) {
  const struct lrmoeBackend *backend = step->layer->backend;
  struct lrmoeNodeGin *gin = step->layer->gin;
  LRMOE_CHECK(lrmoeWatchCheck(step->layer->comm));
  gin->epoch++;
  phase->args = argsOf(gin);
  LRMOE_CHECK(listPhase(step, phase, bytes));
  const struct lrmoeMeet entered = {.rank = phase->args.rank,
                                    .numRanks = phase->args.numRanks,
                                    .epoch = gin->epoch,
                                    .watch = gin->watched.watch,
                                    .gate = gin->gate};
  LRMOE_RUN(backend, enter, &entered, step->stream);
  return lrmoeBackendSettle(backend, "GIN",
                            backend->gin->put(&phase->args, step->stream));
}

lrmoeResult_t lrmoeNodeGinAwait(struct lrmoeStep *step,
                                const struct lrmoeNodePhase *phase) {
  const struct lrmoeBackend *backend = step->layer->backend;
  struct lrmoeNodeGin *gin = step->layer->gin;
  LRMOE_CHECK(lrmoeBackendSettle(
      backend, "GIN", backend->gin->await(&phase->args, step->stream)));
  LRMOE_RUN(backend, eventRecord, gin->watched.event, step->stream);
  return lrmoeSuccess;
}
