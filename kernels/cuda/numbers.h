/* Sums of what comes before, for kernels of several files. */
#ifndef LRMOE_KERNELS_CUDA_NUMBERS_H
#define LRMOE_KERNELS_CUDA_NUMBERS_H

#include "kernels/backend.h"

/* values[i] becomes the sum of those before i; values[count] that of all. */
lrmoeResult_t lrmoeNumberInPlace(int64_t count, int64_t *values,
                                 lrmoeStream_t stream);

#endif
