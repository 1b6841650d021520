/* Streams: work is queued and runs when somebody synchronises, on the thread
 * that does, in an order across streams that the configuration chooses: fifo
 * is the order of the calls; lifo lets streams that nobody waits for lag as
 * long as they can; random is anything that stream order and events allow.
 * A forgotten synchronisation is then a wrong result; a forgotten event is
 * reported, whatever the order (order.h).
 *
 * The default stream is CUDA's legacy one: its work waits for what was queued
 * before on all streams of the device that are not cudaStreamNonBlocking, and
 * theirs waits for it.  There is no per-thread default stream. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_QUEUE_H
#define LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_QUEUE_H

#include "../lock.h"
#include "../simt.h"
#include "order.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace simt {

struct Device;

struct Operation {
  const char *what = "";
  std::function<std::string()> run; /* what went wrong, or "" */
  std::function<bool()> ready;      /* empty: always */
  bool isHost = false; /* it runs while device memory is out of reach */
  /* For other devices: a thread that has more to queue must not run it for
   * another device, which may wait for just that. */
  bool isWaiting = false;
  uint64_t sequence = 0;
  std::shared_ptr<const Clock> known; /* by the host, when it was queued */
};

struct Stream {
  Device *device;
  unsigned flags;
  int priority;
  uint64_t id; /* of its device; 0 is the legacy one */
  std::deque<Operation> pending;
  bool isBusy = false; /* some thread runs its front */
  bool isDestroyed = false;
  uint64_t busySequence = 0;
  size_t place = 0; /* in clocks */
  Clock clock;      /* what its last operation knows */
  Moment handed;    /* by those who queue work */
  Moment done;      /* by those who have run it */
  bool isIdle() const {
    return pending.empty() && !isBusy;
  }
  /* UINT64_MAX when idle. */
  uint64_t oldest() const;
};

struct Event {
  unsigned flags;
  Device *device = nullptr;
  uint64_t recorded = 0; /* how often it was recorded, and reached */
  uint64_t reached = 0;
  uint64_t reachedNs = 0;
  Moment done;
};

struct Device {
  int ordinal;
  Stream legacy;
  std::vector<std::unique_ptr<Stream>> streams;
  uint64_t numOperations = 0;
  uint64_t numStreams = 0;
  uint64_t numDrains = 0;
  cudaError_t broken = cudaSuccess; /* by a kernel, until it is reset */
  Moment gone;                      /* work of streams that were destroyed */
};

class Queue {
public:
  using Lock = std::unique_lock<QuietMutex>;

  QuietMutex mutex;
  QuietCondition changed;

  Device &device(int ordinal);
  int numDevices() const {
    return static_cast<int>(devices.size());
  }

  Stream *createStream(Device &device, unsigned flags, int priority);
  /* nullptr: no such stream.  0 and cudaStreamLegacy are the device's own. */
  Stream *stream(Device &device, cudaStream_t handle);

  void enqueue(Stream &stream, Operation operation);

  /* Runs work until done; false when a kernel broke the device.  `wanted` is
   * the stream that is waited for, nullptr for any. */
  bool runUntil(Lock &lock, Device &device, Stream *wanted,
                const std::function<bool()> &done);

  /* Runs one operation if one can run: for queries. */
  void runOne(Lock &lock, Device &device, Stream *wanted);

  /* The host goes on after that, or after all work that a device has done. */
  void follow(Moment &moment);
  void followAll(Device &device);

  /* Forgets the work of a device and what broke it. */
  void reset(Lock &lock, Device &device);

  Queue();
  static Queue &get();

private:
  struct Drain;
  bool isRunnable(const Stream &stream) const;
  void followEarlier(Stream &stream, const Operation &operation);
  Stream *choose(Drain &drain);
  Stream *chooseElsewhere(const Device &device);
  void execute(Lock &lock, Drain &drain, Stream &stream);
  void breakDevice(Device &device, const std::string &text);
  void waitForOthers(Lock &lock, Drain &drain);
  void removeDestroyed(Device &device);
  bool isAnyBusy() const;
  std::string describePending() const;

  std::vector<std::unique_ptr<Device>> devices;
  std::shared_ptr<const Clock> known; /* by the host */
};

} // namespace simt

#endif
