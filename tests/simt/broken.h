/* Kernels with one fault each, which the emulator has to find. */
#ifndef LRMOE_TESTS_SIMT_BROKEN_H
#define LRMOE_TESTS_SIMT_BROKEN_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* data has so many words: word i is i at the start, of two blocks' worth. */
#define BROKEN_WORDS 256

/* Launches the kernel of that name. */
cudaError_t brokenLaunch(const char *name, unsigned *data, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
