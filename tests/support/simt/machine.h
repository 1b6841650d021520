/* The scheduler's state: one machine per operating-system thread, which runs
 * one block at a time.  Internal to the emulator. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_MACHINE_H
#define LRMOE_TESTS_SUPPORT_SIMT_MACHINE_H

#include "device/launch.h"
#include "device/thread.h"
#include "fiber.h"
#include "shared.h"
#include "simt.h"

#include <cstdarg>
#include <string>

namespace simt {

constexpr unsigned maxThreads = 1024;
constexpr unsigned maxWarps = maxThreads / 32;
constexpr unsigned maxMasks = 16; /* of one warp in one block, under TSan */
constexpr size_t maxSharedBytes = 232448;

enum class State : uint8_t {
  ready,
  atBarrier,
  inExchange,
  exited
};

struct Thread {
  Fiber fiber;
  Fiber spare; /* for every other block in TSan builds */
  uint3 index;
  unsigned linear;
  unsigned lane;
  unsigned warp;
  State state;
  Site site; /* where it waits */
  const Exchange *exchange;
};

/* __syncwarp orders memory among the lanes of its mask; TSan is told through
 * one cell per mask and parity. */
struct MaskUse {
  unsigned mask;
  unsigned rounds;
};

struct Warp {
  unsigned alive;
  unsigned waiting; /* lanes inside an exchange */
  unsigned numMasks;
  MaskUse masks[maxMasks];
};

struct Barrier {
  unsigned numWaiting;
  unsigned round;
  int tally[2]; /* of the votes, by parity of the round */
  Vote vote;
  Site site;
};

/* xorshift64: fast, and the same everywhere. */
struct Random {
  uint64_t state;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  uint64_t below(uint64_t bound) {
    return next() % bound;
  }
};

Random randomFrom(uint64_t seed, uint64_t salt);

/* Threads that can run, as a ring: fifo takes the head, lifo the tail. */
struct ReadyRing {
  unsigned slots[2 * maxThreads];
  unsigned head;
  unsigned tail;
  bool isEmpty() const {
    return head == tail;
  }
  unsigned &at(unsigned position) {
    return slots[position % (2 * maxThreads)];
  }
};

struct Machine {
  Thread threads[maxThreads];
  unsigned numCreated = 0; /* threads with a fiber */
  Warp warps[maxWarps];
  Barrier barrier;
  ReadyRing ready;
  unsigned numThreads; /* of a block */
  unsigned numAlive;
  uint64_t stepsAtSwitch; /* view.steps when the running thread came */

  Fiber host;               /* of the operating-system thread */
  Fiber *leaving = nullptr; /* the fiber that switched last */
  Thread *running = nullptr;
  char startCell = 0; /* TSan: launch before threads, threads before its end */
  char endCell = 0;

  const Launch *launch;
  simtConfig config;
  Random random;
  SharedMemory shared;
  std::string error;
  std::string details; /* of an error that is being said */

  ~Machine();
};

/* This operating-system thread's machine; made at the first launch. */
extern thread_local Machine *activeMachine
    __attribute__((tls_model("initial-exec")));
inline Machine &machine() {
  return *activeMachine;
}

/* The body of every fiber: runs its thread of one block after the other. */
void fiberMain();

/* Runs all blocks; the report of what went wrong, or "". */
std::string runGrid(const Launch &launch, const simtConfig &config,
                    uint64_t salt);

/* Scheduler. */
void makeReady(Machine &m, Thread &thread);
void resume(Machine &m, Thread &thread); /* leaves the running thread */
void runOthers(Machine &m);              /* it cannot continue now */
void startThreads(Machine &m);           /* returns when all have exited */
void finishThread(Machine &m);
void madeProgress(Machine &m);
std::string describeThread(const Thread &thread);
std::string formatText(const char *format, va_list arguments);

/* Barriers and exchanges: what an exit may complete. */
void releaseBarrier(Machine &m);
void exchangeAfterExit(Machine &m, Thread &thread);
void resetWarp(Warp &warp, unsigned numLanes);

} // namespace simt

#endif
