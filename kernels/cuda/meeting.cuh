/* What waits for other ranks have in common (kernels/fused.h): how they end. */
#ifndef LRMOE_KERNELS_CUDA_MEETING_CUH
#define LRMOE_KERNELS_CUDA_MEETING_CUH

#include "kernels/cuda/error.h"
#include "kernels/fused.h"
#include "lrmoe_device.h"

namespace lrmoeCuda {

/* How a wait for a peer ended; of a block's failures the lowest's is told. */
struct Failure {
  int meeting;
  int64_t got;
};

struct MeetShared {
  int failedPeer; /* the lowest; numRanks: none */
};

/* Why there is nothing more to wait for, or lrmoeMeetingGood. */
__device__ __forceinline__ int endOfWait(const struct lrmoeWatch *watch,
                                         int64_t start, int64_t limit) {
  if (lrmoeObserve(&watch->isStopped)) return lrmoeMeetingStopped;
  return lrmoeTicks() - start > limit ? lrmoeMeetingLate : lrmoeMeetingGood;
}

__device__ __forceinline__ void tellFailure(struct lrmoeWatch *watch, int peer,
                                            int64_t expected,
                                            const Failure &failure) {
  lrmoeSignal(&watch->peer, peer);
  lrmoeSignal(&watch->expected, expected);
  lrmoeSignal(&watch->got, failure.got);
  lrmoeSignal(&watch->status, failure.meeting);
}

/* A block with a thread for each of count peers, as far as there are. */
inline dim3 meetThreads(int64_t count, int most) {
  int64_t threads = (count + 31) / 32 * 32;
  if (threads > most) threads = most;
  return dim3(static_cast<unsigned>(threads ? threads : 32));
}

/* The rate is the fastest that the clock has: a wait may take longer than was
 * asked for, never less. */
inline lrmoeResult_t ticksOf(int64_t timeoutMs, int64_t *ticks) {
  int device = 0;
  int kiloHertz = 0;
  LRMOE_CUDA_CHECK(cudaGetDevice(&device));
  LRMOE_CUDA_CHECK(
      cudaDeviceGetAttribute(&kiloHertz, cudaDevAttrClockRate, device));
  *ticks = timeoutMs * kiloHertz;
  return lrmoeSuccess;
}

} // namespace lrmoeCuda

#endif
