/* Row kernels for the CPU: sums, gather, add (see rows.h).
 *
 * Plain C that vectorises: conversions run over blocks of 256 elements in the
 * first cache level, so that no loop mixes types.  rows_v1.c, rows_v3.c and
 * rows_v4.c include this file, each compiled for its x86-64 level, which it
 * names in LRMOE_LEVEL. */
#ifndef LRMOE_KERNELS_ROWS_CPU_H
#define LRMOE_KERNELS_ROWS_CPU_H

#include "base/copy.h"
#include "kernels/activation_cpu.h"
#include "kernels/rows.h"

/* A full block from column `first`, with zeros beyond the row's end. */
static void loadPadded(const struct lrmoeRows *rows, const void *row,
                       int64_t first, float *block) {
  int64_t n = rows->width - first;
  const void *from = elementAt(row, rows->type, first);
  if (n >= blockElements) {
    loadBlock(rows->type, from, blockElements, block);
    return;
  }
  loadBlock(rows->type, from, n, block);
  padBlock(n, block);
}

/* Squares of columns [first, first + 256) of a row. */
static void addSquares(const struct lrmoeRows *rows, const void *row,
                       int64_t first, struct lanes *lanes) {
  float block[blockElements];
  if (rows->type == lrmoeBfloat16 && rows->width - first >= blockElements) {
    addSquaresOfBf16(lanes, elementAt(row, rows->type, first));
    return;
  }
  loadPadded(rows, row, first, block);
  addProducts(lanes, block, block);
}

static void sumSquares(const struct lrmoeRows *rows, int64_t numRows,
                       float *out) {
  for (int64_t i = 0; i < numRows; i++) {
    const void *row = rowAt(rows, i);
    struct lanes lanes = {0};
    for (int64_t j = 0; row && j < rows->width; j += blockElements)
      addSquares(rows, row, j, &lanes);
    out[i] = foldLanes(&lanes);
  }
}

static void sumAbs(const struct lrmoeRows *rows, int64_t numRows, float *out) {
  for (int64_t i = 0; i < numRows; i++) {
    const void *row = rowAt(rows, i);
    struct lanes lanes = {0};
    float block[blockElements];
    for (int64_t j = 0; row && j < rows->width; j += blockElements) {
      loadPadded(rows, row, j, block);
      for (int k = 0; k < blockElements; k++)
        block[k] = floatOfBits(bitsOfFloat(block[k]) & 0x7fffffff);
      addTerms(&lanes, block);
    }
    out[i] = foldLanes(&lanes);
  }
}

static void convertRow(lrmoeDataType_t inType, const void *in,
                       lrmoeDataType_t outType, void *out, int64_t width) {
  if (outType == lrmoeFloat32) {
    loadBlock(inType, in, width, out);
    return;
  }
  if (inType == lrmoeFloat32) {
    storeBlock(outType, in, width, out);
    return;
  }
  float block[blockElements];
  for (int64_t j = 0; j < width; j += blockElements) {
    int64_t n = width - j < blockElements ? width - j : blockElements;
    loadBlock(inType, elementAt(in, inType, j), n, block);
    storeBlock(outType, block, n, elementAtMutable(out, outType, j));
  }
}

static void gather(const struct lrmoeRows *rows, int64_t numRows,
                   lrmoeDataType_t outType, void *out) {
  int64_t width = rows->width;
  size_t outBytes = (size_t)(width * elementBytes(outType));
  for (int64_t i = 0; i < numRows; i++) {
    const void *row = rowAt(rows, i);
    void *to = elementAtMutable(out, outType, i * width);
    if (!row)
      memset(to, 0, outBytes); /* the bits of +0 in every type */
    else if (rows->type == outType)
      lrmoeCopyBytes(to, row, outBytes);
    else
      convertRow(rows->type, row, outType, to, width);
  }
}

