/* Fibers: one stack per CUDA thread of a block, switched by hand.
 *
 * On x86-64 a switch saves six registers (20 to 35 million a second);
 * elsewhere it is ucontext's, ten times slower. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_FIBER_H
#define LRMOE_TESTS_SUPPORT_SIMT_FIBER_H

#include <stddef.h>

namespace simt {

constexpr size_t fiberStackBytes = size_t{128} << 10;

struct Fiber {
  void *context = nullptr; /* stack pointer, or a ucontext_t */
  const void *stack = nullptr;
  size_t stackBytes = 0;
  void *asanFake = nullptr;
  void *tsanFiber = nullptr;
};

/* Maps a stack with a guard page below it; entry never returns. */
void fiberCreate(Fiber *fiber, void (*entry)());

/* Makes it start at entry again, whatever it was doing. */
void fiberReset(Fiber *fiber, void (*entry)());

void fiberDestroy(Fiber *fiber);

/* Saves the running fiber in `from` and continues `to`.  The caller's own
 * stack may be `from` or `to` without fiberCreate. */
void fiberSwitch(Fiber *from, Fiber *to);

/* The first thing that an entry does: `from` is the fiber that came here. */
void fiberEntered(Fiber *from);

} // namespace simt

#endif
