/* Faults: see crash.h. */
#include "crash.h"

#include "../config.h"
#include "../machine.h"
#include "memory.h"

#include <csignal>
#include <cstdio>
#include <memory>
#include <unistd.h>

namespace simt {

static struct sigaction previous[NSIG];

static bool isInFiberGuard(const Machine &m, const void *address) {
  const char *at = static_cast<const char *>(address);
  for (unsigned i = 0; i < m.numCreated; i++) {
    const char *stack = static_cast<const char *>(m.threads[i].fiber.stack);
    if (at < stack && at >= stack - sysconf(_SC_PAGESIZE)) return true;
  }
  return false;
}

static std::string describeFault(const void *address) {
  Machine *m = activeMachine;
  std::string text;
  if (m && m->launch && m->running)
    text = std::string("kernel ") + m->launch->site.what + ", " +
           describeThread(*m->running) + ": ";
  std::string memory = memoryDescribe(address);
  if (!memory.empty()) return text + memory;
  if (m && isInFiberGuard(*m, address))
    return text + "the stack of a CUDA thread is full";
  char number[40];
  snprintf(number, sizeof number, "%p", address);
  return text + "no memory at " + number;
}

/* Returns to the faulting instruction, with the handler that was there before:
 * a sanitizer's, which shows the source line, or the default. */
static void onFault(int signal, siginfo_t *info, void *) {
  sigaction(signal, &previous[signal], nullptr);
  report(describeFault(info->si_addr));
}

void crashReportsInstall() {
  struct sigaction action = {};
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous[SIGSEGV]);
  sigaction(SIGBUS, &action, &previous[SIGBUS]);
}

/* Unregistered before it is freed. */
struct HandlerStack {
  std::unique_ptr<char[]> memory;
  ~HandlerStack() {
    if (!memory) return;
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
};

void crashReportsForThread() {
  static thread_local HandlerStack own;
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) != 0 || !(stack.ss_flags & SS_DISABLE))
    return;
  constexpr size_t bytes = size_t{64} << 10;
  own.memory.reset(new char[bytes]);
  stack = {};
  stack.ss_sp = own.memory.get();
  stack.ss_size = bytes;
  sigaltstack(&stack, nullptr);
}

} // namespace simt
