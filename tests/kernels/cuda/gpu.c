/* The device is a GPU, in place of emulated.c and of the emulator: there are no
 * orders to choose and nothing is counted. */
#include "mirror.h"

#include <string.h>

int isEmulated(void) {
  return 0;
}

void simtSetOrder(enum simtOrder order, uint64_t seed) {
  (void)order, (void)seed;
}

void simtFailCall(int64_t n, int error) {
  (void)n, (void)error;
}

void simtOpenDevice(void) {
}

void simtCloseDevice(void) {
}

int64_t simtGetBytesInUse(void) {
  return 0;
}

int64_t simtGetAllocations(void) {
  return 0;
}

void simtResetCounters(void) {
}

void simtGetCounters(const char *kernel, struct simtCounters *counters) {
  (void)kernel;
  memset(counters, 0, sizeof *counters);
}
