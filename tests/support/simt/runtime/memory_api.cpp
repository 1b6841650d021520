/* Allocation and copies.
 *
 * A copy from pageable host memory takes the bytes at the call, as CUDA does
 * for short ones; from pinned memory it reads when its turn comes, and to any
 * host memory it writes then: reading the target, or changing the source,
 * before synchronising shows. */
#include "../config.h"
#include "api.h"
#include "memory.h"

#include <cstring>

namespace simt {

struct Copy {
  void *target;
  const void *source;
  size_t bytes;
  cudaMemcpyKind kind;
};

static bool isDeviceMemory(const void *address) {
  int device;
  return memoryOwner(address, &device) && device != pinnedHost;
}

static bool isPinned(const void *address) {
  int device;
  return memoryOwner(address, &device) && device == pinnedHost;
}

static cudaMemcpyKind kindOf(bool toDevice, bool fromDevice) {
  if (toDevice)
    return fromDevice ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return fromDevice ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

/* What is wrong with one side, or "". */
static std::string checkSide(const char *what, const void *address,
                             size_t bytes) {
  int device;
  if (!memoryOwner(address, &device)) return "";
  std::string error = memoryCheck(address, bytes);
  return error.empty() ? "" : std::string(what) + ": " + error;
}

static std::string checkSides(const Copy &copy) {
  std::string error = checkSide("copy to", copy.target, copy.bytes);
  return error.empty() ? checkSide("copy from", copy.source, copy.bytes)
                       : error;
}

static cudaError_t checkCopy(const Copy &copy) {
  cudaMemcpyKind kind =
      kindOf(isDeviceMemory(copy.target), isDeviceMemory(copy.source));
  if (copy.kind != cudaMemcpyDefault && copy.kind != kind) {
    report("copy: its direction is not that of its pointers");
    return cudaErrorInvalidMemcpyDirection;
  }
  std::string error = checkSides(copy);
  if (error.empty()) return cudaSuccess;
  report(error);
  return cudaErrorInvalidValue;
}

static Operation copyOperation(const Copy &copy) {
  Operation operation;
  operation.what = "cudaMemcpyAsync";
  bool takesNow = !isDeviceMemory(copy.source) && !isPinned(copy.source) &&
                  isDeviceMemory(copy.target);
  if (takesNow) {
    const char *source = static_cast<const char *>(copy.source);
    auto bytes =
        std::make_shared<std::vector<char>>(source, source + copy.bytes);
    operation.run = [copy, bytes] {
      std::string error = checkSide("copy to", copy.target, copy.bytes);
      if (!error.empty()) return error;
      orderTouch(copy.target, copy.bytes, true);
      memcpy(copy.target, bytes->data(), copy.bytes);
      return error;
    };
  } else {
    operation.run = [copy] {
      std::string error = checkSides(copy);
      if (!error.empty()) return error;
      orderTouch(copy.source, copy.bytes, false);
      orderTouch(copy.target, copy.bytes, true);
      memmove(copy.target, copy.source, copy.bytes);
      return error;
    };
  }
  return operation;
}

static cudaError_t enqueueCopy(const Copy &copy, Call &call) {
  if (call.isRefused()) return call.refusal;
  if (copy.bytes == 0) return cudaSuccess;
  cudaError_t result = checkCopy(copy);
  if (result != cudaSuccess) return result;
  call.queue.enqueue(*call.stream, copyOperation(copy));
  return cudaSuccess;
}

static cudaError_t enqueueFill(void *target, int value, size_t bytes,
                               cudaStream_t stream) {
  Call call(stream);
  if (call.isRefused()) return call.refusal;
  if (bytes == 0) return cudaSuccess;
  if (!isDeviceMemory(target)) return cudaErrorInvalidValue;
  std::string error = checkSide("memset", target, bytes);
  if (!error.empty()) {
    report(error);
    return cudaErrorInvalidValue;
  }
  Operation operation;
  operation.what = "cudaMemsetAsync";
  operation.run = [target, value, bytes] {
    std::string late = checkSide("memset", target, bytes);
    if (!late.empty()) return late;
    orderTouch(target, bytes, true);
    memset(target, value, bytes);
    return late;
  };
  call.queue.enqueue(*call.stream, std::move(operation));
  return cudaSuccess;
}

static cudaError_t allocate(void **pointer, size_t bytes, int device) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = memoryAllocate(bytes, device);
  return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}

static void reportBadFree(const char *call, const void *pointer) {
  std::string memory = memoryDescribe(pointer);
  report(std::string(call) + ": not the start of an allocation" +
         (memory.empty() ? "" : "; " + memory));
}

} // namespace simt

