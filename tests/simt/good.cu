/* Correct kernels: see good.h. */
#include "good.h"
#include "good_device.h"

constexpr int numThreads = 256;

struct ReduceShared {
  float warpSums[numThreads / 32];
};

__global__ void reduceKernel(const float *__restrict__ rows,
                             float *__restrict__ sums, int width) {
  LRMOE_SHARED(ReduceShared, shared);
  const float *row = rows + static_cast<size_t>(blockIdx.x) * width;
  float sum = 0;
  for (int i = threadIdx.x; i < width; i += numThreads)
    sum += row[i];
  sum = warpSum(sum);
  if (threadIdx.x % 32 == 0) shared.warpSums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < numThreads / 32 ? shared.warpSums[threadIdx.x] : 0;
  sum = warpSum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void scanKernel(unsigned *__restrict__ rows, int width) {
  LRMOE_SHARED(ScanShared<numThreads>, shared);
  unsigned *row = rows + static_cast<size_t>(blockIdx.x) * width;
  unsigned before = 0;
  for (int base = 0; base < width; base += numThreads) {
    int i = base + static_cast<int>(threadIdx.x);
    unsigned total;
    unsigned value = i < width ? row[i] : 0;
    unsigned sum = blockScan<numThreads>(value, shared, &total);
    if (i < width) row[i] = before + sum;
    before += total;
  }
}

struct HistogramShared {
  unsigned counts[256];
};

__global__ void histogramKernel(const unsigned *__restrict__ rows,
                                unsigned *__restrict__ counts, int width) {
  LRMOE_SHARED(HistogramShared, shared);
  const unsigned *row = rows + static_cast<size_t>(blockIdx.x) * width;
  shared.counts[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < width; i += numThreads)
    atomicAdd(&shared.counts[row[i] % 256], 1u);
  __syncthreads();
  counts[blockIdx.x * 256 + threadIdx.x] = shared.counts[threadIdx.x];
}

struct SelectShared {
  unsigned counts[256];
  ScanShared<numThreads> scan;
  unsigned digit;
  unsigned above;
};

/* The digit, from the highest down, in which the quota ends. */
__device__ inline void findDigit(SelectShared &shared, unsigned wanted) {
  unsigned count = shared.counts[255 - threadIdx.x];
  unsigned total;
  unsigned before = blockScan<numThreads>(count, shared.scan, &total);
  if (before < wanted && wanted <= before + count) {
    shared.digit = 255 - threadIdx.x;
    shared.above = before;
  }
  __syncthreads();
}

struct Threshold {
  unsigned key;
  unsigned wanted; /* how many keys equal to it are taken */
};

__device__ inline Threshold findThreshold(SelectShared &shared,
                                          const unsigned *row, int width,
                                          unsigned wanted) {
  unsigned prefix = 0;
  unsigned mask = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    shared.counts[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += numThreads)
      if ((row[i] & mask) == prefix)
        atomicAdd(&shared.counts[row[i] >> shift & 255], 1u);
    __syncthreads();
    findDigit(shared, wanted);
    prefix |= shared.digit << shift;
    mask |= 255u << shift;
    wanted -= shared.above;
    __syncthreads();
  }
  return {prefix, wanted};
}

__global__ void selectKernel(const unsigned *__restrict__ rows,
                             const int *__restrict__ quotas,
                             unsigned *__restrict__ marks, int width) {
  LRMOE_SHARED(SelectShared, shared);
  const unsigned *row = rows + static_cast<size_t>(blockIdx.x) * width;
  unsigned *out = marks + static_cast<size_t>(blockIdx.x) * width;
  unsigned quota = static_cast<unsigned>(quotas[blockIdx.x]);
  Threshold threshold = {0, 0};
  if (quota) threshold = findThreshold(shared, row, width, quota);
  unsigned ties = 0;
  for (int base = 0; base < width; base += numThreads) {
    int i = base + static_cast<int>(threadIdx.x);
    bool isIn = quota && i < width;
    bool isTie = isIn && row[i] == threshold.key;
    bool isAbove = isIn && row[i] > threshold.key;
    unsigned total;
    unsigned rank = blockScan<numThreads>(isTie, shared.scan, &total);
    if (i < width)
      out[i] = isAbove || (isTie && ties + rank < threshold.wanted);
    ties += total;
  }
}

constexpr int tile = 16;

struct TransposeShared {
  float values[tile][tile + 1];
};

