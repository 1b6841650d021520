/* The machine's monotonic clock: see clock.h. */
#include "base/clock.h"

#include <time.h>

int64_t lrmoeNowNs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
