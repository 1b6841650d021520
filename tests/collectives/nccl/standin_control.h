/* The controls of the stand-in that the process has loaded. */
#ifndef LRMOE_TESTS_COLLECTIVES_NCCL_STANDIN_CONTROL_H
#define LRMOE_TESTS_COLLECTIVES_NCCL_STANDIN_CONTROL_H

#include "lrmoe.h"

/* As in support/nccl/control.h. */
struct testStandin {
  int64_t (*misuses)(void);
  void (*timeoutMs)(int64_t timeoutMs);
  void (*failNext)(int result);
  int64_t (*failAt)(int64_t n);
  void (*ginAbsent)(int value);
  void (*ginRefuse)(int value);
};

/* Of the libnccl.so.2 that is loaded; ends the process where there is none. */
const struct testStandin *testStandin(void);

#endif
