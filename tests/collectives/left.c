/* What a backward leaves: see left.h. */
#include "left.h"

#include "collectives/layer.h"

#include <stdlib.h>
#include <string.h>

void leftAppend(struct left *left, const void *data, int64_t count) {
  if (left->count + count > left->room) {
    left->room = 2 * (left->count + count);
    left->bytes = realloc(left->bytes, (size_t)left->room);
    if (!left->bytes) abort();
  }
  if (count) memcpy(left->bytes + left->count, data, (size_t)count);
  left->count += count;
}

static void appendDevice(struct left *left, const struct driver *d,
                         const void *from, int64_t count) {
  char *raw = oracleZeroed(count + 1, 1);
  mirrorFetch(&d->mirrors, from, count, raw);
  leftAppend(left, raw, count);
  free(raw);
}

int leftAppendHandoff(struct left *left, const struct driver *d) {
  lrmoeHandoff_t handoff = LRMOE_HANDOFF_INITIALIZER;
  int64_t rowBytes = d->layer->rowBytes;
  RANK_OK(d->self, lrmoeStepGetHandoff(d->step, &handoff));
  leftAppend(left, handoff.offsets,
             (handoff.numInstances + 1) * (int64_t)sizeof *handoff.offsets);
  for (int64_t i = 0; i < handoff.numPairs; i++) {
    int64_t row = 0;
    mirrorFetch(&d->mirrors, handoff.gRow + i, (int64_t)sizeof row, &row);
    appendDevice(left, d, (const char *)handoff.g + row * rowBytes, rowBytes);
  }
  if (!handoff.numPairs) return 0;
  appendDevice(left, d, handoff.weights,
               handoff.numPairs * (int64_t)sizeof(float));
  return 0;
}

int leftIsSame(const struct left *all, const struct left *part) {
  return part->count <= all->count &&
         !memcmp(part->bytes, all->bytes, (size_t)part->count);
}