using namespace simt;

extern "C" {

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
  Call call;
  if (call.isRefused()) return note(call.refusal);
  return note(allocate(pointer, bytes, currentDevice()));
}

int lrmoeSimtMemAllocFlat(void **pointer, size_t bytes) {
  Call call;
  if (call.isRefused()) return note(call.refusal);
  *pointer = memoryAllocate(bytes ? bytes : 1, currentDevice(), true);
  return note(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
  Call call;
  if (call.isRefused()) return note(call.refusal);
  return note(allocate(pointer, bytes, pinnedHost));
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  if (flags & ~static_cast<unsigned>(cudaHostAllocPortable))
    return note(cudaErrorNotSupported);
  return cudaMallocHost(pointer, bytes);
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  return note(allocate(pointer, bytes, call.stream->device->ordinal));
}

/* Waits for the memory's device, as CUDA does.  A broken device's memory can
 * be freed. */
cudaError_t cudaFree(void *pointer) {
  if (!pointer) return cudaSuccess;
  Call call;
  if (call.device.broken == cudaSuccess) (void)call.synchronizeDevice();
  if (!memoryFree(pointer, false)) {
    reportBadFree("cudaFree", pointer);
    return note(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *pointer) {
  if (!pointer) return cudaSuccess;
  Call call;
  if (call.device.broken == cudaSuccess) (void)call.synchronizeDevice();
  if (!memoryFree(pointer, true)) {
    reportBadFree("cudaFreeHost", pointer);
    return note(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
  if (!pointer) return cudaSuccess;
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  if (!memoryIsLive(pointer, 1)) {
    reportBadFree("cudaFreeAsync", pointer);
    return note(cudaErrorInvalidValue);
  }
  Operation operation;
  operation.what = "cudaFreeAsync";
  operation.run = [pointer] {
    orderTouch(pointer, memoryBytes(pointer), true);
    if (memoryFree(pointer, false)) return std::string();
    return std::string("cudaFreeAsync: ") + memoryDescribe(pointer);
  };
  call.queue.enqueue(*call.stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream) {
  Call call(stream);
  return note(enqueueCopy({target, source, bytes, kind}, call));
}

cudaError_t cudaMemcpy(void *target, const void *source, size_t bytes,
                       enum cudaMemcpyKind kind) {
  Call call(nullptr);
  cudaError_t result = enqueueCopy({target, source, bytes, kind}, call);
  if (result != cudaSuccess) return note(result);
  return note(call.synchronize(*call.stream));
}

cudaError_t cudaMemsetAsync(void *target, int value, size_t bytes,
                            cudaStream_t stream) {
  return note(enqueueFill(target, value, bytes, stream));
}

cudaError_t cudaMemset(void *target, int value, size_t bytes) {
  return note(enqueueFill(target, value, bytes, nullptr));
}

cudaError_t cudaMemGetInfo(size_t *freeBytes, size_t *totalBytes) {
  memoryInfo(currentDevice(), freeBytes, totalBytes);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                     const void *pointer) {
  *attributes = cudaPointerAttributes();
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = -2;
  int device;
  if (!memoryIsLive(pointer, 1) || !memoryOwner(pointer, &device))
    return cudaSuccess;
  bool pinned = device == pinnedHost;
  attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = pinned ? currentDevice() : device;
  attributes->devicePointer = const_cast<void *>(pointer);
  attributes->hostPointer = pinned ? attributes->devicePointer : nullptr;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function,
                                 enum cudaFuncAttribute attribute, int value) {
  if (!function) return note(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
      (value < 0 || value > 232448))
    return note(cudaErrorInvalidValue);
  return cudaSuccess;
}

} /* extern "C" */
