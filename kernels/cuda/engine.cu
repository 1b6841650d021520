/* Side streams, handles and scratch of a device: see engine.h. */
#include "kernels/cuda/engine.h"
#include "kernels/cuda/error.h"

#include <cstdlib>

static pthread_mutex_t listMutex = PTHREAD_MUTEX_INITIALIZER;
static struct lrmoeEngine *list;

/* Also of a slot that was made in part. */
static void freeSlot(const struct lrmoeCudaGemmTable *table,
                     struct lrmoeSlot *slot) {
  if (slot->stream) (void)cudaStreamSynchronize(slot->stream);
  table->close(slot->gemm);
  (void)cudaFree(slot->scratch);
  if (slot->done) (void)cudaEventDestroy(slot->done);
  if (slot->stream) (void)cudaStreamDestroy(slot->stream);
}

static void freeEngine(struct lrmoeEngine *engine) {
  int current = 0;
  (void)cudaGetDevice(&current);
  (void)cudaSetDevice(engine->device);
  for (int i = 0; i < engine->numSlots; i++)
    freeSlot(engine->table, &engine->slots[i]);
  if (engine->begun) (void)cudaEventDestroy(engine->begun);
  (void)cudaSetDevice(current);
  pthread_mutex_destroy(&engine->mutex);
  free(engine);
}

static lrmoeResult_t makeSlot(const struct lrmoeCudaGemmTable *table,
                              struct lrmoeSlot *slot) {
  LRMOE_CUDA_CHECK(
      cudaStreamCreateWithFlags(&slot->stream, cudaStreamNonBlocking));
  LRMOE_CUDA_CHECK(
      cudaEventCreateWithFlags(&slot->done, cudaEventDisableTiming));
  return table->open(slot->stream, &slot->gemm);
}

static lrmoeResult_t startEngine(struct lrmoeEngine *engine) {
  LRMOE_CUDA_CHECK(
      cudaEventCreateWithFlags(&engine->begun, cudaEventDisableTiming));
  while (engine->numSlots < engine->table->maxStreams)
    LRMOE_CHECK(makeSlot(engine->table, &engine->slots[engine->numSlots++]));
  return lrmoeSuccess;
}

static lrmoeResult_t makeEngine(const struct lrmoeCudaGemmTable *table,
                                int device, struct lrmoeEngine **engine) {
  struct lrmoeEngine *made =
      static_cast<struct lrmoeEngine *>(calloc(1, sizeof *made));
  if (!made) return lrmoeCudaFail(lrmoeOutOfMemory, "no memory for streams");
  made->table = table;
  made->device = device;
  pthread_mutex_init(&made->mutex, NULL);
  lrmoeResult_t result = startEngine(made);
  if (result != lrmoeSuccess) {
    freeEngine(made);
    return result;
  }
  *engine = made;
  return lrmoeSuccess;
}

/* With the list locked. */
static lrmoeResult_t findOrMake(const struct lrmoeCudaGemmTable *table,
                                int device, struct lrmoeEngine **engine) {
  struct lrmoeEngine *found = list;
  while (found && (found->device != device || found->table != table))
    found = found->next;
  if (!found) {
    LRMOE_CHECK(makeEngine(table, device, &found));
    found->next = list;
    list = found;
  }
  found->numUsers++;
  *engine = found;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeEngineAcquire(const struct lrmoeCudaGemmTable *table,
                                 struct lrmoeEngine **engine) {
  int device = 0;
  LRMOE_CUDA_CHECK(cudaGetDevice(&device));
  pthread_mutex_lock(&listMutex);
  lrmoeResult_t result = findOrMake(table, device, engine);
  pthread_mutex_unlock(&listMutex);
  return result;
}

void lrmoeEngineRelease(struct lrmoeEngine *engine) {
  pthread_mutex_lock(&listMutex);
  int isLast = --engine->numUsers == 0;
  struct lrmoeEngine **link = &list;
  while (isLast && *link != engine)
    link = &(*link)->next;
  if (isLast) *link = engine->next;
  pthread_mutex_unlock(&listMutex);
  if (isLast) freeEngine(engine);
}

lrmoeResult_t lrmoeEngineEnter(struct lrmoeEngine *engine) {
  int device = 0;
  LRMOE_CUDA_CHECK(cudaGetDevice(&device));
  if (device != engine->device)
    return lrmoeCudaFail(lrmoeInvalidUsage,
                         "experts of device %d are run while device %d is "
                         "current",
                         engine->device, device);
  pthread_mutex_lock(&engine->mutex);
  return lrmoeSuccess;
}

void lrmoeEngineLeave(struct lrmoeEngine *engine) {
  pthread_mutex_unlock(&engine->mutex);
}

int64_t lrmoeEngineScratchBytes(struct lrmoeEngine *engine) {
  int64_t bytes = 0;
  pthread_mutex_lock(&engine->mutex);
  for (int i = 0; i < engine->numSlots; i++)
    bytes += engine->slots[i].scratchBytes;
  pthread_mutex_unlock(&engine->mutex);
  return bytes;
}

lrmoeResult_t lrmoeSlotReserve(struct lrmoeSlot *slot, int64_t bytes) {
  if (bytes <= slot->scratchBytes) return lrmoeSuccess;
  LRMOE_CUDA_CHECK(cudaStreamSynchronize(slot->stream));
  LRMOE_CUDA_CHECK(cudaFree(slot->scratch));
  slot->scratch = NULL;
  slot->scratchBytes = 0;
  void *scratch = NULL;
  LRMOE_CUDA_CHECK(cudaMalloc(&scratch, static_cast<size_t>(bytes)));
  slot->scratch = static_cast<char *>(scratch);
  slot->scratchBytes = bytes;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeEngineFork(struct lrmoeEngine *engine, int numSlots,
                              lrmoeStream_t stream) {
  LRMOE_CUDA_CHECK(cudaEventRecord(engine->begun, stream));
  for (int i = 0; i < numSlots; i++)
    LRMOE_CUDA_CHECK(
        cudaStreamWaitEvent(engine->slots[i].stream, engine->begun, 0));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeEngineJoin(struct lrmoeEngine *engine, int numSlots,
                              lrmoeStream_t stream) {
  for (int i = 0; i < numSlots; i++) {
    struct lrmoeSlot *slot = &engine->slots[i];
    LRMOE_CUDA_CHECK(cudaEventRecord(slot->done, slot->stream));
    LRMOE_CUDA_CHECK(cudaStreamWaitEvent(stream, slot->done, 0));
  }
  return lrmoeSuccess;
}

void lrmoeEngineSettle(struct lrmoeEngine *engine, int numSlots,
                       lrmoeStream_t stream) {
  if (lrmoeEngineJoin(engine, numSlots, stream) == lrmoeSuccess) return;
  for (int i = 0; i < numSlots; i++)
    (void)cudaStreamSynchronize(engine->slots[i].stream);
}

lrmoeResult_t lrmoeEngineMark(struct lrmoeEngine *engine, int numSlots,
                              cudaEvent_t event) {
  lrmoeStream_t stream = engine->slots[0].stream;
  LRMOE_CHECK(lrmoeEngineJoin(engine, numSlots, stream));
  LRMOE_CUDA_CHECK(cudaEventRecord(event, stream));
  return lrmoeSuccess;
}
