/* The transport under test is the NCCL filler, over the stand-in that
 * STANDIN_FILE names. */
#include "cpu_ranks.h"
#include "standin_control.h"

#include <stdio.h>
#include <stdlib.h>

static const struct lrmoeTransport *transport;

/* Before main, that is before there are threads and forks. */
__attribute__((constructor)) static void load(void) {
  setenv("LRMOE_NCCL_PATH", STANDIN_FILE, 1);
  if (lrmoeNcclTransportGet(0, &transport) == lrmoeSuccess) return;
  fprintf(stderr, "%s\n", lrmoeGetLastError());
  exit(EXIT_FAILURE);
}

const int testTransportAllocations = 2;

const struct lrmoeTransport *testTransport(void) {
  return transport;
}

/* The stand-in, which knows who was to blame, loses patience first. */
int64_t testTransportTimeout(int64_t timeoutMs) {
  testStandin()->timeoutMs(timeoutMs);
  return timeoutMs ? timeoutMs + 30000 : 0;
}

int64_t testTransportFailAt(int64_t n) {
  return testStandin()->failAt(n);
}
