/* Fault injection: lrmoeCpuFailAt in transport.h.  Each step of the transport
 * that can fail in the field begins with LRMOE_FAULT_POINT. */
#ifndef LRMOE_COLLECTIVES_CPU_FAULT_H
#define LRMOE_COLLECTIVES_CPU_FAULT_H

#include "base/result.h"

/* Counts one step; whether it has to fail. */
int lrmoeFaultHit(void);

#define LRMOE_FAULT_POINT(step)                                        \
  do {                                                                 \
    if (lrmoeFaultHit())                                               \
      return LRMOE_FAIL(lrmoeSystemError, "injected fault: %s", step); \
  } while (0)

#endif
