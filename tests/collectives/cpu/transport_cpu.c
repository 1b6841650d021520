/* The transport under test is the CPU transport. */
#include "cpu_ranks.h"

const int testTransportAllocations = 10;

const struct lrmoeTransport *testTransport(void) {
  return &lrmoeCpuTransport;
}

int64_t testTransportTimeout(int64_t timeoutMs) {
  return timeoutMs;
}

int64_t testTransportFailAt(int64_t n) {
  return lrmoeCpuFailAt(n);
}
