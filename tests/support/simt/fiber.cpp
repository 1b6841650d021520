/* Fibers: see fiber.h. */
#include "fiber.h"

#include "sanitizer.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

#if defined(__x86_64__)

extern "C" void simtSwitchStacks(void **saved, void *next)
    __attribute__((visibility("hidden")));
asm(R"(
.text
.hidden simtSwitchStacks
.globl simtSwitchStacks
.type simtSwitchStacks,@function
simtSwitchStacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simtSwitchStacks,.-simtSwitchStacks
)");

static void prepareContext(Fiber *fiber, void (*entry)()) {
  /* What simtSwitchStacks pops: six registers and a return address.  The
   * address above it makes the stack 16-byte aligned as after a call. */
  char *top = const_cast<char *>(static_cast<const char *>(fiber->stack)) +
              fiber->stackBytes - 16;
  void **cell = reinterpret_cast<void **>(top);
  *--cell = nullptr;
  *--cell = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; i++)
    *--cell = nullptr;
  fiber->context = cell;
}

static void dropContext(Fiber *) {
}

static void switchContext(Fiber *from, Fiber *to) {
  simtSwitchStacks(&from->context, to->context);
}

#else

static ucontext_t *contextOf(Fiber *fiber) {
  if (!fiber->context) fiber->context = new ucontext_t();
  return static_cast<ucontext_t *>(fiber->context);
}

static void prepareContext(Fiber *fiber, void (*entry)()) {
  ucontext_t *context = contextOf(fiber);
  getcontext(context);
  context->uc_stack.ss_sp = const_cast<void *>(fiber->stack);
  context->uc_stack.ss_size = fiber->stackBytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}

static void dropContext(Fiber *fiber) {
  delete static_cast<ucontext_t *>(fiber->context);
}

static void switchContext(Fiber *from, Fiber *to) {
  swapcontext(contextOf(from), contextOf(to));
}

#endif

static size_t guardBytes() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void fiberCreate(Fiber *fiber, void (*entry)()) {
  size_t guard = guardBytes();
  void *base = mmap(nullptr, guard + fiberStackBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED || mprotect(base, guard, PROT_NONE) != 0) {
    perror("simt: the stack of a fiber");
    abort();
  }
  fiber->stack = static_cast<char *>(base) + guard;
  fiber->stackBytes = fiberStackBytes;
  fiber->tsanFiber = tsanCreate();
  prepareContext(fiber, entry);
}

void fiberReset(Fiber *fiber, void (*entry)()) {
  asanUnpoison(fiber->stack, fiber->stackBytes);
  fiber->asanFake = nullptr;
  if (tsan) {
    tsanDestroy(fiber->tsanFiber);
    fiber->tsanFiber = tsanCreate();
  }
  prepareContext(fiber, entry);
}

void fiberDestroy(Fiber *fiber) {
  if (!fiber->stack) return;
  asanUnpoison(fiber->stack, fiber->stackBytes);
  if (tsan) tsanDestroy(fiber->tsanFiber);
  dropContext(fiber);
  size_t guard = guardBytes();
  char *base = const_cast<char *>(static_cast<const char *>(fiber->stack));
  munmap(base - guard, guard + fiber->stackBytes);
  *fiber = Fiber();
}

void fiberSwitch(Fiber *from, Fiber *to) {
  tsanSwitch(to->tsanFiber);
  asanLeave(&from->asanFake, to->stack, to->stackBytes);
  switchContext(from, to);
  const void *stack;
  size_t bytes;
  asanArrive(from->asanFake, &stack, &bytes);
}

void fiberEntered(Fiber *from) {
  const void *stack = from->stack;
  size_t bytes = from->stackBytes;
  asanArrive(nullptr, &stack, &bytes);
  /* Bounds of a stack that the emulator did not make. */
  from->stack = stack;
  from->stackBytes = bytes;
}

} // namespace simt
