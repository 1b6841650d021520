/* A launch: all blocks of a grid, one after the other, in the chosen order. */
#include "counters.h"
#include "machine.h"
#include "runtime/crash.h"
#include "sanitizer.h"

#include <memory>
#include <utility>
#include <vector>

namespace simt {

Machine::~Machine() {
  for (unsigned i = 0; i < numCreated; i++) {
    fiberDestroy(&threads[i].spare);
    fiberDestroy(&threads[i].fiber);
  }
}

thread_local Machine *activeMachine;

/* Lives as long as its operating-system thread. */
struct OwnMachine {
  std::unique_ptr<Machine> machine;
  ~OwnMachine() {
    activeMachine = nullptr;
  }
};

static Machine &ownMachine() {
  static thread_local OwnMachine own;
  if (!own.machine) {
    own.machine.reset(new Machine());
    crashReportsForThread();
  }
  activeMachine = own.machine.get();
  return *activeMachine;
}

void fiberMain() {
  Machine &m = machine();
  fiberEntered(m.leaving);
  for (;;) {
    tsanAcquire(&m.startCell);
    m.launch->thread();
    finishThread(m);
  }
}

static void createThreads(Machine &m, unsigned numThreads) {
  for (; m.numCreated < numThreads; m.numCreated++) {
    Thread &thread = m.threads[m.numCreated];
    thread.linear = m.numCreated;
    thread.lane = thread.linear % 32;
    thread.warp = thread.linear / 32;
    fiberCreate(&thread.fiber, fiberMain);
  }
}

/* The order of blocks; a grid may have 2^31, so fifo and lifo need no list. */
class BlockOrder {
public:
  BlockOrder(uint64_t numBlocks, simtOrder order, Random &random)
      : count(numBlocks), isReverse(order == simtOrderLifo) {
    if (order != simtOrderRandom) return;
    shuffled.resize(numBlocks);
    for (uint64_t i = 0; i < numBlocks; i++) {
      uint64_t j = random.below(i + 1);
      shuffled[i] = shuffled[j];
      shuffled[j] = i;
    }
  }
  uint64_t at(uint64_t i) const {
    if (!shuffled.empty()) return shuffled[i];
    return isReverse ? count - 1 - i : i;
  }

private:
  uint64_t count;
  bool isReverse;
  std::vector<uint64_t> shuffled;
};

static uint64_t volume(const dim3 &size) {
  return uint64_t{size.x} * size.y * size.z;
}

static void startBlock(Machine &m, uint64_t index) {
  const dim3 &grid = m.launch->grid;
  const dim3 &block = m.launch->block;
  view.block = {static_cast<unsigned>(index % grid.x),
                static_cast<unsigned>(index / grid.x % grid.y),
                static_cast<unsigned>(index / grid.x / grid.y)};
  m.shared.startBlock();
  m.numAlive = m.numThreads;
  m.barrier = Barrier{};
  m.ready.head = m.ready.tail = 0;
  madeProgress(m);
  for (unsigned w = 0; w * 32 < m.numThreads; w++)
    resetWarp(m.warps[w],
              m.numThreads - w * 32 < 32 ? m.numThreads - w * 32 : 32);
  for (unsigned i = 0; i < m.numThreads; i++) {
    Thread &thread = m.threads[i];
    thread.index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    thread.site = Site{nullptr, 0, nullptr};
    makeReady(m, thread);
  }
}

/* For TSan blocks must not look ordered, but its threads remember what they
 * synchronised with.  So the next block gets other fibers: a second set, where
 * that is not too many for TSan, and in another order. */
static void changeFibers(Machine &m) {
  constexpr unsigned maxDoubled = 256;
  bool doubled = m.numThreads <= maxDoubled;
  Fiber last;
  for (unsigned i = 0; i < m.numThreads; i++) {
    Thread &thread = m.threads[i];
    if (doubled && !thread.spare.stack) fiberCreate(&thread.spare, fiberMain);
    if (doubled) std::swap(thread.fiber, thread.spare);
    std::swap(thread.fiber, last);
  }
  m.threads[0].fiber = last;
}

static void runBlock(Machine &m, uint64_t index) {
  startBlock(m, index);
  tsanRelease(&m.startCell);
  startThreads(m);
  if (tsan && m.error.empty()) changeFibers(m);
}

/* After a failure no fiber is where a new thread starts.  What they did comes
 * before what the host does next. */
static void resetFibers(Machine &m) {
  for (unsigned i = 0; i < m.numCreated; i++) {
    tsanSwitch(m.threads[i].fiber.tsanFiber);
    tsanRelease(&m.endCell);
    tsanSwitch(m.host.tsanFiber);
    fiberReset(&m.threads[i].fiber, fiberMain);
  }
}

static void countLaunch(const Machine &m) {
  simtCounters counters = {};
  counters.launches = 1;
  counters.threads =
      static_cast<int64_t>(volume(m.launch->grid) * volume(m.launch->block));
  counters.bytesLoaded = static_cast<int64_t>(view.bytesLoaded);
  counters.bytesStored = static_cast<int64_t>(view.bytesStored);
  addCounters(m.launch->site.what, counters);
}

std::string runGrid(const Launch &launch, const simtConfig &config,
                    uint64_t salt) {
  Machine &m = ownMachine();
  m.launch = &launch;
  m.config = config;
  m.random = randomFrom(config.seed, salt);
  m.error.clear();
  m.numThreads = static_cast<unsigned>(volume(launch.block));
  createThreads(m, m.numThreads);
  m.host.tsanFiber = tsanCurrent();
  view = View{};
  view.blockSize = launch.block;
  view.gridSize = launch.grid;
  view.maxSteps = config.maxSteps;

  uint64_t numBlocks = volume(launch.grid);
  BlockOrder order(numBlocks, config.blocks, m.random);
  m.shared.startLaunch(launch.sharedBytes);
  for (uint64_t i = 0; i < numBlocks && m.error.empty(); i++)
    runBlock(m, order.at(i));
  m.shared.endLaunch();
  if (!m.error.empty()) resetFibers(m);
  tsanAcquire(&m.endCell);
  if (m.error.empty()) countLaunch(m);
  m.launch = nullptr;
  return m.error;
}

} // namespace simt
