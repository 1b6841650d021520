/* Streams: see queue.h. */
#include "queue.h"

#include "../config.h"
#include "../machine.h"
#include "../single.h"

#include <algorithm>

namespace simt {

/* Device memory can be touched while one of these lives. */
class DeviceAccess {
public:
  DeviceAccess() {
    simtOpenDevice();
  }
  ~DeviceAccess() {
    simtCloseDevice();
  }
  DeviceAccess(const DeviceAccess &) = delete;
  DeviceAccess &operator=(const DeviceAccess &) = delete;
};

/* Threads whose streams wait for each other are told so after so long. */
constexpr uint64_t defaultPatienceSeconds = 60;

uint64_t Stream::oldest() const {
  if (isBusy) return busySequence;
  return pending.empty() ? UINT64_MAX : pending.front().sequence;
}

Queue &Queue::get() {
  return single<Queue>();
}

Queue::Queue() {
  known = std::make_shared<const Clock>();
  uint64_t count = environmentNumber("LRMOE_SIMT_DEVICES", 8);
  for (uint64_t i = 0; i < count; i++) {
    devices.emplace_back(new Device());
    Device &device = *devices.back();
    device.ordinal = static_cast<int>(i);
    device.legacy.device = &device;
    device.legacy.flags = 0;
    device.legacy.priority = 0;
    device.legacy.id = 0;
    device.legacy.place = orderAddStream(device.ordinal, 0);
  }
}

Device &Queue::device(int ordinal) {
  return *devices[static_cast<size_t>(ordinal)];
}

Stream *Queue::createStream(Device &device, unsigned flags, int priority) {
  std::unique_ptr<Stream> made(new Stream());
  made->device = &device;
  made->flags = flags;
  made->priority = priority;
  made->id = ++device.numStreams;
  made->place = orderAddStream(device.ordinal, made->id);
  device.streams.push_back(std::move(made));
  return device.streams.back().get();
}

Stream *Queue::stream(Device &device, cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &device.legacy;
  for (const auto &other : devices)
    for (const auto &stream : other->streams)
      if (reinterpret_cast<cudaStream_t>(stream.get()) == handle &&
          !stream->isDestroyed)
        return stream.get();
  return nullptr;
}

void Queue::enqueue(Stream &stream, Operation operation) {
  operation.sequence = ++stream.device->numOperations;
  operation.known = known;
  stream.pending.push_back(std::move(operation));
  stream.handed.release(Clock());
  changed.notify_all();
}

/* ---- Which stream comes next --------------------------------------------- */

struct Queue::Drain {
  Device &device;
  Stream *wanted;
  simtOrder order;
  Random random;
  bool isLazy; /* other streams only run when the wanted one cannot */
  std::unique_ptr<DeviceAccess> access;

