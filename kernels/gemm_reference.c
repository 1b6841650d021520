/* The reference GEMM: plain C, always there, what the modules are tested
 * against.
 *
 * Blocks of op(A) and op(B) are converted to fp32 into small tiles, which
 * takes care of types and transposes at once; products are then added to C in
 * ascending k, so that an element of C has the same bits for every m and n. */
#include "kernels/cpu_convert.h"
#include "kernels/gemm.h"

#include <string.h>

enum {
  tileEdge = 64
};

struct tile {
  float data[tileEdge][tileEdge];
};

/* A matrix operand: element (row, column) of op(X). */
struct operand {
  const void *data;
  int64_t leading;
  lrmoeDataType_t type;
  int isTransposed;
};

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* tile = op(X)[row .. row + rows, column .. column + columns). */
static void loadTile(const struct operand *x, int64_t row, int64_t rows,
                     int64_t column, int64_t columns, struct tile *tile) {
  if (!x->isTransposed) {
    for (int64_t i = 0; i < rows; i++)
      loadBlock(x->type,
                elementAt(x->data, x->type, (row + i) * x->leading + column),
                columns, tile->data[i]);
    return;
  }
  for (int64_t j = 0; j < columns; j++) {
    float line[tileEdge];
    loadBlock(x->type,
              elementAt(x->data, x->type, (column + j) * x->leading + row),
              rows, line);
    for (int64_t i = 0; i < rows; i++)
      tile->data[i][j] = line[i];
  }
}

/* C tile += A tile * B tile. */
static void multiplyTiles(const struct tile *a, const struct tile *b,
                          const int64_t size[3], float *c, int64_t ldc) {
  for (int64_t i = 0; i < size[0]; i++)
    for (int64_t p = 0; p < size[2]; p++) {
      float factor = a->data[i][p];
      float *restrict to = c + i * ldc;
      const float *restrict from = b->data[p];
      for (int64_t j = 0; j < size[1]; j++)
        to[j] += factor * from[j];
    }
}

static lrmoeResult_t multiply(const struct lrmoeGemm *gemm) {
  const struct operand a = {gemm->a, gemm->lda, gemm->operand, gemm->transA};
  const struct operand b = {gemm->b, gemm->ldb, gemm->operand, gemm->transB};
  if (!gemm->accumulate)
    for (int64_t i = 0; gemm->n > 0 && i < gemm->m; i++)
      memset(gemm->c + i * gemm->ldc, 0, (size_t)gemm->n * sizeof *gemm->c);
  struct tile aTile;
  struct tile bTile;
  for (int64_t p = 0; p < gemm->k; p += tileEdge)
    for (int64_t j = 0; j < gemm->n; j += tileEdge) {
      int64_t depth = least(tileEdge, gemm->k - p);
      int64_t columns = least(tileEdge, gemm->n - j);
      loadTile(&b, p, depth, j, columns, &bTile);
      for (int64_t i = 0; i < gemm->m; i += tileEdge) {
        int64_t rows = least(tileEdge, gemm->m - i);
        loadTile(&a, i, rows, p, depth, &aTile);
        const int64_t size[3] = {rows, columns, depth};
        multiplyTiles(&aTile, &bTile, size, gemm->c + i * gemm->ldc + j,
                      gemm->ldc);
      }
    }
  return lrmoeSuccess;
}

static lrmoeDataType_t operandType(lrmoeDataType_t rows) {
  return rows;
}

static const char *describe(void) {
  return "reference: plain C";
}

const struct lrmoeGemmModule lrmoeGemmReference = {
    .abi = LRMOE_GEMM_ABI,
    .name = "reference",
    .operandType = operandType,
    .multiply = multiply,
    .describe = describe,
};
