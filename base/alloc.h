/* Allocation: checked sizes, one place to inject faults.
 *
 * Small things are zeroed heap blocks.  Row buffers are lrmoeBuffer: they only
 * grow, are 64-byte aligned and ask for huge pages, because a first touch per
 * 4 KiB page costs as much as copying it. */
#ifndef LRMOE_BASE_ALLOC_H
#define LRMOE_BASE_ALLOC_H

#include "base/result.h"

/* Zeroed memory for count elements of elementBytes; *pointer is set only on
 * success.  count 0 gives a block that may be freed.  Free with lrmoeFree. */
lrmoeResult_t lrmoeAllocate(size_t count, size_t elementBytes, void **pointer);
void lrmoeFree(void *pointer);

/* The same with any contents, for what is written in full anyway. */
lrmoeResult_t lrmoeAllocateUnset(size_t bytes, void **pointer);

/* Typed: LRMOE_ALLOCATE(count, &array). */
#define LRMOE_ALLOCATE(count, pointer) \
  lrmoeAllocate((size_t)(count), sizeof **(pointer), (void **)(pointer))

/* Room for one more than count elements: the array of *room elements moves to
 * one of twice as many, or of `first` where there is none. */
struct lrmoeGrowth {
  int64_t count;
  int64_t first;
  size_t elementBytes;
};
lrmoeResult_t lrmoeGrow(const struct lrmoeGrowth *growth, int64_t *room,
                        void **array);

/* Typed: LRMOE_GROW(count, first, &room, &array). */
#define LRMOE_GROW(count, first, room, array)                                  \
  lrmoeGrow(&(const struct lrmoeGrowth){count, first, sizeof **(array)}, room, \
            (void **)(array))

struct lrmoeBuffer {
  void *data;
  size_t bytes; /* room */
};

/* Makes room for `bytes`; contents are lost when the buffer has to grow. */
lrmoeResult_t lrmoeBufferReserve(struct lrmoeBuffer *buffer, size_t bytes);
void lrmoeBufferFree(struct lrmoeBuffer *buffer);

/* For tests: the n-th allocation from now (1 = the next) fails once; 0 turns
 * it off.  Returns how many allocations came since the last call.  Counts all
 * threads of the process. */
int64_t lrmoeAllocFailAt(int64_t n);

#endif
