/* What kernel code sees of the emulator: the indices of the running thread,
 * and the calls into the scheduler. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_DEVICE_THREAD_H
#define LRMOE_TESTS_SUPPORT_SIMT_DEVICE_THREAD_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector_functions.h>

#if defined(__CUDACC__)
#error "the emulator's face is on nvcc's include path"
#endif

/* Static shared memory would have neither exact bounds nor poison. */
#undef __shared__
#define __shared__ static_assert(false, "use LRMOE_SHARED");
#undef __constant__
#define __constant__ static_assert(false, "the emulator has no __constant__");

#if defined(__has_feature)
#define SIMT_HAS_FEATURE(name) __has_feature(name)
#else
#define SIMT_HAS_FEATURE(name) 0
#endif

/* The emulator's own bookkeeping inside kernels is not theirs to race on. */
#if defined(__SANITIZE_THREAD__) || SIMT_HAS_FEATURE(thread_sanitizer)
#define SIMT_UNSEEN __attribute__((noinline, no_sanitize("thread")))
#else
#define SIMT_UNSEEN
#endif

namespace simt {

/* Where kernel code called the emulator. */
struct Site {
  const char *file;
  int line;
  const char *what;
};

/* The running CUDA thread of this operating-system thread. */
struct View {
  uint3 thread;
  uint3 block;
  dim3 blockSize;
  dim3 gridSize;
  uint64_t bytesLoaded;
  uint64_t bytesStored;
  uint64_t steps; /* since the block last made progress */
  uint64_t maxSteps;
};
/* Said to need no start code, it is reached without a call. */
#if defined(__clang__)
#define SIMT_CONSTANT [[clang::require_constant_initialization]]
#else
#define SIMT_CONSTANT __constinit
#endif
SIMT_CONSTANT extern thread_local View view
    __attribute__((tls_model("initial-exec")));

/* Ends the launch with a report that names kernel, block, thread and site. */
[[noreturn]] void fail(const Site &site, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A thread touches memory; ends the launch at a race between streams. */
void noteAccess(const Site &site, const void *start, size_t bytes,
                bool isWrite);

/* Other threads may run here: at atomics and fences. */
void mayYield(const Site &site);
/* Other threads do run here. */
void yield(const Site &site);
[[noreturn]] void tooManySteps(const Site &site);

enum class Vote {
  none,
  count,
  all,
  any
};
int blockBarrier(const Site &site, Vote vote, bool predicate);

enum class Op : uint8_t {
  sync,
  shuffle,
  shuffleUp,
  shuffleDown,
  shuffleXor,
  ballot,
  any,
  all,
  matchAny,
  matchAll,
  add,
  minSigned,
  maxSigned,
  minUnsigned,
  maxUnsigned,
  bitAnd,
  bitOr,
  bitXor
};

/* One lane's part in a warp operation. */
struct Exchange {
  Site site;
  Op op;
  unsigned mask;
  int bytes; /* of value and result; at most 16 */
  int argument;
  int width;
  const void *value;
  void *result;
};
void warpExchange(const Exchange &exchange);

void *dynamicShared(const Site &site, size_t bytes, size_t align);

} // namespace simt

/* The builtins cannot be written. */
#define threadIdx (static_cast<const uint3 &>(::simt::view.thread))
#define blockIdx  (static_cast<const uint3 &>(::simt::view.block))
#define blockDim  (static_cast<const dim3 &>(::simt::view.blockSize))
#define gridDim   (static_cast<const dim3 &>(::simt::view.gridSize))
static constexpr int warpSize = 32;

/* The caller's place, as trailing default arguments. */
#define SIMT_CALLER \
  const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define SIMT_SITE(what) \
  ::simt::Site {        \
    file_, line_, what  \
  }

#endif
