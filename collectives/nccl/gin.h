/* Behind the table's fields of these names. */
#ifndef LRMOE_COLLECTIVES_NCCL_GIN_H
#define LRMOE_COLLECTIVES_NCCL_GIN_H

#include "collectives/nccl/comm.h"

int lrmoeNcclGinVersion(void);
lrmoeResult_t lrmoeNcclGinProbe(struct ncclComm *handle, const void *needs,
                                void *devComm);
lrmoeResult_t lrmoeNcclGinOpen(struct ncclComm *handle, const void *needs,
                               void *devComm);
lrmoeResult_t lrmoeNcclGinClose(struct ncclComm *handle, const void *devComm);

#endif