__global__ void transposeKernel(const float *__restrict__ in,
                                float *__restrict__ out, int height,
                                int width) {
  LRMOE_SHARED(TransposeShared, shared);
  int x = blockIdx.x * tile + threadIdx.x;
  int y = blockIdx.y * tile + threadIdx.y;
  if (x < width && y < height)
    shared.values[threadIdx.y][threadIdx.x] = in[y * width + x];
  __syncthreads();
  int outX = blockIdx.y * tile + threadIdx.x;
  int outY = blockIdx.x * tile + threadIdx.y;
  if (outX < height && outY < width)
    out[outY * height + outX] = shared.values[threadIdx.x][threadIdx.y];
}

struct LastBlockShared {
  unsigned isLast;
};

__global__ void lastBlockKernel(const float *__restrict__ values, float *parts,
                                unsigned *ticket, float *__restrict__ out) {
  LRMOE_SHARED(LastBlockShared, shared);
  float sum = warpSum(values[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sum;
    __threadfence();
    shared.isLast = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!shared.isLast || threadIdx.x != 0) return;
  float total = 0;
  for (unsigned i = 0; i < gridDim.x; i++)
    total += parts[i];
  out[0] = total;
}

__global__ void copyKernel(const uint4 *__restrict__ in,
                           uint4 *__restrict__ out, int numVectors) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < numVectors) lrmoeStore(out + i, lrmoeLoad(in + i));
}

__global__ void addKernel(int *out, int count, int add) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) lrmoeStore(out + i, lrmoeLoad(out + i) + add);
}

__global__ void pollKernel(unsigned *flag) {
  if (threadIdx.x == 0) {
    while (atomicAdd(flag, 0u) == 0) {
    }
  } else if (threadIdx.x == 1) {
    atomicExch(flag, 1u);
  }
}

cudaError_t goodReduce(const float *rows, float *sums, int numRows, int width,
                       cudaStream_t stream) {
  return LRMOE_LAUNCH(reduceKernel, dim3(numRows), dim3(numThreads),
                      sizeof(ReduceShared), stream, rows, sums, width);
}

cudaError_t goodScan(unsigned *rows, int numRows, int width,
                     cudaStream_t stream) {
  return LRMOE_LAUNCH(scanKernel, dim3(numRows), dim3(numThreads),
                      sizeof(ScanShared<numThreads>), stream, rows, width);
}

cudaError_t goodHistogram(const unsigned *rows, unsigned *counts, int numRows,
                          int width, cudaStream_t stream) {
  return LRMOE_LAUNCH(histogramKernel, dim3(numRows), dim3(numThreads),
                      sizeof(HistogramShared), stream, rows, counts, width);
}

cudaError_t goodSelect(const unsigned *rows, const int *quotas, unsigned *marks,
                       int numRows, int width, cudaStream_t stream) {
  return LRMOE_LAUNCH(selectKernel, dim3(numRows), dim3(numThreads),
                      sizeof(SelectShared), stream, rows, quotas, marks, width);
}

cudaError_t goodTranspose(const float *in, float *out, int height, int width,
                          cudaStream_t stream) {
  dim3 grid((width + tile - 1) / tile, (height + tile - 1) / tile);
  return LRMOE_LAUNCH(transposeKernel, grid, dim3(tile, tile),
                      sizeof(TransposeShared), stream, in, out, height, width);
}

cudaError_t goodLastBlock(const float *values, float *parts, unsigned *ticket,
                          float *out, int numBlocks, cudaStream_t stream) {
  return LRMOE_LAUNCH(lastBlockKernel, dim3(numBlocks), dim3(32),
                      sizeof(LastBlockShared), stream, values, parts, ticket,
                      out);
}

cudaError_t goodCopy(const uint16_t *in, uint16_t *out, int numRows, int width,
                     cudaStream_t stream) {
  int numVectors = numRows * width / 8;
  return LRMOE_LAUNCH(copyKernel, dim3((numVectors + 127) / 128), dim3(128), 0,
                      stream, reinterpret_cast<const uint4 *>(in),
                      reinterpret_cast<uint4 *>(out), numVectors);
}

cudaError_t goodAdd(int *out, int count, int add, cudaStream_t stream) {
  return LRMOE_LAUNCH(addKernel, dim3((count + 63) / 64), dim3(64), 0, stream,
                      out, count, add);
}

cudaError_t goodPoll(unsigned *flag, cudaStream_t stream) {
  return LRMOE_LAUNCH(pollKernel, dim3(1), dim3(2), 0, stream, flag);
}
