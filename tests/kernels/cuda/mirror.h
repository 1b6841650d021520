/* Arrays that exist twice, in the host's memory and on the emulated device,
 * and the two backends that work on them: what both leave behind is compared.
 *
 * Device arrays are exactly as large as they must be, so that the emulator
 * sees what goes beyond them. */
#ifndef LRMOE_TESTS_KERNELS_CUDA_MIRROR_H
#define LRMOE_TESTS_KERNELS_CUDA_MIRROR_H

#include "../naive.h"
#include "kernels/backend.h"
#include "support/simt/simt.h"
#include "support/suite.h"

enum side {
  onHost,
  onDevice,
  numSides
};

struct mirror {
  void *at[numSides];
  size_t bytes;
  struct mirror *next;
};

/* Whether the device is the emulator, which counts what kernels do; the same
 * tests run on a GPU without those counts (perf/gpu_check.sh). */
int isEmulated(void);

/* The backend of a side; the device's is loaded as users load it. */
const struct lrmoeBackend *backendOf(enum side side);

/* An order of the emulator: fifo, lifo, then seeds. */
enum {
  numOrders = 6
};
void chooseOrder(int order);

/* Takes a malloc'ed array and puts it on the device, too. */
struct mirror *mirrorOf(void *array, size_t bytes);
/* An array that neither side has written: bytes 0xcd. */
struct mirror *mirrorRoom(size_t bytes);
struct mirror *mirrorIndices(const int64_t *indices, int64_t count);
/* Random rows; some elements are special (NaN, infinities, -0, subnormal,
 * huge) when isSpecial. */
struct mirror *mirrorRows(struct naiveRandom *random, lrmoeDataType_t type,
                          int64_t count, int isSpecial);
/* Random indices below `limit`, or -1 (one in eight) when hasGaps. */
struct mirror *mirrorRandomIndices(struct naiveRandom *random, int64_t count,
                                   int64_t limit, int hasGaps);

/* The device's bytes, malloc'ed. */
void *mirrorDevice(const struct mirror *mirror);
/* Host bytes to the device. */
void mirrorPut(const struct mirror *mirror);

/* The same bits on both sides; elements of a type may be different NaNs. */
void assertSameBytes(const struct mirror *mirror, const char *what);
void assertSameElements(const struct mirror *mirror, lrmoeDataType_t type,
                        const char *what);
/* As close as `tolerance` of the largest value of the host's. */
void assertCloseElements(const struct mirror *mirror, lrmoeDataType_t type,
                         double tolerance, const char *what);

/* Frees all mirrors and fails if the device has memory left. */
void mirrorFreeAll(void);

#define ASSERT_RUN(side, op, ...)                                        \
  do {                                                                   \
    lrmoeResult_t got_ = backendOf(side)->op(__VA_ARGS__);               \
    ck_assert_msg(got_ == lrmoeSuccess, "%s: %s: %s %s",                 \
                  backendOf(side)->name, #op, lrmoeGetErrorString(got_), \
                  (side) == onDevice ? backendOf(side)->lastError()      \
                                     : lrmoeGetLastError());             \
  } while (0)

#define ASSERT_SYNCHRONIZED() ASSERT_RUN(onDevice, synchronize, NULL)

#endif
