/* Streams, events, launches and host functions: see queue.h. */
#include "../config.h"
#include "../machine.h"
#include "api.h"

#include <chrono>

namespace simt {

/* What a cudaEvent_t points to; work in streams keeps the event alive. */
struct EventHandle {
  std::shared_ptr<Event> event;
};

static EventHandle *handleOf(cudaEvent_t event) {
  return reinterpret_cast<EventHandle *>(event);
}

static uint64_t nowNs() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

static cudaError_t checkShape(const Launch &launch) {
  const dim3 &g = launch.grid;
  const dim3 &b = launch.block;
  uint64_t threads = uint64_t{b.x} * b.y * b.z;
  bool good = threads > 0 && threads <= maxThreads && b.x <= 1024 &&
              b.y <= 1024 && b.z <= 64 && g.x > 0 && g.x <= 2147483647 &&
              g.y > 0 && g.y <= 65535 && g.z > 0 && g.z <= 65535 &&
              launch.sharedBytes <= maxSharedBytes;
  if (good) return cudaSuccess;
  char text[200];
  snprintf(text, sizeof text,
           "bad launch: grid (%u,%u,%u), block (%u,%u,%u), %zu bytes of shared "
           "memory; launched at %s:%d",
           g.x, g.y, g.z, b.x, b.y, b.z, launch.sharedBytes, launch.site.file,
           launch.site.line);
  report(std::string("kernel ") + launch.site.what + ": " + text);
  return cudaErrorInvalidConfiguration;
}

cudaError_t enqueueLaunch(Launch &&launch, cudaStream_t stream) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  cudaError_t shape = checkShape(launch);
  if (shape != cudaSuccess) return note(shape);
  /* The same for every run with this seed, whatever other threads do. */
  uint64_t salt = call.stream->id << 32 ^ call.stream->device->numOperations;
  auto shared = std::make_shared<Launch>(std::move(launch));
  Operation operation;
  operation.what = shared->site.what;
  operation.isWaiting = shared->isWaiting;
  operation.run = [shared, salt] {
    return runGrid(*shared, currentConfig(), salt);
  };
  call.queue.enqueue(*call.stream, std::move(operation));
  return cudaSuccess;
}

static cudaError_t makeStream(cudaStream_t *stream, unsigned flags,
                              int priority) {
  if (flags & ~static_cast<unsigned>(cudaStreamNonBlocking))
    return note(cudaErrorInvalidValue);
  Call call;
  if (call.isRefused()) return note(call.refusal);
  *stream = reinterpret_cast<cudaStream_t>(
      call.queue.createStream(call.device, flags, priority));
  return cudaSuccess;
}

static cudaError_t makeEvent(cudaEvent_t *event, unsigned flags) {
  Call call;
  if (call.isRefused()) return note(call.refusal);
  EventHandle *handle = new EventHandle{std::make_shared<Event>()};
  handle->event->flags = flags;
  *event = reinterpret_cast<cudaEvent_t>(handle);
  return cudaSuccess;
}

/* Who is told so goes on after what the event has seen. */
static bool isReached(Queue &queue, Event &event) {
  if (event.reached < event.recorded) return false;
  queue.follow(event.done);
  return true;
}

} // namespace simt

