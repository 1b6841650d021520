/* What the stand-in exports besides the names of collectives/nccl/api.h. */
#ifndef LRMOE_TESTS_SUPPORT_NCCL_NAMES_H
#define LRMOE_TESTS_SUPPORT_NCCL_NAMES_H

#include "collectives/nccl/api.h"

#define STANDIN_MORE(X)                                                 \
  X(lrmoeResult_t, commInitRank, ncclCommInitRank,                      \
    (lrmoeNcclComm_t * comm, int numRanks, lrmoeUniqueId id, int rank)) \
  X(lrmoeResult_t, commCuDevice, ncclCommCuDevice,                      \
    (const lrmoeNcclComm_t comm, int *device))

#endif
