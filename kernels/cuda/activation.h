/* What lies between the GEMMs of an expert: operands gathered row by row, the
 * activation forward and backward.  Over the tiles of a batch; all enqueue.
 *
 * The formulas are those of kernels/activation_cpu.h; results differ from the
 * CPU's in the last places before rounding, for multiplications and additions
 * are contracted, but have the same bits on every device and run. */
#ifndef LRMOE_KERNELS_CUDA_ACTIVATION_H
#define LRMOE_KERNELS_CUDA_ACTIVATION_H

#include "kernels/backend.h"
#include "kernels/cuda/gemm.h"

struct lrmoeGatherTile {
  const char *data;
  const int64_t *index; /* NULL: row i is data[i] */
  int64_t firstRow;     /* of the call */
  char *out;            /* of row firstRow */
};

struct lrmoeGatherTiles {
  int64_t rowBytes;
  int64_t numRows;
  int numTiles;
  struct lrmoeGatherTile tiles[LRMOE_MAX_GEMMS];
};

struct lrmoeActivationTile {
  int64_t firstRow;     /* of the batch */
  const char *saved;    /* FC1's output; backward may overwrite it with dFc1 */
  const int64_t *index; /* of saved; NULL: row i is saved[i] */
  const float *alpha;   /* NULL: 1 */
  float *out; /* forward: |phi|; backward: d(alpha); of row firstRow on */
};

struct lrmoeActivationTiles {
  int64_t ffn;
  int64_t numRows;
  int isPre; /* alpha multiplies phi before it is rounded */
  int numTiles;
  char *phi;  /* forward: FC2's input, out.  backward: g W2 in, then alpha phi
                in its place */
  char *dFc1; /* backward, out; NULL: d(alpha) only, phi is left alone */
  struct lrmoeActivationTile tiles[LRMOE_MAX_GEMMS];
};

lrmoeResult_t lrmoeCudaGatherTiles(const struct lrmoeGatherTiles *run,
                                   lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaActivationForward(const struct lrmoeExpertShape *shape,
                                         const struct lrmoeActivationTiles *run,
                                         lrmoeStream_t stream);
lrmoeResult_t
lrmoeCudaActivationBackward(const struct lrmoeExpertShape *shape,
                            const struct lrmoeActivationTiles *run,
                            lrmoeStream_t stream);

#endif
