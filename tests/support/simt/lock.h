/* The emulator's own locks, which ThreadSanitizer does not see.
 *
 * Hardware has no lock that every runtime call takes: if TSan saw the
 * emulator's, any two host threads would look ordered by their last calls, and
 * hardly a race between them would be reported.  So these are made of futexes
 * in code that is not instrumented, what is allocated and freed under them is
 * new memory for TSan, and the queue says by itself what a stream orders. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_LOCK_H
#define LRMOE_TESTS_SUPPORT_SIMT_LOCK_H

#include "sanitizer.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <mutex>
#include <sys/syscall.h>
#include <unistd.h>

namespace simt {

/* False when the time is over. */
inline bool futexWait(std::atomic<uint32_t> &word, uint32_t value,
                      const timespec *limit) {
  return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, limit, nullptr,
                 0) == 0 ||
         errno != ETIMEDOUT;
}

inline void futexWake(std::atomic<uint32_t> &word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

class QuietMutex {
public:
  bool try_lock() {
    uint32_t expected = isFree;
    if (!state.compare_exchange_strong(expected, isHeld)) return false;
    tsanForgetBegin();
    return true;
  }
  void lock() {
    if (try_lock()) return;
    while (state.exchange(isAwaited) != isFree)
      futexWait(state, isAwaited, nullptr);
    tsanForgetBegin();
  }
  void unlock() {
    tsanForgetEnd();
    if (state.exchange(isFree) == isAwaited) futexWake(state, 1);
  }

private:
  enum : uint32_t {
    isFree,
    isHeld,
    isAwaited
  };
  std::atomic<uint32_t> state{isFree};
};

/* The thread that holds it may take it again. */
class QuietRecursiveMutex {
public:
  bool try_lock() {
    if (owner.load() != self() && !mutex.try_lock()) return false;
    enter();
    return true;
  }
  void lock() {
    if (owner.load() != self()) mutex.lock();
    enter();
  }
  void unlock() {
    if (--depth) return;
    owner.store(nullptr);
    mutex.unlock();
  }

private:
  static const void *self() {
    static thread_local char here;
    return &here;
  }
  void enter() {
    owner.store(self());
    depth++;
  }
  QuietMutex mutex;
  std::atomic<const void *> owner{nullptr};
  int depth = 0;
};

/* Waits may end early: callers look again. */
class QuietCondition {
public:
  void notify_all() {
    epoch.fetch_add(1);
    futexWake(epoch, INT_MAX);
  }
  bool waitFor(std::unique_lock<QuietMutex> &lock, uint64_t seconds) {
    timespec limit = {static_cast<time_t>(seconds), 0};
    uint32_t seen = epoch.load();
    lock.unlock();
    bool isInTime = futexWait(epoch, seen, &limit);
    lock.lock();
    return isInTime;
  }

private:
  std::atomic<uint32_t> epoch{0};
};

} // namespace simt

#endif