  Drain(Device &of, Stream *stream) : device(of), wanted(stream) {
    simtConfig config = currentConfig();
    order = config.streams;
    random = randomFrom(config.seed, ++of.numDrains);
    isLazy = order == simtOrderLifo ||
             (order == simtOrderRandom && random.below(2) == 0);
  }
};

bool Queue::isRunnable(const Stream &stream) const {
  if (stream.isBusy || stream.pending.empty()) return false;
  const Device &device = *stream.device;
  const Operation &next = stream.pending.front();
  if (&stream == &device.legacy) {
    for (const auto &other : device.streams)
      if (!(other->flags & cudaStreamNonBlocking) &&
          other->oldest() < next.sequence)
        return false;
  } else if (!(stream.flags & cudaStreamNonBlocking) &&
             device.legacy.oldest() < next.sequence) {
    return false;
  }
  return !next.ready || next.ready();
}

Stream *Queue::choose(Drain &drain) {
  if (drain.isLazy && drain.wanted && isRunnable(*drain.wanted))
    return drain.wanted;
  std::vector<Stream *> runnable;
  if (isRunnable(drain.device.legacy)) runnable.push_back(&drain.device.legacy);
  for (const auto &stream : drain.device.streams)
    if (isRunnable(*stream)) runnable.push_back(stream.get());
  if (runnable.empty()) return nullptr;
  if (drain.order == simtOrderRandom)
    return runnable[drain.random.below(runnable.size())];
  auto isOlder = [](const Stream *a, const Stream *b) {
    return a->pending.front().sequence < b->pending.front().sequence;
  };
  if (drain.order == simtOrderLifo)
    return *std::max_element(runnable.begin(), runnable.end(), isOlder);
  return *std::min_element(runnable.begin(), runnable.end(), isOlder);
}

/* Work of another device that this one may wait for: its thread may wait for
 * something else. */
Stream *Queue::chooseElsewhere(const Device &device) {
  for (const auto &other : devices) {
    if (other.get() == &device || other->broken != cudaSuccess) continue;
    if (isRunnable(other->legacy) && !other->legacy.pending.front().isWaiting)
      return &other->legacy;
    for (const auto &stream : other->streams)
      if (isRunnable(*stream) && !stream->pending.front().isWaiting)
        return stream.get();
  }
  return nullptr;
}

/* ---- Running ------------------------------------------------------------- */

/* What comes before the next operation of a stream. */
void Queue::followEarlier(Stream &stream, const Operation &operation) {
  Device &device = *stream.device;
  Clock &clock = stream.clock;
  clockJoin(clock, *operation.known);
  stream.handed.acquire(clock);
  stream.done.acquire(clock);
  if (&stream == &device.legacy) {
    for (const auto &other : device.streams)
      if (!(other->flags & cudaStreamNonBlocking)) other->done.acquire(clock);
    device.gone.acquire(clock);
  } else if (!(stream.flags & cudaStreamNonBlocking)) {
    device.legacy.done.acquire(clock);
  }
  if (clock.size() <= stream.place) clock.resize(stream.place + 1);
  clock[stream.place]++;
}

void Queue::follow(Moment &moment) {
  Clock joined = *known;
  moment.acquire(joined);
  if (!clockKnows(*known, joined))
    known = std::make_shared<const Clock>(std::move(joined));
}

void Queue::followAll(Device &device) {
  for (const auto &stream : device.streams)
    follow(stream->done);
  follow(device.legacy.done);
  follow(device.gone);
}

void Queue::execute(Lock &lock, Drain &drain, Stream &stream) {
  Operation operation = std::move(stream.pending.front());
  stream.pending.pop_front();
  stream.isBusy = true;
  stream.busySequence = operation.sequence;
  followEarlier(stream, operation);
  lock.unlock();
  if (operation.isHost)
    drain.access.reset();
  else if (!drain.access)
    drain.access.reset(new DeviceAccess());
  orderBegin(operation.what, stream.place, stream.clock);
  std::string error = operation.run ? operation.run() : "";
  std::string race = orderEnd();
  if (error.empty()) error = race;
  operation = Operation(); /* what it holds goes while nothing is locked */
  lock.lock();
  stream.isBusy = false;
  stream.done.release(stream.clock);
  if (!error.empty()) breakDevice(*stream.device, error);
  removeDestroyed(*stream.device);
  changed.notify_all();
}

void Queue::breakDevice(Device &device, const std::string &text) {
  report(text);
  device.broken = cudaErrorLaunchFailure;
  device.legacy.pending.clear();
  for (const auto &stream : device.streams)
    stream->pending.clear();
}

void Queue::removeDestroyed(Device &device) {
  auto isGone = [&device](const std::unique_ptr<Stream> &stream) {
    if (!stream->isDestroyed || !stream->isIdle()) return false;
    device.gone.release(stream->clock);
    return true;
  };
  device.streams.erase(
      std::remove_if(device.streams.begin(), device.streams.end(), isGone),
      device.streams.end());
}

std::string Queue::describePending() const {
  std::string text;
  for (const auto &device : devices) {
    std::vector<const Stream *> all = {&device->legacy};
    for (const auto &stream : device->streams)
      all.push_back(stream.get());
    for (const Stream *stream : all)
      if (!stream->isIdle())
        text += "\n  device " + std::to_string(device->ordinal) + ", stream " +
                std::to_string(stream->id) + ": " +
                (stream->isBusy ? "runs" : stream->pending.front().what);
  }
  return text;
}

static bool isBusy(const Device &device) {
  for (const auto &stream : device.streams)
    if (stream->isBusy) return true;
  return device.legacy.isBusy;
}

bool Queue::isAnyBusy() const {
  for (const auto &device : devices)
    if (isBusy(*device)) return true;
  return false;
}

/* Other threads run what is missing, or have still to queue it. */
void Queue::waitForOthers(Lock &lock, Drain &drain) {
  static const uint64_t patience =
      environmentNumber("LRMOE_SIMT_PATIENCE", defaultPatienceSeconds);
  drain.access.reset();
  bool isInTime = changed.waitFor(lock, patience);
  if (!isInTime && !isAnyBusy())
    breakDevice(drain.device,
                "deadlock: streams wait for each other" + describePending());
}

bool Queue::runUntil(Lock &lock, Device &device, Stream *wanted,
                     const std::function<bool()> &done) {
  Drain drain(device, wanted);
  while (device.broken == cudaSuccess && !done()) {
    Stream *next = choose(drain);
    if (!next) next = chooseElsewhere(device);
    if (next)
      execute(lock, drain, *next);
    else
      waitForOthers(lock, drain);
  }
  return device.broken == cudaSuccess;
}

void Queue::runOne(Lock &lock, Device &device, Stream *wanted) {
  Drain drain(device, wanted);
  Stream *next = choose(drain);
  if (!next) next = chooseElsewhere(device);
  if (next) execute(lock, drain, *next);
}

void Queue::reset(Lock &lock, Device &device) {
  device.legacy.pending.clear();
  for (const auto &stream : device.streams) {
    stream->pending.clear();
    stream->isDestroyed = true;
  }
  while (isBusy(device))
    changed.waitFor(lock, 1);
  followAll(device);
  removeDestroyed(device);
  device.broken = cudaSuccess;
}

} // namespace simt

using namespace simt;

extern "C" void simtWake(void) {
  Queue &queue = Queue::get();
  Queue::Lock lock(queue.mutex);
  queue.changed.notify_all();
}
