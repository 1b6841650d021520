/* Reproducible sums over a row (rows.h): 32 lanes of 8 consecutive elements a
 * block, folded by a tree.
 *
 * The terms of a lane must be added one after the other, so vectors run across
 * lanes, and a block has to be transposed: in 16-byte parts of four words,
 * four lanes at a time.  Written with the vector extensions of gcc and clang,
 * because neither finds this by itself; the vectors are as wide as the level.
 *
 * A block cut short by the end of the row is filled up with zeros: a lane
 * begins at +0 and is never -0, so a zero term changes no bit of it. */
#ifndef LRMOE_KERNELS_CPU_LANES_H
#define LRMOE_KERNELS_CPU_LANES_H

#include "kernels/cpu_convert.h"

#if defined(__AVX512F__)
#define VECTOR_PARTS 4
#elif defined(__AVX2__)
#define VECTOR_PARTS 2
#else
#define VECTOR_PARTS 1
#endif

enum {
  numLanes = 32,
  laneElements = 8,
  partWords = 4,
  vectorWords = partWords * VECTOR_PARTS, /* lanes of one vector */
  numVectors = numLanes / vectorWords
};

typedef uint32_t words __attribute__((vector_size(16 * VECTOR_PARTS)));
typedef float floats __attribute__((vector_size(16 * VECTOR_PARTS)));
typedef uint32_t part __attribute__((vector_size(16)));

/* Lane i is element i % vectorWords of vector i / vectorWords. */
struct lanes {
  floats sum[numVectors];
};

static inline part loadPart(const char *from) {
  part loaded;
  memcpy(&loaded, from, sizeof loaded);
  return loaded;
}

/* SHUFFLE(a, b, i, j, k, l): in every part, words i, j, k, l of a's part
 * followed by b's. */
#define WORD(i, p) \
  ((i) % partWords + partWords * (p) + (i) / partWords * vectorWords)
#define WORDS(i, j, k, l, p) WORD(i, p), WORD(j, p), WORD(k, p), WORD(l, p)

/* loadParts: the parts at from, from + step, ... */
#if VECTOR_PARTS == 4
#define SHUFFLE(a, b, i, j, k, l)                                           \
  __builtin_shufflevector(a, b, WORDS(i, j, k, l, 0), WORDS(i, j, k, l, 1), \
                          WORDS(i, j, k, l, 2), WORDS(i, j, k, l, 3))

typedef uint32_t twoParts __attribute__((vector_size(32)));

static inline twoParts loadTwoParts(const char *from, int64_t step) {
  return __builtin_shufflevector(loadPart(from), loadPart(from + step), 0, 1, 2,
                                 3, 4, 5, 6, 7);
}

static inline words loadParts(const char *from, int64_t step) {
  return __builtin_shufflevector(loadTwoParts(from, step),
                                 loadTwoParts(from + 2 * step, step), 0, 1, 2,
                                 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#elif VECTOR_PARTS == 2
#define SHUFFLE(a, b, i, j, k, l) \
  __builtin_shufflevector(a, b, WORDS(i, j, k, l, 0), WORDS(i, j, k, l, 1))

static inline words loadParts(const char *from, int64_t step) {
  return __builtin_shufflevector(loadPart(from), loadPart(from + step), 0, 1, 2,
                                 3, 4, 5, 6, 7);
}
#else
#define SHUFFLE(a, b, i, j, k, l) \
  __builtin_shufflevector(a, b, WORDS(i, j, k, l, 0))

static inline words loadParts(const char *from, int64_t step) {
  (void)step;
  return loadPart(from);
}
#endif

/* Word w of the parts of the vectorWords lanes from `lane` on goes to
 * column[w]; part of lane i at block + i * laneBytes. */
static inline void loadColumns(const char *block, int64_t laneBytes, int lane,
                               words column[partWords]) {
  const char *first = block + lane * laneBytes;
  int64_t step = partWords * laneBytes;
  words r0 = loadParts(first, step);
  words r1 = loadParts(first + laneBytes, step);
  words r2 = loadParts(first + 2 * laneBytes, step);
  words r3 = loadParts(first + 3 * laneBytes, step);
  words low01 = SHUFFLE(r0, r1, 0, 4, 1, 5);
  words high01 = SHUFFLE(r0, r1, 2, 6, 3, 7);
  words low23 = SHUFFLE(r2, r3, 0, 4, 1, 5);
  words high23 = SHUFFLE(r2, r3, 2, 6, 3, 7);
  column[0] = SHUFFLE(low01, low23, 0, 1, 4, 5);
  column[1] = SHUFFLE(low01, low23, 2, 3, 6, 7);
  column[2] = SHUFFLE(high01, high23, 0, 1, 4, 5);
  column[3] = SHUFFLE(high01, high23, 2, 3, 6, 7);
}

/* Vectors of one size convert by reinterpretation. */
static inline void addTerms(struct lanes *lanes, const float *terms) {
  const int64_t laneBytes = laneElements * sizeof *terms;
  for (int v = 0; v < numVectors; v++) {
    floats sum = lanes->sum[v];
    for (int half = 0; half < laneElements; half += partWords) {
      words column[partWords];
      loadColumns((const char *)(terms + half), laneBytes, v * vectorWords,
                  column);
      for (int w = 0; w < partWords; w++)
        sum += (floats)column[w];
    }
    lanes->sum[v] = sum;
  }
}

/* Adds the squares of a block of bf16 without a detour: a word holds two
 * elements, and either is a float once the other is cleared. */
static inline void addSquaresOfBf16(struct lanes *lanes, const void *block) {
  const int64_t laneBytes = laneElements * sizeof(uint16_t);
  for (int v = 0; v < numVectors; v++) {
    words column[partWords];
    loadColumns(block, laneBytes, v * vectorWords, column);
    floats sum = lanes->sum[v];
    for (int w = 0; w < partWords; w++) {
      floats even = (floats)(column[w] << 16);
      floats odd = (floats)(column[w] & 0xffff0000u);
      sum += even * even;
      sum += odd * odd;
    }
    lanes->sum[v] = sum;
  }
}

static inline float foldLanes(const struct lanes *lanes) {
  float sum[numLanes];
  memcpy(sum, lanes->sum, sizeof sum);
  for (int half = numLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++)
      sum[lane] += sum[lane + half];
  return sum[0];
}

static inline void padBlock(int64_t n, float *block) {
  for (int64_t j = n; j < blockElements; j++)
    block[j] = 0;
}

/* lane += a * b; both blocks are full. */
static inline void addProducts(struct lanes *lanes, const float *restrict a,
                               const float *restrict b) {
  float terms[blockElements];
  for (int j = 0; j < blockElements; j++)
    terms[j] = a[j] * b[j];
  addTerms(lanes, terms);
}

#endif
