/* The shared heap: see heap.h.
 *
 * Blocks are whole pages, kept as one list in address order that covers the
 * heap without gaps; allocation takes the first free block that is large
 * enough, and neighbours that are free merge.  The list is private memory: a
 * peer, which can write the heap, cannot damage it.  Programs hold tens to
 * hundreds of blocks, for which a list is enough.
 *
 * A freed block gives its memory back at once (a hole is punched), which also
 * makes the next block zero. */
#include "collectives/cpu/heap.h"

#include "base/alloc.h"
#include "base/param.h"
#include "collectives/cpu/mapping.h"
#include "collectives/cpu/secret.h"
#include "collectives/cpu/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
/* A page behind each block that must not be touched. */
enum {
  guardBytes = lrmoePageBytes
};
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) \
  ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) \
  ((void)(address), (void)(bytes))
enum {
  guardBytes = 0
};
#endif

struct block {
  uint64_t offset;
  uint64_t bytes; /* whole pages */
  uint64_t asked; /* what the caller may use; 0 when free */
  int isUsed;
  struct block *next;
};

static struct lrmoeHeap heap;
static struct lrmoeMapping *heapMapping;
static struct block *blocks;

/* In a child of fork(): the parent's heap is not mapped here. */
static void forgetHeap(void) {
  while (blocks) {
    struct block *next = blocks->next;
    lrmoeFree(blocks);
    blocks = next;
  }
  if (heapMapping) close(heap.fd);
  heapMapping = NULL;
}

/* Everything that the heap needs besides the mapping. */
static lrmoeResult_t heapMake(struct lrmoeHeap *made, struct block **first) {
  LRMOE_CHECK(lrmoeSecretRandom(made->token, sizeof made->token));
  made->bytes = (uint64_t)lrmoeParamGet(lrmoeParamHeapBytes);
  made->bytes = made->bytes / lrmoePageBytes * lrmoePageBytes;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, first));
  (*first)->bytes = made->bytes;
  lrmoeResult_t result = lrmoeMemfdCreate("lrmoe-heap", made->bytes, &made->fd);
  if (result != lrmoeSuccess) lrmoeFree(*first);
  return result;
}

static lrmoeResult_t heapMap(struct lrmoeHeap *made,
                             struct lrmoeMapping **mapping) {
  int fd = fcntl(made->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0)
    return LRMOE_FAIL(lrmoeSystemError, "cannot duplicate a descriptor: %s",
                      strerror(errno));
  struct lrmoeMappingArgs args = {
      {made->token[0], made->token[1]}, made->bytes, fd, 0};
  LRMOE_CHECK(lrmoeMappingOpen(&args, mapping));
  made->base = (*mapping)->base;
  return lrmoeSuccess;
}

/* Two threads may both make a heap; the second to finish drops its own. */
lrmoeResult_t lrmoeHeapGet(const struct lrmoeHeap **own) {
  lrmoeProcessLock();
  lrmoeForkRegister(forgetHeap);
  int exists = heapMapping != NULL;
  lrmoeProcessUnlock();
  if (exists) {
    *own = &heap;
    return lrmoeSuccess;
  }
  struct lrmoeHeap made = {0};
  struct block *first = NULL;
  struct lrmoeMapping *mapping = NULL;
  LRMOE_CHECK(heapMake(&made, &first));
  lrmoeResult_t result = heapMap(&made, &mapping);
  lrmoeProcessLock();
  int isOurs = result == lrmoeSuccess && !heapMapping;
  if (isOurs) {
    heap = made;
    heapMapping = mapping;
    blocks = first;
  }
  lrmoeProcessUnlock();
  if (!isOurs) {
    lrmoeMappingClose(mapping);
    close(made.fd);
    lrmoeFree(first);
  }
  if (result == lrmoeSuccess) *own = &heap;
  return result;
}

static lrmoeResult_t blockSplit(struct block *found, uint64_t bytes) {
  if (found->bytes == bytes) return lrmoeSuccess;
  struct block *rest = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &rest));
  rest->offset = found->offset + bytes;
  rest->bytes = found->bytes - bytes;
  rest->next = found->next;
  found->next = rest;
  found->bytes = bytes;
  return lrmoeSuccess;
}