static void sumProducts(const struct lrmoeRows *a, const struct lrmoeRows *b,
                        int64_t numRows, float *out) {
  float left[blockElements];
  float right[blockElements];
  for (int64_t i = 0; i < numRows; i++) {
    const void *rowA = rowAt(a, i);
    const void *rowB = rowAt(b, i);
    struct lanes lanes = {0};
    for (int64_t j = 0; rowA && rowB && j < a->width; j += blockElements) {
      loadPadded(a, rowA, j, left);
      loadPadded(b, rowB, j, right);
      addProducts(&lanes, left, right);
    }
    out[i] = foldLanes(&lanes);
  }
}

static void scaleRows(int64_t width, int64_t numRows, const float *rows,
                      const float *scale, lrmoeDataType_t outType, void *out) {
  float block[blockElements];
  for (int64_t i = 0; i < numRows; i++) {
    const float *from = rows + i * width;
    void *to = elementAtMutable(out, outType, i * width);
    float factor = scale ? scale[i] : 1;
    for (int64_t j = 0; j < width; j += blockElements) {
      int64_t left = width - j;
      int64_t n = left < blockElements ? left : blockElements;
      for (int64_t k = 0; k < n; k++)
        block[k] = factor * from[j + k];
      storeBlock(outType, block, n, elementAtMutable(to, outType, j));
    }
  }
}

/* What the rows of one sum are, and where it goes. */
struct listedRows {
  const struct lrmoeRows *rows;
  int64_t numEntries;
  const int64_t *list;
  const float *weights;
  void *out;
};

/* Adds one entry's block to the sum; the first begins it, so that one entry
 * alone keeps its bits (-0 too). */
static void addEntry(const struct listedRows *sum, int64_t entry, int64_t first,
                     int64_t n, float *total) {
  float block[blockElements];
  const struct lrmoeRows *rows = sum->rows;
  int64_t row = sum->list[entry];
  float *to = entry ? block : total;
  loadBlock(rows->type,
            elementAt(rows->data, rows->type, row * rows->width + first), n,
            to);
  if (sum->weights) {
    float weight = sum->weights[row];
    for (int64_t k = 0; k < n; k++)
      to[k] *= weight;
  }
  for (int64_t k = 0; entry && k < n; k++)
    total[k] += block[k];
}

static void sumListed(const struct listedRows *sum) {
  float total[blockElements];
  const struct lrmoeRows *rows = sum->rows;
  for (int64_t j = 0; j < rows->width; j += blockElements) {
    int64_t left = rows->width - j;
    int64_t n = left < blockElements ? left : blockElements;
    for (int64_t entry = 0; entry < sum->numEntries; entry++)
      addEntry(sum, entry, j, n, total);
    storeBlock(rows->type, total, n, elementAtMutable(sum->out, rows->type, j));
  }
}

static void gatherSum(const struct lrmoeRows *rows, int64_t numOut,
                      const int64_t *offsets, const int64_t *list,
                      const float *weights, void *out) {
  size_t rowBytes = (size_t)(rows->width * elementBytes(rows->type));
  for (int64_t t = 0; t < numOut; t++) {
    void *to = elementAtMutable(out, rows->type, t * rows->width);
    int64_t numEntries = offsets[t + 1] - offsets[t];
    const struct listedRows sum = {rows, numEntries, list + offsets[t], weights,
                                   to};
    if (numEntries)
      sumListed(&sum);
    else
      memset(to, 0, rowBytes);
  }
}

#define TEXT_OF(name)       #name
#define LEVEL_TEXT(level)   TEXT_OF(level)
#define JOIN(prefix, level) prefix##level
#define LEVEL_TABLE(level)  JOIN(lrmoeRowKernels_, level)

const struct lrmoeRowKernels LEVEL_TABLE(LRMOE_LEVEL) = {
    .isa = LEVEL_TEXT(LRMOE_LEVEL),
    .sumSquares = sumSquares,
    .sumAbs = sumAbs,
    .gather = gather,
    .scaleRows = scaleRows,
    .gatherSum = gatherSum,
    .sumProducts = sumProducts,
    .activationForward = activationForward,
    .activationBackward = activationBackward,
};

#endif
