/* What runs the experts of a device: side streams with a GEMM handle and
 * scratch each, shared by all layers of the process.
 *
 * Only work of its own stream touches a slot's scratch, so that layers and
 * callers' streams may share it without waiting for each other more than the
 * slot's stream makes them.  Scratch grows and never shrinks; a call that
 * needs no more than an earlier one allocates nothing. */
#ifndef LRMOE_KERNELS_CUDA_ENGINE_H
#define LRMOE_KERNELS_CUDA_ENGINE_H

#include "kernels/cuda/gemm.h"

#include <cuda_runtime_api.h>

#include <pthread.h>

#define LRMOE_MAX_SLOTS 4

struct lrmoeSlot {
  lrmoeStream_t stream;
  cudaEvent_t done;
  void *gemm;
  char *scratch;
  int64_t scratchBytes;
};

struct lrmoeEngine {
  const struct lrmoeCudaGemmTable *table;
  int device;
  int numUsers;
  struct lrmoeEngine *next;
  pthread_mutex_t mutex; /* held while a call is enqueued */
  cudaEvent_t begun;
  int numSlots;
  struct lrmoeSlot slots[LRMOE_MAX_SLOTS];
};

/* The engine of the current device and a table, made if there is none. */
lrmoeResult_t lrmoeEngineAcquire(const struct lrmoeCudaGemmTable *table,
                                 struct lrmoeEngine **engine);
/* The last user waits for the slots and frees them. */
void lrmoeEngineRelease(struct lrmoeEngine *engine);

/* Locks; fails when another device is current. */
lrmoeResult_t lrmoeEngineEnter(struct lrmoeEngine *engine);
void lrmoeEngineLeave(struct lrmoeEngine *engine);

/* Bytes of all slots' scratch. */
int64_t lrmoeEngineScratchBytes(struct lrmoeEngine *engine);

/* Makes a slot's scratch at least that large.  Growing waits for the slot's
 * work. */
lrmoeResult_t lrmoeSlotReserve(struct lrmoeSlot *slot, int64_t bytes);

/* The first numSlots slots go on after what `stream` has now; `stream` goes on
 * after what the slots have now. */
lrmoeResult_t lrmoeEngineFork(struct lrmoeEngine *engine, int numSlots,
                              lrmoeStream_t stream);
lrmoeResult_t lrmoeEngineJoin(struct lrmoeEngine *engine, int numSlots,
                              lrmoeStream_t stream);

/* After a failure: the same, or where that fails too the host waits. */
void lrmoeEngineSettle(struct lrmoeEngine *engine, int numSlots,
                       lrmoeStream_t stream);

/* The event is after what the slots have now; the first one waits for the
 * others, no stream of the caller does. */
lrmoeResult_t lrmoeEngineMark(struct lrmoeEngine *engine, int numSlots,
                              cudaEvent_t event);

#endif
