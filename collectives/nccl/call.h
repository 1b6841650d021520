/* What surrounds every call of NCCL: errors and waiting. */
#ifndef LRMOE_COLLECTIVES_NCCL_CALL_H
#define LRMOE_COLLECTIVES_NCCL_CALL_H

#include "collectives/nccl/comm.h"

/* Records NCCL's text for its result `got` of the function `name` and gives
 * our result for it. */
lrmoeResult_t lrmoeNcclFail(const struct lrmoeNcclApi *api, const char *name,
                            lrmoeResult_t got);

/* Ends comm because of `result`, with the reason in the last error, unless it
 * was borrowed.  When an abort by another thread was the cause, or it had
 * failed before, that is what is told. */
lrmoeResult_t lrmoeNcclGiveUp(struct lrmoeNcclComm *comm, lrmoeResult_t result);

/* Whether comm can no longer be used after this result of a call on it. */
int lrmoeNcclIsFatal(const struct lrmoeNcclComm *comm, lrmoeResult_t result);

/* After lrmoeNcclCommEnter and a call of `name` that returned `got`: leaves,
 * and waits for the end of the call. */
lrmoeResult_t lrmoeNcclLeave(struct lrmoeNcclComm *comm, const char *name,
                             lrmoeResult_t got);

/* Waits until NCCL is done with the last call on comm, a non-blocking one
 * perhaps, at most for comm's time-out. */
lrmoeResult_t lrmoeNcclWait(struct lrmoeNcclComm *comm, const char *name);

#endif
