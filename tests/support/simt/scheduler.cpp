/* Which thread of the block runs next, and what is said when none can. */
#include "device/peers.h"
#include "machine.h"
#include "sanitizer.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>
#include <vector>

namespace simt {

SIMT_CONSTANT thread_local View view{};

/* A thread that polls memory lets others run at the latest after so many
 * atomics, as independent thread scheduling does. */
constexpr uint64_t stepsPerTurn = 1000;

Random randomFrom(uint64_t seed, uint64_t salt) {
  uint64_t state =
      (seed + 1) * 0x9E3779B97F4A7C15u ^ (salt + 1) * 0xBF58476D1CE4E5B9u;
  Random random = {state ? state : 1};
  for (int i = 0; i < 4; i++)
    random.next();
  return random;
}

static const char *stateName(State state) {
  switch (state) {
  case State::ready:
    return "ready";
  case State::atBarrier:
    return "at";
  case State::inExchange:
    return "in";
  case State::exited:
    return "exited";
  }
  return "?";
}

std::string formatText(const char *format, va_list arguments) {
  char text[2000];
  vsnprintf(text, sizeof text, format, arguments);
  return text;
}

static std::string format(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static std::string format(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = formatText(format, arguments);
  va_end(arguments);
  return text;
}

std::string describeThread(const Thread &thread) {
  const uint3 &t = thread.index;
  const uint3 &b = view.block;
  std::string text = format("block (%u,%u,%u), thread (%u,%u,%u)", b.x, b.y,
                            b.z, t.x, t.y, t.z);
  if (thread.state == State::ready || !thread.site.file) return text;
  return text + format(" %s %s at %s:%d", stateName(thread.state),
                       thread.site.what, thread.site.file, thread.site.line);
}

void makeReady(Machine &m, Thread &thread) {
  thread.state = State::ready;
  m.ready.at(m.ready.tail++) = thread.linear;
}

void madeProgress(Machine &m) {
  view.steps = 0;
  m.stepsAtSwitch = 0;
}

/* Leaves the running fiber, or the host's, for another one. */
static void leaveFor(Machine &m, Fiber *from, Fiber *to) {
  if (from == to) return;
  m.leaving = from;
  fiberSwitch(from, to);
}

void resume(Machine &m, Thread &thread) {
  Fiber *from = m.running ? &m.running->fiber : &m.host;
  m.running = &thread;
  view.thread = thread.index;
  m.stepsAtSwitch = view.steps;
  leaveFor(m, from, &thread.fiber);
}

static void returnToHost(Machine &m) {
  leaveFor(m, &m.running->fiber, &m.host);
}

static Thread &takeReady(Machine &m) {
  ReadyRing &ring = m.ready;
  unsigned linear;
  if (m.config.threads == simtOrderFifo) {
    linear = ring.at(ring.head++);
  } else {
    if (m.config.threads == simtOrderRandom) {
      unsigned chosen = ring.head + static_cast<unsigned>(
                                        m.random.below(ring.tail - ring.head));
      std::swap(ring.at(chosen), ring.at(ring.tail - 1));
    }
    linear = ring.at(--ring.tail);
  }
  return m.threads[linear];
}

static bool waitTogether(const Thread &a, const Thread &b) {
  return a.state == b.state && a.warp == b.warp && a.site.line == b.site.line;
}

/* Waiting threads, grouped by warp and place. */
static std::string describeWaiting(const Machine &m) {
  std::vector<std::pair<const Thread *, unsigned>> groups;
  for (unsigned i = 0; i < m.numThreads; i++) {
    const Thread &thread = m.threads[i];
    if (thread.state == State::exited) continue;
    size_t g = 0;
    while (g < groups.size() && !waitTogether(*groups[g].first, thread))
      g++;
    if (g == groups.size()) groups.emplace_back(&thread, 0u);
    groups[g].second++;
  }
  constexpr size_t maxGroups = 12;
  std::string text;
  for (size_t g = 0; g < groups.size() && g < maxGroups; g++)
    text +=
        format("\n  %u of warp %u wait, the first: %s", groups[g].second,
               groups[g].first->warp, describeThread(*groups[g].first).c_str());
  if (groups.size() > maxGroups) text += "\n  and more";
  return text;
}

void startThreads(Machine &m) {
  m.running = nullptr;
  resume(m, takeReady(m));
  m.running = nullptr;
}

void runOthers(Machine &m) {
  if (++view.steps > view.maxSteps) tooManySteps(m.running->site);
  if (!m.ready.isEmpty()) {
    resume(m, takeReady(m));
  } else if (m.numAlive == 0) {
    returnToHost(m);
  } else {
    m.details = describeWaiting(m);
    fail(m.running->site, "deadlock: %u threads wait and none can run%s",
         m.numAlive, m.details.c_str());
  }
}

void finishThread(Machine &m) {
  Thread &thread = *m.running;
  thread.state = State::exited;
  thread.site = Site{nullptr, 0, nullptr};
  m.numAlive--;
  madeProgress(m);
  if (m.config.strictExit && m.barrier.numWaiting)
    fail(m.barrier.site, "a thread exits while %u others wait at %s",
         m.barrier.numWaiting, m.barrier.site.what);
  exchangeAfterExit(m, thread);
  if (m.numAlive && m.barrier.numWaiting == m.numAlive) releaseBarrier(m);
  tsanRelease(&m.endCell);
  runOthers(m);
}

static std::string describeFailure(const Machine &m, const Site &site,
                                   const std::string &what) {
  std::string text = std::string("kernel ") + m.launch->site.what;
  if (m.running) text += ", " + describeThread(*m.running);
  text += ": " + what;
  if (site.file)
    text += format(" (%s at %s:%d)", site.what, site.file, site.line);
  return text + format("\n  launched at %s:%d", m.launch->site.file,
                       m.launch->site.line);
}

void fail(const Site &site, const char *format, ...) {
  Machine &m = machine();
  va_list arguments;
  va_start(arguments, format);
  /* No string may stay on this stack, which is left for good. */
  m.error = describeFailure(m, site, formatText(format, arguments));
  va_end(arguments);
  m.details.clear();
  returnToHost(m);
  abort(); /* a failed thread is never resumed */
}

void yield(const Site &site) {
  Machine &m = machine();
  m.running->site = site;
  makeReady(m, *m.running);
  runOthers(m);
}

void pauseForPeers(const Site &site) {
  const timespec nap = {0, 20000};
  nanosleep(&nap, nullptr);
  madeProgress(machine());
  yield(site);
}

int64_t ticks() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void mayYield(const Site &site) {
  Machine &m = machine();
  if (++view.steps > view.maxSteps) tooManySteps(site);
  bool preempted =
      m.config.preemptOneIn && m.random.below(m.config.preemptOneIn) == 0;
  if (preempted || view.steps - m.stepsAtSwitch > stepsPerTurn) yield(site);
}

void tooManySteps(const Site &site) {
  uint64_t limit = view.maxSteps;
  view.maxSteps = UINT64_MAX;
  fail(site,
       "endless: %llu steps and no thread came further; it waits for what "
       "never comes, or for another block",
       static_cast<unsigned long long>(limit));
}

void *dynamicShared(const Site &site, size_t bytes, size_t align) {
  Machine &m = machine();
  if (bytes > m.shared.bytes())
    fail(site,
         "too little shared memory: the kernel uses %zu bytes, the "
         "launch gave %zu",
         bytes, m.shared.bytes());
  if (reinterpret_cast<uintptr_t>(m.shared.data()) % align)
    fail(site, "shared memory is not aligned to %zu bytes", align);
  return m.shared.data();
}

} // namespace simt