using namespace simt;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return makeStream(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return makeStream(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                         int priority) {
  return makeStream(stream, flags, priority);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  *priority = call.stream->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  *flags = call.stream->flags;
  return cudaSuccess;
}

/* Its work is still done, by whoever synchronises with the device. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Queue &queue = Queue::get();
  Queue::Lock lock(queue.mutex);
  Device &device = queue.device(currentDevice());
  Stream *found = queue.stream(device, stream);
  if (!found || found == &device.legacy)
    return note(cudaErrorInvalidResourceHandle);
  found->isDestroyed = true;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  return note(call.synchronize(*call.stream));
}

/* Runs one operation: a loop of queries comes to an end. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  Stream &queried = *call.stream;
  if (queried.isIdle()) {
    call.queue.follow(queried.done);
    return cudaSuccess;
  }
  call.queue.runOne(call.lock, *queried.device, &queried);
  if (queried.device->broken != cudaSuccess)
    return note(queried.device->broken);
  if (queried.isIdle()) call.queue.follow(queried.done);
  return queried.isIdle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus *status) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags) {
  if (!event || flags) return note(cudaErrorInvalidValue);
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  std::shared_ptr<Event> awaited = handleOf(event)->event;
  uint64_t count = awaited->recorded;
  Operation operation;
  operation.what = "cudaStreamWaitEvent";
  operation.ready = [awaited, count] { return awaited->reached >= count; };
  Stream *waiting = call.stream;
  Queue *queue = &call.queue;
  operation.run = [awaited, waiting, queue] {
    Queue::Lock lock(queue->mutex);
    awaited->done.acquire(waiting->clock);
    return std::string();
  };
  call.queue.enqueue(*call.stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                               void *user) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  Operation operation;
  operation.what = "cudaLaunchHostFunc";
  operation.isHost = true;
  operation.run = [function, user] {
    function(user);
    return std::string();
  };
  call.queue.enqueue(*call.stream, std::move(operation));
  return cudaSuccess;
}

int lrmoeSimtStreamEnqueue(struct CUstream_st *stream, void (*work)(void *),
                           void *argument) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  Operation operation;
  operation.what = "a communicator's work";
  operation.run = [work, argument] {
    work(argument);
    return std::string();
  };
  call.queue.enqueue(*call.stream, std::move(operation));
  return cudaSuccess;
}

int simtEnqueue(struct CUstream_st *stream, const struct simtWork *work) {
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  simtWork copy = *work;
  Operation operation;
  operation.what = copy.what;
  if (copy.ready)
    operation.ready = [copy] { return copy.ready(copy.user) != 0; };
  operation.run = [copy] {
    int failed = copy.run(copy.user);
    return failed ? std::string(copy.what) + " failed" : std::string();
  };
  call.queue.enqueue(*call.stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return makeEvent(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  return makeEvent(event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return note(cudaErrorInvalidResourceHandle);
  delete handleOf(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!event) return note(cudaErrorInvalidResourceHandle);
  Call call(stream);
  if (call.isRefused()) return note(call.refusal);
  std::shared_ptr<Event> recorded = handleOf(event)->event;
  recorded->device = call.stream->device;
  uint64_t count = ++recorded->recorded;
  Stream *recording = call.stream;
  Queue *queue = &call.queue;
  Operation operation;
  operation.what = "cudaEventRecord";
  operation.run = [recorded, recording, count, queue] {
    Queue::Lock lock(queue->mutex);
    recorded->reached = count;
    recorded->reachedNs = nowNs();
    recorded->done.release(recording->clock);
    return std::string();
  };
  call.queue.enqueue(*call.stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                     unsigned flags) {
  if (flags) return note(cudaErrorInvalidValue);
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!event) return note(cudaErrorInvalidResourceHandle);
  Call call;
  if (call.isRefused()) return note(call.refusal);
  std::shared_ptr<Event> awaited = handleOf(event)->event;
  if (isReached(call.queue, *awaited)) return cudaSuccess;
  uint64_t count = awaited->recorded;
  bool good = call.queue.runUntil(
      call.lock, *awaited->device, nullptr,
      [awaited, count] { return awaited->reached >= count; });
  call.queue.follow(awaited->done);
  return good ? cudaSuccess : note(awaited->device->broken);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!event) return note(cudaErrorInvalidResourceHandle);
  Call call;
  if (call.isRefused()) return note(call.refusal);
  std::shared_ptr<Event> queried = handleOf(event)->event;
  if (isReached(call.queue, *queried)) return cudaSuccess;
  call.queue.runOne(call.lock, *queried->device, nullptr);
  if (queried->device->broken != cudaSuccess)
    return note(queried->device->broken);
  return isReached(call.queue, *queried) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start,
                                 cudaEvent_t end) {
  if (!start || !end) return note(cudaErrorInvalidResourceHandle);
  Call call;
  if (call.isRefused()) return note(call.refusal);
  Event &first = *handleOf(start)->event;
  Event &last = *handleOf(end)->event;
  if (!first.recorded || !last.recorded)
    return note(cudaErrorInvalidResourceHandle);
  if ((first.flags | last.flags) & cudaEventDisableTiming)
    return note(cudaErrorInvalidResourceHandle);
  if (!isReached(call.queue, first) || !isReached(call.queue, last))
    return note(cudaErrorNotReady);
  *ms = static_cast<float>(static_cast<double>(last.reachedNs) -
                           static_cast<double>(first.reachedNs)) *
        1e-6f;
  return cudaSuccess;
}

} /* extern "C" */
