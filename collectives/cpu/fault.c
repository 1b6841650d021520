/* Fault injection: see fault.h. */
#include "collectives/cpu/fault.h"

#include "collectives/transport.h"

#include <stdatomic.h>

static atomic_int_fast64_t numSteps;
static atomic_int_fast64_t failAt;

int64_t lrmoeCpuFailAt(int64_t n) {
  atomic_store(&failAt, n);
  return atomic_exchange(&numSteps, 0);
}

int lrmoeFaultHit(void) {
  int64_t number =
      atomic_fetch_add_explicit(&numSteps, 1, memory_order_relaxed) + 1;
  return number == atomic_load_explicit(&failAt, memory_order_relaxed);
}
