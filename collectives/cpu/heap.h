/* The heap behind lrmoeMemAlloc: one sparse memfd per process.
 *
 * Every peer maps it when a communicator is made, before anything is allocated
 * from it or after: the file has its full size from the start and takes memory
 * only where it is touched. */
#ifndef LRMOE_COLLECTIVES_CPU_HEAP_H
#define LRMOE_COLLECTIVES_CPU_HEAP_H

#include "base/result.h"

struct lrmoeHeap {
  uint64_t token[2];
  char *base;
  uint64_t bytes;
  int fd;
};

/* This process's heap, made by the first call; never freed. */
lrmoeResult_t lrmoeHeapGet(const struct lrmoeHeap **own);

lrmoeResult_t lrmoeHeapAllocate(size_t bytes, void **pointer);
lrmoeResult_t lrmoeHeapFree(void *pointer);

/* Whether [pointer, pointer + bytes) lies in the heap. */
int lrmoeHeapHolds(const struct lrmoeHeap *own, const void *pointer,
                   uint64_t bytes);

/* Whether it lies in one allocated block. */
int lrmoeHeapHoldsBlock(const void *pointer, uint64_t bytes);

#endif
