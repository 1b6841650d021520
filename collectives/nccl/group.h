/* Groups of the NCCL filler. */
#ifndef LRMOE_COLLECTIVES_NCCL_GROUP_H
#define LRMOE_COLLECTIVES_NCCL_GROUP_H

#include "collectives/call.h"
#include "collectives/nccl/comm.h"

lrmoeResult_t lrmoeNcclGroupStart(void);
lrmoeResult_t lrmoeNcclGroupEnd(void);

/* Adds a call to this thread's group, or runs it at once outside one. */
lrmoeResult_t lrmoeNcclGroupCall(struct ncclComm *handle,
                                 const struct lrmoeCall *call,
                                 lrmoeStream_t stream);

/* Fails inside a group: communicators come and go outside of it. */
lrmoeResult_t lrmoeNcclOutside(void);

#endif
