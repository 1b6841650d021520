/* A device made of the CPU: see guarded.h.
 *
 * Its memory is an arena that is opened, for all threads, while any call is
 * inside.  Arguments in host memory are still readable inside, as are pointers
 * into the arena only then; what a kernel must not do, read host memory, shows
 * because every pointer that is to be the device's is checked. */
#include "guarded.h"

#include "guarded_lists.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t arenaBytes = (size_t)1 << 34;
static const size_t grain = 4096;

static struct {
  pthread_mutex_t lock;
  char *base;
  size_t used;
  int numInside;
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void die(const char *what) {
  fprintf(stderr, "guarded device: %s\n", what);
  abort();
}

static void protect(int access) {
  if (arena.used && mprotect(arena.base, arena.used, access)) die("mprotect");
}

void guardedEnter(void) {
  pthread_mutex_lock(&arena.lock);
  if (arena.numInside++ == 0) protect(PROT_READ | PROT_WRITE);
  pthread_mutex_unlock(&arena.lock);
}

void guardedLeave(void) {
  pthread_mutex_lock(&arena.lock);
  if (--arena.numInside == 0) protect(PROT_NONE);
  pthread_mutex_unlock(&arena.lock);
}

static int isDevice(const void *pointer) {
  const char *at = pointer;
  return arena.base && at >= arena.base && at < arena.base + arenaBytes;
}

void guardedMustBeDevice(const void *pointer, int64_t count, const char *what) {
  if (count > 0 && pointer && !isDevice(pointer)) die(what);
}

/* ---- Memory ---- */

static lrmoeResult_t memAlloc(void **pointer, size_t bytes) {
  pthread_mutex_lock(&arena.lock);
  if (!arena.base) {
    arena.base = mmap(NULL, arenaBytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena.base == MAP_FAILED) die("mmap");
  }
  size_t room = (bytes + grain) / grain * grain;
  char *block = arena.base + arena.used;
  if (arena.used + room > arenaBytes) die("the arena is full");
  arena.used += room;
  if (mprotect(block, room, PROT_READ | PROT_WRITE)) die("mprotect");
  memset(block, 0xa5, room);
  if (!arena.numInside) protect(PROT_NONE);
  pthread_mutex_unlock(&arena.lock);
  *pointer = block;
  return lrmoeSuccess;
}

/* Never used again, so that a use after it is a crash. */
static lrmoeResult_t memFree(void *pointer) {
  guardedMustBeDevice(pointer, 1, "memFree of host memory");
  return lrmoeSuccess;
}

static lrmoeResult_t backendAlloc(size_t bytes, void **pointer) {
  return memAlloc(pointer, bytes);
}

/* Ranks are processes, or threads. */
static _Thread_local struct guardedCopies copies;

void guardedResetCopies(void) {
  copies = (struct guardedCopies){0};
}

struct guardedCopies guardedGetCopies(void) {
  return copies;
}

static lrmoeResult_t synchronize(lrmoeStream_t stream) {
  copies.numWaits++;
  return lrmoeCpuBackend.synchronize(stream);
}

static lrmoeResult_t copy(void *to, const void *from, size_t bytes,
                          enum lrmoeCopyKind kind, lrmoeStream_t stream) {
  (void)stream;
  if (bytes && isDevice(to) != (kind != lrmoeCopyToHost))
    die("copy to the wrong side");
  if (bytes && isDevice(from) != (kind != lrmoeCopyToDevice))
    die("copy from the wrong side");
  if (kind == lrmoeCopyToHost) copies.bytesToHost += (int64_t)bytes;
  if (kind == lrmoeCopyToDevice) copies.bytesToDevice += (int64_t)bytes;
  guardedEnter();
  if (bytes) memcpy(to, from, bytes);
  guardedLeave();
  return lrmoeSuccess;
}

static const char *lastError(void) {
  return lrmoeGetLastError();
}

/* ---- Kernels ---- */

static void checkRows(const struct lrmoeRows *rows, int64_t numRows) {
  guardedMustBeDevice(rows->data, numRows, "rows of host memory");
  guardedMustBeDevice(rows->index, numRows, "an index of rows in host memory");
}

static lrmoeResult_t clear(void *to, size_t bytes, lrmoeStream_t stream) {
  guardedMustBeDevice(to, (int64_t)bytes, "clear of host memory");
  GUARDED_INSIDE(lrmoeCpuBackend.clear(to, bytes, stream));
}

static lrmoeResult_t norms(const struct lrmoeNorms *args,
                           lrmoeStream_t stream) {
  checkRows(&args->rows, args->numRows);
  guardedMustBeDevice(args->out, args->numRows, "norms to host memory");
  GUARDED_INSIDE(lrmoeCpuBackend.norms(args, stream));
}

static lrmoeResult_t gather(const struct lrmoeGather *args,
                            lrmoeStream_t stream) {
  checkRows(&args->rows, args->numRows);
  guardedMustBeDevice(args->out, args->numRows, "gather to host memory");
  GUARDED_INSIDE(lrmoeCpuBackend.gather(args, stream));
}

static lrmoeResult_t spread(const struct lrmoeSpread *args,
                            lrmoeStream_t stream) {
  checkRows(&args->rows, args->numRows);
  guardedMustBeDevice(args->offsets, args->numRows, "offsets in host memory");
  guardedMustBeDevice(args->list, args->numRows, "a list in host memory");
  guardedMustBeDevice(args->out, args->numRows, "spread to host memory");
  GUARDED_INSIDE(lrmoeCpuBackend.spread(args, stream));
}

static lrmoeResult_t gatherSum(const struct lrmoeGatherSum *args,
                               lrmoeStream_t stream) {
  checkRows(&args->rows, args->numOut);
  guardedMustBeDevice(args->offsets, args->numOut, "offsets in host memory");
  guardedMustBeDevice(args->list, args->numOut, "a list in host memory");
  guardedMustBeDevice(args->weights, args->numOut, "weights in host memory");
  guardedMustBeDevice(args->out, args->numOut, "gatherSum to host memory");
  GUARDED_INSIDE(lrmoeCpuBackend.gatherSum(args, stream));
}

static lrmoeResult_t dotRows(const struct lrmoeDotRows *args,
                             lrmoeStream_t stream) {
  checkRows(&args->a, args->numRows);
  checkRows(&args->b, args->numRows);
  guardedMustBeDevice(args->divisors, args->numRows, "divisors in host memory");
  guardedMustBeDevice(args->out, args->numRows, "dotRows to host memory");
  GUARDED_INSIDE(lrmoeCpuBackend.dotRows(args, stream));
}

static lrmoeResult_t addFloats(int64_t count, const float *from, float *to,
                               lrmoeStream_t stream) {
  guardedMustBeDevice(from, count, "addFloats from host memory");
  guardedMustBeDevice(to, count, "addFloats to host memory");
  GUARDED_INSIDE(lrmoeCpuBackend.addFloats(count, from, to, stream));
}

static lrmoeResult_t spoilRows(int64_t count, const int64_t *index,
                               int64_t rowBytes, void *rows,
                               lrmoeStream_t stream) {
  guardedMustBeDevice(index, count, "spoilRows by host memory");
  guardedMustBeDevice(rows, count, "spoilRows of host memory");
  GUARDED_INSIDE(
      lrmoeCpuBackend.spoilRows(count, index, rowBytes, rows, stream));
}

static lrmoeResult_t markRows(int64_t count, int64_t rowBytes, const void *rows,
                              uint8_t *marks, lrmoeStream_t stream) {
  guardedMustBeDevice(rows, count, "markRows of host memory");
  guardedMustBeDevice(marks, count, "markRows to host memory");
  GUARDED_INSIDE(
      lrmoeCpuBackend.markRows(count, rowBytes, rows, marks, stream));
}

static void checkWords(int64_t count, const int64_t *index, const void *from,
                       const void *to) {
  guardedMustBeDevice(index, count, "words by an index in host memory");
  guardedMustBeDevice(from, count, "words from host memory");
  guardedMustBeDevice(to, count, "words to host memory");
}

static lrmoeResult_t gatherWords(int64_t count, const int64_t *index,
                                 const void *from, void *to,
                                 lrmoeStream_t stream) {
  checkWords(count, index, from, to);
  GUARDED_INSIDE(lrmoeCpuBackend.gatherWords(count, index, from, to, stream));
}

static lrmoeResult_t scatterWords(int64_t count, const int64_t *index,
                                  const void *from, void *to,
                                  lrmoeStream_t stream) {
  checkWords(count, index, from, to);
  GUARDED_INSIDE(lrmoeCpuBackend.scatterWords(count, index, from, to, stream));
}

static lrmoeResult_t copyPieces(const struct lrmoePieces *args,
                                lrmoeStream_t stream) {
  checkWords(args->numPieces, args->source, args->from, args->to);
  checkWords(args->numPieces, args->target, args->counts, args->to);
  GUARDED_INSIDE(lrmoeCpuBackend.copyPieces(args, stream));
}

static lrmoeResult_t scores(const struct lrmoeScores *args,
                            lrmoeStream_t stream) {
  checkWords(args->numPairs, args->tokens, args->gNorms, args->keys);
  checkWords(args->numPairs, args->pairs, args->phiNorms, args->weights);
  GUARDED_INSIDE(lrmoeCpuBackend.scores(args, stream));
}

/* ---- Experts ---- */

static void checkWeights(const struct lrmoeExpertWeights *weights,
                         int64_t numRows) {
  guardedMustBeDevice(weights->w1, numRows, "w1 in host memory");
  guardedMustBeDevice(weights->w2, numRows, "w2 in host memory");
  guardedMustBeDevice(weights->dw1, numRows, "dw1 in host memory");
  guardedMustBeDevice(weights->dw2, numRows, "dw2 in host memory");
}

static lrmoeResult_t expertForward(struct lrmoeExpertContext *context,
                                   int32_t numInstances,
                                   const struct lrmoeExpertForward *args,
                                   lrmoeStream_t stream) {
  for (int32_t i = 0; i < numInstances; i++) {
    checkWeights(&args[i].weights, args[i].numRows);
    checkRows(&args[i].x, args[i].numRows);
    checkWords(args[i].numRows, NULL, args[i].alpha, args[i].phiNorm);
    checkWords(args[i].numRows, NULL, args[i].saved, args[i].y);
  }
  GUARDED_INSIDE(
      lrmoeCpuBackend.expertForward(context, numInstances, args, stream));
}

static lrmoeResult_t expertBackward(struct lrmoeExpertContext *context,
                                    int32_t numInstances,
                                    const struct lrmoeExpertBackward *args,
                                    lrmoeStream_t stream) {
  for (int32_t i = 0; i < numInstances; i++) {
    checkWeights(&args[i].weights, args[i].numRows);
    checkRows(&args[i].g, args[i].numRows);
    checkRows(&args[i].x, args[i].numRows);
    checkRows(&args[i].saved, args[i].numRows);
    checkWords(args[i].numRows, NULL, args[i].alpha, args[i].dAlpha);
    checkWords(args[i].numRows, NULL, args[i].dx, args[i].dAlpha);
  }
  GUARDED_INSIDE(
      lrmoeCpuBackend.expertBackward(context, numInstances, args, stream));
}

static lrmoeResult_t expertBackwardSplit(struct lrmoeExpertContext *context,
                                         int32_t numInstances,
                                         const struct lrmoeExpertBackward *args,
                                         void *event, lrmoeStream_t stream) {
  (void)event;
  return expertBackward(context, numInstances, args, stream);
}

static lrmoeResult_t expertAlpha(struct lrmoeExpertContext *context,
                                 int32_t numInstances,
                                 const struct lrmoeExpertAlpha *args,
                                 lrmoeStream_t stream) {
  for (int32_t i = 0; i < numInstances; i++) {
    checkRows(&args[i].g, args[i].numRows);
    checkRows(&args[i].saved, args[i].numRows);
    checkWords(args[i].numRows, NULL, args[i].w2, args[i].dAlpha);
  }
  GUARDED_INSIDE(
      lrmoeCpuBackend.expertAlpha(context, numInstances, args, stream));
}

/* ---- Transport ---- */

static lrmoeResult_t groupStart(void) {
  guardedEnter();
  return lrmoeCpuTransport.groupStart();
}

static lrmoeResult_t groupEnd(void) {
  lrmoeResult_t result = lrmoeCpuTransport.groupEnd();
  guardedLeave();
  return result;
}

static lrmoeResult_t sendRows(const void *buffer, size_t count,
                              lrmoeDataType_t type, int peer,
                              struct ncclComm *comm, lrmoeStream_t stream) {
  guardedMustBeDevice(buffer, (int64_t)count, "send of host memory");
  GUARDED_INSIDE(
      lrmoeCpuTransport.send(buffer, count, type, peer, comm, stream));
}

static lrmoeResult_t recvRows(void *buffer, size_t count, lrmoeDataType_t type,
                              int peer, struct ncclComm *comm,
                              lrmoeStream_t stream) {
  guardedMustBeDevice(buffer, (int64_t)count, "receive into host memory");
  GUARDED_INSIDE(
      lrmoeCpuTransport.recv(buffer, count, type, peer, comm, stream));
}

static lrmoeResult_t allGather(const void *send, void *recv, size_t sendCount,
                               lrmoeDataType_t type, struct ncclComm *comm,
                               lrmoeStream_t stream) {
  guardedMustBeDevice(send, (int64_t)sendCount, "all-gather of host memory");
  guardedMustBeDevice(recv, (int64_t)sendCount, "all-gather into host memory");
  GUARDED_INSIDE(
      lrmoeCpuTransport.allGather(send, recv, sendCount, type, comm, stream));
}

static lrmoeResult_t broadcast(const void *send, void *recv, size_t count,
                               lrmoeDataType_t type, int root,
                               struct ncclComm *comm, lrmoeStream_t stream) {
  guardedMustBeDevice(send, (int64_t)count, "broadcast of host memory");
  guardedMustBeDevice(recv, (int64_t)count, "broadcast into host memory");
  GUARDED_INSIDE(
      lrmoeCpuTransport.broadcast(send, recv, count, type, root, comm, stream));
}

int guardedIsWanted(void) {
  const char *wanted = getenv("LRMOE_TEST_BACKEND");
  return wanted && !strcmp(wanted, "guarded");
}

static struct lrmoeBackend backend;
static struct lrmoeTransport transport;

/* The CPU's, but for what touches device memory. */
static void makeTables(void) {
  backend = lrmoeCpuBackend;
  backend.name = "guarded";
  backend.isHost = 0;
  backend.lastError = lastError;
  backend.memAlloc = backendAlloc;
  backend.memFree = memFree;
  backend.synchronize = synchronize;
  backend.copy = copy;
  backend.clear = clear;
  backend.norms = norms;
  backend.gather = gather;
  backend.spread = spread;
  backend.gatherSum = gatherSum;
  backend.dotRows = dotRows;
  backend.addFloats = addFloats;
  backend.spoilRows = spoilRows;
  backend.markRows = markRows;
  backend.gatherWords = gatherWords;
  backend.scatterWords = scatterWords;
  backend.copyPieces = copyPieces;
  backend.scores = scores;
  guardedListsAdd(&backend);
  backend.expertForward = expertForward;
  backend.expertBackward = expertBackward;
  backend.expertBackwardSplit = expertBackwardSplit;
  backend.expertAlpha = expertAlpha;
  transport = lrmoeCpuTransport;
  transport.memAlloc = memAlloc;
  transport.memFree = memFree;
  transport.getPeerPointer = NULL;
  transport.groupStart = groupStart;
  transport.groupEnd = groupEnd;
  transport.send = sendRows;
  transport.recv = recvRows;
  transport.allGather = allGather;
  transport.broadcast = broadcast;
}

void guardedAttach(struct lrmoeComm *comm) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, makeTables);
  comm->backend = &backend;
  comm->transport = &transport;
}
