/* What tests find in the stand-in besides NCCL's names, with dlsym. */
#ifndef LRMOE_TESTS_SUPPORT_NCCL_CONTROL_H
#define LRMOE_TESTS_SUPPORT_NCCL_CONTROL_H

#include <stdint.h>

/* Calls on handles that were not alive, and aborts under a call of another
 * thread, since the last time it was asked. */
int64_t lrmoeStandinMisuses(void);

/* How long calls on communicators that this thread makes from now on wait for a
 * peer, in ms (NCCL itself has no such time-out); 0: LRMOE_TIMEOUT_MS. */
void lrmoeStandinTimeoutMs(int64_t timeoutMs);

/* The next communication call of this thread fails with this result. */
void lrmoeStandinFailNext(int result);

/* Whether the process has no NIC that devices can use; and whether making a
 * device communicator fails on this thread, only there. */
void lrmoeStandinGinAbsent(int value);
void lrmoeStandinGinRefuse(int value);

/* lrmoeCpuFailAt and lrmoeAllocFailAt of the stand-in. */
int64_t lrmoeStandinFailAt(int64_t n);
int64_t lrmoeStandinAllocFailAt(int64_t n);

#endif
