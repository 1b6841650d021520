/* What the stand-in's device communicator is to kernels on the emulator
 * (simt/face/nccl_device.h), which call back into the stand-in. */
#ifndef LRMOE_TESTS_SUPPORT_NCCL_GIN_H
#define LRMOE_TESTS_SUPPORT_NCCL_GIN_H

#include <stddef.h>
#include <stdint.h>

struct ncclWindow_vidmem;
struct standinDevComm;

/* One transfer to a rank, and what it adds to a signal there. */
struct standinGinPut {
  int context;
  int peer;
  struct ncclWindow_vidmem *to;
  size_t toOffset;
  struct ncclWindow_vidmem *from; /* NULL: a signal alone */
  size_t fromOffset;
  size_t bytes;
  int hasSignal;
  uint32_t signal;
  uint64_t value;
};

struct standinGinCalls {
  /* NULL, or what a kernel that does this must be ended for. */
  const char *(*put)(const struct standinDevComm *comm,
                     const struct standinGinPut *put);
  uint64_t (*readSignal)(const struct standinDevComm *comm, int context,
                         uint32_t signal);
  void (*resetSignal)(const struct standinDevComm *comm, int context,
                      uint32_t signal);
};

struct standinDevComm {
  uint64_t magic; /* while it is alive */
  int rank;
  int nRanks;
  int ginContextCount;
  const struct standinGinCalls *calls;
  void *network;
};

struct standinDevCommNeeds {
  uint64_t magic;
  int ginSignalCount;
  int ginForceEnable;
};

#define standinGinMagic ((uint64_t)0x6c726d6f65474e31)

#endif
