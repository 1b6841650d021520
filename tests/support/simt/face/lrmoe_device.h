/* The device header, emulator's face: what kernels need, as C++ on fibers.
 * kernels/nvcc/lrmoe_device.h is nvcc's face; the include path chooses. */
#ifndef LRMOE_DEVICE_H
#define LRMOE_DEVICE_H

#include "../device/access.h"
#include "../device/atomic.h"
#include "../device/launch.h"
#include "../device/math.h"
#include "../device/peers.h"
#include "../device/sync.h"

/* The block's shared memory as one typed struct: Type &name. */
#define LRMOE_SHARED(Type, name)                           \
  Type &name = *static_cast<Type *>(::simt::dynamicShared( \
      {__FILE__, __LINE__, "LRMOE_SHARED"}, sizeof(Type), alignof(Type)))

/* LRMOE_LAUNCH((kernel<...>), grid, block, sharedBytes, stream, args...) is
 * a cudaError_t. */
#define LRMOE_LAUNCH(kernel, grid, block, sharedBytes, ...)                \
  ::simt::launchKernel({__FILE__, __LINE__, #kernel}, kernel, grid, block, \
                       sharedBytes, __VA_ARGS__)

/* The same of a kernel that waits for other devices. */
#define LRMOE_LAUNCH_WAITING(kernel, grid, block, sharedBytes, ...)         \
  ::simt::launchWaiting({__FILE__, __LINE__, #kernel}, kernel, grid, block, \
                        sharedBytes, __VA_ARGS__)

#endif
