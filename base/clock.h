/* The machine's monotonic clock. */
#ifndef LRMOE_BASE_CLOCK_H
#define LRMOE_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed point, the same in all processes. */
int64_t lrmoeNowNs(void);

#endif
