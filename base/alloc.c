/* Allocation: see alloc.h. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_int_fast64_t numAllocations;
static atomic_int_fast64_t failAt;

int64_t lrmoeAllocFailAt(int64_t n) {
  atomic_store(&failAt, n);
  return atomic_exchange(&numAllocations, 0);
}

static int mustFail(void) {
  int64_t number = atomic_fetch_add(&numAllocations, 1) + 1;
  return number == atomic_load(&failAt);
}

lrmoeResult_t lrmoeAllocate(size_t count, size_t elementBytes, void **pointer) {
  void *block = mustFail() ? NULL : calloc(count ? count : 1, elementBytes);
  if (!block)
    return LRMOE_FAIL(lrmoeOutOfMemory, "no memory for %zu elements of %zu B",
                      count, elementBytes);
  *pointer = block;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeAllocateUnset(size_t bytes, void **pointer) {
  void *block = mustFail() ? NULL : malloc(bytes ? bytes : 1);
  if (!block) return LRMOE_FAIL(lrmoeOutOfMemory, "no memory for %zu B", bytes);
  *pointer = block;
  return lrmoeSuccess;
}

void lrmoeFree(void *pointer) {
  free(pointer);
}

enum {
  hugePageBytes = 2 << 20,
  smallAlignment = 64
};

lrmoeResult_t lrmoeGrow(const struct lrmoeGrowth *growth, int64_t *room,
                        void **array) {
  if (growth->count < *room) return lrmoeSuccess;
  int64_t wanted = *room ? 2 * *room : growth->first;
  void *old = NULL;
  void *grown = NULL;
  memcpy(&old, array, sizeof old);
  LRMOE_CHECK(lrmoeAllocate((size_t)wanted, growth->elementBytes, &grown));
  if (grown && growth->count)
    memcpy(grown, old, (size_t)growth->count * growth->elementBytes);
  lrmoeFree(old);
  memcpy(array, &grown, sizeof grown);
  *room = wanted;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeBufferReserve(struct lrmoeBuffer *buffer, size_t bytes) {
  if (bytes <= buffer->bytes) return lrmoeSuccess;
  size_t room = bytes + bytes / 8; /* steps of a run differ a little */
  size_t alignment = room >= hugePageBytes ? hugePageBytes : smallAlignment;
  room = (room + alignment - 1) / alignment * alignment;
  void *data =
      mustFail() || room < bytes ? NULL : aligned_alloc(alignment, room);
  if (!data)
    return LRMOE_FAIL(lrmoeOutOfMemory, "no memory for a buffer of %zu B",
                      bytes);
  if (alignment == hugePageBytes) madvise(data, room, MADV_HUGEPAGE);
  free(buffer->data);
  buffer->data = data;
  buffer->bytes = room;
  return lrmoeSuccess;
}

void lrmoeBufferFree(struct lrmoeBuffer *buffer) {
  free(buffer->data);
  *buffer = (struct lrmoeBuffer){0};
}
