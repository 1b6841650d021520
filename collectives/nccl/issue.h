/* One call, handed to NCCL. */
#ifndef LRMOE_COLLECTIVES_NCCL_ISSUE_H
#define LRMOE_COLLECTIVES_NCCL_ISSUE_H

#include "collectives/call.h"
#include "collectives/nccl/comm.h"

/* NCCL's result of the call and, in *name, its function. */
lrmoeResult_t lrmoeNcclIssue(const struct lrmoeNcclComm *comm,
                             const struct lrmoeCall *call, lrmoeStream_t stream,
                             const char **name);

#endif
