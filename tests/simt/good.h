/* Correct kernels, as the emulator's tests launch them: the patterns that the
 * product's kernels are made of.  Each gives a cudaError_t. */
#ifndef LRMOE_TESTS_SIMT_GOOD_H
#define LRMOE_TESTS_SIMT_GOOD_H

#include <cuda_runtime_api.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* sums[r] = sum of row r, by one block: shuffles, then shared memory. */
cudaError_t goodReduce(const float *rows, float *sums, int numRows, int width,
                       cudaStream_t stream);

/* Exclusive prefix sums of every row, in place. */
cudaError_t goodScan(unsigned *rows, int numRows, int width,
                     cudaStream_t stream);

/* counts[r][key] = how often row r has the key; keys are below 256. */
cudaError_t goodHistogram(const unsigned *rows, unsigned *counts, int numRows,
                          int width, cudaStream_t stream);

/* Marks the quota[r] largest keys of row r with 1, others with 0; among equal
 * keys the first ones win. */
cudaError_t goodSelect(const unsigned *rows, const int *quotas, unsigned *marks,
                       int numRows, int width, cudaStream_t stream);

/* out [width, height] = in [height, width] transposed, by tiles. */
cudaError_t goodTranspose(const float *in, float *out, int height, int width,
                          cudaStream_t stream);

/* out[0] = sum of values: the block that ends last adds the blocks' sums.
 * parts [numBlocks] and ticket [1], zero, are scratch. */
cudaError_t goodLastBlock(const float *values, float *parts, unsigned *ticket,
                          float *out, int numBlocks, cudaStream_t stream);

/* Copies rows of `width` bf16 through 16-byte accesses. */
cudaError_t goodCopy(const uint16_t *in, uint16_t *out, int numRows, int width,
                     cudaStream_t stream);

/* Every builtin; failures[0] counts lanes that got a wrong answer. */
cudaError_t goodBuiltins(int *failures, cudaStream_t stream);

/* out[i] += add. */
cudaError_t goodAdd(int *out, int count, int add, cudaStream_t stream);

/* Thread 1 waits, polling, for what thread 0 stores. */
cudaError_t goodPoll(unsigned *flag, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
