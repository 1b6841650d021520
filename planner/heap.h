/* Binary max-heaps of int32 ids, ordered by a key of each id; of equal keys
 * the lower id comes first, so that what is popped does not depend on the
 * order of pushes.  A key changes only while its id is outside, but for the
 * first one (lrmoeHeapFixFirst). */
#ifndef LRMOE_PLANNER_HEAP_H
#define LRMOE_PLANNER_HEAP_H

#include <stdint.h>

struct lrmoeHeap {
  int32_t *ids;
  const int64_t *keys; /* [id] */
  int32_t count;
};

static inline int lrmoeHeapBefore(const struct lrmoeHeap *heap, int32_t a,
                                  int32_t b) {
  return heap->keys[a] != heap->keys[b] ? heap->keys[a] > heap->keys[b] : a < b;
}

static inline void lrmoeHeapSink(struct lrmoeHeap *heap, int32_t at) {
  int32_t id = heap->ids[at];
  for (int32_t child; (child = 2 * at + 1) < heap->count; at = child) {
    if (child + 1 < heap->count &&
        lrmoeHeapBefore(heap, heap->ids[child + 1], heap->ids[child]))
      child++;
    if (!lrmoeHeapBefore(heap, heap->ids[child], id)) break;
    heap->ids[at] = heap->ids[child];
  }
  heap->ids[at] = id;
}

static inline void lrmoeHeapFixFirst(struct lrmoeHeap *heap) {
  lrmoeHeapSink(heap, 0);
}

/* Orders ids that were written to it directly. */
static inline void lrmoeHeapOrder(struct lrmoeHeap *heap) {
  for (int32_t at = heap->count / 2 - 1; at >= 0; at--)
    lrmoeHeapSink(heap, at);
}

static inline void lrmoeHeapPush(struct lrmoeHeap *heap, int32_t id) {
  int32_t at = heap->count++;
  while (at > 0 && lrmoeHeapBefore(heap, id, heap->ids[(at - 1) / 2])) {
    heap->ids[at] = heap->ids[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap->ids[at] = id;
}

/* The heap is not empty. */
static inline int32_t lrmoeHeapPop(struct lrmoeHeap *heap) {
  int32_t id = heap->ids[0];
  heap->ids[0] = heap->ids[--heap->count];
  if (heap->count > 0) lrmoeHeapSink(heap, 0);
  return id;
}

#endif
