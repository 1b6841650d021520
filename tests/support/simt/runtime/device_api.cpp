/* Devices and errors.  The emulated device is an sm_90 with 132
 * multiprocessors; every rank thread can have one of its own. */
#include "../machine.h"
#include "api.h"
#include "memory.h"

#include <cstdio>
#include <cstring>

namespace simt {

static thread_local int chosenDevice;
static thread_local cudaError_t lastError;

int currentDevice() {
  return chosenDevice;
}

cudaError_t note(cudaError_t result) {
  if (result != cudaSuccess) lastError = result;
  return result;
}

struct Plan {
  QuietMutex mutex;
  int64_t callsLeft = 0;
  cudaError_t error = cudaSuccess;
};

static Plan plan;

cudaError_t plannedFailure() {
  std::lock_guard<QuietMutex> guard(plan.mutex);
  if (plan.callsLeft == 0 || --plan.callsLeft > 0) return cudaSuccess;
  return plan.error;
}

Call::Call()
    : queue(Queue::get()), lock(queue.mutex),
      device(queue.device(currentDevice())) {
  refusal = device.broken;
  if (!isRefused()) refusal = plannedFailure();
}

Call::Call(cudaStream_t handle) : Call() {
  stream = queue.stream(device, handle);
  if (!stream && !isRefused()) refusal = cudaErrorInvalidResourceHandle;
}

cudaError_t Call::synchronize(Stream &what) {
  Device &owner = *what.device;
  /* Like any work of the legacy stream, this waits for the others'. */
  if (&what == &owner.legacy) queue.enqueue(what, Operation());
  uint64_t last = owner.numOperations;
  Stream *wanted = &what;
  bool good = queue.runUntil(
      lock, owner, wanted, [wanted, last] { return wanted->oldest() > last; });
  queue.follow(what.done);
  return good ? cudaSuccess : owner.broken;
}

cudaError_t Call::synchronizeDevice() {
  Device *owner = &device;
  bool good = queue.runUntil(lock, device, nullptr, [owner] {
    for (const auto &each : owner->streams)
      if (!each->isIdle()) return false;
    return owner->legacy.isIdle();
  });
  queue.followAll(device);
  return good ? cudaSuccess : device.broken;
}

struct Attribute {
  cudaDeviceAttr attribute;
  int value;
};

static const Attribute attributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, static_cast<int>(maxThreads)},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 2147483647},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(maxSharedBytes)},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrClockRate, 1000000}, /* kHz: a tick is a nanosecond */
    {cudaDevAttrMultiProcessorCount, 132},
    {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrComputeCapabilityMajor, 9},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrAsyncEngineCount, 3},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrManagedMemory, 0},
    {cudaDevAttrPageableMemoryAccess, 0},
    {cudaDevAttrConcurrentManagedAccess, 0},
    {cudaDevAttrCooperativeLaunch, 0},
};

} // namespace simt

using namespace simt;

extern "C" {

void simtFailCall(int64_t n, int error) {
  std::lock_guard<QuietMutex> guard(plan.mutex);
  plan.callsLeft = n;
  plan.error = static_cast<cudaError_t>(error);
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = Queue::get().numDevices();
  return *count ? cudaSuccess : note(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device) {
  *device = chosenDevice;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= Queue::get().numDevices())
    return note(cudaErrorInvalidDevice);
  chosenDevice = device;
  return cudaSuccess;
}

/* Device 0 is 0000:01:00.0, and so on. */
cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
  if (device < 0 || device >= Queue::get().numDevices())
    return note(cudaErrorInvalidDevice);
  int wanted = snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0",
                        static_cast<unsigned>(device + 1));
  return wanted < length ? cudaSuccess : note(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
                                   int device) {
  if (device < 0 || device >= Queue::get().numDevices())
    return note(cudaErrorInvalidDevice);
  for (const Attribute &known : attributes)
    if (known.attribute == attribute) {
      *value = known.value;
      return cudaSuccess;
    }
  return note(cudaErrorNotSupported);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
  if (device < 0 || device >= Queue::get().numDevices())
    return note(cudaErrorInvalidDevice);
  memset(prop, 0, sizeof *prop);
  snprintf(prop->name, sizeof prop->name, "LRMoE SIMT emulator");
  size_t freeBytes;
  memoryInfo(device, &freeBytes, &prop->totalGlobalMem);
  prop->major = 9;
  prop->minor = 0;
  prop->warpSize = 32;
  prop->multiProcessorCount = 132;
  prop->maxThreadsPerBlock = static_cast<int>(maxThreads);
  prop->maxThreadsPerMultiProcessor = 2048;
  prop->sharedMemPerBlock = 49152;
  prop->sharedMemPerBlockOptin = maxSharedBytes;
  prop->sharedMemPerMultiprocessor = 233472;
  prop->unifiedAddressing = 1;
  prop->asyncEngineCount = 3;
  prop->concurrentKernels = 1;
  prop->streamPrioritiesSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  Call call;
  if (call.isRefused()) return note(call.refusal);
  return note(call.synchronizeDevice());
}

cudaError_t cudaDeviceReset(void) {
  Queue &queue = Queue::get();
  Queue::Lock lock(queue.mutex);
  queue.reset(lock, queue.device(currentDevice()));
  memoryReset(currentDevice());
  lastError = cudaSuccess;
  return cudaSuccess;
}

static cudaError_t brokenOrLast() {
  Queue &queue = Queue::get();
  Queue::Lock lock(queue.mutex);
  if (queue.numDevices() == 0) return lastError;
  cudaError_t broken = queue.device(currentDevice()).broken;
  return broken == cudaSuccess ? lastError : broken;
}

cudaError_t cudaPeekAtLastError(void) {
  return brokenOrLast();
}

cudaError_t cudaGetLastError(void) {
  cudaError_t error = brokenOrLast();
  lastError = cudaSuccess;
  return error;
}

struct ErrorText {
  cudaError_t error;
  const char *name;
  const char *text;
};

#define ERROR(name, text) \
  { name, #name, text }
static const ErrorText errorTexts[] = {
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorUnknown, "unknown error"),
};
#undef ERROR

static const ErrorText *errorText(cudaError_t error) {
  for (const ErrorText &known : errorTexts)
    if (known.error == error) return &known;
  return nullptr;
}

const char *cudaGetErrorName(cudaError_t error) {
  const ErrorText *known = errorText(error);
  return known ? known->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
  const ErrorText *known = errorText(error);
  return known ? known->text : "unrecognized error code";
}

} /* extern "C" */
