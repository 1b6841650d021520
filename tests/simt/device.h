/* Device memory for the emulator's tests, with failures asserted. */
#ifndef LRMOE_TESTS_SIMT_DEVICE_H
#define LRMOE_TESTS_SIMT_DEVICE_H

#include "support/suite.h"

#include <cuda_runtime_api.h>

#include <stdint.h>

#define ASSERT_CUDA(call)                               \
  do {                                                  \
    cudaError_t got_ = (call);                          \
    ck_assert_msg(got_ == cudaSuccess, "%s: %s", #call, \
                  cudaGetErrorName(got_));              \
  } while (0)

/* Device memory with the bytes of `from`, or zeros when it is NULL. */
void *deviceCopyOf(const void *from, size_t bytes);

/* Synchronises, copies back, and frees. */
void deviceTake(void *device, void *to, size_t bytes);

/* Runs the body in a child process.  Gives what it wrote to stderr, in a
 * buffer that the next call overwrites, and whether it ended well (exit status
 * 0). */
const char *childErrors(void (*body)(void *user), void *user, int *endedWell);

/* Numbers that are the same everywhere. */
uint32_t nextNumber(uint64_t *state);

/* Every order: fifo, lifo, then seeds. */
#define NUM_ORDERS 8
void chooseOrder(int order);

#endif
