/* What the trainer's files share: see config.h. */
#include "perf/train/config.h"

#include <stdlib.h>

void *trainRoom(int64_t count, size_t bytes) {
  void *block = calloc((size_t)(count > 0 ? count : 1), bytes);
  if (!block) abort();
  return block;
}

struct trainShare trainShareOf(int64_t total, int rank, int numRanks) {
  int64_t first = total * rank / numRanks;
  return (struct trainShare){first, total * (rank + 1) / numRanks - first};
}
