/* What surrounds every call of NCCL: checks, waiting, errors, groups. */
#ifndef LRMOE_COLLECTIVES_NCCL_CALL_H
#define LRMOE_COLLECTIVES_NCCL_CALL_H

#include "collectives/nccl/comm.h"

/* Records NCCL's text for its result `got` of the function `name` and gives
 * our result for it. */
lrmoeResult_t lrmoeNcclFail(const struct lrmoeNcclApi *api, const char *name,
                            lrmoeResult_t got);

/* Whether a communicator can no longer be used after this result. */
int lrmoeNcclIsFatal(lrmoeResult_t result);

/* Before and after a call on comm; `got` is what NCCL returned. */
lrmoeResult_t lrmoeNcclEnter(struct lrmoeNcclComm *comm);
lrmoeResult_t lrmoeNcclLeave(struct lrmoeNcclComm *comm, const char *name,
                             lrmoeResult_t got);

/* Waits until NCCL is done with the last call on comm, a non-blocking one
 * perhaps, at most for comm's time-out.  A failure is noted in comm. */
lrmoeResult_t lrmoeNcclWait(struct lrmoeNcclComm *comm, const char *name);

/* Fails inside a group: communicators come and go outside of it. */
lrmoeResult_t lrmoeNcclOutside(void);

lrmoeResult_t lrmoeNcclGroupStart(void);
lrmoeResult_t lrmoeNcclGroupEnd(void);

#endif
