/* NCCL's device header, emulator's face: what kernels/cuda/gin.cu uses of it,
 * with the meaning that NCCL 2.28.9 gives it.  A put only says what is to be
 * moved: the stand-in for NCCL moves it later (tests/support/nccl/gin.c). */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_FACE_NCCL_DEVICE_H
#define LRMOE_TESTS_SUPPORT_SIMT_FACE_NCCL_DEVICE_H

#include "../../nccl/gin.h"
#include "../device/peers.h"

#define NCCL_VERSION_CODE 22809

typedef uint32_t ncclGinSignal_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;

struct ncclDevComm : standinDevComm {};

struct ncclDevCommRequirements {
  uint64_t magic = standinGinMagic;
  int ginSignalCount;
  int ginForceEnable;
};
static_assert(sizeof(ncclDevCommRequirements) == sizeof(standinDevCommNeeds),
              "the stand-in reads it");

struct ncclTeam {
  int nRanks, rank, stride;
};

inline ncclTeam ncclTeamWorld(const ncclDevComm &comm) {
  return {comm.nRanks, comm.rank, 1};
}

struct ncclGin_SignalAdd {
  ncclGinSignal_t signal;
  uint64_t value;
};

class ncclGin {
public:
  ncclGin(const ncclDevComm &devComm, int contextIndex, SIMT_CALLER)
      : comm(devComm), context(contextIndex) {
    if (contextIndex < 0 || contextIndex >= comm.ginContextCount)
      ::simt::fail(SIMT_SITE("ncclGin"), "context %d of %d", contextIndex,
                   comm.ginContextCount);
  }

  void put(ncclTeam, int peer, ncclWindow_t to, size_t toOffset,
           ncclWindow_t from, size_t fromOffset, size_t bytes,
           SIMT_CALLER) const {
    issue(SIMT_SITE("put"),
          {context, peer, to, toOffset, from, fromOffset, bytes, 0, 0, 0});
  }

  void signal(ncclTeam, int peer, ncclGin_SignalAdd signal, SIMT_CALLER) const {
    issue(SIMT_SITE("signal"), {context, peer, nullptr, 0, nullptr, 0, 0, 1,
                                signal.signal, signal.value});
  }

  uint64_t readSignal(ncclGinSignal_t signal, SIMT_CALLER) const {
    ::simt::mayYield(SIMT_SITE("readSignal"));
    return comm.calls->readSignal(&comm, context, signal);
  }

  void resetSignal(ncclGinSignal_t signal) const {
    comm.calls->resetSignal(&comm, context, signal);
  }

private:
  void issue(const ::simt::Site &site, const standinGinPut &put) const {
    ::simt::mayYield(site);
    const char *fault = comm.calls->put(&comm, &put);
    if (fault) ::simt::fail(site, "%s", fault);
  }

  const ncclDevComm &comm;
  int context;
};

#endif
