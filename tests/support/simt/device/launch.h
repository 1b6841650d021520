/* Launches: a kernel and copies of its arguments, queued on a stream. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_DEVICE_LAUNCH_H
#define LRMOE_TESTS_SUPPORT_SIMT_DEVICE_LAUNCH_H

#include "thread.h"

#include <functional>
#include <tuple>
#include <utility>

/* Registers are nvcc's matter. */
#define __launch_bounds__(...)

namespace simt {

struct Launch {
  Site site; /* of LRMOE_LAUNCH; `what` is the kernel as written there */
  dim3 grid;
  dim3 block;
  size_t sharedBytes;
  std::function<void()> thread; /* one CUDA thread */
  bool isWaiting = false;       /* for other devices */
};

/* The runtime's part: checks the shape and queues the launch. */
cudaError_t enqueueLaunch(Launch &&launch, cudaStream_t stream);

template <class... P>
constexpr size_t parameterBytes() {
  return (size_t{0} + ... + sizeof(P));
}

template <class... P, class... A>
inline Launch makeLaunch(const Site &site, void (*kernel)(P...), dim3 grid,
                         dim3 block, size_t sharedBytes, A &&...arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "one argument a parameter");
  static_assert((std::is_trivially_copyable<std::decay_t<P>>::value && ...),
                "parameters are copied as bytes");
  static_assert(parameterBytes<P...>() <= 4096,
                "parameters take 4 KiB at most");
  std::tuple<std::decay_t<P>...> copies(static_cast<P>(arguments)...);
  return {site, grid, block, sharedBytes,
          [kernel, copies] { std::apply(kernel, copies); }};
}

template <class... P, class... A>
inline cudaError_t launchKernel(const Site &site, void (*kernel)(P...),
                                dim3 grid, dim3 block, size_t sharedBytes,
                                cudaStream_t stream, A &&...arguments) {
  return enqueueLaunch(
      makeLaunch(site, kernel, grid, block, sharedBytes, arguments...), stream);
}

template <class... P, class... A>
inline cudaError_t launchWaiting(const Site &site, void (*kernel)(P...),
                                 dim3 grid, dim3 block, size_t sharedBytes,
                                 cudaStream_t stream, A &&...arguments) {
  Launch launch =
      makeLaunch(site, kernel, grid, block, sharedBytes, arguments...);
  launch.isWaiting = true;
  return enqueueLaunch(std::move(launch), stream);
}

} // namespace simt

#endif
