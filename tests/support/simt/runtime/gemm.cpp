/* Reference GEMM: see gemm.h. */
#include "gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <vector>

namespace simt {

/* Rows of C whose sums are held at once, for the vector units. */
constexpr int64_t tileRows = 64;
constexpr int64_t tileColumns = 4;

size_t elementBytes(cudaDataType_t type) {
  return type == CUDA_R_32F ? sizeof(float) : 2;
}

size_t matrixBytes(const Matrix &matrix, int64_t rows, int64_t columns) {
  int64_t height = matrix.isTransposed ? columns : rows;
  int64_t width = matrix.isTransposed ? rows : columns;
  if (height == 0 || width == 0) return 0;
  return static_cast<size_t>((width - 1) * matrix.stride + height) *
         elementBytes(matrix.type);
}

static float loadElement(const Matrix &matrix, int64_t index) {
  switch (matrix.type) {
  case CUDA_R_16BF:
    return __bfloat162float(
        static_cast<const __nv_bfloat16 *>(matrix.data)[index]);
  case CUDA_R_16F:
    return __half2float(static_cast<const __half *>(matrix.data)[index]);
  default:
    return static_cast<const float *>(matrix.data)[index];
  }
}

static void storeElement(const Matrix &matrix, int64_t index, float value) {
  switch (matrix.type) {
  case CUDA_R_16BF:
    static_cast<__nv_bfloat16 *>(matrix.data)[index] =
        __float2bfloat16_rn(value);
    break;
  case CUDA_R_16F:
    static_cast<__half *>(matrix.data)[index] = __float2half_rn(value);
    break;
  default:
    static_cast<float *>(matrix.data)[index] = value;
  }
}

/* op(matrix) as fp32, column after column. */
static std::vector<float> unpack(const Matrix &matrix, int64_t rows,
                                 int64_t columns) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (int64_t c = 0; c < columns; c++)
    for (int64_t r = 0; r < rows; r++) {
      int64_t index =
          matrix.isTransposed ? r * matrix.stride + c : c * matrix.stride + r;
      values[static_cast<size_t>(c * rows + r)] = loadElement(matrix, index);
    }
  return values;
}

struct Tile {
  int64_t row;
  int64_t column;
  int64_t numRows;
  int64_t numColumns;
  float sums[tileColumns][tileRows];
};

/* a is [k][m], b is [n][k]. */
static void sumTile(const Gemm &gemm, const float *a, const float *b,
                    Tile &tile) {
  for (auto &column : tile.sums)
    std::fill(column, column + tileRows, 0.0f);
  for (int64_t l = 0; l < gemm.k; l++) {
    const float *rows = a + l * gemm.m + tile.row;
    for (int64_t j = 0; j < tile.numColumns; j++) {
      float factor = b[(tile.column + j) * gemm.k + l];
      for (int64_t i = 0; i < tile.numRows; i++)
        tile.sums[j][i] += rows[i] * factor;
    }
  }
}

static void storeTile(const Gemm &gemm, const Tile &tile) {
  for (int64_t j = 0; j < tile.numColumns; j++)
    for (int64_t i = 0; i < tile.numRows; i++) {
      int64_t index = (tile.column + j) * gemm.c.stride + tile.row + i;
      float value = gemm.alpha * tile.sums[j][i];
      if (gemm.beta != 0) value += gemm.beta * loadElement(gemm.c, index);
      storeElement(gemm.c, index, value);
    }
}

void gemmRun(const Gemm &gemm) {
  std::vector<float> a = unpack(gemm.a, gemm.m, gemm.k);
  std::vector<float> b = unpack(gemm.b, gemm.k, gemm.n);
  Tile tile;
  for (int64_t column = 0; column < gemm.n; column += tileColumns)
    for (int64_t row = 0; row < gemm.m; row += tileRows) {
      tile.row = row;
      tile.column = column;
      tile.numRows = std::min(tileRows, gemm.m - row);
      tile.numColumns = std::min(tileColumns, gemm.n - column);
      sumTile(gemm, a.data(), b.data(), tile);
      storeTile(gemm, tile);
    }
}

} // namespace simt
