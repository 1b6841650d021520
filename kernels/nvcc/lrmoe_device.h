/* The device header, nvcc's face.  tests/support/simt/face has the other one,
 * which compiles the same kernels as C++; the include path chooses.  Rules
 * that keep both true:
 *
 * - launches go through LRMOE_LAUNCH, never <<<>>>;
 * - a kernel has one LRMOE_SHARED struct and no static __shared__;
 * - warp operations are those with _sync; blocks never wait for each other;
 * - 16-byte accesses, and those that are counted in perf/README.md, go through
 *   lrmoeLoad and lrmoeStore (or __ldg, __ldcs, __stcs, ...);
 * - no inline PTX, no atomics on floats; where bits matter, __fmaf_rn,
 *   __fmul_rn and __fadd_rn say what is contracted;
 * - a kernel that waits for other devices is launched by LRMOE_LAUNCH_WAITING,
 *   has one block, and waits with lrmoeObserve, lrmoePause and lrmoeTicks. */
#ifndef LRMOE_DEVICE_H
#define LRMOE_DEVICE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

/* The block's shared memory as one typed struct: Type &name.  Dynamic shared
 * memory starts 1024-byte aligned; 16 is what vector accesses need. */
#define LRMOE_SHARED(Type, name)                                  \
  static_assert(alignof(Type) <= 16, "shared memory is aligned"); \
  extern __shared__ __align__(16) unsigned char lrmoeShared[];    \
  Type &name = *reinterpret_cast<Type *>(lrmoeShared)

/* LRMOE_LAUNCH((kernel<...>), grid, block, sharedBytes, stream, args...) is
 * a cudaError_t. */
#define LRMOE_LAUNCH(kernel, grid, block, sharedBytes, ...) \
  ::lrmoeDevice::launchKernel(kernel, grid, block, sharedBytes, __VA_ARGS__)

#define LRMOE_LAUNCH_WAITING LRMOE_LAUNCH

/* Words that other devices or the host write, or read, meanwhile.  Who observes
 * a signal sees what its thread, and kernels before it on its stream, have
 * written. */
__device__ __forceinline__ void lrmoeSignal(int64_t *word, int64_t value) {
  __threadfence_system();
  *reinterpret_cast<volatile int64_t *>(word) = value;
}

__device__ __forceinline__ int64_t lrmoeObserve(const int64_t *word) {
  int64_t value = *reinterpret_cast<const volatile int64_t *>(word);
  __threadfence_system();
  return value;
}

/* Between two looks at a word. */
__device__ __forceinline__ void lrmoePause() {
  __nanosleep(200);
}

/* Of the clock whose rate is cudaDevAttrClockRate. */
__device__ __forceinline__ int64_t lrmoeTicks() {
  return clock64();
}

/* Plain accesses; the emulator checks and counts them. */
template <class T>
__device__ __forceinline__ T lrmoeLoad(const T *pointer) {
  return *pointer;
}

template <class T>
struct lrmoeSame {
  using type = T;
};

template <class T>
__device__ __forceinline__ void lrmoeStore(T *pointer,
                                           typename lrmoeSame<T>::type value) {
  *pointer = value;
}

namespace lrmoeDevice {

/* What a kernel may have without being asked for more. */
constexpr size_t defaultSharedBytes = 48 * 1024;

template <class... P, class... A>
inline cudaError_t launchKernel(void (*kernel)(P...), dim3 grid, dim3 block,
                                size_t sharedBytes, cudaStream_t stream,
                                A &&...arguments) {
  if (sharedBytes > defaultSharedBytes) {
    cudaError_t result =
        cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(sharedBytes));
    if (result != cudaSuccess) return result;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = sharedBytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

} // namespace lrmoeDevice

#endif
