/* Embeddings of the last bytes together: see grams.h. */
#include "perf/train/grams.h"

int64_t trainGramsCount(const struct trainShape *shape) {
  return shape->numGrams * shape->gramRows * shape->dim;
}

/* Where in its table the row of the `length` bytes up to `last` begins. */
static int64_t rowOf(const struct trainShape *shape, const uint8_t *last,
                     int64_t length) {
  uint64_t key = 1;
  for (int64_t i = 0; i < length; i++)
    key = key << 8 | last[-i];
  uint64_t hash = (key * 0x9e3779b97f4a7c15u) >> 32;
  return (int64_t)(hash % (uint64_t)shape->gramRows) * shape->dim;
}

/* How many tables position t has a row in. */
static int64_t numGramsAt(const struct trainShape *shape, int64_t t) {
  int64_t before = t % shape->context;
  return before < shape->numGrams ? before : shape->numGrams;
}

void trainGramsAdd(const struct trainShape *shape, const uint8_t *bytes,
                   const float *tables, struct trainMatrix x) {
  int64_t dim = shape->dim;
  for (int64_t t = 0; t < x.rows; t++)
    for (int64_t i = 0; i < numGramsAt(shape, t); i++) {
      const float *row =
          tables + i * shape->gramRows * dim + rowOf(shape, bytes + t, i + 2);
      for (int64_t j = 0; j < dim; j++)
        x.data[t * dim + j] += row[j];
    }
}

void trainGramsBackward(const struct trainShape *shape, const uint8_t *bytes,
                        struct trainMatrix dx, float *dtables) {
  int64_t dim = shape->dim;
  for (int64_t t = 0; t < dx.rows; t++)
    for (int64_t i = 0; i < numGramsAt(shape, t); i++) {
      float *row =
          dtables + i * shape->gramRows * dim + rowOf(shape, bytes + t, i + 2);
      for (int64_t j = 0; j < dim; j++)
        row[j] += dx.data[t * dim + j];
    }
}