static lrmoeResult_t blockTake(size_t asked, void **pointer) {
  uint64_t pages = (asked + lrmoePageBytes - 1) / lrmoePageBytes;
  uint64_t bytes = (pages ? pages : 1) * lrmoePageBytes + guardBytes;
  struct block *found = blocks;
  while (found && (found->isUsed || found->bytes < bytes))
    found = found->next;
  if (!found)
    return LRMOE_FAIL(lrmoeOutOfMemory,
                      "the shared heap of %llu B (LRMOE_HEAP_BYTES) has no "
                      "room for %zu B",
                      (unsigned long long)heap.bytes, asked);
  LRMOE_CHECK(blockSplit(found, bytes));
  found->isUsed = 1;
  found->asked = asked;
  char *data = heap.base + found->offset;
  ASAN_UNPOISON_MEMORY_REGION(data, asked);
  ASAN_POISON_MEMORY_REGION(data + asked, bytes - asked);
  *pointer = data;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHeapAllocate(size_t bytes, void **pointer) {
  const struct lrmoeHeap *own = NULL;
  LRMOE_REQUIRE(pointer, "pointer is NULL");
  LRMOE_CHECK(lrmoeHeapGet(&own));
  if (bytes > own->bytes)
    return LRMOE_FAIL(lrmoeOutOfMemory,
                      "%zu B are more than the whole shared heap of %llu B "
                      "(LRMOE_HEAP_BYTES)",
                      bytes, (unsigned long long)own->bytes);
  lrmoeProcessLock();
  lrmoeResult_t result = blockTake(bytes, pointer);
  lrmoeProcessUnlock();
  return result;
}

static void blockMergeNext(struct block *block) {
  struct block *next = block->next;
  if (!next || next->isUsed) return;
  block->bytes += next->bytes;
  block->next = next->next;
  lrmoeFree(next);
}

/* Gives the pages back; where holes cannot be punched they are zeroed. */
static void blockEmpty(const struct block *block) {
  char *data = heap.base + block->offset;
  ASAN_UNPOISON_MEMORY_REGION(data, block->bytes);
  int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (fallocate(heap.fd, mode, (off_t)block->offset, (off_t)block->bytes))
    memset(data, 0, block->bytes);
  ASAN_POISON_MEMORY_REGION(data, block->bytes);
}

static lrmoeResult_t blockRelease(const void *pointer) {
  struct block *before = NULL, *block = blocks;
  while (block && (!block->isUsed || heap.base + block->offset != pointer)) {
    before = block;
    block = block->next;
  }
  if (!block)
    return LRMOE_FAIL(lrmoeInvalidArgument,
                      "%p is not a block of lrmoeMemAlloc", pointer);
  blockEmpty(block);
  block->isUsed = 0;
  block->asked = 0;
  blockMergeNext(block);
  if (before && !before->isUsed) blockMergeNext(before);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHeapFree(void *pointer) {
  if (!pointer) return lrmoeSuccess;
  lrmoeProcessLock();
  lrmoeResult_t result = blockRelease(pointer);
  lrmoeProcessUnlock();
  return result;
}

int lrmoeHeapHolds(const struct lrmoeHeap *own, const void *pointer,
                   uint64_t bytes) {
  uintptr_t first = (uintptr_t)own->base;
  uintptr_t asked = (uintptr_t)pointer;
  return asked >= first && asked - first <= own->bytes &&
         bytes <= own->bytes - (asked - first);
}

int lrmoeHeapHoldsBlock(const void *pointer, uint64_t bytes) {
  int holds = 0;
  lrmoeProcessLock();
  for (struct block *block = blocks; block && !holds; block = block->next) {
    uintptr_t first = (uintptr_t)(heap.base + block->offset);
    uintptr_t asked = (uintptr_t)pointer;
    holds = block->isUsed && asked >= first && asked - first <= block->asked &&
            bytes <= block->asked - (asked - first);
  }
  lrmoeProcessUnlock();
  return holds;
}
