/* Largest remainders: see apportion.h. */
#include "tools/common/apportion.h"

#include <stdlib.h>

__extension__ typedef __int128 wide;

struct remainder {
  int64_t value;
  int64_t index;
};

/* Largest first, then by index. */
static int compareRemainder(const void *left, const void *right) {
  const struct remainder *a = left, *b = right;
  if (a->value != b->value) return a->value < b->value ? 1 : -1;
  return a->index < b->index ? -1 : 1;
}

enum toolExit toolApportion(const int64_t *weights, int64_t count,
                            int64_t total, int64_t *parts,
                            struct toolError *error) {
  int64_t sum = 0, left = total;
  for (int64_t i = 0; i < count; i++)
    sum += weights[i];
  struct remainder *remainders = calloc((size_t)count + 1, sizeof *remainders);
  if (!remainders)
    return toolFail(error, toolRunFailed, "no memory for %lld counts",
                    (long long)count);
  for (int64_t i = 0; i < count; i++) {
    wide product = (wide)weights[i] * total;
    remainders[i] = (struct remainder){sum ? (int64_t)(product % sum) : 0, i};
    parts[i] = sum ? (int64_t)(product / sum) : 0;
    left -= parts[i];
  }
  qsort(remainders, (size_t)count, sizeof *remainders, compareRemainder);
  for (int64_t i = 0; i < count && sum && left > 0; i++, left--)
    parts[remainders[i].index]++;
  free(remainders);
  return toolGood;
}
